//! One log decides, whoever leads and whoever is asked.

use crate::rig::{Rig, TARGET, alone, program, served};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use weir_chaos::cluster::Cluster;
use weir_client::wire::{EnforcedBy, InitialUse, Limit, LimitKind, Policy, Priority};
use weir_client::{Answer, Call, Client, Error, Options};

/// How often the lead goes to the next node.
const MOVE_EVERY: Duration = Duration::from_secs(1);
const MOVES: usize = 12;
/// A move is taken up within this, or was refused and is tried again.
const MOVED_WITHIN: Duration = Duration::from_secs(5);
/// Longest time without any answer.
const SILENCE_MAX_US: u64 = 2_000_000;

#[tokio::test]
async fn a_lead_that_goes_round_keeps_the_cap_and_stops_nobody() {
    let mut rig = Rig::start(40, Duration::from_secs(2)).await;
    let load = rig.load();
    sleep(Duration::from_secs(2)).await;
    let begun_us = rig.recorder.now_us();
    let ids = rig.cluster.ids();
    for _ in 0..MOVES {
        let from = rig.cluster.leader(TARGET).await.unwrap();
        let place = ids.iter().position(|id| *id == from).unwrap();
        let to = ids[(place + 1) % ids.len()];
        move_lead(&rig, to).await;
        sleep(MOVE_EVERY).await;
    }
    let ended_us = rig.recorder.now_us();
    load.finish().await;
    let history = rig.judge().await;
    let (_, silence_us) = history.longest_silence_us(begun_us, ended_us);
    println!(
        "{MOVES} moves, silent for {} ms at most",
        silence_us / 1_000
    );
    assert!(
        silence_us < SILENCE_MAX_US,
        "{silence_us} us without an answer"
    );
    assert!(served(&history, begun_us, ended_us) > 0);
}

async fn move_lead(rig: &Rig, to: u64) {
    let shard = rig.target().await.shard;
    let until = Instant::now() + MOVED_WITHIN;
    while rig.cluster.leader(TARGET).await.unwrap() != to {
        assert!(Instant::now() < until, "the lead does not go to {to}");
        // Refused while the other one has not caught up.
        match rig.client.transfer(shard, to).await {
            Ok(()) | Err(Error::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

fn tokens(cap: u64) -> Policy {
    let limit = Limit {
        name: "tokens".into(),
        dimension: "tokens".into(),
        cap,
        per_us: 60_000_000,
        kind: LimitKind::Sliding.into(),
        enforced_by: EnforcedBy::Provider.into(),
        burst_us: Some(60_000_000),
        initial_use: InitialUse::Empty.into(),
    };
    Policy {
        limits: vec![limit],
        priorities: vec![Priority {
            name: "interactive".into(),
            weight: 1,
        }],
        ..Policy::default()
    }
}

/// Calls that fit one by one and not together, and calls that never fit, at one moment.
#[tokio::test]
async fn calls_at_one_moment_at_all_nodes_never_pass_the_cap_together() {
    let _alone = alone().await;
    let mut cluster = Cluster::new(&program(), 4).unwrap();
    cluster.start().await.unwrap();
    let addresses = cluster.addresses();
    let nodes = addresses.len();
    // Each client asks another node first.
    let clients: Vec<Client> = (0..5)
        .map(|number| {
            let mut addresses = addresses.clone();
            addresses.rotate_left(number % nodes);
            Client::new(Options::new(addresses)).unwrap()
        })
        .collect();
    for round in 0..50 {
        let target = format!("parallel/{round}");
        cluster
            .client()
            .unwrap()
            .put_target(&target, tokens(100), None)
            .await
            .unwrap();
        let costs = [58, 80, 175, 175, 175];
        let mut asks = JoinSet::new();
        for (client, cost) in clients.iter().zip(costs) {
            let call = Call::new(&target, "acme", "interactive").cost("tokens", cost);
            let client = client.clone();
            asks.spawn(async move { (cost, client.try_admit(&call, None).await.unwrap()) });
        }
        let (mut admitted, mut guards) = (Vec::new(), Vec::new());
        for (cost, answer) in asks.join_all().await {
            match answer {
                Answer::Admitted(guard) => {
                    admitted.push(cost);
                    guards.push(guard);
                }
                Answer::Deferred(deferral) => assert!(!deferral.is_local() && cost < 100),
                Answer::Rejected(rejection) => assert_eq!(cost, 175, "{rejection:?}"),
            }
        }
        assert!(
            matches!(admitted[..], [58] | [80]),
            "{target}: {admitted:?}"
        );
    }
}
