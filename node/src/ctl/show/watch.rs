//! Targets at work.

use super::{incomplete, lines, table};
use crate::ctl::Form;
use crate::ctl::watch::{Row, Seen};
use serde_json::{Value, json};
use std::time::Duration;

/// What happened in one interval; as JSON in one line.
pub(in crate::ctl) fn watched(seen: &Seen, form: Form) -> String {
    match form {
        Form::Table => text(seen),
        Form::Json => format!("{}\n", json_of(seen)),
    }
}

fn text(seen: &Seen) -> String {
    let mut table = table(&[
        "TARGET",
        "LEADER",
        "ADMITTED/s",
        "DEFERRED/s",
        "429/s",
        "WAITING",
        "USED",
    ]);
    for row in &seen.rows {
        let leader = row.leader.map_or("-".into(), |leader| leader.to_string());
        table.add_row([
            row.target.name.clone(),
            leader,
            per_second(row.admitted, seen.elapsed),
            per_second(row.deferred, seen.elapsed),
            per_second(row.throttled, seen.elapsed),
            waiting(row),
            used(row),
        ]);
    }
    let mut text = lines(&table);
    if !seen.missing_shards.is_empty() {
        text += &incomplete(&seen.missing_shards);
    }
    text
}

/// Tenths are as much as a few seconds can tell.
fn per_second(count: u64, elapsed: Duration) -> String {
    format!("{:.1}", rate(count, elapsed))
}

fn rate(count: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

fn waiting(row: &Row) -> String {
    let priorities = row.target.priorities.iter();
    let list: Vec<String> = priorities
        .map(|priority| format!("{} {}", priority.name, priority.waiting))
        .collect();
    list.join(", ")
}

fn used(row: &Row) -> String {
    let limits = row.target.limits.iter();
    let list: Vec<String> = limits
        .map(|limit| match limit.cap {
            0 => format!("{} closed", limit.name),
            cap => {
                let percent = u128::from(limit.used) * 100 / u128::from(cap);
                format!("{} {percent} %", limit.name)
            }
        })
        .collect();
    let held = if row.target.held_for_us > 0 {
        ", held"
    } else {
        ""
    };
    list.join(", ") + held
}

fn json_of(seen: &Seen) -> Value {
    let targets = seen.rows.iter().map(|row| {
        let target = &row.target;
        let priorities = target
            .priorities
            .iter()
            .map(|priority| json!({ "name": priority.name, "waiting": priority.waiting }));
        let limits = target
            .limits
            .iter()
            .map(|limit| json!({ "name": limit.name, "used": limit.used, "cap": limit.cap }));
        json!({
            "target": target.name,
            "version": target.version,
            "shard": target.shard,
            "leader": row.leader,
            "admitted": row.admitted,
            "deferred": row.deferred,
            "rejected": row.rejected,
            "throttled": row.throttled,
            "waiting": target.waiting,
            "grants": target.grants,
            "held_for_us": target.held_for_us,
            "limits": limits.collect::<Vec<_>>(),
            "priorities": priorities.collect::<Vec<_>>(),
        })
    });
    json!({
        "elapsed_us": u64::try_from(seen.elapsed.as_micros()).unwrap_or(u64::MAX),
        "targets": targets.collect::<Vec<_>>(),
        "missing_shards": seen.missing_shards,
    })
}
