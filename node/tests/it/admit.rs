//! Asks and what follows them.

use crate::support::*;
use weir_proto::error::Reason;
use weir_proto::v1 as wire;
use weir_proto::v1::admit_response::Decision;

#[tokio::test]
async fn a_grant_is_charged_once_and_settled_by_what_was_used() {
    let cluster = start_with_target(3).await;
    let mut leader = admission(&cluster, leader(&cluster));
    let first = leader.admit(ask("job-1")).await.unwrap().into_inner();
    let grant = admitted(&first).grant.unwrap();
    assert_eq!(
        admitted(&first).charged,
        units(&[("requests", 1), ("tokens", 10)])
    );
    assert_eq!(used(&cluster).await, [1, 10]);

    // The same message twice, as a proxy would send it: the same grant, no further charge.
    let again = leader.admit(ask("job-1")).await.unwrap().into_inner();
    assert_eq!(admitted(&again).grant, Some(grant));
    assert_eq!(used(&cluster).await, [1, 10]);

    let settle = wire::ReleaseRequest {
        actual: units(&[("tokens", 7)]),
        ..release(grant)
    };
    let released = leader.release(settle.clone()).await.unwrap().into_inner();
    assert_eq!(released.status(), wire::ReleaseStatus::Applied);
    assert_eq!(used(&cluster).await, [1, 7]);
    let released = leader.release(settle).await.unwrap().into_inner();
    assert_eq!(released.status(), wire::ReleaseStatus::Already);
    assert_eq!(used(&cluster).await, [1, 7]);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_full_cap_defers_and_a_cancelled_place_is_gone() {
    let cluster = start_with_target(1).await;
    let mut leader = admission(&cluster, leader(&cluster));
    let all = wire::AdmitRequest {
        cost: units(&[("requests", 100)]),
        ..ask("all")
    };
    admitted(&leader.admit(all).await.unwrap().into_inner());
    let waits = leader.admit(ask("waits")).await.unwrap().into_inner();
    let Some(Decision::Deferred(deferred)) = &waits.decision else {
        panic!("{waits:?}")
    };
    assert_eq!(deferred.limit, "requests");
    assert!(
        deferred.retry_in_us > 0 && deferred.earliest_in_us <= 66_000_000,
        "{deferred:?}"
    );
    assert_eq!(target(&cluster).await.waiting, 1);
    let cancel = wire::CancelRequest {
        target: TARGET.into(),
        tenant: "acme".into(),
        admission_id: "waits".into(),
        attempt: 1,
        ask: 1,
    };
    let cancelled = leader.cancel(cancel).await.unwrap().into_inner();
    assert_eq!(cancelled.status(), wire::CancelStatus::PlaceDropped);
    assert_eq!(target(&cluster).await.waiting, 0);
    cluster.shutdown().await;
}

#[tokio::test]
async fn grants_are_extended_and_unused_ones_given_back() {
    let cluster = start_with_target(1).await;
    let mut leader = admission(&cluster, leader(&cluster));
    let answer = leader.admit(ask("job-1")).await.unwrap().into_inner();
    let grant = admitted(&answer).grant.unwrap();
    let extend = wire::ExtendRequest {
        target: TARGET.into(),
        grant: Some(grant),
    };
    let extended = leader.extend(extend).await.unwrap().into_inner();
    assert_eq!(extended.status(), wire::ExtendStatus::Extended);
    assert!(extended.expires_in_us > 0);
    let not_sent = wire::ReleaseRequest {
        outcome: wire::CallOutcome::NotSent.into(),
        ..release(grant)
    };
    leader.release(not_sent).await.unwrap();
    assert_eq!(used(&cluster).await, [0, 0]);
    cluster.shutdown().await;
}

#[tokio::test]
async fn reports_charge_once() {
    let cluster = start_with_target(1).await;
    let mut leader = admission(&cluster, leader(&cluster));
    let call = |id: &str, priority: &str| wire::UngatedCall {
        target: TARGET.into(),
        tenant: "acme".into(),
        priority: priority.into(),
        admission_id: id.into(),
        attempt: 1,
        actual: units(&[("requests", 1), ("tokens", 20)]),
        age_us: 0,
    };
    let report = wire::ReportRequest {
        calls: vec![call("a", "high"), call("b", "none"), call("c", "low")],
    };
    let statuses = leader
        .report(report.clone())
        .await
        .unwrap()
        .into_inner()
        .statuses;
    let (charged, dropped, already) = (
        i32::from(wire::ReportStatus::Charged),
        i32::from(wire::ReportStatus::Dropped),
        i32::from(wire::ReportStatus::Already),
    );
    assert_eq!(statuses, [charged, dropped, charged]);
    assert_eq!(used(&cluster).await, [2, 40]);
    let statuses = leader.report(report).await.unwrap().into_inner().statuses;
    assert_eq!(statuses, [already, dropped, already]);
    assert_eq!(used(&cluster).await, [2, 40]);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_follower_names_the_leader_and_does_nothing() {
    let cluster = start_with_target(3).await;
    let (leader, follower) = (leader(&cluster), follower(&cluster));
    let refused = admission(&cluster, follower)
        .admit(ask("job-1"))
        .await
        .unwrap_err();
    assert_eq!(reason(&refused), Reason::NotLeader);
    let hint = error(&refused).leader.unwrap();
    assert_eq!(hint.node_id, leader.0);
    let mut hinted =
        wire::admission_service_client::AdmissionServiceClient::new(channel_to(&hint.address));
    assert_eq!(used(&cluster).await, [0, 0]);
    admitted(&hinted.admit(ask("job-1")).await.unwrap().into_inner());

    let put = wire::PutTargetRequest {
        target: TARGET.into(),
        policy: Some(policy()),
        expected_version: None,
    };
    let refused = targets(&cluster, follower)
        .put_target(put)
        .await
        .unwrap_err();
    assert_eq!(reason(&refused), Reason::NotLeader);
    let get = wire::GetTargetRequest {
        target: TARGET.into(),
    };
    let refused = targets(&cluster, follower)
        .get_target(get)
        .await
        .unwrap_err();
    assert_eq!(reason(&refused), Reason::NotLeader);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let cluster = start_with_target(1).await;
    let mut leader = admission(&cluster, leader(&cluster));
    let dry = wire::AdmitRequest {
        dry_run: true,
        ..ask("job-1")
    };
    let answer = leader.admit(dry).await.unwrap().into_inner();
    assert_eq!(admitted(&answer).grant, None);
    assert_eq!(used(&cluster).await, [0, 0]);
    cluster.shutdown().await;
}
