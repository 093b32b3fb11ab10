//! Calls that wait in a session are woken; nothing depends on it.

use super::fake::{Act, Fake, admit, numbers};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::Status;
use weir_client::{Answer, Call, Client};

const LONG: Duration = Duration::from_secs(20);

fn call() -> Call {
    Call::new("openai/gpt-5", "acme", "p1").cost("requests", 1)
}

fn defer() -> Act {
    Act::Defer {
        retry_in_us: u64::try_from(LONG.as_micros()).unwrap(),
    }
}

fn wait(client: &Client) -> tokio::task::JoinHandle<Duration> {
    let client = client.clone();
    tokio::spawn(async move {
        let begun = Instant::now();
        assert!(!client.admit_wait(&call()).await.unwrap().is_ungated());
        begun.elapsed()
    })
}

async fn asked(fake: &Fake, count: usize) -> u64 {
    while fake.world().asks.len() < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fake.world().asks[count - 1].attempt
}

#[tokio::test(start_paused = true)]
async fn a_wake_ends_the_wait() {
    let fake = Fake::start();
    fake.acts([defer()]);
    let client = fake.client();
    let waits = wait(&client);
    let attempt = asked(&fake, 1).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    fake.wake(attempt ^ 1, 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    fake.wake(attempt, 0);
    let waited = waits.await.unwrap();
    assert!(waited >= Duration::from_secs(3) && waited < Duration::from_millis(3_100), "{waited:?}");
    assert_eq!(numbers(&fake.world().asks), [1, 2]);
    assert_eq!(client.stats().woken, 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_wake_the_deferral_counts() {
    let fake = Fake::start();
    fake.acts([defer()]);
    let client = fake.client();
    let waited = wait(&client).await.unwrap();
    assert!(waited >= LONG && waited < LONG + Duration::from_millis(100), "{waited:?}");
    assert_eq!(client.stats().woken, 0);
}

#[tokio::test(start_paused = true)]
async fn a_wake_that_overtakes_its_deferral_is_remembered() {
    let fake = Fake::start();
    fake.acts([Act::Late(Duration::from_millis(60), Box::new(defer()))]);
    let client = fake.client();
    let waits = wait(&client);
    let attempt = asked(&fake, 1).await;
    fake.wake(attempt, 0);
    let waited = waits.await.unwrap();
    assert!(waited < Duration::from_millis(100), "{waited:?}");
    assert_eq!(numbers(&fake.world().asks), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_wake_may_ask_for_a_spread() {
    let fake = Fake::start();
    let client = fake.client();
    fake.acts((0..100).map(|_| defer()));
    let mut waits = JoinSet::new();
    for _ in 0..100 {
        let wait = wait(&client);
        waits.spawn(async move { wait.await.unwrap() });
    }
    asked(&fake, 100).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let attempts: Vec<u64> = fake.world().asks.iter().map(|ask| ask.attempt).collect();
    for attempt in attempts {
        fake.wake(attempt, 400_000);
    }
    let waited = waits.join_all().await;
    let (first, last) = (waited.iter().min().unwrap(), waited.iter().max().unwrap());
    assert!(*first < Duration::from_millis(150), "{first:?}");
    assert!(*last > Duration::from_millis(400) && *last < Duration::from_millis(600), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_in_a_session_that_breaks_asks_again_soon_but_not_all_at_once() {
    let fake = Fake::start();
    let client = fake.client();
    fake.acts((0..200).map(|_| defer()));
    let mut waits = JoinSet::new();
    for _ in 0..200 {
        let wait = wait(&client);
        waits.spawn(async move { wait.await.unwrap() });
    }
    asked(&fake, 200).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    for session in &fake.world().sessions {
        session.end(Status::unavailable("the node went away"));
    }
    let waited = waits.join_all().await;
    let (first, last) = (waited.iter().min().unwrap(), waited.iter().max().unwrap());
    assert!(*last < Duration::from_secs(1), "{last:?}");
    assert!(*last - *first > Duration::from_millis(200), "{first:?} to {last:?}");
    let second = waited.iter().filter(|it| **it < Duration::from_millis(150));
    assert!(second.count() < 100, "spread over half a second");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_slot_is_told_of_its_turn() {
    let fake = Fake::start();
    fake.acts([defer(), defer()]);
    let client = fake.client();
    let mut turn = client.turn(&call(), None).unwrap();
    let begun = Instant::now();
    turn.near().await;
    assert_eq!(begun.elapsed(), Duration::ZERO, "it has not asked");
    let Answer::Deferred(first) = turn.try_admit().await.unwrap() else {
        panic!("not deferred")
    };
    let attempt = asked(&fake, 1).await;
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        fake.wake(attempt, 0);
        fake
    });
    turn.near().await;
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(2) && waited < Duration::from_millis(2_100), "{waited:?}");
    // Another visit, as after the engine's resume. Nobody tells it: the deferral's time counts.
    let mut again = client.turn(&call(), Some(first.ticket)).unwrap();
    drop(turn);
    assert!(matches!(again.try_admit().await.unwrap(), Answer::Deferred(_)));
    let begun = Instant::now();
    again.near().await;
    let waited = begun.elapsed();
    assert!(waited >= LONG && waited < LONG + Duration::from_millis(100), "{waited:?}");
    assert!(matches!(again.try_admit().await.unwrap(), Answer::Admitted(_)));
    assert_eq!(client.stats().woken, 1);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_dropped_keeps_its_place() {
    let fake = Fake::start();
    fake.acts([defer()]);
    let client = fake.client();
    let mut turn = client.turn(&call(), None).unwrap();
    assert!(matches!(turn.try_admit().await.unwrap(), Answer::Deferred(_)));
    drop(turn);
    client.shutdown().await;
    let world = fake.world();
    assert!(world.cancels.is_empty(), "{:?}", world.cancels);
    assert!(world.asks.iter().all(|ask| ask.wake));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_is_not_woken() {
    let fake = Fake::start();
    fake.script(|_| defer());
    let client = fake.client();
    let Answer::Deferred(deferral) = client.try_admit(&call(), None).await.unwrap() else {
        panic!("not deferred")
    };
    let _ = client.try_admit(&call(), Some(deferral.ticket)).await;
    assert!(fake.world().asks.iter().all(|ask| !ask.wake));
    fake.acts([admit()]);
    drop(client.admit_wait(&call()).await.unwrap());
    assert!(fake.world().asks.last().unwrap().wake);
}
