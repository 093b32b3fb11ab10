//! A graceful stop: nobody loses anything beyond a retry.

use crate::support::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::time::{Duration, Instant, sleep};
use weir_node::server::Ended;
use weir_proto::error::{Reason, Retry, WireError};
use weir_proto::v1 as wire;
use weir_proto::v1::admission_service_client::AdmissionServiceClient;

/// Asks until told to end. Follows hints, tries every node in turn, and repeats only what is said to be
/// safe to repeat.
struct Worker {
    nodes: Vec<AdmissionServiceClient<tonic::transport::Channel>>,
    addresses: Vec<String>,
    at: usize,
}

impl Worker {
    async fn admit(&mut self, id: &str) -> Result<wire::AdmitResponse, String> {
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut number = 1;
        loop {
            let request = wire::AdmitRequest {
                ask: number,
                ..ask(id)
            };
            let status = match self.nodes[self.at].admit(request).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            if Instant::now() > deadline {
                return Err(format!("{id}: {status:?}"));
            }
            number += 1;
            let wire = WireError::from_status(&status);
            match &wire {
                Some(error) if error.reason.retry() == Retry::Never => {
                    return Err(format!("{id}: {error}"));
                }
                Some(error) if error.reason == Reason::OutcomeUnknown => {
                    return Err(format!("{id}: {error}"));
                }
                Some(_) | None => {}
            }
            let hint = wire
                .and_then(|error| error.leader)
                .map(|leader| leader.address);
            let hinted = hint.and_then(|address| self.addresses.iter().position(|a| *a == address));
            self.at = hinted.unwrap_or((self.at + 1) % self.nodes.len());
            sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_stopping_leader_loses_nobody() {
    let mut cluster = start_with_target(3).await;
    let leader = leader(&cluster);
    let done = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..8)
        .map(|worker| {
            let nodes = cluster
                .nodes()
                .map(|(node, _)| admission(&cluster, node))
                .collect();
            let addresses = cluster.client_addresses();
            let mut asker = Worker {
                nodes,
                addresses,
                at: 0,
            };
            let (done, answered) = (done.clone(), answered.clone());
            tokio::spawn(async move {
                let mut failures = Vec::new();
                for number in 0.. {
                    if done.load(Ordering::SeqCst) {
                        break;
                    }
                    match asker.admit(&format!("{worker}-{number}")).await {
                        Ok(_) => drop(answered.fetch_add(1, Ordering::SeqCst)),
                        Err(error) => failures.push(error),
                    }
                    sleep(Duration::from_millis(2)).await;
                }
                failures
            })
        })
        .collect();
    while answered.load(Ordering::SeqCst) < 50 {
        sleep(Duration::from_millis(5)).await;
    }
    let begun = Instant::now();
    let ended = cluster.stop(leader).await.unwrap();
    assert!(matches!(ended, Ended::Stopped), "{ended:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    let before = answered.load(Ordering::SeqCst);
    let deadline = Instant::now() + PATIENCE;
    while answered.load(Ordering::SeqCst) < before + 50 {
        assert!(
            Instant::now() < deadline,
            "nobody is answered after the stop"
        );
        sleep(Duration::from_millis(5)).await;
    }
    done.store(true, Ordering::SeqCst);
    for worker in workers {
        assert_eq!(worker.await.unwrap(), Vec::<String>::new());
    }
    cluster.shutdown().await;
}
