//! The road of the demo: arguments, one run without a gate, one through the cluster, the report.

use super::book::Counts;
use super::chat::Chat;
use super::fleet::{Activity, Fleet};
use super::limits::{DRAIN_MAX, PROGRESS_EVERY, SECONDS_MAX, SECONDS_MIN, WINDOW_MAX, WINDOW_MIN};
use super::provider::{Provider, ProviderConfig};
use super::report::Measured;
use super::ungated::Ungated;
use super::window::WindowKind;
use super::workload::Workload;
use anyhow::Context as _;
use std::ops::Range;
use std::time::Duration;
use tokio::time::Instant;

/// `weir demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Length of each of the two runs in seconds, warm-up included.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(SECONDS_MIN..=SECONDS_MAX))]
    pub seconds: u64,
    /// The provider's window, for example 10s or 1500ms.
    #[arg(long, default_value = "10s", value_parser = parse_window)]
    pub window: Duration,
    /// How the provider's window moves.
    #[arg(long, value_enum, default_value_t = WindowKind::Sliding)]
    pub kind: WindowKind,
    /// Do not kill the leader half way.
    #[arg(long)]
    pub keep_leader: bool,
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 3)]
    pub nodes: usize,
    /// Seed of prompts, completions, service times and timers.
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
}

fn parse_window(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let number: u64 = digits
        .parse()
        .map_err(|_| "must be a number with s or ms".to_owned())?;
    let window = match unit {
        "s" | "" => Duration::from_secs(number),
        "ms" => Duration::from_millis(number),
        _ => return Err("must end in s or ms".into()),
    };
    if (WINDOW_MIN..=WINDOW_MAX).contains(&window) {
        Ok(window)
    } else {
        Err(format!("must be {WINDOW_MIN:?} to {WINDOW_MAX:?}"))
    }
}

/// What both runs have in common.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The load.
    pub workload: Workload,
    /// The provider, made anew for each run: its counters begin at zero.
    pub provider: ProviderConfig,
    /// Length of a run.
    pub seconds: u64,
    /// Warm-up at its beginning: one window (a fresh provider gives its first cap away at once), but at
    /// most a third of the run.
    pub warm_seconds: u64,
}

/// Calls a second that the provider lets through: 60 as in the paper.
const CALLS_PER_S: u64 = 60;
/// Tokens a second: 200 for each call, as in the paper; calls use about 160, so requests bind.
const TOKENS_PER_S: u64 = 12_000;

impl Plan {
    /// The plan that the arguments ask for.
    pub fn new(args: &DemoArgs) -> Plan {
        let per_window = |per_s: u64| {
            let millis = u64::try_from(args.window.as_millis()).unwrap_or(u64::MAX);
            per_s.saturating_mul(millis) / 1_000
        };
        let provider = ProviderConfig {
            cap_requests: per_window(CALLS_PER_S),
            cap_tokens: per_window(TOKENS_PER_S),
            window: args.window,
            kind: args.kind,
            rejected_counts: true,
            latency: (Duration::from_millis(50), Duration::from_millis(150)),
            completion_percent: (10, 70),
            seed: args.seed,
        };
        let window_s = args.window.as_millis().div_ceil(1_000);
        let warm_seconds = u64::try_from(window_s)
            .unwrap_or(u64::MAX)
            .min(args.seconds / 3);
        let workload = Workload::cross_priority(args.seed);
        Plan {
            workload,
            provider,
            seconds: args.seconds,
            warm_seconds,
        }
    }

    /// The seconds that count.
    pub fn span(&self) -> Range<usize> {
        let second = |s: u64| usize::try_from(s).unwrap_or(usize::MAX);
        second(self.warm_seconds)..second(self.seconds)
    }

    /// Half way through the seconds that count.
    pub fn half_way(&self, epoch: Instant) -> Instant {
        let half = Duration::from_secs(self.seconds + self.warm_seconds) / 2;
        epoch + half
    }
}

/// Runs the fleet without a gate.
pub async fn run_ungated(plan: &Plan) -> anyhow::Result<Measured> {
    let provider = Provider::start(plan.provider.clone()).context("the mock provider")?;
    let activity = Ungated::new(Chat::new(provider.address())?);
    let fleet = start(plan, &provider, activity)?;
    tell_until_end("ungated", plan, &provider).await;
    let sends = fleet.activity().sends();
    let counts = provider.counts();
    let figures = fleet.stop(DRAIN_MAX).await;
    Ok(Measured {
        counts,
        figures,
        asks: sends,
        span: plan.span(),
        failover: None,
    })
}

fn start<A: Activity>(plan: &Plan, provider: &Provider, activity: A) -> anyhow::Result<Fleet<A>> {
    let warm = provider.epoch() + Duration::from_secs(plan.warm_seconds);
    Ok(Fleet::start(plan.workload.clone(), activity, warm)?)
}

/// Waits for the end of a run and tells on stderr how it goes.
async fn tell_until_end(name: &str, plan: &Plan, provider: &Provider) {
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
        line += &format!("  {} {:5.1}/s", class.name, of.accepted as f64 / length);
    }
    let all = counts.total(|_| true, seconds);
    let calls = (all.accepted + all.throttled).max(1);
    line + &format!(
        "  429: {:5.1} %",
        all.throttled as f64 * 100.0 / calls as f64
    )
}
