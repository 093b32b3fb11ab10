//! The local mode: a share of the cap last seen, and nothing without one.

use super::fake::Fake;
use super::net::Link;
use std::time::Duration;
use tokio::time::Instant;
use weir_client::wire::{Limit, Policy};
use weir_client::{Answer, Call, Client, Error, Mode, Origin};

const CAP: u64 = 600;
const PER: Duration = Duration::from_secs(10);
const CLIENTS: u64 = 5;

fn call() -> Call {
    Call::new("openai/gpt-5", "acme", "p1").cost("requests", 1)
}

async fn fleet(fake: &Fake) -> Vec<Client> {
    let per_us = u64::try_from(PER.as_micros()).unwrap();
    let limit = Limit {
        name: "rpm".into(),
        dimension: "requests".into(),
        cap: CAP,
        per_us,
        ..Limit::default()
    };
    let policy = Policy {
        limits: vec![limit],
        ..Policy::default()
    };
    fake.client()
        .put_target("openai/gpt-5", policy, None)
        .await
        .unwrap();
    let share = u32::try_from(1_000_000 / CLIENTS).unwrap();
    let options = || fake.options().mode(Mode::Local).local_share_ppm(share);
    (0..CLIENTS)
        .map(|_| Client::new(options()).unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_fleet_of_degraded_clients_keeps_the_cap() {
    // L7: total <= C + N * local share, here in any window of the outage <= C.
    let fake = Fake::start();
    let clients = fleet(&fake).await;
    for client in &clients {
        client
            .admit_wait(&call())
            .await
            .unwrap()
            .not_sent()
            .await
            .unwrap();
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    fake.net.set_all(Link::Hung);
    let stop_at = Instant::now() + Duration::from_secs(60);
    let mut workers = tokio::task::JoinSet::new();
    for client in clients {
        workers.spawn(async move {
            let mut started = Vec::new();
            while Instant::now() < stop_at {
                match client.try_admit(&call(), None).await.unwrap() {
                    Answer::Admitted(guard) => {
                        assert!(guard.is_ungated());
                        started.push(Instant::now());
                    }
                    Answer::Deferred(deferral) => {
                        assert!(matches!(
                            deferral.origin,
                            Origin::NoAnswer | Origin::LocalShare
                        ));
                        tokio::time::sleep(deferral.retry_in).await;
                    }
                    Answer::Rejected(rejection) => panic!("{rejection}"),
                }
            }
            started
        });
    }
    let mut started = Vec::new();
    while let Some(by_one) = workers.join_next().await {
        started.extend(by_one.unwrap());
    }
    started.sort_unstable();
    let window = |from: &Instant| {
        started
            .iter()
            .filter(|at| (*from..*from + PER).contains(at))
            .count()
    };
    let worst = started
        .iter()
        .map(|from| window(from) as u64)
        .max()
        .unwrap();
    assert!(worst <= CAP, "{worst} in the worst window");
    assert!(
        started.len() as u64 > 3 * CAP,
        "{} in a minute: the share is used",
        started.len()
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_policy_seen_local_is_closed() {
    let fake = Fake::start();
    fake.net.set_all(Link::Dead);
    let client = Client::new(fake.options().mode(Mode::Local)).unwrap();
    let failed = client.admit_wait(&call()).await.unwrap_err();
    assert!(matches!(failed, Error::Unavailable { .. }));
    assert_eq!(client.stats().refused, 1);
}

#[tokio::test(start_paused = true)]
async fn policies_are_read_once_a_target_and_again_when_they_change() {
    let fake = Fake::start();
    let clients = fleet(&fake).await;
    let client = &clients[0];
    for _ in 0..50 {
        client
            .admit_wait(&call())
            .await
            .unwrap()
            .not_sent()
            .await
            .unwrap();
    }
    fake.net.set_all(Link::Dead);
    // Twelve a second and client, of which three quarters: a first call after a ninth of a second.
    let guard = client.admit_wait(&call()).await.unwrap();
    assert!(guard.is_ungated());
    assert_eq!(client.stats().ungated_local, 1);
}
