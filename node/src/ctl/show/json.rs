//! Answers as JSON: the wire's names, lower case, durations in microseconds.

use super::status::ShardView;
use super::target::word;
use serde_json::{Value, json};
use weir_proto::v1 as wire;

pub(super) fn status(status: &wire::StatusResponse) -> Value {
    let shards = (0..status.shards).map(|shard| {
        let view = ShardView::of(status, shard);
        json!({
            "shard": shard,
            "leader": view.leader,
            "term": view.term,
            "targets": view.targets,
            "state": view.state(),
        })
    });
    json!({
        "cluster_id": status.cluster_id,
        "nodes": status.nodes.iter().map(node).collect::<Vec<_>>(),
        "shards": shards.collect::<Vec<_>>(),
    })
}

fn node(node: &wire::NodeStatus) -> Value {
    json!({
        "node": node.node_id,
        "address": node.address,
        "peer_address": node.peer_address,
        "reachable": node.reachable,
        "drained": node.drained,
        "refused_by": node.refused_by,
        "version": node.version,
        "uptime_us": node.uptime_us,
        "groups": node.groups.iter().map(group).collect::<Vec<_>>(),
    })
}

fn group(group: &wire::GroupStatus) -> Value {
    json!({
        "shard": group.shard,
        "role": word(group.role().as_str_name(), "GROUP_ROLE_"),
        "leader": (group.leader != 0).then_some(group.leader),
        "term": group.term,
        "last_log_index": group.last_log_index,
        "applied_index": group.applied_index,
        "snapshot_index": group.snapshot_index,
        "purged_index": group.purged_index,
        "voters": group.voters,
        "digest": group.digest,
        "targets": group.targets,
    })
}

pub(super) fn target(target: &wire::Target) -> Value {
    json!({
        "name": target.name,
        "version": target.version,
        "shard": target.shard,
        "waiting": target.waiting,
        "grants": target.grants,
        "tenants": target.tenants,
        "held_for_us": target.held_for_us,
        "policy": target.policy.as_ref().map(policy),
        "limits": target.limits.iter().map(limit_use).collect::<Vec<_>>(),
        "priorities": target.priorities.iter().map(priority_use).collect::<Vec<_>>(),
    })
}

fn limit_use(limit: &wire::LimitUse) -> Value {
    json!({
        "name": limit.name,
        "used": limit.used,
        "cap": limit.cap,
        "guard_us": limit.guard_us,
    })
}

fn priority_use(priority: &wire::PriorityUse) -> Value {
    json!({
        "name": priority.name,
        "waiting": priority.waiting,
        "admitted": priority.admitted,
        "deferred": priority.deferred,
        "rejected": priority.rejected,
        "throttled": priority.throttled,
        "served_ns": priority.served_ns,
    })
}

pub(super) fn policy(policy: &wire::Policy) -> Value {
    let priorities = policy
        .priorities
        .iter()
        .map(|p| json!({ "name": p.name, "weight": p.weight }));
    json!({
        "limits": policy.limits.iter().map(limit).collect::<Vec<_>>(),
        "priorities": priorities.collect::<Vec<_>>(),
        "tenant_weights": policy.tenant_weights,
        "default_tenant_weight": policy.default_tenant_weight,
        "reply_window_us": policy.reply_window_us,
        "send_spread_us": policy.send_spread_us,
        "horizon_us": policy.horizon_us,
        "headroom": word(policy.headroom().as_str_name(), "HEADROOM_"),
        "estimate": word(policy.estimate().as_str_name(), "ESTIMATE_"),
        "rejected_counts": word(policy.rejected_counts().as_str_name(), "REJECTED_COUNTS_"),
        "estimate_sigmas_milli": policy.estimate_sigmas_milli,
    })
}

fn limit(limit: &wire::Limit) -> Value {
    json!({
        "name": limit.name,
        "dimension": limit.dimension,
        "cap": limit.cap,
        "per_us": limit.per_us,
        "kind": word(limit.kind().as_str_name(), "LIMIT_KIND_"),
        "enforced_by": word(limit.enforced_by().as_str_name(), "ENFORCED_BY_"),
        "burst_us": limit.burst_us,
        "initial_use": word(limit.initial_use().as_str_name(), "INITIAL_USE_"),
    })
}
