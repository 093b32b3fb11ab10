//! Metrics that are read when they are asked for: positions of the groups, lines, shares and free capacity of
//! the targets.

use crate::limits::METRIC_SERIES_MAX;
use crate::metrics::label_value;
use crate::shards::Shards;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use weir_admission::{ShardId, TargetView};
use weir_raft::{Positions, Role};

/// Reads a node's shards at each scrape.
pub(crate) struct ShardCollector(pub(crate) Shards);

impl fmt::Debug for ShardCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardCollector").finish()
    }
}

#[derive(Debug, EncodeLabelSet)]
struct ShardLabels {
    shard: u32,
}

#[derive(Debug, EncodeLabelSet)]
struct DimensionLabels {
    target: String,
    dimension: String,
}

#[derive(Debug, EncodeLabelSet)]
struct LineLabels {
    target: String,
    priority: String,
}

/// What is told of each group: name, help, value.
type GroupGauge = (&'static str, &'static str, fn(&Positions) -> u64);

const GROUP_GAUGES: [GroupGauge; 7] = [
    (
        "raft_is_leader",
        "1 if this node leads the shard",
        |group| u64::from(group.role == Role::Leader),
    ),
    (
        "raft_has_leader",
        "1 if this node knows who leads the shard",
        |group| u64::from(group.leader.is_some()),
    ),
    ("raft_term", "Term of the shard's group", |group| group.term),
    (
        "raft_last_log_index",
        "Index of the last log entry on this node",
        |group| group.last_log_index,
    ),
    (
        "raft_commit_index",
        "Index of the last entry that this node knows to be committed",
        |group| group.commit_index,
    ),
    (
        "raft_applied_index",
        "Index of the last entry applied on this node",
        |group| group.applied_index,
    ),
    (
        "raft_apply_lag_entries",
        "Entries that this node knows to be committed and has not applied yet",
        // The index applied is read last and may be ahead.
        |group| group.commit_index.saturating_sub(group.applied_index),
    ),
];

impl Collector for ShardCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let groups: Vec<(ShardId, Positions)> = self
            .0
            .groups()
            .all()
            .map(|group| (group.shard(), group.positions()))
            .collect();
        for (name, help, value) in GROUP_GAUGES {
            let samples = groups.iter().map(|(id, group)| (shard(*id), value(group)));
            gauge(&mut encoder, name, help, samples)?;
        }
        let queues = self
            .0
            .queue_depths()
            .map(|(id, depth)| (shard(id), depth as u64));
        let help = "Operations that wait for their log entry";
        gauge(&mut encoder, "batch_queue_operations", help, queues)?;
        self.targets(&groups).encode(&mut encoder)
    }
}

/// What is told of the targets that this node leads, as much as a scrape may hold.
#[derive(Default)]
struct Targets {
    waiting: Vec<(LineLabels, u64)>,
    /// Dominant share served, in nanoseconds of cap time, and of all priorities of the target together.
    served: Vec<(LineLabels, u64, u64)>,
    available: Vec<(DimensionLabels, u64)>,
}

impl Targets {
    fn add(&mut self, view: TargetView) {
        let target = label_value(view.name.as_str());
        let all = view.priorities.iter();
        let all = all.fold(0u64, |all, one| all.saturating_add(one.served_ns));
        for priority in &view.priorities {
            let labels = || LineLabels {
                target: target.clone(),
                priority: label_value(priority.name.as_str()),
            };
            self.waiting.push((labels(), priority.waiting));
            self.served.push((labels(), priority.served_ns, all));
        }
        // Of several limits of a dimension the tightest.
        let mut available: BTreeMap<&str, u64> = BTreeMap::new();
        for (limit, used) in view.policy.limits.iter().zip(&view.limits) {
            let free = used.cap.saturating_sub(used.used);
            let least = available.entry(limit.dimension.as_str()).or_insert(free);
            *least = free.min(*least);
        }
        self.available
            .extend(available.into_iter().map(|(name, free)| {
                let labels = DimensionLabels {
                    target: target.clone(),
                    dimension: label_value(name),
                };
                (labels, free)
            }));
    }

    fn encode(self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Calls in line, by target and priority, at the leader of the target's shard";
        gauge(encoder, "queue_depth", help, self.waiting.into_iter())?;
        let help = "Units of the cap that are free, by target and dimension, of its tightest limit";
        gauge(
            encoder,
            "bucket_available",
            help,
            self.available.into_iter(),
        )?;
        let ratio = |served: u64, all: u64| {
            if all == 0 {
                0.0
            } else {
                served as f64 / all as f64
            }
        };
        let help = "Part of the target's use that the priority had since the policy was first put";
        let mut metric = encoder.encode_descriptor("share_ratio", help, None, MetricType::Gauge)?;
        for (labels, served, all) in &self.served {
            ConstGauge::new(ratio(*served, *all)).encode(metric.encode_family(labels)?)?;
        }
        let help = "Use as cap time of the limit that binds, by target and priority";
        let unit = Some(&Unit::Seconds);
        let mut metric =
            encoder.encode_descriptor("served_share", help, unit, MetricType::Counter)?;
        for (labels, served, _) in &self.served {
            let served = Duration::from_nanos(*served).as_secs_f64();
            ConstCounter::new(served).encode(metric.encode_family(labels)?)?;
        }
        Ok(())
    }
}

impl ShardCollector {
    fn targets(&self, groups: &[(ShardId, Positions)]) -> Targets {
        let mut targets = Targets::default();
        let led = groups
            .iter()
            .filter(|(_, group)| group.role == Role::Leader);
        for group in led.filter_map(|(id, _)| self.0.groups().group(*id)) {
            group.peek(|state| {
                for view in state.target_names().filter_map(|name| state.view(name)) {
                    if targets.waiting.len() >= METRIC_SERIES_MAX {
                        return;
                    }
                    targets.add(view);
                }
            });
        }
        targets
    }
}

fn shard(id: ShardId) -> ShardLabels {
    ShardLabels { shard: id.0 }
}

fn gauge<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl Iterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        // Indices stay far below 2^63.
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_and_not_applied_is_the_lag() {
        let lag = |commit_index, applied_index| {
            let told = GROUP_GAUGES.map(|(name, _, value)| {
                let group = Positions {
                    role: Role::Follower,
                    leader: None,
                    term: 1,
                    last_log_index: 9_000,
                    commit_index,
                    applied_index,
                };
                (name == "raft_apply_lag_entries").then(|| value(&group))
            });
            told.into_iter().flatten().collect::<Vec<_>>()
        };
        assert_eq!(lag(12, 9), [3]);
        assert_eq!(lag(12, 12), [0]);
        assert_eq!(lag(12, 13), [0]);
    }
}
