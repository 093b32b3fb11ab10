//! `watch`: targets at work, sampled again and again.

use super::args::parse_duration;
use super::progress::Progress;
use super::{CtlError, Form, show};
use crate::exit::Exit;
use crate::signals;
use clap::Args;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write as _, stdout};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};
use weir_client::{Client, TargetList};
use weir_proto::v1 as wire;

/// Shortest and longest time between two samples: a sample asks every leader for all of its targets.
const INTERVAL_MIN: Duration = Duration::from_millis(200);
/// See [`INTERVAL_MIN`].
const INTERVAL_MAX: Duration = Duration::from_secs(3_600);

#[derive(Clone, Debug, Args)]
pub(super) struct WatchArgs {
    /// Only targets whose name begins with this; all if not given.
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Time between two samples, 200ms to 1h.
    #[arg(long, value_parser = parse_interval, default_value = "2s")]
    interval: Duration,
    /// Show one interval and end.
    #[arg(long)]
    once: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        Ok(interval)
    } else {
        Err("must be 200ms to 1h".into())
    }
}

/// What was seen at one moment.
pub(super) struct Sample {
    at: Instant,
    targets: BTreeMap<String, wire::Target>,
    /// Leader of each shard that has one.
    leaders: BTreeMap<u32, u64>,
    missing_shards: Vec<u32>,
}

/// What happened between two samples.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) elapsed: Duration,
    pub(super) rows: Vec<Row>,
    pub(super) missing_shards: Vec<u32>,
}

/// One target.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) target: wire::Target,
    /// `None` if the shard has none.
    pub(super) leader: Option<u64>,
    /// Decisions and 429s since the last sample.
    pub(super) admitted: u64,
    pub(super) deferred: u64,
    pub(super) rejected: u64,
    pub(super) throttled: u64,
}

pub(super) async fn run(
    client: &Client,
    args: WatchArgs,
    form: Form,
) -> Result<(String, Exit), CtlError> {
    let first = {
        let _progress = Progress::start("the cluster");
        sample(client, &args.prefix).await?
    };
    let mut ticks = interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once.
    ticks.tick().await;
    if args.once {
        ticks.tick().await;
        let seen = between(&first, &sample(client, &args.prefix).await?);
        return Ok((show::watched(&seen, form), exit_of(&seen)));
    }
    let screen = form == Form::Table && stdout().is_terminal();
    let watching = async {
        let mut last = first;
        loop {
            ticks.tick().await;
            match sample(client, &args.prefix).await {
                Ok(next) => {
                    let text = show::watched(&between(&last, &next), form);
                    if print(&text, screen).is_err() {
                        // Whoever read it has gone.
                        return;
                    }
                    last = next;
                }
                // It may answer again: rates then span the time between.
                Err(error) => eprintln!("error: {error}"),
            }
        }
    };
    tokio::select! {
        () = watching => {}
        () = signals::stop() => {}
    }
    Ok((String::new(), Exit::Success))
}

fn print(text: &str, screen: bool) -> std::io::Result<()> {
    let mut out = stdout().lock();
    if screen {
        // Home, and clear what follows.
        write!(out, "\x1b[H\x1b[2J")?;
    }
    write!(out, "{text}")?;
    out.flush()
}

/// A view that lacks a shard is not a success.
fn exit_of(seen: &Seen) -> Exit {
    if seen.missing_shards.is_empty() {
        Exit::Success
    } else {
        Exit::Unavailable
    }
}

async fn sample(client: &Client, prefix: &str) -> Result<Sample, CtlError> {
    let TargetList {
        targets,
        missing_shards,
    } = client.list_targets().await?;
    let routes = client.routes().await?.routes.into_iter();
    Ok(Sample {
        at: Instant::now(),
        targets: targets
            .into_iter()
            .filter(|target| target.name.starts_with(prefix))
            .map(|target| (target.name.clone(), target))
            .collect(),
        leaders: routes
            .filter(|route| route.leader != 0)
            .map(|route| (route.shard, route.leader))
            .collect(),
        missing_shards,
    })
}

/// Counts of a target begin anew if it is removed and forgotten; a target that is new counts from its
/// first sample.
fn between(last: &Sample, next: &Sample) -> Seen {
    let rows = next.targets.values().map(|target| {
        let before = last.targets.get(&target.name);
        let since = |count: fn(&wire::PriorityUse) -> u64| {
            let sum = |target: &wire::Target| target.priorities.iter().map(count).sum::<u64>();
            before.map_or(0, |before| sum(target).saturating_sub(sum(before)))
        };
        Row {
            leader: next.leaders.get(&target.shard).copied(),
            admitted: since(|priority| priority.admitted),
            deferred: since(|priority| priority.deferred),
            rejected: since(|priority| priority.rejected),
            throttled: since(|priority| priority.throttled),
            target: target.clone(),
        }
    });
    Seen {
        elapsed: next.at.saturating_duration_since(last.at),
        rows: rows.collect(),
        missing_shards: next.missing_shards.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_of(at: Instant, counts: &[(&str, u64)]) -> Sample {
        let target = |(name, count): &(&str, u64)| {
            let priority = |admitted| wire::PriorityUse {
                admitted,
                throttled: 1,
                ..wire::PriorityUse::default()
            };
            let target = wire::Target {
                name: (*name).into(),
                shard: 1,
                priorities: vec![priority(*count), priority(7)],
                ..wire::Target::default()
            };
            ((*name).to_owned(), target)
        };
        Sample {
            at,
            targets: counts.iter().map(target).collect(),
            leaders: [(1, 3)].into(),
            missing_shards: Vec::new(),
        }
    }

    #[test]
    fn counts_are_taken_between_two_samples() {
        let start = Instant::now();
        let last = sample_of(start, &[("again", 50), ("gone", 1), ("known", 10)]);
        let later = start + Duration::from_secs(2);
        let next = sample_of(later, &[("again", 5), ("known", 25), ("new", 9)]);
        let seen = between(&last, &next);
        let rows: Vec<_> = seen
            .rows
            .iter()
            .map(|row| {
                (
                    row.target.name.as_str(),
                    row.admitted,
                    row.throttled,
                    row.leader,
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("again", 0, 0, Some(3)),
                ("known", 15, 0, Some(3)),
                ("new", 0, 0, Some(3))
            ]
        );
        assert_eq!(seen.elapsed, Duration::from_secs(2));
    }

    #[test]
    fn intervals_are_bounded() {
        assert_eq!(parse_interval("200ms"), Ok(INTERVAL_MIN));
        for wrong in ["199ms", "2h", "2", ""] {
            assert!(parse_interval(wrong).is_err(), "{wrong:?}");
        }
    }
}
