//! How a run goes, told while it goes.

use super::book::Counts;
use super::limits::PROGRESS_EVERY;
use super::plan::Plan;
use super::provider::Provider;
use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;
use tokio::time::Instant;

/// Waits for the end of a run and tells on stderr how it goes.
pub async fn tell_until_end(name: &str, plan: &Plan, provider: &Provider) {
    let end = provider.epoch() + Duration::from_secs(plan.seconds);
    let mut told = 0..0;
    loop {
        let next = Instant::now() + PROGRESS_EVERY;
        if next >= end {
            tokio::time::sleep_until(end).await;
            return;
        }
        tokio::time::sleep_until(next).await;
        let seconds = usize::try_from(provider.epoch().elapsed().as_secs()).unwrap_or(usize::MAX);
        told = told.end..seconds;
        eprintln!("{}", progress(name, plan, &provider.counts(), told.clone()));
    }
}

/// One line: who got how much in these seconds.
fn progress(name: &str, plan: &Plan, counts: &Counts, seconds: Range<usize>) -> String {
    let length = seconds.len().max(1) as f64;
    let mut line = format!("{name:>8} {:>4} s:", seconds.end);
    for class in &plan.workload.classes {
        let of = counts.total(|account| account.priority == class.name, seconds.clone());
        let rate = of.accepted as f64 / length;
        let _infallible = write!(line, "  {} {rate:5.1}/s", class.name);
    }
    let all = counts.total(|_| true, seconds);
    let calls = (all.accepted + all.throttled).max(1);
    line + &format!(
        "  429: {:5.1} %",
        all.throttled as f64 * 100.0 / calls as f64
    )
}
