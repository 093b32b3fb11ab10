//! Metrics that are read when they are asked for: positions of the groups, lines at the targets.

use crate::limits::METRIC_SERIES_MAX;
use crate::metrics::label_value;
use crate::shards::Shards;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use weir_admission::ShardId;
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
struct LineLabels {
    target: String,
    priority: String,
}

/// What is told of each group: name, help, value.
type GroupGauge = (&'static str, &'static str, fn(&Positions) -> u64);

const GROUP_GAUGES: [GroupGauge; 5] = [
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
        "raft_applied_index",
        "Index of the last entry applied on this node",
        |group| group.applied_index,
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
        let help = "Calls in line, by target and priority, at the leader of the target's shard";
        gauge(
            &mut encoder,
            "queue_depth",
            help,
            self.lines(&groups).into_iter(),
        )
    }
}

impl ShardCollector {
    /// The lines at the targets that this node leads, as many as a scrape may hold.
    fn lines(&self, groups: &[(ShardId, Positions)]) -> Vec<(LineLabels, u64)> {
        let mut lines = Vec::new();
        for (id, _) in groups
            .iter()
            .filter(|(_, group)| group.role == Role::Leader)
        {
            let Some(group) = self.0.groups().group(*id) else {
                continue;
            };
            group.peek(|state| {
                for view in state.target_names().filter_map(|name| state.view(name)) {
                    if lines.len() >= METRIC_SERIES_MAX {
                        return;
                    }
                    for priority in view.priorities {
                        let labels = LineLabels {
                            target: label_value(view.name.as_str()),
                            priority: label_value(priority.name.as_str()),
                        };
                        lines.push((labels, priority.waiting));
                    }
                }
            });
        }
        lines
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
