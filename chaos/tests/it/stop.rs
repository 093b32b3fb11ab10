//! Nodes are asked to end.

use crate::rig::{Rig, served};
use std::time::Duration;
use tokio::time::sleep;

/// The cap's.
const WINDOW: Duration = Duration::from_secs(2);
/// A node hands its leaderships over and ends within this.
const STOP_MAX: Duration = Duration::from_secs(5);
/// Longest time without any answer: shorter than any election, because leaderships are handed over.
const SILENCE_MAX_US: u64 = 1_200_000;

#[tokio::test]
async fn a_rolling_restart_ends_each_node_in_time_and_is_hardly_noticed() {
    let mut rig = Rig::start(40, WINDOW).await;
    let load = rig.load();
    sleep(WINDOW).await;

    let begun_us = rig.recorder.now_us();
    for id in rig.cluster.ids() {
        let status = rig
            .cluster
            .take(id)
            .unwrap()
            .terminate(STOP_MAX)
            .await
            .unwrap();
        assert_eq!(status.code(), Some(0), "node {id}: {status}");
        rig.cluster.start().await.unwrap();
        // A quick machine restarts all three within a quarter of a window. Grants that came late each time would use
        // up the rest of it, and nobody would be due, nor ask, before it is over.
        sleep(WINDOW).await;
    }
    sleep(Duration::from_secs(1)).await;
    let until_us = rig.recorder.now_us();

    load.finish().await;
    let history = rig.judge().await;
    let (at_us, silence_us) = history.longest_silence_us(begun_us, until_us);
    println!(
        "silent for {} ms, {} ms after the fault",
        silence_us / 1_000,
        (at_us - begun_us) / 1_000
    );
    assert!(
        silence_us < SILENCE_MAX_US,
        "{silence_us} us without an answer"
    );
    // A whole window went out meanwhile.
    assert!(served(&history, begun_us, until_us) >= 40);
}
