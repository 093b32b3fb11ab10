//! The state of the cluster.

use super::{json, json_text, lines, span, table};
use crate::ctl::Form;
use crate::words::{counted, named};
use std::collections::{BTreeMap, BTreeSet};
use weir_proto::v1 as wire;

/// Nodes and shards.
pub(in crate::ctl) fn status(status: &wire::StatusResponse, form: Form) -> String {
    match form {
        Form::Json => json_text(&json::status(status)),
        Form::Table => {
            let nodes = counted(status.nodes.len(), "node");
            let shards = counted(status.shards, "shard");
            format!(
                "cluster {}, {nodes}, {shards}\n\n{}\n{}",
                status.cluster_id,
                nodes_table(status),
                shards_table(status)
            )
        }
    }
}

fn nodes_table(status: &wire::StatusResponse) -> String {
    let mut table = table(&[
        "NODE", "CLIENTS", "PEERS", "STATE", "VERSION", "UP", "LEADS",
    ]);
    for node in &status.nodes {
        let id = node.node_id.to_string();
        let leads = node
            .groups
            .iter()
            .filter(|group| leads_itself(node.node_id, group))
            .count();
        let (state, version, up, leads) = if node.reachable {
            (
                node_state(node),
                node.version.as_str(),
                span(node.uptime_us),
                leads.to_string(),
            )
        } else {
            ("no answer".into(), "-", "-".into(), "-".into())
        };
        table.add_row([
            &id,
            &node.address,
            &node.peer_address,
            &state,
            version,
            &up,
            &leads,
        ]);
    }
    lines(&table)
}

fn node_state(node: &wire::NodeStatus) -> String {
    match (node.refused_by.is_empty(), node.drained) {
        (false, _) => format!("refused by {}", named("node", &node.refused_by)),
        (true, true) => "drained".to_owned(),
        (true, false) => "up".to_owned(),
    }
}

/// True if the node leads the shard and a quorum answers it: one that lost its quorum names no leader.
fn leads_itself(node: u64, group: &wire::GroupStatus) -> bool {
    group.role() == wire::GroupRole::Leader && group.leader == node
}

fn shards_table(status: &wire::StatusResponse) -> String {
    let mut table = table(&["SHARD", "LEADER", "TERM", "APPLIED", "TARGETS", "STATE"]);
    for shard in 0..status.shards {
        let view = ShardView::of(status, shard);
        let applied: Vec<String> = view
            .applied
            .iter()
            .map(|(node, index)| format!("{node}:{index}"))
            .collect();
        let leader = view.leader.map_or("-".into(), |leader| leader.to_string());
        table.add_row([
            shard.to_string(),
            leader,
            view.term.to_string(),
            if applied.is_empty() {
                "-".into()
            } else {
                applied.join(" ")
            },
            view.targets.to_string(),
            view.state().to_owned(),
        ]);
    }
    lines(&table)
}

/// One shard, put together from what the nodes say.
pub(super) struct ShardView {
    pub(super) leader: Option<u64>,
    pub(super) term: u64,
    /// Node to applied index.
    pub(super) applied: BTreeMap<u64, u64>,
    pub(super) targets: u64,
    voters: usize,
    /// Two nodes that applied the same entries have different states.
    diverged: bool,
}

impl ShardView {
    pub(super) fn of(status: &wire::StatusResponse, shard: u32) -> ShardView {
        let groups: Vec<(u64, &wire::GroupStatus)> = status
            .nodes
            .iter()
            .filter_map(|node| {
                let group = node.groups.iter().find(|group| group.shard == shard)?;
                Some((node.node_id, group))
            })
            .collect();
        let term = groups
            .iter()
            .map(|(_, group)| group.term)
            .max()
            .unwrap_or(0);
        let newest = || groups.iter().filter(|(_, group)| group.term == term);
        // Who says of itself that it leads knows best. Others are believed about one that gave no answer.
        let answered = |leader: &u64| groups.iter().any(|(node, _)| node == leader);
        let leader = newest()
            .find(|(node, group)| leads_itself(*node, group))
            .map(|(node, _)| *node)
            .or_else(|| {
                newest()
                    .map(|(_, group)| group.leader)
                    .find(|leader| *leader != 0 && !answered(leader))
            });
        let mut digests: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
        for (_, group) in &groups {
            digests
                .entry(group.applied_index)
                .or_default()
                .insert(&group.digest);
        }
        ShardView {
            leader,
            term,
            applied: groups
                .iter()
                .map(|(node, group)| (*node, group.applied_index))
                .collect(),
            targets: groups
                .iter()
                .map(|(_, group)| group.targets)
                .max()
                .unwrap_or(0),
            voters: groups
                .iter()
                .map(|(_, group)| group.voters.len())
                .max()
                .unwrap_or(0),
            diverged: digests.values().any(|digests| digests.len() > 1),
        }
    }

    pub(super) fn state(&self) -> &'static str {
        if self.diverged {
            "REPLICAS DIFFER"
        } else if self.leader.is_none() {
            "no leader"
        } else if self.applied.len() < self.voters {
            "degraded"
        } else {
            "ok"
        }
    }
}
