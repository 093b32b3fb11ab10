//! Targets: policy and use.

use super::{incomplete, json, json_text, lines, span, table, units};
use crate::ctl::Form;
use crate::ctl::diff::settings;
use crate::exit::Exit;
use crate::words::counted;
use weir_client::TargetList;
use weir_proto::v1 as wire;

/// A list that lacks a shard is not a success.
pub(in crate::ctl) fn list_exit(list: &TargetList) -> Exit {
    if list.missing_shards.is_empty() {
        Exit::Success
    } else {
        Exit::Unavailable
    }
}

/// Every target in one line.
pub(in crate::ctl) fn targets(list: &TargetList, form: Form) -> String {
    match form {
        Form::Json => json_text(&json!({
            "targets": list.targets.iter().map(json::target).collect::<Vec<_>>(),
            "missing_shards": list.missing_shards,
        })),
        Form::Table => {
            let mut table = table(&["TARGET", "VERSION", "SHARD", "USED", "WAITING", "GRANTS"]);
            for target in &list.targets {
                let used: Vec<String> = target
                    .limits
                    .iter()
                    .map(|limit| format!("{} {}/{}", limit.name, limit.used, limit.cap))
                    .collect();
                table.add_row([
                    target.name.clone(),
                    target.version.to_string(),
                    target.shard.to_string(),
                    used.join(", "),
                    target.waiting.to_string(),
                    target.grants.to_string(),
                ]);
            }
            let mut text = lines(&table);
            if !list.missing_shards.is_empty() {
                text += &format!("\n{}", incomplete(&list.missing_shards));
            }
            text
        }
    }
}

/// One target with its policy, use and lines.
pub(in crate::ctl) fn target(target: &wire::Target, form: Form) -> String {
    match form {
        Form::Json => json_text(&json::target(target)),
        Form::Table => text(target),
    }
}

fn text(target: &wire::Target) -> String {
    let policy = target.policy.clone().unwrap_or_default();
    let mut text = format!(
        "target {}, version {}, shard {}\n{} waiting, {}, {}{}\n\n",
        target.name,
        target.version,
        target.shard,
        target.waiting,
        counted(target.grants, "grant"),
        counted(target.tenants, "tenant"),
        if target.held_for_us > 0 {
            format!(
                ", held for {} after a Retry-After",
                span(target.held_for_us)
            )
        } else {
            String::new()
        }
    );
    text += &limits_table(target, &policy);
    text.push('\n');
    text += &priorities_table(target, &policy);
    text.push('\n');
    text += &knobs(&policy);
    text
}

fn limits_table(target: &wire::Target, policy: &wire::Policy) -> String {
    let mut table = table(&[
        "LIMIT",
        "DIMENSION",
        "USED",
        "CAP",
        "PER",
        "GUARD",
        "KIND",
        "ENFORCED BY",
    ]);
    for (limit, in_use) in policy.limits.iter().zip(&target.limits) {
        table.add_row([
            limit.name.clone(),
            limit.dimension.clone(),
            in_use.used.to_string(),
            limit.cap.to_string(),
            span(limit.per_us),
            span(in_use.guard_us),
            word(limit.kind().as_str_name(), "LIMIT_KIND_"),
            word(limit.enforced_by().as_str_name(), "ENFORCED_BY_"),
        ]);
    }
    lines(&table)
}

fn priorities_table(target: &wire::Target, policy: &wire::Policy) -> String {
    let mut table = table(&[
        "PRIORITY", "WEIGHT", "WAITING", "ADMITTED", "DEFERRED", "REJECTED", "429", "SERVED",
    ]);
    for (priority, seen) in policy.priorities.iter().zip(&target.priorities) {
        table.add_row([
            priority.name.clone(),
            priority.weight.to_string(),
            seen.waiting.to_string(),
            seen.admitted.to_string(),
            seen.deferred.to_string(),
            seen.rejected.to_string(),
            seen.throttled.to_string(),
            span(seen.served_ns / 1_000),
        ]);
    }
    lines(&table)
}

/// What a policy says besides limits and priorities, in the words of its file.
fn knobs(policy: &wire::Policy) -> String {
    let weights = ("tenant_weights".to_owned(), units(&policy.tenant_weights));
    let rows = settings(policy).chain([weights]);
    rows.map(|(key, value)| format!("{key:<22} {value}\n"))
        .collect()
}

/// A choice as policy files write it.
pub(in crate::ctl) fn word(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_lowercase()
}
