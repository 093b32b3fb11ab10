//! `history`: use of a target in the past.

use super::args::parse_duration;
use super::when::{self, When};
use super::{CtlError, Form, show};
use crate::exit::Exit;
use clap::{Args, ValueEnum};
use std::io::{IsTerminal, stdout};
use std::time::Duration;
use weir_client::{Client, Error, History};
use weir_proto::v1 as wire;

/// Steps to choose from if none is asked for, in seconds, and how many of them are easy to read.
const STEPS_S: [u64; 8] = [60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400];
const STEPS_SHOWN: u64 = 60;

#[derive(Clone, Debug, Args)]
pub(super) struct HistoryArgs {
    /// The target. Removed ones have a history too.
    target: String,
    /// Begin so long ago (90m), or at this minute in UTC (2026-11-30T13:45).
    #[arg(long, value_parser = when::parse, default_value = "1h", value_name = "WHEN")]
    from: When,
    /// End so long ago, or at this minute.
    #[arg(long, value_parser = when::parse, default_value = "0s", value_name = "WHEN")]
    to: When,
    /// Length of one step, in whole minutes; without it as long as it takes for at most 60 steps.
    #[arg(long, value_parser = parse_duration)]
    step: Option<Duration>,
    /// Only this tenant.
    #[arg(long, default_value = "", hide_default_value = true)]
    tenant: String,
    /// Only this priority.
    #[arg(long, default_value = "", hide_default_value = true)]
    priority: String,
    /// Tell tenants or priorities apart.
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Draw bars of what was admitted and deferred against the cap of the policy in force.
    #[arg(long, conflicts_with = "by")]
    plot: bool,
    /// Draw the use of this dimension instead.
    #[arg(long, requires = "plot")]
    dimension: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    /// Each tenant.
    Tenant,
    /// Each priority.
    Priority,
}

/// What was asked for, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) target: String,
    pub(super) from_s: u64,
    pub(super) to_s: u64,
    pub(super) step_s: u64,
    pub(super) by: Option<By>,
}

pub(super) async fn history(
    client: &Client,
    args: HistoryArgs,
    form: Form,
) -> Result<(String, Exit), CtlError> {
    let range = range(&args, when::now_s())?;
    let request = wire::ReadHistoryRequest {
        target: args.target,
        tenant: args.tenant,
        priority: args.priority,
        from_unix_s: range.from_s,
        to_unix_s: range.to_s,
        step_s: range.step_s,
        by: match args.by {
            None => wire::HistoryBy::Unspecified,
            Some(By::Tenant) => wire::HistoryBy::Tenant,
            Some(By::Priority) => wire::HistoryBy::Priority,
        }
        .into(),
    };
    let history = client.read_history(&request).await?;
    // A view that lacks a node's part is not a success.
    let exit = if history.missing_nodes.is_empty() {
        Exit::Success
    } else {
        Exit::Unavailable
    };
    if !args.plot || form == Form::Json {
        return Ok((show::history(&range, &history, form), exit));
    }
    let policy = match client.get_target(&range.target).await {
        Ok(target) => target.policy.unwrap_or_default(),
        Err(Error::TargetUnknown { .. }) => wire::Policy::default(),
        Err(error) => return Err(error.into()),
    };
    let paper = show::Paper {
        width: show::Paper::width_of_terminal(),
        colors: stdout().is_terminal()
            && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    let text = show::plot(&range, &history, &policy, args.dimension.as_deref(), paper);
    Ok((text, exit))
}

/// The range in whole steps: it begins with one that began by then.
fn range(args: &HistoryArgs, now_s: u64) -> Result<Range, CtlError> {
    let (from_s, to_s) = (args.from.unix_s(now_s), args.to.unix_s(now_s));
    if from_s >= to_s {
        return Err(CtlError::usage("--to must be after --from"));
    }
    let step_s = match args.step {
        Some(step) if step.subsec_nanos() == 0 && step.as_secs() > 0 => step.as_secs(),
        Some(_) => return Err(CtlError::usage("--step must be whole minutes")),
        None => {
            let fits = |step: &&u64| (to_s - from_s).div_ceil(**step) <= STEPS_SHOWN;
            STEPS_S.iter().find(fits).copied().unwrap_or(86_400)
        }
    };
    if !step_s.is_multiple_of(60) {
        return Err(CtlError::usage("--step must be whole minutes"));
    }
    // What happens at this moment belongs to the range, also in the first second of a minute.
    let end_s = match args.to {
        When::Ago(_) => to_s.saturating_add(1),
        When::At(_) => to_s,
    };
    Ok(Range {
        target: args.target.clone(),
        from_s: from_s - from_s % step_s,
        to_s: end_s.div_ceil(60) * 60,
        step_s,
        by: args.by,
    })
}

/// What is wrong with what was told.
pub(super) fn complaints(history: &History) -> Vec<String> {
    let missing = history.missing_nodes.iter();
    let missing = missing.map(|node| {
        format!("incomplete: node {node} does not answer; what it decided while it led is missing")
    });
    let troubled = history.troubled_nodes.iter();
    let troubled = troubled.map(|(node, trouble)| {
        format!("incomplete: node {node} tells only its last minutes, its store is out of use: {trouble}")
    });
    missing.chain(troubled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: HistoryArgs,
    }

    /// A minute and a half after 13:45.
    const NOW: u64 = 1_796_046_390;

    fn told(arguments: &[&str]) -> Result<(u64, u64, u64), String> {
        told_at(NOW, arguments)
    }

    fn told_at(now_s: u64, arguments: &[&str]) -> Result<(u64, u64, u64), String> {
        let line = Line::try_parse_from([&["history", "a/x"], arguments].concat());
        let range = range(&line.map_err(|error| error.to_string())?.args, now_s);
        let range = range.map_err(|error| error.to_string())?;
        Ok((range.from_s, range.to_s, range.step_s))
    }

    #[test]
    fn ranges_are_whole_steps() {
        let end = NOW + 30;
        assert_eq!(told(&[]), Ok((end - 3_660, end, 60)));
        assert_eq!(told_at(end - 1, &[]), Ok((end - 3_660, end, 60)));
        assert_eq!(told_at(end, &[]), Ok((end - 3_600, end + 60, 60)));
        let day = told(&["--from", "1d"]).unwrap();
        assert_eq!(day, (NOW - 86_400 - (NOW - 86_400) % 3_600, end, 3_600));
        let fixed = [
            "--from",
            "2026-11-30T12:00",
            "--to",
            "2026-11-30T13:00",
            "--step",
            "5m",
        ];
        assert_eq!(told(&fixed), Ok((1_796_040_000, 1_796_043_600, 300)));
        for wrong in [
            &["--from", "1h", "--to", "2h"][..],
            &["--step", "90s"],
            &["--step", "0s"],
            &["--step", "500ms"],
            &["--plot", "--by", "tenant"],
            &["--dimension", "tokens"],
            &["--from", "yesterday"],
        ] {
            assert!(told(wrong).is_err(), "{wrong:?}");
        }
    }
}
