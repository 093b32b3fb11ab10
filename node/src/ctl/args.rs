//! Flags that several commands share, and how their values are read.

use super::policy_file;
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use weir_proto::v1 as wire;

/// What a call is: the flags of `admit` and `explain`.
#[derive(Clone, Debug, Args)]
pub(super) struct CallArgs {
    /// What is called.
    pub(super) target: String,
    /// Who the use is counted against.
    #[arg(long, default_value = "ctl")]
    pub(super) tenant: String,
    /// A priority of the target's policy; without it the lowest one.
    #[arg(long)]
    pub(super) priority: Option<String>,
    /// Units per dimension: requests=1,tokens=500.
    #[arg(long, value_parser = parse_units, default_value = "requests=1")]
    pub(super) cost: Units,
    /// Upper bounds per dimension, for example tokens=4000.
    #[arg(long, value_parser = parse_units, default_value = "", hide_default_value = true)]
    pub(super) cost_max: Units,
}

#[derive(Clone, Debug, Args)]
pub(super) struct AdmitArgs {
    #[command(flatten)]
    pub(super) call: CallArgs,
    /// Name of this logical call; random if not given. Asking again with the same one keeps the place.
    #[arg(long)]
    pub(super) id: Option<String>,
    /// The attempt, as an earlier answer told it; random if not given.
    #[arg(long)]
    pub(super) attempt: Option<u64>,
    /// Number of this ask in its attempt.
    #[arg(long, default_value_t = 1)]
    pub(super) ask: u32,
    /// Refuse instead of deferring beyond this, for example 30s.
    #[arg(long, value_parser = parse_duration)]
    pub(super) deadline: Option<Duration>,
    /// Answer, change nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Print nothing but the grant.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

#[derive(Clone, Debug, Args)]
pub(super) struct ReleaseArgs {
    /// What was called.
    pub(super) target: String,
    /// The grant, SHARD:INDEX:OFFSET, as `admit` printed it.
    #[arg(value_parser = parse_grant)]
    pub(super) grant: wire::Grant,
    /// Units really used per dimension; what is left out keeps its estimate.
    #[arg(long, value_parser = parse_units, default_value = "", hide_default_value = true)]
    pub(super) actual: Units,
    /// How the call ended.
    #[arg(long, value_enum, default_value_t = Outcome::Ok)]
    pub(super) outcome: Outcome,
    /// The provider's Retry-After with the outcome `throttled`, for example 2s.
    #[arg(long, value_parser = parse_duration, default_value = "0s")]
    pub(super) retry_after: Duration,
    /// The dimension that the provider named with the outcome `throttled`; it is counted.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub(super) dimension: String,
}

#[derive(Clone, Debug, Args)]
pub(super) struct CancelArgs {
    /// What was to be called.
    pub(super) target: String,
    /// The call's tenant.
    #[arg(long, default_value = "ctl")]
    pub(super) tenant: String,
    /// Name of the logical call.
    #[arg(long)]
    pub(super) id: String,
    /// Its attempt, as the answer to its ask or `explain --id` told it; without it the newest one, as it stands
    /// now: should its caller ask again meanwhile, nothing is given up.
    #[arg(long)]
    pub(super) attempt: Option<u64>,
    /// Number of its last ask.
    #[arg(long, default_value_t = 1, requires = "attempt")]
    pub(super) ask: u32,
}

#[derive(Clone, Debug, Args)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    pub(super) call: CallArgs,
    /// Name of a logical call, to look at its place and at what is remembered of it; without it a new call is
    /// looked at.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(super) id: String,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Outcome {
    /// The provider served it.
    Ok,
    /// The provider answered 429.
    Throttled,
    /// It was sent and failed otherwise.
    Failed,
    /// It was certainly not sent.
    NotSent,
}

impl From<Outcome> for wire::CallOutcome {
    fn from(outcome: Outcome) -> wire::CallOutcome {
        match outcome {
            Outcome::Ok => wire::CallOutcome::Ok,
            Outcome::Throttled => wire::CallOutcome::Throttled,
            Outcome::Failed => wire::CallOutcome::Failed,
            Outcome::NotSent => wire::CallOutcome::NotSent,
        }
    }
}

/// Units per dimension, as flags give them.
pub(super) type Units = Arc<BTreeMap<String, u64>>;

fn parse_units(text: &str) -> Result<Units, String> {
    let mut units = BTreeMap::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let wrong = || format!("{part:?} is not dimension=units");
        let (dimension, number) = part.split_once('=').ok_or_else(wrong)?;
        let number = number.parse().map_err(|_| wrong())?;
        if units.insert(dimension.to_owned(), number).is_some() {
            return Err(format!("dimension {dimension:?} is given twice"));
        }
    }
    Ok(units.into())
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    policy_file::parse_span(text).map(Duration::from_micros)
}

fn parse_grant(text: &str) -> Result<wire::Grant, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let read = || {
        let [shard, index, offset] = parts[..] else {
            return None;
        };
        Some(wire::Grant {
            shard: shard.parse().ok()?,
            index: index.parse().ok()?,
            offset: offset.parse().ok()?,
        })
    };
    read().ok_or_else(|| format!("{text:?} is not SHARD:INDEX:OFFSET"))
}
