use super::*;
use std::time::Duration;

fn target(name: &str) -> TargetName {
    TargetName::new(name).unwrap()
}

fn key(name: &str, id: u64) -> UngatedKey {
    UngatedKey::new(&target(name), &format!("id{id:05}"), id)
}

fn used(tokens: u64, sent_at: Instant) -> UngatedUse {
    UngatedUse {
        tenant: "acme".into(),
        priority: "p1".into(),
        actual: BTreeMap::from([("requests".into(), 1), ("tokens".into(), tokens)]),
        sent_at,
    }
}

fn tokens(batch: &Batch) -> Vec<u64> {
    batch
        .calls
        .iter()
        .filter_map(|call| call.actual.get("tokens").copied())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_call_is_reported_once_with_what_it_used() {
    let start = Instant::now();
    let mut ungated = Ungated::default();
    assert_eq!(ungated.keep(key("a/x", 1), used(10, start)), Kept::Yes);
    assert_eq!(
        ungated.keep(key("a/x", 1), used(99, start)),
        Kept::Yes,
        "the same attempt again"
    );
    assert_eq!(ungated.keep(key("a/y", 2), used(20, start)), Kept::Yes);
    assert!(ungated.settle(&key("a/x", 1), &BTreeMap::from([("tokens".into(), 7)])));

    let now = start + Duration::from_secs(5);
    let batch = ungated.next_report(&target("a/x"), now).unwrap();
    assert_eq!(tokens(&batch), [7, 20]);
    assert!(
        batch
            .calls
            .iter()
            .all(|call| call.age_us == 5_000_000 && call.actual["requests"] == 1)
    );
    assert!(
        ungated.next_report(&target("a/x"), now).is_none(),
        "all of it is under way"
    );
    assert!(ungated.due_targets().is_empty());

    let statuses = [ReportStatus::Charged, ReportStatus::Settled];
    assert_eq!(
        ungated.answered(&batch.keys, &statuses),
        Reported { done: 2, lost: 0 }
    );
    assert_eq!(ungated.len(), 0);
    assert!(
        !ungated.settle(&key("a/x", 1), &BTreeMap::new()),
        "too late to matter"
    );
    assert_eq!(
        ungated.answered(&batch.keys, &statuses),
        Reported::default()
    );
}

#[tokio::test(start_paused = true)]
async fn reports_are_of_one_pool_and_bounded() {
    let start = Instant::now();
    let mut ungated = Ungated::default();
    for id in 0..300 {
        ungated.keep(key("a/x", id), used(1, start));
        ungated.keep(key("b/x", id), used(1, start));
    }
    let names: Vec<String> = ungated
        .due_targets()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["a/x", "b/x"]);
    let batch = ungated.next_report(&target("a/x"), start).unwrap();
    assert_eq!(batch.calls.len(), REPORT_CALLS_MAX);
    assert!(batch.calls.iter().all(|call| call.target == "a/x"));
    assert_eq!(
        ungated.due_targets(),
        [target("b/x")],
        "one report of a pool at a time"
    );
}

#[tokio::test(start_paused = true)]
async fn a_report_that_surely_did_nothing_is_repeated_for_ever() {
    let start = Instant::now();
    let mut ungated = Ungated::default();
    ungated.keep(key("a", 1), used(1, start));
    for minute in 0..60 {
        let now = start + Duration::from_secs(60 * minute);
        let batch = ungated.next_report(&target("a"), now).unwrap();
        assert_eq!(
            ungated.unanswered(&batch.keys, false, now, now),
            Reported::default()
        );
    }
    assert_eq!(ungated.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_report_that_may_have_been_charged_is_given_up_before_it_is_forgotten() {
    let start = Instant::now();
    let mut ungated = Ungated::default();
    ungated.keep(key("a", 1), used(1, start));
    let mut now = start;
    for _ in 0..2 {
        let batch = ungated.next_report(&target("a"), now).unwrap();
        let sent_at = now;
        now += Duration::from_secs(3);
        assert_eq!(
            ungated.unanswered(&batch.keys, true, sent_at, now),
            Reported::default()
        );
    }
    let batch = ungated.next_report(&target("a"), now).unwrap();
    now = start + RETRY_MAX;
    let reported = ungated.unanswered(&batch.keys, false, now, now);
    assert_eq!(reported, Reported { done: 0, lost: 1 });
    assert_eq!(ungated.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_sent_is_forgotten_unless_it_is_reported() {
    let start = Instant::now();
    let mut ungated = Ungated::default();
    ungated.keep(key("a", 1), used(1, start));
    assert!(ungated.forget(&key("a", 1)));
    assert_eq!(ungated.len(), 0);
    ungated.keep(key("a", 1), used(1, start));
    let batch = ungated.next_report(&target("a"), start).unwrap();
    assert!(!ungated.forget(&key("a", 1)));
    let statuses = [ReportStatus::Dropped];
    assert_eq!(
        ungated.answered(&batch.keys, &statuses),
        Reported { done: 0, lost: 1 }
    );
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded() {
    let start = Instant::now();
    let mut ungated = Ungated::default();
    for id in 0..UNGATED_MAX as u64 {
        assert_eq!(ungated.keep(key("a", id), used(1, start)), Kept::Yes);
    }
    assert_eq!(ungated.keep(key("a", u64::MAX), used(1, start)), Kept::Full);
    assert_eq!(
        ungated.keep(key("a", 0), used(1, start)),
        Kept::Yes,
        "it is there already"
    );
    assert_eq!(ungated.len(), UNGATED_MAX);
}
