//! One attempt, its numbers, and what is never repeated.

use super::fake::{Act, Fake, admit, numbers};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;
use weir_client::{Answer, Call, Error, Origin, Outcome, RejectReason, Settlement, Ticket};
use weir_proto::error::{Reason, WireError};
use weir_proto::v1;

fn call() -> Call {
    Call::new("openai/gpt-5", "acme", "p1").cost("requests", 1)
}

/// The acts met by one call, and the numbers that must have been asked until it was admitted.
async fn check(claim: &str, acts: Vec<Act>, expected: &[u32]) {
    let fake = Fake::start();
    fake.acts(acts);
    let client = fake.client();
    let guard = client.admit_wait(&call()).await.unwrap();
    assert!(!guard.is_ungated(), "{claim}");
    let world = fake.world();
    assert_eq!(numbers(&world.asks), expected, "{claim}");
    let attempts: BTreeSet<u64> = world.asks.iter().map(|ask| ask.attempt).collect();
    let ids: BTreeSet<&str> = world
        .asks
        .iter()
        .map(|ask| ask.admission_id.as_str())
        .collect();
    assert_eq!(
        (attempts.len(), ids.len()),
        (1, 1),
        "{claim}: one attempt, one id"
    );
}

fn error(reason: Reason) -> Act {
    Act::Error(WireError::new(reason, "told so"))
}

#[tokio::test(start_paused = true)]
async fn every_send_of_an_attempt_has_the_next_number() {
    let defer = || Act::Defer {
        retry_in_us: 50_000,
    };
    let late = |act| Act::Late(Duration::from_millis(150), Box::new(act));
    check("admitted at once", vec![], &[1]).await;
    check("deferred", vec![defer(), defer()], &[1, 2, 3]).await;
    check("overloaded", vec![error(Reason::Overloaded)], &[1, 2]).await;
    check("a late grant", vec![late(admit())], &[1, 2]).await;
    // Here the next number goes to another node, which names the leader.
    check("silence", vec![Act::Silent(Box::new(admit()))], &[1, 3]).await;
    check(
        "a broken connection",
        vec![Act::Broken(Box::new(admit()))],
        &[1, 3],
    )
    .await;
    check("no quorum", vec![error(Reason::NoQuorum)], &[1, 3]).await;
    check(
        "outcome unknown",
        vec![error(Reason::OutcomeUnknown)],
        &[1, 3],
    )
    .await;
    check("a stopping node", vec![error(Reason::Stopping)], &[1, 3]).await;
    check(
        "a late deferral is one all the same",
        vec![late(defer())],
        &[1, 2],
    )
    .await;
    let proxy = Act::Raw(Status::internal("HTTP status 502"));
    check("a proxy's error", vec![proxy], &[1, 3]).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_has_one_effect() {
    // A proxy forwards the request and then resets the connection, for a third of all calls (A17).
    let fake = Fake::start();
    let mut met = 0_u32;
    fake.script(move |_| {
        met += 1;
        if met.is_multiple_of(3) {
            Act::Broken(Box::new(admit()))
        } else {
            admit()
        }
    });
    let client = fake.client();
    let mut attempts = BTreeSet::new();
    for n in 0..100 {
        let guard = client
            .admit_wait(&call().id(format!("call-{n}")))
            .await
            .unwrap();
        assert_eq!(
            guard.settle(Outcome::Ok, [("requests", 1)]).await,
            Ok(Settlement::Applied)
        );
        attempts.extend(fake.world().asks.last().map(|ask| ask.attempt));
    }
    let world = fake.world();
    assert!(world.asks.len() > 130, "{} asks", world.asks.len());
    assert_eq!(attempts.len(), 100, "one attempt for each call");
    assert_eq!(world.held.len(), 100, "one grant in force for each attempt");
    let released: BTreeSet<u64> = world
        .releases
        .iter()
        .filter_map(|release| release.grant)
        .map(|grant| grant.index)
        .collect();
    let in_force: BTreeSet<u64> = world.held.values().map(|(_, grant)| grant.index).collect();
    assert_eq!(released, in_force, "what was used is what is in force");
    for (attempt, (ask, _)) in &world.held {
        let asks = world.asks.iter().filter(|other| other.attempt == *attempt);
        let ids: BTreeSet<&str> = asks.clone().map(|ask| ask.admission_id.as_str()).collect();
        assert_eq!(asks.map(|ask| ask.ask).max(), Some(*ask));
        assert_eq!(ids.len(), 1, "the id never changes");
    }
    assert_eq!(client.stats().admitted, 100);
}

#[tokio::test(start_paused = true)]
async fn the_callers_fault_is_never_repeated() {
    let faults = [
        Reason::Malformed,
        Reason::PriorityUnknown,
        Reason::DimensionUnknown,
        Reason::TargetUnknown,
        Reason::Unauthenticated,
        Reason::Forbidden,
        Reason::NotOwner,
    ];
    for reason in faults {
        let fake = Fake::start();
        fake.script(move |_| error(reason));
        let client = fake.client();
        let failed = client.admit_wait(&call()).await.unwrap_err();
        assert!(
            !failed.is_retryable() && !failed.may_have_happened(),
            "{reason:?}: {failed}"
        );
        assert_eq!(numbers(&fake.world().asks), [1], "{reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_ours_is_neither_repeated_nor_let_through() {
    let fake = Fake::start();
    fake.script(|_| error(Reason::Internal));
    let client = fake.client();
    for n in 1..=20 {
        let failed = client.try_admit(&call(), None).await.unwrap_err();
        assert!(matches!(failed, Error::Internal { .. }), "{failed}");
        assert!(failed.is_retryable() && failed.may_have_happened());
        assert_eq!(fake.world().asks.len(), n);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(client.stats().ungated_open, 0);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_call_is_refused_before_anything_is_sent() {
    let fake = Fake::start();
    let client = fake.client();
    let failed = client
        .admit_wait(&Call::new("t", "acme", "p1"))
        .await
        .unwrap_err();
    assert!(matches!(failed, Error::Invalid { .. }));
    assert!(fake.world().asks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn overload_is_a_deferral_with_the_nodes_own_pause() {
    let fake = Fake::start();
    let pause = Duration::from_millis(1_700);
    let full = WireError::new(Reason::Overloaded, "full").retry_after(pause);
    fake.script(move |_| Act::Error(full.clone()));
    let client = fake.client();
    for _ in 0..20 {
        match client.try_admit(&call(), None).await.unwrap() {
            Answer::Deferred(deferral) => {
                assert_eq!(deferral.origin, Origin::Overloaded);
                assert_eq!(deferral.retry_in, pause);
                tokio::time::sleep(deferral.retry_in).await;
            }
            other => panic!("{other:?}"),
        }
    }
    let stats = client.stats();
    assert_eq!(
        (stats.asks, stats.deferred, stats.outages),
        (20, 20, 0),
        "no outage, no retries"
    );
}

#[tokio::test(start_paused = true)]
async fn a_ticket_brings_back_to_the_same_attempt_and_the_next_number() {
    let fake = Fake::start();
    fake.acts([
        Act::Defer {
            retry_in_us: 80_000,
        },
        Act::Silent(Box::new(admit())),
    ]);
    let client = fake.client();
    let call = call();
    let Answer::Deferred(deferral) = client.try_admit(&call, None).await.unwrap() else {
        panic!()
    };
    assert_eq!(deferral.origin, Origin::Cluster);
    assert_eq!(deferral.retry_in, Duration::from_millis(80));
    assert_eq!(deferral.earliest_in, Duration::from_millis(160));
    assert_eq!((deferral.place, deferral.limit.as_str()), (3, "rpm"));
    // Stored with a durable timer, used by another process.
    let stored = deferral.ticket.to_string();
    let ticket: Ticket = stored.parse().unwrap();
    let other = fake.client();
    let answer = other.try_admit(&call, Some(ticket)).await.unwrap();
    assert!(matches!(answer, Answer::Admitted(_)));
    let world = fake.world();
    assert_eq!(numbers(&world.asks), [1, 2, 4]);
    assert!(
        world
            .asks
            .iter()
            .all(|ask| ask.attempt == world.asks[0].attempt)
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_lost_its_newest_ticket_gets_ahead_of_its_old_numbers() {
    let fake = Fake::start();
    fake.acts(vec![Act::Defer { retry_in_us: 1_000 }; 40]);
    let client = fake.client();
    let call = call();
    let Answer::Deferred(first) = client.try_admit(&call, None).await.unwrap() else {
        panic!()
    };
    let mut ticket = first.ticket;
    for _ in 0..39 {
        let again = client.try_admit(&call, Some(ticket)).await.unwrap();
        let Answer::Deferred(deferral) = again else {
            panic!()
        };
        ticket = deferral.ticket;
    }
    let answer = client.try_admit(&call, Some(first.ticket)).await.unwrap();
    assert!(matches!(answer, Answer::Admitted(_)), "{answer:?}");
    assert_eq!(client.stats().stale_answers, 1);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_another_took_over_is_rejected_after_a_few_tries() {
    let fake = Fake::start();
    fake.script(|_| Act::Reject(v1::RejectReason::Stale));
    let client = fake.client();
    match client.try_admit(&call(), None).await.unwrap() {
        Answer::Rejected(rejection) => assert_eq!(rejection.reason, RejectReason::Stale),
        other => panic!("{other:?}"),
    }
    assert_eq!(fake.world().asks.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn rejections_are_answers() {
    let reasons = [
        (v1::RejectReason::NeverFits, RejectReason::NeverFits),
        (v1::RejectReason::QueueFull, RejectReason::QueueFull),
        (
            v1::RejectReason::TenantQueueFull,
            RejectReason::TenantQueueFull,
        ),
        (v1::RejectReason::Deadline, RejectReason::Deadline),
        (v1::RejectReason::IdConflict, RejectReason::IdConflict),
        (v1::RejectReason::Unspecified, RejectReason::Other),
    ];
    for (wire, reason) in reasons {
        let fake = Fake::start();
        fake.script(move |_| Act::Reject(wire));
        let client = fake.client();
        match client.try_admit(&call(), None).await.unwrap() {
            Answer::Rejected(rejection) => assert_eq!(rejection.reason, reason),
            other => panic!("{other:?}"),
        }
        match client.admit_wait(&call()).await {
            Err(Error::Rejected(rejection)) => assert_eq!(rejection.reason, reason),
            other => panic!("{other:?}"),
        }
        assert_eq!(client.stats().rejected, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_travels_as_what_is_left_and_ends_the_wait() {
    let fake = Fake::start();
    fake.script(|_| Act::Defer {
        retry_in_us: 300_000,
    });
    let client = fake.client();
    let started = Instant::now();
    let call = call().deadline(Duration::from_secs(1));
    let failed = client.admit_wait(&call).await.unwrap_err();
    assert_eq!(failed, Error::DeadlinePassed);
    assert!(
        started.elapsed() <= Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    let left: Vec<u64> = fake
        .world()
        .asks
        .iter()
        .map(|ask| ask.deadline_us / 1_000)
        .collect();
    assert_eq!(left.len(), 4);
    for (at, left_ms) in left.iter().enumerate() {
        let expected = 1_000 - 300 * at as u64;
        assert!((expected - 20..=expected).contains(left_ms), "{left:?}");
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let world = fake.world();
    let cancelled: Vec<(u64, u32)> = world
        .cancels
        .iter()
        .map(|cancel| (cancel.attempt, cancel.ask))
        .collect();
    assert_eq!(
        cancelled,
        [(world.asks[0].attempt, 4)],
        "the place is given up"
    );
}

#[tokio::test(start_paused = true)]
async fn a_passed_deadline_asks_nothing() {
    let fake = Fake::start();
    let client = fake.client();
    let call = call().deadline(Duration::ZERO);
    assert_eq!(
        client.try_admit(&call, None).await.unwrap_err(),
        Error::DeadlinePassed
    );
    assert_eq!(
        client.admit_wait(&call).await.unwrap_err(),
        Error::DeadlinePassed
    );
    assert!(fake.world().asks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_dropped_gives_up_its_place() {
    let fake = Fake::start();
    fake.script(|_| Act::Defer {
        retry_in_us: 10_000_000,
    });
    let client = fake.client();
    let call = call();
    let waited = tokio::time::timeout(Duration::from_secs(1), client.admit_wait(&call)).await;
    assert!(waited.is_err());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let world = fake.world();
    assert_eq!(world.cancels.len(), 1);
    assert_eq!(world.cancels[0].attempt, world.asks[0].attempt);
    assert_eq!(world.cancels[0].ask, 1);
    assert_eq!(world.cancels[0].admission_id, call.admission_id());
}

#[tokio::test(start_paused = true)]
async fn a_new_attempt_dropped_half_way_is_given_up_but_one_with_a_ticket_waits() {
    let fake = Fake::start();
    fake.acts([
        Act::Silent(Box::new(admit())),
        Act::Defer { retry_in_us: 1_000 },
    ]);
    let client = fake.client();
    let (dropped, call) = (call(), call());
    let soon = Duration::from_millis(100);
    assert!(
        tokio::time::timeout(soon, client.try_admit(&dropped, None))
            .await
            .is_err()
    );
    let Answer::Deferred(deferral) = client.try_admit(&call, None).await.unwrap() else {
        panic!()
    };
    fake.script(|_| Act::Silent(Box::new(admit())));
    let again = client.try_admit(&call, Some(deferral.ticket));
    assert!(tokio::time::timeout(soon, again).await.is_err());
    tokio::time::sleep(soon).await;
    let world = fake.world();
    let cancelled: Vec<&str> = world
        .cancels
        .iter()
        .map(|cancel| cancel.admission_id.as_str())
        .collect();
    assert_eq!(cancelled, [dropped.admission_id()]);
}
