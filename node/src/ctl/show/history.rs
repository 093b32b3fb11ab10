//! The history of use, as a table and as JSON.

use super::{json_text, lines, table, units};
use crate::ctl::Form;
use crate::ctl::history::{By, Range, complaints};
use crate::ctl::when;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_client::History;
use weir_proto::v1 as wire;

pub(in crate::ctl) fn history(range: &Range, history: &History, form: Form) -> String {
    match form {
        Form::Table => text(range, history),
        Form::Json => json_text(&json_of(range, history)),
    }
}

fn text(range: &Range, history: &History) -> String {
    let mut head = vec!["TIME (UTC)"];
    head.extend(match range.by {
        None => None,
        Some(By::Tenant) => Some("TENANT"),
        Some(By::Priority) => Some("PRIORITY"),
    });
    head.extend([
        "ADMITTED", "DEFERRED", "REJECTED", "429s", "UNGATED", "USED",
    ]);
    let mut table = table(&head);
    for point in &history.points {
        let mut row = vec![when::minute(point.start_unix_s)];
        row.extend(match range.by {
            None => None,
            Some(By::Tenant) => Some(point.tenant.clone()),
            Some(By::Priority) => Some(point.priority.clone()),
        });
        let counts = [
            point.admitted,
            point.deferred,
            point.rejected,
            point.throttled,
            point.ungated,
        ];
        row.extend(counts.map(|count| count.to_string()));
        row.push(units(used(point)));
        table.add_row(row);
    }
    let mut text = lines(&table);
    if history.points.is_empty() {
        text = format!("nothing was counted of {:?} in this time\n", range.target);
    }
    text + &notes(range, history)
}

/// What a reader must know: who is missing, and how far the history goes back.
pub(super) fn notes(range: &Range, history: &History) -> String {
    let mut notes: Vec<String> = complaints(history);
    if history.oldest_unix_s > range.from_s {
        let oldest = when::minute(history.oldest_unix_s);
        notes.push(format!("nothing is kept from before {oldest}"));
    }
    notes.iter().map(|note| format!("{note}\n")).collect()
}

/// Units used per dimension: charged, and corrected by releases. Below zero where a step gives back more of
/// earlier charges than it charges.
pub(super) fn used(point: &wire::HistoryPoint) -> BTreeMap<&str, i64> {
    let mut used: BTreeMap<&str, i64> = BTreeMap::new();
    for (dimension, units) in &point.charged {
        let units = i64::try_from(*units).unwrap_or(i64::MAX);
        let sum = used.entry(dimension).or_default();
        *sum = sum.saturating_add(units);
    }
    for (dimension, units) in &point.corrected {
        let sum = used.entry(dimension).or_default();
        *sum = sum.saturating_add(*units);
    }
    used
}

fn json_of(range: &Range, history: &History) -> Value {
    let points = history.points.iter().map(|point| {
        let mut value = json!({
            "start_unix_s": point.start_unix_s,
            "admitted": point.admitted,
            "deferred": point.deferred,
            "rejected": point.rejected,
            "throttled": point.throttled,
            "ungated": point.ungated,
            "charged": point.charged,
            "corrected": point.corrected,
            "used": used(point),
        });
        match range.by {
            None => {}
            Some(By::Tenant) => value["tenant"] = json!(point.tenant),
            Some(By::Priority) => value["priority"] = json!(point.priority),
        }
        value
    });
    let troubled = history.troubled_nodes.iter();
    let troubled = troubled.map(|(node, trouble)| json!({ "node": node, "trouble": trouble }));
    json!({
        "target": range.target,
        "from_unix_s": range.from_s,
        "to_unix_s": range.to_s,
        "step_s": range.step_s,
        "oldest_unix_s": (history.oldest_unix_s > 0).then_some(history.oldest_unix_s),
        "points": points.collect::<Vec<_>>(),
        "missing_nodes": history.missing_nodes,
        "troubled_nodes": troubled.collect::<Vec<_>>(),
    })
}
