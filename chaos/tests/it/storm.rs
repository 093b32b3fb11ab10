//! Clients that give up waiting long before a slow cluster has answered, and ask again.

use crate::rig::{Rig, TARGET, get, one_request};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use weir_chaos::cluster::{Cluster, Port};
use weir_chaos::fleet::{Fleet, Plan};
use weir_client::limits::{RETRY_RESERVE, TRIES_PER_RETRY};
use weir_client::{Client, Mode, Options};

/// A try waits this long.
const TRY_TIMEOUT: Duration = Duration::from_millis(50);
/// Both followers stand still for this long, then they run, and so on: what the leader took up waits for its
/// quorum. It is shorter than the leader's lease, and they hear it each time they run, so nobody is elected.
const STANDS_STILL: Duration = Duration::from_millis(230);
/// They run for so long in a cluster that stalls: most tries are in vain, and most calls are served in the end.
/// What clients hear tells them that asking is of use, so that nothing but their budgets bounds what they repeat.
const RUNS_IF_STALLING: Duration = Duration::from_millis(100);
/// The same in a cluster that is slow: who is in line when they run is answered, late, and hardly anybody else.
const RUNS_IF_SLOW: Duration = Duration::from_millis(40);
/// How long the cluster stalls, and how long it is slow then.
const LASTS: Duration = Duration::from_secs(3);
/// What an entry takes on average in a slow cluster, at least: longer than a try waits for it.
const SLOW_MIN: Duration = TRY_TIMEOUT;
/// Processes, each with a client and so many callers.
const CLIENTS: usize = 4;
const CALLERS: u32 = 16;
/// Calls that were dropped because nobody waited for them any more, at least: one for each client.
const EXPIRED_MIN: f64 = CLIENTS as f64;
/// Everybody is served, and everything as before, within this: the longest pause of a client and a few tries.
const NORMAL_WITHIN: Duration = Duration::from_secs(10);

/// The clients of a few processes. Missing answers are no outage to them: all their load goes on.
struct Clients {
    name: &'static str,
    clients: Vec<Client>,
}

impl Clients {
    fn new(name: &'static str, cluster: &Cluster) -> Clients {
        let client = |_| {
            let options = Options::new(cluster.addresses())
                .mode(Mode::Closed)
                .ungated_after(Duration::from_secs(120))
                .try_timeout(TRY_TIMEOUT);
            Client::new(options).unwrap()
        };
        Clients {
            name,
            clients: (0..CLIENTS).map(client).collect(),
        }
    }

    /// All callers begin, each client's as a tenant of its own.
    fn start(&self, rig: &Rig, when: &str) -> Vec<Fleet> {
        let clients = self.clients.iter().enumerate();
        let fleets = clients.map(|(number, client)| {
            let tenant = format!("{}.{when}.{number}", self.name);
            let plan = Plan {
                target: TARGET.into(),
                lines: vec![(tenant, "bulk".into())],
                workers: CALLERS,
                costs: one_request(),
                patience: None,
                call_time: Duration::from_millis(150),
            };
            Fleet::start(client, &rig.recorder, &plan)
        });
        fleets.collect()
    }

    /// Asks sent, and calls admitted, so far.
    fn sent(&self) -> (u64, u64) {
        let stats = self.clients.iter().map(Client::stats);
        stats.fold((0, 0), |(asks, admitted), stats| {
            (asks + stats.asks, admitted + stats.admitted)
        })
    }

    /// What they do in a second, and until their last calls are served.
    async fn a_second(&self, rig: &Rig, when: &str) -> Second {
        let (asks, admitted) = self.sent();
        let fleets = self.start(rig, when);
        sleep(Duration::from_secs(1)).await;
        let tries = finish(fleets).await;
        let (asks_now, admitted_now) = self.sent();
        Second {
            repeated: (asks_now - asks).saturating_sub(tries),
            admitted: admitted_now - admitted,
        }
    }
}

#[derive(Debug)]
struct Second {
    repeated: u64,
    admitted: u64,
}

impl Second {
    /// No fewer calls are served, and no more is repeated for them, than a busy machine explains.
    fn is_as(&self, before: &Second) -> bool {
        self.admitted * 2 >= before.admitted
            && self.repeated <= before.repeated + before.admitted / 20
    }
}

/// Lets everybody finish the call that is under way. Returns the tries of all.
async fn finish(fleets: Vec<Fleet>) -> u64 {
    let begun_at = Instant::now();
    let mut ending = JoinSet::new();
    for fleet in fleets {
        ending.spawn(fleet.finish(NORMAL_WITHIN));
    }
    let tries = ending.join_all().await.into_iter().map(Result::unwrap);
    let tries = tries.sum();
    let took = begun_at.elapsed();
    assert!(took < NORMAL_WITHIN, "somebody still waits after {took:?}");
    tries
}

/// What a leader has counted so far, as its metrics tell it.
struct Work {
    /// Operations that reached it in sessions.
    operations: f64,
    /// Calls dropped because nobody waited for them any more.
    expired: f64,
    /// Entries that were committed, and the seconds that they took together.
    entries: f64,
    seconds: f64,
}

impl Work {
    async fn of(rig: &Rig, node: u64) -> Work {
        let text = get(&rig.cluster.address_of(node, Port::Admin), "/metrics").await;
        // What never happened is not listed.
        let number = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            value.map_or(0.0, |value| value.trim().parse().unwrap())
        };
        Work {
            operations: number("weir_session_operations_sum"),
            expired: number(r#"weir_refused_calls_total{reason="DEADLINE_EXCEEDED"}"#),
            entries: number("weir_batch_commit_seconds_count"),
            seconds: number("weir_batch_commit_seconds_sum"),
        }
    }

    /// What an entry has taken since then, on average.
    fn entry_since(&self, earlier: &Work) -> Duration {
        let entries = self.entries - earlier.entries;
        Duration::from_secs_f64((self.seconds - earlier.seconds) / entries)
    }
}

/// Lets nodes stand still and run in turn.
async fn hamper(rig: &Rig, nodes: &[u64], runs: Duration) {
    let until = Instant::now() + LASTS;
    while Instant::now() < until {
        for id in nodes {
            rig.cluster.node(*id).unwrap().pause().unwrap();
        }
        sleep(STANDS_STILL).await;
        for id in nodes {
            rig.cluster.node(*id).unwrap().resume().unwrap();
        }
        sleep(runs).await;
    }
}

/// How many operations may reach the leader for so many tries to get a decision, and so many releases: a retry
/// for ten of them, and the reserve of each client. A release is sent again without a budget too, but then it
/// waits for twice as long: once more for each that comes while the followers stand still.
fn operations_max(tries: u64, releases: u64) -> f64 {
    let new = tries + releases;
    let reserve = u64::from(RETRY_RESERVE) * CLIENTS as u64;
    let budget = new / u64::from(TRIES_PER_RETRY) + reserve;
    let stalled = STANDS_STILL.div_duration_f64(STANDS_STILL + RUNS_IF_STALLING);
    (new + budget) as f64 + releases as f64 * stalled
}

#[tokio::test]
async fn a_storm_of_retries_is_bounded_and_ends_with_what_began_it() {
    let mut rig = Rig::start(400, Duration::from_secs(1)).await;
    let leader = rig.cluster.leader(TARGET).await.unwrap();
    let mut followers = rig.cluster.ids();
    followers.retain(|id| *id != leader);
    let calm = Clients::new("calm", &rig.cluster);
    let before = calm.a_second(&rig, "before").await;

    // Others, that have not saved retries for the storm.
    let clients = Clients::new("storm", &rig.cluster);
    let at_first = Work::of(&rig, leader).await;
    let fleets = clients.start(&rig, "during");
    hamper(&rig, &followers, RUNS_IF_STALLING).await;
    let stalled = Work::of(&rig, leader).await;
    hamper(&rig, &followers, RUNS_IF_SLOW).await;
    let ended_at = Instant::now();
    let slow = Work::of(&rig, leader).await;
    let tries: u64 = fleets.iter().map(Fleet::tries).sum();
    let (_, releases) = clients.sent();
    finish(fleets).await;
    println!("all are served {:?} after", ended_at.elapsed());

    let entry = slow.entry_since(&stalled);
    let operations = slow.operations - at_first.operations;
    let operations_max = operations_max(tries, releases);
    let expired = slow.expired - at_first.expired;
    println!(
        "{tries} tries and {releases} releases took {operations} of {operations_max:.0} operations; \
         an entry took {entry:?}, {expired} calls expired"
    );
    assert!(entry >= SLOW_MIN, "not slow: an entry took {entry:?}");
    assert!(operations <= operations_max, "{operations} operations");
    assert!(expired >= EXPIRED_MIN, "{expired} calls were dropped");

    for turn in 0.. {
        let after = clients.a_second(&rig, &format!("after.{turn}")).await;
        println!(
            "{before:?} before, {after:?} {:?} after",
            ended_at.elapsed()
        );
        if after.is_as(&before) {
            break;
        }
        assert!(ended_at.elapsed() < NORMAL_WITHIN, "not as before");
    }
    assert_eq!(rig.cluster.leader(TARGET).await.unwrap(), leader);
    rig.judge().await;
}
