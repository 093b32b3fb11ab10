//! A node that has more to do than it can take says so at once.

use crate::support::*;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use weir_admission::{
    Admit, Amounts, DimensionName, Operation, Principal, PriorityName, TargetName, TenantName,
};
use weir_node::batch::SubmitError;
use weir_node::limits::SUBMISSION_OPERATIONS_MAX;
use weir_node::shards::Shards;
use weir_proto::error::Reason;

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
    }))
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

#[tokio::test]
async fn a_full_queue_answers_at_once_and_empties_again() {
    let cluster = start_with_target(3).await;
    let leader = leader(&cluster);
    let mut client = admission(&cluster, leader);
    let grant = client.admit(ask("before")).await.unwrap().into_inner();
    let grant = admitted(&grant).grant.unwrap();

    let mut tasks = JoinSet::new();
    fill(cluster.shards(leader).unwrap(), &mut tasks).await;
    let mut refused = client.clone();
    let begun = Instant::now();
    let (refused, released) = tokio::join!(
        refused.admit(ask("refused")),
        client.release(release(grant))
    );
    // The queue may have moved on before the ask arrived; if not, the refusal came at once.
    if let Err(status) = refused {
        let error = error(&status);
        assert_eq!(error.reason, Reason::Overloaded, "{error}");
        assert!(
            error
                .retry_after
                .is_some_and(|pause| pause <= Duration::from_secs(1)),
            "{error}"
        );
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
    released.unwrap();
    // Everything accepted is answered, one outcome per operation.
    while let Some(answer) = tasks.join_next().await {
        match answer.unwrap() {
            Ok(outcomes) => assert_eq!(outcomes, SUBMISSION_OPERATIONS_MAX),
            Err(error) => {
                assert!(matches!(error, SubmitError::Overloaded { .. }), "{error}");
            }
        }
    }
    client.admit(ask("after")).await.unwrap();
    cluster.shutdown().await;
}

#[tokio::test]
async fn without_a_quorum_the_answer_says_so() {
    let mut cluster = start_with_target(3).await;
    let leader = leader(&cluster);
    let others: Vec<_> = cluster
        .nodes()
        .map(|(n, _)| n)
        .filter(|n| *n != leader)
        .collect();
    let mut client = admission(&cluster, leader);
    client.admit(ask("before")).await.unwrap();
    for other in others {
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
