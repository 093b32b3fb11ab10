//! Connections that want nothing keep nobody out, and cost a node nothing it needs.

use crate::rig::{Rig, TARGET, readiness};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use weir_chaos::cluster::{Cluster, Port};
use weir_chaos::crowd::{Crowd, Manner, affordable};
use weir_client::{Call, Client, Outcome};

/// File descriptors of each node: far fewer than come.
const FILES: u32 = 256;
/// Connections that stay and say nothing of use.
const CROWD: usize = 1_000;
/// Connections that come at one moment, where one process can make so many.
const RUSH: usize = 10_000;
/// A client is served within this, on a machine that is busy with the crowd too.
const SERVED_MAX: Duration = Duration::from_secs(3);
/// The same for one that comes in the middle of the rush: it stands in the same queue, and the system lets it
/// knock again after one second and after three.
const SERVED_IN_RUSH_MAX: Duration = Duration::from_secs(10);
/// Who said too little is gone after this.
const CLOSED_MAX: Duration = Duration::from_secs(15);

/// A client makes one call; how long it took.
async fn serve(client: &Client, id: &str, within: Duration) -> Duration {
    let begun = Instant::now();
    let call = Call::new(TARGET, "acme", "interactive")
        .id(id)
        .cost("requests", 1);
    let costs = [("requests", 1)];
    let served = async {
        client
            .admit_wait(&call)
            .await?
            .settle(Outcome::Ok, costs)
            .await
    };
    let served = timeout(within, served).await;
    let served = served.unwrap_or_else(|_| panic!("{id}: not served in {within:?}"));
    served.unwrap();
    begun.elapsed()
}

/// The same by a client of its own, with connections of its own.
async fn serve_one(cluster: &Cluster, id: &str) -> Duration {
    serve(&cluster.client().unwrap(), id, SERVED_MAX).await
}

#[tokio::test]
async fn a_crowd_that_says_nothing_keeps_nobody_out() {
    let mut rig = Rig::start_limited(1_000, Duration::from_secs(2), FILES).await;
    let leader = rig.cluster.leader(TARGET).await.unwrap();
    let address = rig.cluster.address(leader);
    let crowd = Crowd::gather(&address, CROWD, &Manner::ALL).await.unwrap();
    let mut slowest = Duration::ZERO;
    for number in 0..10 {
        slowest = slowest.max(serve_one(&rig.cluster, &format!("guest.{number}")).await);
    }
    println!(
        "{} of the crowd are in, {} were refused; the slowest guest took {slowest:?}",
        crowd.open(),
        crowd.refused
    );
    assert!(crowd.open() < FILES as usize);
    // Those who never greeted are sent away although nobody needs their place.
    let silent = [Manner::Silent, Manner::Half];
    let silent = Crowd::gather(&address, 50, &silent).await.unwrap();
    let until = Instant::now() + CLOSED_MAX;
    while silent.open() > 0 {
        assert!(Instant::now() < until, "{} stay", silent.open());
        sleep(Duration::from_millis(100)).await;
    }
    serve_one(&rig.cluster, "last").await;
    rig.cluster.wait_until_whole().await.unwrap();
}

#[tokio::test]
async fn a_rush_of_connections_ends_no_node() {
    let mut rig = Rig::start_limited(1_000, Duration::from_secs(2), FILES).await;
    let leader = rig.cluster.leader(TARGET).await.unwrap();
    let address = rig.cluster.address(leader);
    let count = affordable(RUSH);
    let rush = Crowd::gather(&address, count, &[Manner::Greeted]);
    let regulars = async {
        let mut slowest = Duration::ZERO;
        for number in 0..50 {
            let id = format!("regular.{number}");
            slowest = slowest.max(serve(&rig.client, &id, SERVED_MAX).await);
        }
        slowest
    };
    let guests = async {
        let mut slowest = Duration::ZERO;
        for number in 0..10 {
            let client = rig.cluster.client().unwrap();
            let id = format!("guest.{number}");
            slowest = slowest.max(serve(&client, &id, SERVED_IN_RUSH_MAX).await);
        }
        slowest
    };
    serve(&rig.client, "first", SERVED_MAX).await;
    let begun = Instant::now();
    let (rush, regular, guest) = tokio::join!(rush, regulars, guests);
    let rush = rush.unwrap();
    println!(
        "{count} came in {:?}: {} are in, {} were refused; the slowest call of a client that was there took \
         {regular:?}, of one that came {guest:?}",
        begun.elapsed(),
        rush.open(),
        rush.refused
    );
    drop(rush);
    serve_one(&rig.cluster, "last").await;
    rig.cluster.wait_until_whole().await.unwrap();
}

#[tokio::test]
async fn crowds_at_the_other_ports_keep_neither_peers_nor_probes_out() {
    let mut rig = Rig::start_limited(1_000, Duration::from_secs(2), FILES).await;
    let leader = rig.cluster.leader(TARGET).await.unwrap();
    let admin = rig.cluster.address_of(leader, Port::Admin);
    let at_admin = Crowd::gather(&admin, 200, &Manner::ALL).await.unwrap();
    let peer = rig.cluster.address_of(leader, Port::Peer);
    let at_peer = Crowd::gather(&peer, 200, &Manner::ALL).await.unwrap();
    assert!(readiness(&admin).await.contains("200 OK"));
    // A node that comes back finds its peers in spite of the crowd.
    let other = *rig.cluster.ids().iter().find(|id| **id != leader).unwrap();
    rig.cluster.take(other).unwrap().kill().await.unwrap();
    serve_one(&rig.cluster, "two are left").await;
    rig.cluster.start().await.unwrap();
    println!("{} and {} are in", at_admin.open(), at_peer.open());
    assert!(readiness(&admin).await.contains("200 OK"));
    serve_one(&rig.cluster, "last").await;
}
