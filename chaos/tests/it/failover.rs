//! The leader dies under load.

use crate::rig::{Rig, TARGET, served};
use std::time::Duration;
use tokio::time::sleep;

/// Longest time without any answer around the loss of a leader.
const SILENCE_MAX_US: u64 = 2_500_000;

#[tokio::test]
async fn a_killed_leader_is_replaced_and_nothing_is_charged_twice() {
    let mut rig = Rig::start(40, Duration::from_secs(2)).await;
    let load = rig.load();
    sleep(Duration::from_secs(3)).await;

    let leader = rig.cluster.leader(TARGET).await.unwrap();
    let killed_us = rig.recorder.now_us();
    rig.cluster.take(leader).unwrap().kill().await.unwrap();
    sleep(Duration::from_secs(6)).await;
    let until_us = rig.recorder.now_us();

    rig.cluster.start().await.unwrap();
    load.finish().await;
    let history = rig.judge().await;

    let (at_us, silence_us) = history.longest_silence_us(killed_us, until_us);
    println!(
        "silent for {} ms, {} ms after the fault",
        silence_us / 1_000,
        (at_us - killed_us) / 1_000
    );
    assert!(
        silence_us < SILENCE_MAX_US,
        "{silence_us} us without an answer"
    );
    // At least one full window went out after the loss, on two nodes.
    assert!(served(&history, killed_us, until_us) >= 40);
}
