//! Ten times what a node can do, for a while.

use crate::rig::{alone, program};
use std::time::Duration;
use tokio::time::Instant;
use weir_admission::limits::IDS_PER_TARGET_MAX;
use weir_chaos::overload::{Loaded, Pace, quantile_us};
use weir_raft::limits::LOG_CACHE_BYTES;

/// Half of the refusals to who asks for little come within this: they wait for this machine's processors, but
/// in no queue that others have filled.
const REFUSAL_MAX_US: u64 = 1_000_000;
/// Part of what is done at its best that is still done, in hundredths. The callers of this test take more of
/// the machine than the nodes do; what an idle one reaches is measured, not tested.
const GOODPUT_MIN: u64 = 50;
/// What a node may grow by whatever it does: the tail of its log that it keeps for peers.
const GROWTH_MAX: u64 = LOG_CACHE_BYTES as u64;
/// What it may grow by for each call that was decided: it is remembered for some seconds after its release. The
/// bench of a million tenants tells what one takes, up to the bound on their number.
const GROWTH_PER_CALL_MAX: u64 = 512;
/// Everything is as before after this.
const NORMAL_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test]
async fn ten_times_too_much_is_refused_at_once_and_what_fits_is_done() {
    let _alone = alone().await;
    let loaded = Loaded::start(&program()).await.unwrap();
    let load = |name, sessions, pace, seconds| loaded.load(name, sessions, pace, seconds);
    let closed = |outstanding| Pace::Closed { outstanding };
    load("warm", 4, closed(512), 1).run().await.unwrap();
    let peak = load("peak", 4, closed(512), 3).run_apart().await.unwrap();
    let per_second = peak.decided / 3 * 10;
    let before = loaded.resident_bytes().unwrap();
    // One session among them all that asks for little.
    let (over, polite) = (
        load("over", 24, Pace::Open { per_second }, 5),
        load("polite", 1, closed(16), 5),
    );
    let (over, polite) = tokio::join!(over.run_apart(), polite.run_apart());
    let (over, polite) = (over.unwrap(), polite.unwrap());
    let after = loaded.resident_bytes().unwrap();
    println!("peak: {}", peak.told(3));
    println!("over: {}", over.told(5));
    println!("polite: {}", polite.told(5));
    println!("{} KiB before, {} KiB after", before / 1024, after / 1024);
    let lost = over.releases_overloaded + polite.releases_overloaded;
    assert_eq!(lost, 0, "what frees the cap gets through");
    assert!(
        over.overloaded + over.held_back > over.decided,
        "there was too much"
    );
    assert!(over.decided * 3 * 100 >= peak.decided * 5 * GOODPUT_MIN);
    assert!(quantile_us(&polite.refusal_us, 500) < REFUSAL_MAX_US);
    let remembered = (over.decided + polite.decided).min(IDS_PER_TARGET_MAX as u64);
    assert!(after < before + GROWTH_MAX + remembered * GROWTH_PER_CALL_MAX);

    let usual = quantile_us(&peak.decision_us, 950);
    let until = Instant::now() + NORMAL_WITHIN;
    loop {
        let seen = load("after", 1, closed(16), 1).run().await.unwrap();
        let normal = quantile_us(&seen.decision_us, 950) <= usual;
        if normal && seen.overloaded + seen.unanswered == 0 {
            break;
        }
        println!("after: {}", seen.told(1));
        assert!(Instant::now() < until, "not as before in {NORMAL_WITHIN:?}");
    }
}
