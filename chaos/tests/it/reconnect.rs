//! Clients, each with connections of its own, all of which need the next leader at one moment.

use crate::rig::{alone, program};
use std::time::Duration;
use tokio::time::Instant;
use weir_chaos::cluster::Cluster;
use weir_chaos::guests::{Guests, quantile};
use weir_chaos::overload::{TARGET, policy};

/// Clients of the leader. Ten thousand are measured (`cargo bench -p weir-chaos --bench reconnect`).
const CLIENTS: usize = 200;
/// The same where a node has room for 96 connections.
const CLIENTS_OF_FEW: usize = 120;
/// Everybody is served within this, the time without a leader included.
const SERVED_WITHIN: Duration = Duration::from_secs(20);
/// Connections that a client tries on the way, on average.
const TRIES_EACH_MAX: usize = 100;

async fn all_go_to_the_next_leader(files: Option<u32>, clients: usize) {
    let _alone = alone().await;
    // One shard, so that one node has them all.
    let mut cluster = Cluster::new(&program(), 1).unwrap();
    if let Some(files) = files {
        cluster.limit_files(files);
    }
    cluster.start().await.unwrap();
    let client = cluster.client().unwrap();
    client.put_target(TARGET, policy(), None).await.unwrap();
    let leader = cluster.leader(TARGET).await.unwrap();
    let guests = Guests::new(&cluster.addresses(), clients).unwrap();
    let spread = Duration::from_secs(2);
    let first = guests.call(TARGET, "first", spread, SERVED_WITHIN).await;
    assert_eq!(first.unserved, 0, "{:?}", first.after.last());

    cluster.take(leader).unwrap().kill().await.unwrap();
    let begun = Instant::now();
    let second = guests
        .call(TARGET, "second", Duration::ZERO, SERVED_WITHIN)
        .await;
    let knocks = guests.knocks_since(begun);
    let [half, last] = [500, 1_000].map(|rank| quantile(&second.after, rank));
    println!(
        "{files:?} files: half was served after {half:.2?}, the last after {last:.2?}; {} connections tried from \
         {:.2?} to {:.2?} in the middle",
        knocks.len(),
        quantile(&knocks, 250),
        quantile(&knocks, 750)
    );
    assert_eq!(second.unserved, 0);
    assert!(knocks.len() <= clients * TRIES_EACH_MAX, "{}", knocks.len());
    drop(guests);
    // Nobody died of it.
    cluster.start().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_dead_leader_are_all_served_by_the_next() {
    all_go_to_the_next_leader(None, CLIENTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_are_too_if_the_nodes_have_room_for_few_of_them() {
    all_go_to_the_next_leader(Some(256), CLIENTS_OF_FEW).await;
}
