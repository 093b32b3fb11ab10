//! No grant goes out later than its reply window allows.

use super::fake::{Act, Fake, admit, numbers};
use std::time::Duration;
use tokio::time::Instant;
use weir_client::{Answer, Call, Client, Origin};

const WINDOW: Duration = Duration::from_millis(100);

fn call() -> Call {
    Call::new("openai/gpt-5", "acme", "p1").cost("requests", 1)
}

fn late(by_ms: u64, start_in_us: u64) -> Act {
    Act::Late(
        Duration::from_millis(by_ms),
        Box::new(Act::Admit { start_in_us }),
    )
}

/// The acts met by one call; how many asks it must take, and how long until it goes out.
async fn check(claim: &str, acts: Vec<Act>, asks: u32, out_at_ms: u64) {
    let fake = Fake::start();
    fake.acts(acts);
    let client = warm(&fake).await;
    let started = Instant::now();
    let guard = client.admit_wait(&call()).await.unwrap();
    let took = started.elapsed();
    let expected = Duration::from_millis(out_at_ms);
    assert!(took >= expected, "{claim}: {took:?}, too early");
    assert!(
        took < expected + Duration::from_millis(25),
        "{claim}: {took:?}"
    );
    assert!(guard.is_current(), "{claim}");
    let sent: Vec<u32> = numbers(&fake.world().asks);
    assert_eq!(sent, (1..=asks).collect::<Vec<_>>(), "{claim}");
    assert_eq!(client.stats().late_answers, u64::from(asks - 1), "{claim}");
}

/// A client that knows the routes and has its connection, so that a test's times are those of its call.
async fn warm(fake: &Fake) -> Client {
    let client = fake.client();
    fake.world()
        .targets
        .insert("t".into(), weir_client::wire::Target::default());
    client.get_target("t").await.unwrap();
    client
}

#[tokio::test(start_paused = true)]
async fn late_grants_are_asked_again_and_others_start_when_told() {
    check("an answer in time", vec![late(50, 0)], 1, 50).await;
    check("the last moment of the window", vec![late(100, 0)], 1, 100).await;
    check("an answer after the window", vec![late(102, 0)], 2, 102).await;
    check(
        "the start is counted from the answer",
        vec![late(40, 30_000)],
        1,
        70,
    )
    .await;
    check(
        "a late answer is not slept on",
        vec![late(150, 30_000)],
        2,
        150,
    )
    .await;
    check("twice late", vec![late(150, 0), late(120, 0)], 3, 270).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stalls_in_its_sleep_does_not_send() {
    let fake = Fake::start();
    fake.acts([
        Act::Admit {
            start_in_us: 50_000,
        },
        admit(),
    ]);
    let client = warm(&fake).await;
    let asking = tokio::spawn(async move {
        let guard = client.admit_wait(&call()).await.unwrap();
        (guard.is_current(), client.stats().late_answers)
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    // Nobody runs while this passes, as if the process had been stopped.
    tokio::time::advance(Duration::from_millis(50) + WINDOW).await;
    assert_eq!(asking.await.unwrap(), (true, 1));
    assert_eq!(numbers(&fake.world().asks), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_stall_within_the_window_is_no_reason_to_ask_again() {
    let fake = Fake::start();
    fake.acts([Act::Admit {
        start_in_us: 50_000,
    }]);
    let client = warm(&fake).await;
    let asking = tokio::spawn(async move { client.admit_wait(&call()).await.unwrap() });
    tokio::time::sleep(Duration::from_millis(20)).await;
    tokio::time::advance(Duration::from_millis(20) + WINDOW).await;
    let guard = asking.await.unwrap();
    assert_eq!(numbers(&fake.world().asks), [1]);
    tokio::time::advance(Duration::from_millis(15)).await;
    assert!(!guard.is_current(), "a holder that dawdles is told");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_always_late_defers_and_is_no_outage() {
    let fake = Fake::start();
    fake.script(|_| late(150, 0));
    let client = warm(&fake).await;
    let mut ticket = None;
    for _ in 0..20 {
        let answer = client.try_admit(&call().id("same"), ticket).await.unwrap();
        let Answer::Deferred(deferral) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(deferral.origin, Origin::LateAnswer);
        tokio::time::sleep(deferral.retry_in).await;
        ticket = Some(deferral.ticket);
    }
    let stats = client.stats();
    assert_eq!(
        (stats.admitted, stats.outages, stats.ungated_open),
        (0, 0, 0)
    );
    let asks = numbers(&fake.world().asks);
    assert_eq!(
        asks,
        (1..=asks.len() as u32).collect::<Vec<_>>(),
        "numbers never repeat"
    );
}
