//! A node that answers more slowly than its callers wait: retries must not keep it slow.

use super::fake::{Act, Fake, admit};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_client::limits::{RETRY_RESERVE, TRIES_PER_RETRY};
use weir_client::{Answer, Call, Client, Mode, Origin, Outcome, Settlement};

/// What the node needs while it is slow.
const SLOW: Duration = Duration::from_millis(200);
/// What a caller waits for one answer.
const PATIENCE: Duration = Duration::from_millis(50);
/// Clients, each with so many calls in each part of a test, one after the other at this distance.
const CLIENTS: u64 = 4;
const CALLS_EACH: u64 = 100;
const DISTANCE: Duration = Duration::from_millis(300);
const CALLS: u64 = CLIENTS * CALLS_EACH;

fn call() -> Call {
    Call::new("openai/gpt-5", "acme", "p1").cost("requests", 1)
}

/// A client whose callers give up early, and that takes nothing for an outage: all its load goes on.
fn hasty(fake: &Fake) -> Client {
    let options = fake
        .options()
        .mode(Mode::Closed)
        .ungated_after(Duration::from_secs(3_600))
        .try_timeout(PATIENCE);
    Client::new(options).unwrap()
}

/// Of every so many asks one is answered at once, the others when nobody waits any more.
fn slow_but_for_one_in(fake: &Fake, one_in: u64) {
    let mut met = 0_u64;
    fake.script(move |_| {
        met += 1;
        if met.is_multiple_of(one_in) {
            admit()
        } else {
            Act::Late(SLOW, Box::new(admit()))
        }
    });
}

/// What became of calls that came whatever became of those before them, each asked for once by its caller.
struct Offered {
    admitted: u64,
    /// Asks that the leader met, and of how many calls they were.
    asks: u64,
    asked: u64,
}

async fn offer(fake: &Fake, clients: &[Client]) -> Offered {
    let before = fake.world().asks.len();
    let mut calls = JoinSet::new();
    for _ in 0..CALLS_EACH {
        for client in clients {
            calls.spawn(ask_once(client.clone()));
            tokio::time::sleep(DISTANCE / u32::try_from(clients.len()).unwrap()).await;
        }
    }
    let admitted = calls.join_all().await.into_iter().map(u64::from).sum();
    let (asks, asked) = met(fake, before);
    Offered {
        admitted,
        asks,
        asked,
    }
}

/// True if the call was admitted.
async fn ask_once(client: Client) -> bool {
    match client.try_admit(&call(), None).await.unwrap() {
        Answer::Admitted(guard) => {
            assert!(!guard.is_ungated());
            // What becomes of grants is not this test's matter.
            guard.detach();
            true
        }
        Answer::Deferred(deferral) => {
            assert_eq!(deferral.origin, Origin::NoAnswer);
            false
        }
        Answer::Rejected(rejection) => panic!("{rejection}"),
    }
}

/// The asks that the leader met after so many, and of how many attempts they were.
fn met(fake: &Fake, before: usize) -> (u64, u64) {
    let world = fake.world();
    let asks = &world.asks[before..];
    let attempts: BTreeSet<u64> = asks.iter().map(|ask| ask.attempt).collect();
    (asks.len() as u64, attempts.len() as u64)
}

#[tokio::test(start_paused = true)]
async fn retries_add_a_tenth_to_a_storm_and_end_with_it() {
    let fake = Fake::start();
    let clients: Vec<Client> = (0..CLIENTS).map(|_| hasty(&fake)).collect();
    let withheld = || -> u64 {
        let stats = clients.iter().map(Client::stats);
        stats.map(|stats| stats.retries_withheld).sum()
    };
    let (mut tries, reserve) = (0, CLIENTS * u64::from(RETRY_RESERVE));
    // Partly slow is worse than all slow: each answer tells that the shard is there to be asked.
    for one_in in [u64::MAX, 10, 3] {
        slow_but_for_one_in(&fake, one_in);
        let Offered { admitted, .. } = offer(&fake, &clients).await;
        assert_eq!(admitted > 0, one_in < CALLS);
        tries += CALLS;
        let (asks, asked) = met(&fake, 0);
        let most = asked + tries / u64::from(TRIES_PER_RETRY) + reserve;
        assert!(asks <= most, "{asks} asks of {asked} calls");
    }
    let before = withheld();
    assert!(before > 0);
    // The storm is over when the node is quick again: nothing goes on by itself.
    fake.script(|_| admit());
    tokio::time::sleep(SLOW).await;
    let offered = offer(&fake, &clients).await;
    let once = (offered.admitted, offered.asks, offered.asked);
    assert_eq!(once, (CALLS, CALLS, CALLS));
    assert_eq!(withheld(), before);
}

#[tokio::test(start_paused = true)]
async fn who_waits_through_a_storm_is_served_after_it() {
    let fake = Fake::start();
    let client = hasty(&fake);
    slow_but_for_one_in(&fake, u64::MAX);
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let client = client.clone();
        calls.spawn(async move {
            let guard = client.admit_wait(&call()).await.unwrap();
            assert!(!guard.is_ungated());
            Instant::now()
        });
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    let stats = client.stats();
    assert!(stats.retries_withheld > 0, "{stats:?}");
    fake.script(|_| admit());
    let quick_at = Instant::now();
    let last = calls.join_all().await.into_iter().max().unwrap();
    // By now they rest for 1.6 to 6.4 s each: one of fifty comes soon, and each that is served calls two others back.
    assert!(last - quick_at < Duration::from_secs(2), "{:?}", last - quick_at);
}

/// The budget of an idle shard is not another's: each leader bears its own retries.
#[tokio::test(start_paused = true)]
async fn calls_of_one_shard_earn_no_retries_for_another() {
    let fake = Fake::start();
    let client = hasty(&fake);
    for _ in 0..1_000 {
        let other = Call::new("payments/charge", "acme", "p1").cost("requests", 1);
        client.admit_wait(&other).await.unwrap().detach();
    }
    slow_but_for_one_in(&fake, u64::MAX);
    let before = fake.world().asks.len();
    for _ in 0..100 {
        let answer = client.try_admit(&call(), None).await.unwrap();
        assert!(matches!(answer, Answer::Deferred(_)));
    }
    let (asks, asked) = met(&fake, before);
    let most = asked + u64::from(RETRY_RESERVE + 100 / TRIES_PER_RETRY);
    assert!(asks <= most, "{asks} asks of {asked} calls");
}

#[tokio::test(start_paused = true)]
async fn no_release_is_lost_for_want_of_a_budget() {
    let fake = Fake::start();
    let client = hasty(&fake);
    let mut guards = Vec::new();
    for _ in 0..100 {
        guards.push(client.admit_wait(&call()).await.unwrap());
    }
    fake.world().release_takes = SLOW;
    let mut settling = JoinSet::new();
    let later = guards.split_off(50);
    for guard in guards {
        settling.spawn(guard.settle(Outcome::Ok, [("requests", 1)]));
    }
    // The others are left to the background.
    drop(later);
    for settled in settling.join_all().await {
        let settled = settled.unwrap();
        assert!(
            matches!(settled, Settlement::Already | Settlement::Pending),
            "{settled:?}"
        );
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let stats = client.stats();
    assert_eq!((stats.releases_pending, stats.releases_lost), (0, 0), "{stats:?}");
    let world = fake.world();
    let mut released: Vec<u64> = world.releases.iter().map(|it| it.grant.unwrap().index).collect();
    let sent = released.len() as u64;
    released.sort_unstable();
    released.dedup();
    assert_eq!(released.len(), 100);
    // A patience of 50 ms, then 100, 200 and 400, begun anew where a caller stopped waiting for it.
    let most = 5 * 100 + u64::from(RETRY_RESERVE + 200 / TRIES_PER_RETRY);
    assert!(sent <= most, "{sent} sends");
}
