//! The Rust client over sessions, against real nodes.

use super::raw::metrics;
use crate::support::*;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use weir_client::{Call, Client, Mode, Options, Outcome, Settlement};
use weir_node::dev::Cluster;
use weir_proto::v1 as wire;

const CAP: u64 = 1_000_000;

/// A client that lets nothing through without a decision, patient enough for a busy machine.
fn client(cluster: &Cluster) -> Client {
    let options = Options::new(cluster.client_addresses())
        .mode(Mode::Closed)
        .ungated_after(Duration::from_secs(120))
        .try_timeout(Duration::from_secs(10))
        .answer_within(Duration::from_secs(10));
    Client::new(options).unwrap()
}

/// Room for everybody.
async fn widen(cluster: &Cluster) {
    let mut wide = policy();
    for limit in &mut wide.limits {
        limit.cap = CAP;
    }
    put(cluster, wide).await;
}

async fn put(cluster: &Cluster, policy: wire::Policy) {
    let put = wire::PutTargetRequest {
        target: TARGET.into(),
        policy: Some(policy),
        expected_version: None,
    };
    patiently(async || {
        let node = leader_now(cluster).await;
        targets(cluster, node).put_target(put.clone()).await
    })
    .await;
}

fn call() -> Call {
    Call::new(TARGET, "acme", "high").cost("requests", 1)
}

#[tokio::test]
async fn ten_thousand_callers_share_one_session() {
    const CALLERS: u64 = 10_000;
    let cluster = start_with_target(1).await;
    widen(&cluster).await;
    let client = client(&cluster);
    let mut calls = JoinSet::new();
    for _ in 0..CALLERS {
        let client = client.clone();
        calls.spawn(async move { client.admit_wait(&call()).await.unwrap().detach() });
    }
    let grants = calls.join_all().await;
    assert!(grants.iter().all(Option::is_some));
    let text = metrics(&cluster).await;
    assert!(text.contains("weir_sessions 1\n"), "{text}");
    let stats = client.stats();
    assert_eq!(
        (stats.admitted, stats.ungated_open, stats.outages),
        (CALLERS, 0, 0),
        "{stats:?}"
    );
    // Asks that were repeated were not charged twice.
    assert_eq!(used(&cluster).await[0], CALLERS);
    cluster.shutdown().await;
}

/// A slot of some two seconds: by the clock a waiter that is told of its turn would come back after five.
#[tokio::test]
async fn a_waiter_is_woken_for_its_turn() {
    let cluster = start_with_target(3).await;
    let mut paced = policy();
    paced.limits[0].cap = 30;
    paced.limits[0].burst_us = Some(0);
    put(&cluster, paced).await;
    let client = client(&cluster);
    for woken in 0..3 {
        let guard = client.admit_wait(&call()).await.unwrap();
        assert!(!guard.is_ungated());
        assert_eq!(client.stats().woken, woken, "{:?}", client.stats());
    }
    let stats = client.shutdown().await;
    assert_eq!((stats.admitted, stats.deferred), (3, 2), "{stats:?}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn callers_go_on_when_the_leader_of_their_session_is_killed() {
    const CALLERS: u64 = 100;
    const CALLS: u64 = 20;
    let mut cluster = start_with_target(3).await;
    widen(&cluster).await;
    let client = client(&cluster);
    let before = used(&cluster).await[0];
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let client = client.clone();
        callers.spawn(async move {
            for _ in 0..CALLS {
                let guard = client.admit_wait(&call()).await.unwrap();
                assert!(!guard.is_ungated());
                let settled = guard.settle(Outcome::Ok, [("requests", 1)]).await;
                assert!(
                    matches!(
                        settled,
                        Ok(Settlement::Applied | Settlement::Already | Settlement::Pending)
                    ),
                    "{settled:?}"
                );
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
    let deadline = Instant::now() + PATIENCE;
    while client.stats().admitted < CALLERS {
        assert!(Instant::now() < deadline, "{:?}", client.stats());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let old = leader_now(&cluster).await;
    cluster.kill(old).await.unwrap();
    callers.join_all().await;
    let stats = client.shutdown().await;
    assert_eq!(stats.admitted, CALLERS * CALLS, "{stats:?}");
    // Every call was charged once: what was lost with the leader was asked again by its number.
    assert_eq!(used(&cluster).await[0] - before, CALLERS * CALLS);
    cluster.shutdown().await;
}
