//! Cluster time in a real cluster, with clocks that only move when a test moves them.

use crate::world::{World, admit, put};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_admission::Stamp;
use weir_raft::{Clock, Retention};

/// A clock with an origin of its own over time that all nodes share.
struct Manual {
    origin_us: u64,
    passed_us: Arc<AtomicU64>,
}

impl Clock for Manual {
    fn now(&self) -> Duration {
        Duration::from_micros(self.origin_us + self.passed_us.load(Ordering::SeqCst))
    }
}

/// A cluster whose time is in the test's hands, and the stamps it gave.
struct Timed {
    world: World,
    passed_us: Arc<AtomicU64>,
    asks: u64,
    last: (Stamp, u64),
}

const SECOND: u64 = 1_000_000;

impl Timed {
    async fn new(retention: Retention) -> Timed {
        let mut world = World::unstarted(3, 1).await;
        world.config.retention = retention;
        let passed_us = Arc::new(AtomicU64::new(0));
        for node in world.members() {
            let passed_us = Arc::clone(&passed_us);
            let clock = Manual {
                origin_us: 7_777_777 * node.0,
                passed_us,
            };
            world.clocks.insert(node, Arc::new(clock));
        }
        world.start_all().await;
        let stamp = world.commit(0, vec![put("a", 1_000_000)]).await.stamp;
        Timed {
            world,
            passed_us,
            asks: 0,
            last: (stamp, 0),
        }
    }

    fn pass(&self, us: u64) {
        self.passed_us.fetch_add(us, Ordering::SeqCst);
    }

    /// The next stamp; checks that time neither went back nor was gained since the last.
    async fn stamp(&mut self) -> Stamp {
        self.asks += 1;
        let stamp = self
            .world
            .commit(0, vec![admit("a", self.asks)])
            .await
            .stamp;
        let (before, then) = self.last;
        let now = self.passed_us.load(Ordering::SeqCst);
        assert!(stamp >= before);
        assert!(
            stamp.as_micros() - before.as_micros() <= now - then,
            "time was gained"
        );
        self.last = (stamp, now);
        stamp
    }
}

#[tokio::test]
async fn within_a_term_stamps_follow_the_leaders_clock_exactly() {
    let mut timed = Timed::new(Retention::default()).await;
    // A machine that stalls may elect another leader in between; then the next term must show it.
    loop {
        let leader = timed.world.leader(0).await;
        let term = timed.world.group(leader, 0).status().term;
        let mut stamps = vec![timed.stamp().await];
        for _ in 0..5 {
            timed.pass(SECOND);
            stamps.push(timed.stamp().await);
        }
        if timed.world.group(leader, 0).status().term == term {
            let expected: Vec<_> = (0..=5).map(|s| stamps[0].after(s * SECOND)).collect();
            assert_eq!(stamps, expected);
            return;
        }
    }
}

#[tokio::test]
async fn no_stamp_is_gained_when_leaders_change() {
    let mut timed = Timed::new(Retention::default()).await;
    timed.stamp().await;
    for _ in 0..3 {
        let old = timed.world.leader(0).await;
        timed.pass(3 * SECOND);
        timed.world.kill(old).await;
        timed.pass(5 * SECOND);
        timed.stamp().await;
        timed.world.start(old).await;
        timed.world.converge(0).await;
        timed.pass(SECOND);
        timed.stamp().await;
    }
}

#[tokio::test]
async fn a_transfer_loses_only_the_time_between_stamping_and_applying() {
    let mut timed = Timed::new(Retention::default()).await;
    let before = timed.stamp().await;
    timed.world.converge(0).await;
    timed.pass(10 * SECOND);
    let leader = timed.world.leader(0).await;
    let next = timed.world.others(leader)[0];
    timed.world.group(leader, 0).transfer(next).await.unwrap();
    assert_eq!(timed.world.leader(0).await, next);
    // Nothing passed between stamping and applying, so nothing is lost.
    assert_eq!(timed.stamp().await, before.after(10 * SECOND));
}

#[tokio::test]
async fn a_restart_of_all_nodes_across_a_snapshot_goes_on_from_the_last_stamp() {
    let retention = Retention {
        snapshot_entries: 300,
        tail_entries: 256,
        ..Retention::default()
    };
    let mut timed = Timed::new(retention).await;
    timed.pass(100 * SECOND);
    let nodes = timed.world.members();
    let filled = timed.world.fill(&nodes, 0, 400, 1).await;
    timed.world.snapshot_everywhere(0).await;
    let before = timed.stamp().await;
    assert!(before >= filled.stamp && before.as_micros() >= 100 * SECOND);
    timed.world.converge(0).await;
    for node in timed.world.members() {
        timed.world.kill(node).await;
    }
    // Real time goes on while nobody is there to count it.
    timed.pass(1_000 * SECOND);
    timed.world.start_all().await;
    assert_eq!(timed.stamp().await, before, "what nobody counted is lost");
    timed.pass(SECOND);
    let after = timed.stamp().await;
    assert!(after > before && after <= before.after(SECOND));
}
