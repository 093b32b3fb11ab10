//! When the cluster does not answer: deferrals first, then the mode, and one report at the end.

use super::fake::{Act, Fake, admit};
use super::net::Link;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_client::limits::{PROBE_IDLE, UNGATED_MAX};
use weir_client::{Answer, Call, Client, Error, Guard, Mode, Origin, Outcome, Settlement};
use weir_proto::error::{Reason, WireError};
use weir_proto::v1::ReportStatus;

fn call() -> Call {
    Call::new("openai/gpt-5", "acme", "p1")
        .cost("requests", 1)
        .cost("tokens", 800)
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

async fn warm(client: &Client) {
    client
        .admit_wait(&call())
        .await
        .unwrap()
        .not_sent()
        .await
        .unwrap();
}

/// Works on one call until it goes out ungated, as a worker with a timer does.
async fn until_ungated(client: &Client) -> Guard {
    let guard = client.admit_wait(&call()).await.unwrap();
    assert!(guard.is_ungated());
    guard
}

/// All the ways in which a cluster does not answer.
fn break_it(fake: &Fake, how: &str) {
    match how {
        "stopped" => fake.net.set_all(Link::Hung),
        "dropped" => fake.net.set_all(Link::Dropped),
        "dead" => fake.net.set_all(Link::Dead),
        "no quorum" => fake.world().no_quorum = true,
        "no leader" => fake.world().leader = None,
        "silent" => fake.script(|_| Act::Silent(Box::new(admit()))),
        other => panic!("{other}"),
    }
}

fn mend_it(fake: &Fake) {
    fake.net.set_all(Link::Up);
    fake.script(|_| admit());
    let mut world = fake.world();
    world.no_quorum = false;
    world.leader = Some(1);
}

const WAYS: [&str; 6] = [
    "stopped",
    "dropped",
    "dead",
    "no quorum",
    "no leader",
    "silent",
];

#[tokio::test(start_paused = true)]
async fn a_fleet_whose_leader_is_gone_asks_one_at_a_time_for_another() {
    const CALLS: u64 = 100;
    let fake = Fake::start();
    let client = fake.client();
    warm(&client).await;
    fake.world().leader = None;
    let before = client.stats().asks;
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let client = client.clone();
        let call = call().id(format!("call-{number}"));
        calls.spawn(async move {
            let guard = client.admit_wait(&call).await.unwrap();
            assert!(!guard.is_ungated());
            Instant::now()
        });
    }
    seconds(2).await;
    // Once each before they know of it, then one at a time.
    let in_vain = client.stats().asks - before;
    assert!((CALLS..CALLS + 40).contains(&in_vain), "{in_vain} asks");
    let elected_at = Instant::now();
    fake.elect(2);
    let last = calls.join_all().await.into_iter().max().unwrap();
    let waited = last - elected_at;
    assert!(waited < Duration::from_millis(700), "{waited:?}");
    let asks = client.stats().asks - before - in_vain;
    assert!(asks < CALLS + 10, "{asks} asks");
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_is_a_deferral_and_a_long_one_is_decided_by_the_mode() {
    for how in WAYS {
        let fake = Fake::start();
        let client = fake.client();
        warm(&client).await;
        break_it(&fake, how);
        let (call, began) = (call(), Instant::now());
        let mut ticket = None;
        loop {
            let asked = Instant::now();
            let answer = client.try_admit(&call, ticket).await.unwrap();
            assert!(
                asked.elapsed() <= Duration::from_millis(501),
                "{how}: {:?}",
                asked.elapsed()
            );
            match answer {
                Answer::Deferred(deferral) => {
                    assert_eq!(deferral.origin, Origin::NoAnswer, "{how}");
                    let pauses = Duration::from_millis(100)..=Duration::from_millis(400);
                    assert!(
                        pauses.contains(&deferral.retry_in),
                        "{how}: {:?}",
                        deferral.retry_in
                    );
                    ticket = Some(deferral.ticket);
                    tokio::time::sleep(deferral.retry_in).await;
                }
                Answer::Admitted(guard) => {
                    assert!(guard.is_ungated(), "{how}");
                    break;
                }
                Answer::Rejected(rejection) => panic!("{how}: {rejection}"),
            }
        }
        let silent = began.elapsed();
        let expected = Duration::from_millis(3_000)..Duration::from_millis(4_000);
        assert!(expected.contains(&silent), "{how}: {silent:?}");
        // From now on nobody waits.
        let decided = Instant::now();
        for _ in 0..100 {
            assert!(
                client.admit_wait(&self::call()).await.unwrap().is_ungated(),
                "{how}"
            );
        }
        assert_eq!(decided.elapsed(), Duration::ZERO, "{how}");
        assert_eq!(client.stats().ungated_open, 101, "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_decide_within_their_deadline() {
    // A16: all servers stop while 50 calls with a deadline of 200 ms are in flight.
    for how in ["stopped", "dropped", "dead"] {
        for mode in [Mode::Open, Mode::Closed] {
            let fake = Fake::start();
            let options = fake.options().mode(mode).ungated_after(Duration::ZERO);
            let client = Client::new(options).unwrap();
            warm(&client).await;
            fake.script(|_| Act::Late(Duration::from_millis(50), Box::new(admit())));
            let mut calls = JoinSet::new();
            for _ in 0..50 {
                let client = client.clone();
                calls.spawn(async move {
                    let started = Instant::now();
                    let call = call().deadline(Duration::from_millis(200));
                    let decided = client.admit_wait(&call).await;
                    (started.elapsed(), decided)
                });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            break_it(&fake, how);
            while let Some(decided) = calls.join_next().await {
                let (took, decided) = decided.unwrap();
                assert!(
                    took <= Duration::from_millis(250),
                    "{how} {mode:?}: {took:?}"
                );
                match mode {
                    Mode::Open | Mode::Local => assert!(decided.unwrap().is_ungated()),
                    Mode::Closed => {
                        assert!(matches!(decided.unwrap_err(), Error::Unavailable { .. }));
                    }
                }
            }
            let stats = client.stats();
            assert_eq!(stats.outages, 1, "{how} {mode:?}");
            assert_eq!(stats.ungated_open + stats.refused, 50, "{how} {mode:?}");
            // Normal within five seconds.
            mend_it(&fake);
            let mended = Instant::now();
            while client.stats().shards_out > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(
                mended.elapsed() < Duration::from_secs(5),
                "{how}: {:?}",
                mended.elapsed()
            );
            assert!(
                !client.admit_wait(&call()).await.unwrap().is_ungated(),
                "{how} {mode:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_a_short_outage_ends_the_wait_in_time() {
    let fake = Fake::start();
    let client = fake.client();
    warm(&client).await;
    fake.net.set_all(Link::Hung);
    for _ in 0..5 {
        let started = Instant::now();
        let call = call().deadline(Duration::from_millis(200));
        let failed = client.admit_wait(&call).await.unwrap_err();
        assert_eq!(failed, Error::DeadlinePassed);
        assert!(
            started.elapsed() <= Duration::from_millis(200),
            "{:?}",
            started.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn closed_refuses_and_says_whether_it_may_have_happened() {
    for (how, may_have_happened) in [("silent", true), ("no quorum", false), ("dead", false)] {
        let fake = Fake::start();
        let options = fake
            .options()
            .mode(Mode::Closed)
            .ungated_after(Duration::ZERO);
        let client = Client::new(options).unwrap();
        warm(&client).await;
        break_it(&fake, how);
        let failed = client.try_admit(&call(), None).await.unwrap_err();
        assert!(failed.is_retryable(), "{how}");
        if how != "dead" {
            assert_eq!(
                failed.may_have_happened(),
                may_have_happened,
                "{how}: {failed}"
            );
        }
        let failed = client.try_admit(&call(), None).await.unwrap_err();
        assert!(!failed.may_have_happened(), "{how}: nothing was sent");
        assert_eq!(client.stats().refused, 2, "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_went_ungated_is_reported_once_and_with_what_it_used() {
    let fake = Fake::start();
    let client = fake.client();
    warm(&client).await;
    fake.net.set_all(Link::Dead);
    let settled = until_ungated(&client).await;
    let dropped = until_ungated(&client).await;
    let running = until_ungated(&client).await;
    let not_sent = until_ungated(&client).await;
    assert_eq!(settled.charged().get("tokens"), Some(&800));
    assert_eq!(
        settled.settle(Outcome::Ok, [("tokens", 5)]).await,
        Ok(Settlement::Recorded)
    );
    drop(dropped);
    assert_eq!(not_sent.not_sent().await, Ok(Settlement::Applied));
    assert_eq!(client.stats().reports_pending, 3);
    seconds(10).await;
    // The first report is charged, but its answer is lost.
    fake.world().lose_answers = 1;
    fake.net.set_all(Link::Up);
    seconds(5).await;
    assert_eq!(
        running.settle(Outcome::Ok, [("tokens", 9)]).await,
        Ok(Settlement::Already)
    );
    let stats = client.stats();
    assert_eq!(
        (
            stats.reports_pending,
            stats.reports_done,
            stats.reports_lost
        ),
        (0, 3, 0)
    );
    let world = fake.world();
    assert_eq!(world.reports.len(), 2, "and no third one");
    let keys = |at: usize| -> BTreeSet<(String, u64)> {
        let calls = world.reports[at].calls.iter();
        calls
            .map(|call| (call.admission_id.clone(), call.attempt))
            .collect()
    };
    assert_eq!(keys(0), keys(1), "the same calls under the same names");
    assert_eq!(keys(0).len(), 3);
    let mut tokens: Vec<u64> = world.reports[0]
        .calls
        .iter()
        .filter_map(|call| call.actual.get("tokens").copied())
        .collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [5, 800, 800]);
    assert!(
        world.reports[0]
            .calls
            .iter()
            .all(|call| call.age_us >= 10_000_000)
    );
}

#[tokio::test(start_paused = true)]
async fn calls_that_the_cluster_cannot_charge_are_counted_as_lost() {
    let fake = Fake::start();
    let client = fake.client();
    warm(&client).await;
    fake.net.set_all(Link::Dead);
    drop(until_ungated(&client).await);
    fake.world().report_status = ReportStatus::Dropped;
    fake.net.set_all(Link::Up);
    seconds(5).await;
    let stats = client.stats();
    assert_eq!(
        (
            stats.reports_pending,
            stats.reports_done,
            stats.reports_lost
        ),
        (0, 0, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn ungated_calls_beyond_the_bound_are_counted_not_kept() {
    let fake = Fake::start();
    let client = fake.client();
    warm(&client).await;
    fake.net.set_all(Link::Dead);
    drop(until_ungated(&client).await);
    for _ in 0..UNGATED_MAX + 9 {
        drop(client.admit_wait(&call()).await.unwrap());
    }
    let stats = client.stats();
    assert_eq!(stats.ungated_open, UNGATED_MAX as u64 + 10);
    assert_eq!(
        (stats.reports_pending, stats.reports_lost),
        (UNGATED_MAX as u64, 10)
    );
    fake.net.set_all(Link::Up);
    seconds(10).await;
    let stats = client.stats();
    assert_eq!(
        (stats.reports_pending, stats.reports_done),
        (0, UNGATED_MAX as u64)
    );
    assert!(
        fake.world()
            .reports
            .iter()
            .all(|report| report.calls.len() <= 256)
    );
}

#[tokio::test(start_paused = true)]
async fn a_minute_without_a_cluster_then_normal_again() {
    // L7: N clients, the cluster unreachable for 60 s.
    let fake = Fake::start();
    let clients: Vec<Client> = (0..10).map(|_| fake.client()).collect();
    for client in &clients {
        warm(client).await;
    }
    fake.net.set_all(Link::Dropped);
    let stop_at = Instant::now() + Duration::from_secs(60);
    let mut workers = JoinSet::new();
    for client in clients.clone() {
        workers.spawn(async move {
            let mut ungated = 0_u64;
            while Instant::now() < stop_at {
                let started = Instant::now();
                match client
                    .try_admit(&call().deadline(Duration::from_millis(400)), None)
                    .await
                {
                    Ok(Answer::Admitted(guard)) => {
                        assert!(guard.is_ungated());
                        ungated += 1;
                        guard.settle(Outcome::Ok, [("tokens", 3)]).await.unwrap();
                    }
                    Ok(Answer::Deferred(deferral)) => tokio::time::sleep(deferral.retry_in).await,
                    other => panic!("{other:?}"),
                }
                assert!(started.elapsed() <= Duration::from_millis(900));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            ungated
        });
    }
    let mut ungated = 0;
    while let Some(went) = workers.join_next().await {
        ungated += went.unwrap();
    }
    assert!(ungated > 10 * 500, "{ungated}");
    fake.net.set_all(Link::Up);
    seconds(5).await;
    for client in &clients {
        let stats = client.stats();
        assert_eq!(
            (stats.outages, stats.shards_out, stats.reports_pending),
            (1, 0, 0)
        );
        assert!(!client.admit_wait(&call()).await.unwrap().is_ungated());
    }
    let world = fake.world();
    let mut reported: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for call in world.reports.iter().flat_map(|report| &report.calls) {
        *reported
            .entry((call.admission_id.clone(), call.attempt))
            .or_default() += 1;
    }
    assert_eq!(reported.len() as u64, ungated, "all of it was reported");
    assert!(reported.values().all(|times| *times == 1), "and once");
}

#[tokio::test(start_paused = true)]
async fn an_unsteady_cluster_is_no_outage() {
    let fake = Fake::start();
    let mut met = 0_u32;
    fake.script(move |_| {
        met += 1;
        if met.is_multiple_of(5) {
            admit()
        } else {
            Act::Silent(Box::new(admit()))
        }
    });
    let client = fake.client();
    for _ in 0..50 {
        assert!(!client.admit_wait(&call()).await.unwrap().is_ungated());
    }
    assert_eq!(client.stats().outages, 0);
}

#[tokio::test(start_paused = true)]
async fn one_answered_probe_does_not_end_an_outage() {
    let fake = Fake::start();
    let client = fake.client();
    warm(&client).await;
    fake.world().no_quorum = true;
    drop(until_ungated(&client).await);
    for _ in 0..10 {
        // A quorum that lasts for one probe.
        let probes = fake.world().probes;
        fake.world().no_quorum = false;
        while fake.world().probes == probes {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        fake.world().no_quorum = true;
        seconds(2).await;
        assert!(client.admit_wait(&call()).await.unwrap().is_ungated());
    }
    assert_eq!(client.stats().outages, 1, "one outage, not ten");
    assert!(fake.world().reports.is_empty());
}

#[tokio::test(start_paused = true)]
async fn probing_is_bounded_and_stops_when_nobody_asks() {
    let fake = Fake::start();
    let client = Client::new(fake.options().mode(Mode::Closed)).unwrap();
    warm(&client).await;
    // Probes reach the leader, asks do not.
    fake.script(|_| Act::Error(WireError::new(Reason::NoQuorum, "none")));
    while client.stats().outages == 0 {
        let _ = client.try_admit(&call(), None).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    fake.world().no_quorum = true;
    let turned = |fake: &Fake| fake.world().probes;
    assert_eq!(turned(&fake), 0);
    tokio::time::sleep(PROBE_IDLE + Duration::from_secs(2)).await;
    assert_eq!(client.stats().shards_out, 0, "forgotten");
    let alive = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    fake.world().no_quorum = false;
    seconds(600).await;
    assert_eq!(
        fake.world().probes,
        0,
        "nobody probes for a client that asks nothing"
    );
    assert!(
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
            <= alive
    );
    fake.script(|_| admit());
    assert!(!client.admit_wait(&call()).await.unwrap().is_ungated());
}

#[tokio::test(start_paused = true)]
async fn a_client_born_in_an_outage_decides_by_its_mode_and_finds_the_cluster_later() {
    let fake = Fake::start();
    fake.net.set_all(Link::Dropped);
    let client = fake.client();
    let began = Instant::now();
    let guard = client.admit_wait(&call()).await.unwrap();
    assert!(guard.is_ungated());
    assert!(
        (3_000..4_000).contains(&began.elapsed().as_millis()),
        "{:?}",
        began.elapsed()
    );
    drop(guard);
    fake.net.set_all(Link::Up);
    seconds(5).await;
    assert_eq!(client.stats().shards_out, 0);
    assert_eq!(client.stats().reports_done, 1);
    assert!(!client.admit_wait(&call()).await.unwrap().is_ungated());
}

#[tokio::test(start_paused = true)]
async fn one_shards_outage_is_not_anothers() {
    let fake = Fake::start();
    fake.script(|ask| {
        if ask.target.starts_with("openai/") {
            Act::Silent(Box::new(admit()))
        } else {
            admit()
        }
    });
    let client = fake.client();
    drop(until_ungated(&client).await);
    let other = Call::new("payments/charge", "acme", "p1").cost("requests", 1);
    assert!(!client.admit_wait(&other).await.unwrap().is_ungated());
    assert_eq!(client.stats().shards_out, 1);
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_never_open() {
    let fake = Fake::start();
    fake.script(|_| Act::Raw(tonic::Status::unauthenticated("proxy says no")));
    let client = Client::new(fake.options().ungated_after(Duration::ZERO)).unwrap();
    for _ in 0..10 {
        let failed = client.admit_wait(&call()).await.unwrap_err();
        assert!(matches!(failed, Error::Denied { .. }));
        seconds(1).await;
    }
    assert_eq!(client.stats().ungated_open, 0);
}
