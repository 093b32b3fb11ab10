//! All nodes die at once and come back.

use crate::rig::{Rig, TARGET, counted, served};
use std::time::Duration;
use tokio::time::sleep;

/// Less than there are callers, so that their first calls take it all.
const CAP: u64 = 16;

#[tokio::test]
async fn a_restart_of_all_nodes_keeps_policy_and_use_and_gives_no_fresh_cap() {
    // The whole cap goes out at once, then nothing for the rest of the window: a forgotten use would
    // send a second cap at once.
    let mut rig = Rig::start(CAP, Duration::from_secs(8)).await;
    let load = rig.load();
    let before = loop {
        let target = rig.target().await;
        if counted(&target)["pace"] == CAP {
            break target;
        }
        sleep(Duration::from_millis(20)).await;
    };

    for id in rig.cluster.ids() {
        rig.cluster.take(id).unwrap().kill().await.unwrap();
    }
    let killed_us = rig.recorder.now_us();
    rig.cluster.start().await.unwrap();

    let after = rig.target().await;
    assert_eq!(
        (after.version, &after.policy),
        (before.version, &before.policy)
    );
    assert!(counted(&after)["ledger"] >= counted(&before)["ledger"]);
    let put = rig.put().await;
    assert_eq!(
        (put.version, put.changed),
        (1, false),
        "the same policy again"
    );
    rig.cluster.leader(TARGET).await.unwrap();

    sleep(Duration::from_secs(10)).await;
    load.finish().await;
    let until_us = rig.recorder.now_us();
    let history = rig.judge().await;
    assert!(
        served(&history, killed_us, until_us) >= CAP as usize,
        "the next window went out"
    );
}
