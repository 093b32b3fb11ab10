//! Who waits in a session is told of its turn.

use super::decision;
use super::raw::Raw;
use crate::support::*;
use std::time::Duration;
use tokio::time::Instant;
use weir_node::dev::Cluster;
use weir_proto::v1 as wire;
use weir_proto::v1::admit_response::Decision;
use weir_proto::v1::session_operation::Operation;
use weir_proto::v1::session_response::Message;
use weir_raft::NodeId;

/// The target, so that who comes too late waits for seconds.
async fn put_slow_target(cluster: &Cluster, node: NodeId) {
    let mut policy = policy();
    for limit in &mut policy.limits {
        limit.per_us = 10_000_000;
        limit.burst_us = Some(10_000_000);
    }
    let put = wire::PutTargetRequest {
        target: TARGET.into(),
        policy: Some(policy),
        expected_version: None,
    };
    patiently(async || targets(cluster, node).put_target(put.clone()).await).await;
}

/// An ask for all that there is.
fn all() -> Operation {
    Operation::Admit(wire::AdmitRequest {
        cost: units(&[("requests", 100)]),
        ..ask("all")
    })
}

fn asked_to_wake(id: &str, wake: bool) -> wire::AdmitRequest {
    wire::AdmitRequest { wake, ..ask(id) }
}

/// A caller that can be told gets longer to come back; once it cannot, the clock counts again.
#[tokio::test]
async fn who_waits_in_a_session_that_ends_is_waited_for_by_the_clock() {
    let cluster = start(1).await;
    let node = leader(&cluster);
    put_slow_target(&cluster, node).await;
    let waits = |wake| Operation::Admit(asked_to_wake("waits", wake));
    let mut session = Raw::greeted(&cluster, node).await;
    session.ask(vec![all(), waits(true)]).await;
    let answers = session.answers(2).await;
    let Decision::Deferred(told) = decision(&answers[&2]) else {
        panic!("not deferred: {answers:?}")
    };
    assert!(told.retry_in_us > told.earliest_in_us, "{told:?}");
    drop(session);
    // The same ask once more hears when its caller is due, and changes nothing.
    let mut other = Raw::greeted(&cluster, node).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let sequence = other.ask(vec![waits(false)]).await;
        let answers = other.answers(1).await;
        let Decision::Deferred(due) = decision(&answers[&sequence]) else {
            panic!("not deferred: {answers:?}")
        };
        if due.retry_in_us < due.earliest_in_us {
            break;
        }
        assert!(Instant::now() < deadline, "still {due:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.shutdown().await;
}

/// A worker that died behind a session that lives, say, and whose call is run again elsewhere.
#[tokio::test]
async fn whose_place_another_attempt_took_over_is_not_told() {
    let cluster = start(1).await;
    let node = leader(&cluster);
    put_slow_target(&cluster, node).await;
    let mut session = Raw::greeted(&cluster, node).await;
    let first = Operation::Admit(asked_to_wake("taken", true));
    session.ask(vec![all(), first]).await;
    let answers = session.answers(2).await;
    let Decision::Admitted(full) = decision(&answers[&1]) else {
        panic!("not admitted: {answers:?}")
    };
    let again = wire::AdmitRequest {
        attempt: 2,
        ..ask("taken")
    };
    let again = admission(&cluster, node).admit(again).await.unwrap();
    let again = again.into_inner().decision;
    assert!(matches!(again, Some(Decision::Deferred(_))), "{again:?}");
    let other = wire::AdmitRequest {
        attempt: 3,
        ..asked_to_wake("other", true)
    };
    session.ask(vec![Operation::Admit(other)]).await;
    session.answers(1).await;
    // Now it is the turn of both.
    let unused = wire::ReleaseRequest {
        outcome: wire::CallOutcome::NotSent.into(),
        ..release(full.grant.unwrap())
    };
    admission(&cluster, node).release(unused).await.unwrap();
    let Some(Message::Frame(frame)) = session.hear().await else {
        panic!("no wake")
    };
    let woken: Vec<u64> = frame.wakes.iter().map(|wake| wake.attempt).collect();
    assert_eq!(woken, [3]);
    cluster.shutdown().await;
}
