//! What the demo is asked for, and what both of its runs have in common.

use super::limits::{SECONDS_MAX, SECONDS_MIN, WINDOW_MAX, WINDOW_MIN};
use super::provider::ProviderConfig;
use super::window::WindowKind;
use super::workload::Workload;
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
    /// Nodes of the cluster: 1, 3 or 5. One alone cannot lose its leader and go on.
    #[arg(long, default_value_t = 3, value_parser = parse_nodes)]
    pub nodes: usize,
    /// Seed of prompts, completions, service times and timers.
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
}

fn parse_nodes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(nodes @ (1 | 3 | 5)) => Ok(nodes),
        Ok(_) | Err(_) => Err("must be 1, 3 or 5".into()),
    }
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
    /// Whether the leader is killed half way.
    pub kill_leader: bool,
}

/// Calls a second that the provider lets through: 60 as in the paper.
const CALLS_PER_S: u64 = 60;
/// Tokens a second: 200 for each call, as in the paper; calls use about 160, so requests bind.
const TOKENS_PER_S: u64 = 12_000;

impl Plan {
    /// What is going to happen, in plain words.
    pub fn words(&self) -> String {
        let window_s = self.provider.window.as_secs_f64();
        format!(
            "A mock provider allows {} calls and {} tokens in {} of {window_s} s. {} workflows of six \
             tenants in three priorities (5:3:2) call it from {} slots, {} s without a gate, then {} s \
             through a cluster.",
            self.provider.cap_requests,
            self.provider.cap_tokens,
            match self.provider.kind {
                WindowKind::Sliding => "any window",
                WindowKind::Fixed => "fixed windows",
            },
            self.workload.workflows(),
            self.workload.workers * self.workload.slots,
            self.seconds,
            self.seconds,
        )
    }

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
            kill_leader: !args.keep_leader,
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        demo: DemoArgs,
    }

    fn typed(flags: &str) -> Result<Plan, clap::Error> {
        let words = std::iter::once("demo").chain(flags.split_whitespace());
        Ok(Plan::new(&Typed::try_parse_from(words)?.demo))
    }

    #[test]
    fn default_run_takes_one_to_two_minutes() {
        let plan = typed("").unwrap();
        assert!((60..=120).contains(&(plan.seconds * 2)));
        assert_eq!(
            (plan.provider.cap_requests, plan.provider.cap_tokens),
            (600, 120_000)
        );
        assert_eq!(plan.span(), 10..50);
        assert!(plan.kill_leader);
    }

    #[test]
    fn caps_follow_the_window_and_the_warm_up_stays_within_a_third() {
        let plan = typed("--window 1500ms --seconds 12 --kind fixed --keep-leader").unwrap();
        assert_eq!(
            (plan.provider.cap_requests, plan.provider.cap_tokens),
            (90, 18_000)
        );
        assert_eq!(plan.span(), 2..12);
        assert!(!plan.kill_leader);
        assert_eq!(typed("--window 60 --seconds 30").unwrap().span(), 10..30);
        let epoch = Instant::now();
        assert_eq!(plan.half_way(epoch) - epoch, Duration::from_secs(7));
    }

    #[test]
    fn wrong_flags_are_refused() {
        for flags in [
            "--window 999ms",
            "--window 601s",
            "--window 5m",
            "--window s",
            "--window 99999999999999999999s",
            "--seconds 5",
            "--seconds 3001",
            "--kind bucket",
            "--nodes 2",
        ] {
            assert!(typed(flags).is_err(), "{flags}");
        }
    }
}
