//! A node that has more to do than it can take says so at once.

use crate::support::*;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use weir_admission::{
    Admit, Amounts, DimensionName, Operation, Principal, PriorityName, TargetName, TenantName,
};
use weir_node::batch::SubmitError;
use weir_node::dev::{Cluster, ClusterOptions};
use weir_node::limits::SUBMISSION_OPERATIONS_MAX;
use weir_node::shards::Shards;
use weir_proto::error::Reason;
use weir_raft::{NodeId, Timing};

fn operation(number: u64) -> Operation {
    let requests = DimensionName::new("requests").unwrap();
    Operation::Admit(Box::new(Admit {
        target: TargetName::new(TARGET).unwrap(),
        tenant: TenantName::new("acme").unwrap(),
        principal: Principal::new("anonymous").unwrap(),
        priority: PriorityName::new("low").unwrap(),
        admission_id: number.to_string().into_bytes().into(),
        attempt: 1,
        ask: 1,
        cost: Amounts::new(vec![(requests, 1)]).unwrap(),
        cost_max: Amounts::default(),
        labels_digest: 0,
        deadline: None,
        dry_run: false,
        wake: false,
    }))
}

fn others(cluster: &Cluster, leader: NodeId) -> Vec<NodeId> {
    cluster
        .nodes()
        .map(|(node, _)| node)
        .filter(|node| *node != leader)
        .collect()
}

/// Fills the queue of the target's shard until it refuses.
async fn fill(shards: &Shards, tasks: &mut JoinSet<Result<usize, SubmitError>>) {
    let shard = shards.shard_of(&TargetName::new(TARGET).unwrap());
    for frame in 0.. {
        let from = frame * SUBMISSION_OPERATIONS_MAX as u64;
        let operations = (from..from + SUBMISSION_OPERATIONS_MAX as u64)
            .map(operation)
            .collect();
        let shards = shards.clone();
        let mut submitted = Box::pin(async move {
            shards
                .submit(shard, operations, None)
                .await
                .map(|outcomes| outcomes.len())
        });
        // The first poll puts it into the queue, or refuses it.
        let first = futures::poll!(&mut submitted);
        match first {
            std::task::Poll::Ready(Err(SubmitError::Overloaded { .. })) => return,
            std::task::Poll::Ready(other) => panic!("{other:?}"),
            std::task::Poll::Pending => {
                tasks.spawn(submitted);
            }
        }
    }
}

/// Time in which a full node has to say so.
const AT_ONCE: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_full_queue_answers_at_once() {
    // A long lease: the leader that commits nothing takes long to notice, so that its queue stays full.
    let timing = Timing {
        heartbeat_ms: 1_000,
        election_min_ms: 10_000,
        election_max_ms: 20_000,
    };
    let mut cluster = start_with(ClusterOptions {
        timing,
        ..options()
    })
    .await;
    let leader = leader(&cluster);
    let mut client = admission(&cluster, leader);
    let grant = client.admit(ask("before")).await.unwrap().into_inner();
    let grant = admitted(&grant).grant.unwrap();
    for other in others(&cluster, leader) {
        cluster.kill(other).await.unwrap();
    }
    let mut accepted = JoinSet::new();
    let mut waits = Vec::new();
    while waits.len() < 11 {
        fill(cluster.shards(leader).unwrap(), &mut accepted).await;
        let begun = Instant::now();
        let refused = client.admit(ask("refused")).await.unwrap_err();
        let error = error(&refused);
        // What waits for a second is dropped; then the queue has room, and is filled again.
        if error.reason != Reason::NoQuorum {
            waits.push(begun.elapsed());
            assert_eq!(error.reason, Reason::Overloaded, "{error}");
            let pause = error.retry_after.unwrap();
            assert!(
                pause > Duration::ZERO && pause <= Duration::from_secs(1),
                "{error}"
            );
        }
    }
    waits.sort_unstable();
    assert!(waits[waits.len() / 2] < AT_ONCE, "{waits:?}");
    // What gives capacity back is not refused; here it cannot be decided either.
    let unanswered = client.release(release(grant)).await.unwrap_err();
    assert!(
        matches!(
            reason(&unanswered),
            Reason::NoQuorum | Reason::OutcomeUnknown
        ),
        "{unanswered:?}"
    );
    while let Some(answer) = accepted.join_next().await {
        let error = answer.unwrap().unwrap_err();
        assert!(
            matches!(error, SubmitError::NoQuorum | SubmitError::Unknown),
            "{error}"
        );
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_full_queue_empties_again_and_lets_releases_through() {
    let cluster = start_with_target(3).await;
    let leader = leader(&cluster);
    let mut client = admission(&cluster, leader);
    let grant = client.admit(ask("before")).await.unwrap().into_inner();
    let grant = admitted(&grant).grant.unwrap();
    let mut accepted = JoinSet::new();
    fill(cluster.shards(leader).unwrap(), &mut accepted).await;
    // On a busy machine the shard may lack a quorum for a moment; it is never too full for a release.
    patiently(async || {
        let released = client.release(release(grant)).await;
        if let Err(status) = &released {
            assert_ne!(reason(status), Reason::Overloaded, "{status:?}");
        }
        released
    })
    .await;
    // Everything accepted is answered, one outcome per operation.
    while let Some(answer) = accepted.join_next().await {
        match answer.unwrap() {
            Ok(outcomes) => assert_eq!(outcomes, SUBMISSION_OPERATIONS_MAX),
            Err(error) => assert!(
                matches!(
                    error,
                    SubmitError::Overloaded { .. } | SubmitError::NoQuorum
                ),
                "{error}"
            ),
        }
    }
    patiently(async || client.admit(ask("after")).await).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn without_a_quorum_the_answer_says_so() {
    let mut cluster = start_with_target(3).await;
    let leader = leader(&cluster);
    let mut client = admission(&cluster, leader);
    client.admit(ask("before")).await.unwrap();
    for other in others(&cluster, leader) {
        cluster.kill(other).await.unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    for number in 0.. {
        let begun = Instant::now();
        let refused = client
            .admit(ask(&format!("lost-{number}")))
            .await
            .unwrap_err();
        assert!(
            begun.elapsed() < Duration::from_millis(4_000),
            "{:?}",
            begun.elapsed()
        );
        let reason = reason(&refused);
        // What had entered the log before the leader noticed.
        if reason == Reason::OutcomeUnknown {
            assert!(Instant::now() < deadline, "{refused:?}");
            continue;
        }
        assert!(
            matches!(reason, Reason::NoQuorum | Reason::NotLeader),
            "{refused:?}"
        );
        // It knows by now, and says so at once.
        let begun = Instant::now();
        client.admit(ask("at once")).await.unwrap_err();
        assert!(
            begun.elapsed() < Duration::from_millis(250),
            "{:?}",
            begun.elapsed()
        );
        break;
    }
    cluster.shutdown().await;
}
