//! Policies: what changes, what became of it, and former versions.

use super::{json, json_text, lines, span, table};
use crate::ctl::Form;
use crate::ctl::apply::{Applied, Planned, Version};
use crate::ctl::diff::{Change, Field, changes};
use crate::words::counted;
use serde_json::Value;
use weir_proto::v1 as wire;

/// Changes that a list of versions shows of each.
const CHANGES_SHOWN: usize = 3;

/// What would become of the targets of a file. People see defaults that stay only if they want to.
pub(in crate::ctl) fn planned(planned: &[Planned], defaults: bool, form: Form) -> String {
    match form {
        Form::Table => planned.iter().map(|one| plan_text(one, defaults)).collect(),
        Form::Json => {
            let list = planned.iter().map(|one| {
                json!({
                    "target": one.target,
                    "version": one.in_force,
                    "changes": one.changes.iter().map(change_json).collect::<Vec<_>>(),
                })
            });
            json_text(&json!({ "dry_run": true, "targets": list.collect::<Vec<_>>() }))
        }
    }
}

fn plan_text(planned: &Planned, defaults: bool) -> String {
    let head = match planned.in_force {
        0 => format!("target {}, new", planned.target),
        version => format!("target {}, version {version}", planned.target),
    };
    if planned.changes.is_empty() {
        return format!("{head}: nothing changes\n");
    }
    let shown = || {
        let changes = planned.changes.iter();
        changes.filter(|change| defaults || !change.is_default)
    };
    let longest = shown().map(|change| change.key.chars().count()).max();
    let width = longest.unwrap_or(0);
    let changes = shown().map(|change| {
        let (old, new) = (text(&change.old), text(&change.new));
        match planned.in_force {
            0 => format!("  {:<width$}  {new}\n", change.key),
            _ => format!("  {:<width$}  {old} -> {new}\n", change.key),
        }
    });
    let changes: String = changes.collect();
    let left_out = planned.changes.len() - shown().count();
    let note = match left_out {
        0 => String::new(),
        count => format!(
            "  {} at the default, told with --defaults\n",
            counted(count, "other key")
        ),
    };
    format!("{head}\n{changes}{note}")
}

fn text(field: &Option<Field>) -> &str {
    field.as_ref().map_or("-", |field| &field.text)
}

fn change_json(change: &Change) -> Value {
    let value = |field: &Option<Field>| field.as_ref().map(|field| field.json.clone());
    json!({ "field": change.field, "old": value(&change.old), "new": value(&change.new) })
}

/// What became of the targets of a file.
pub(in crate::ctl) fn applied(applied: &[Applied], form: Form) -> String {
    match form {
        Form::Table => {
            let mut table = table(&["TARGET", "VERSION", "RESULT"]);
            for one in applied {
                let (version, result) = match &one.result {
                    Ok(Version::New(version)) => (version.to_string(), "put"),
                    Ok(Version::Same(version)) => (version.to_string(), "unchanged"),
                    Err(error) => ("-".into(), error.as_str()),
                };
                table.add_row([one.planned.target.as_str(), &version, result]);
            }
            lines(&table)
        }
        Form::Json => {
            let list: Vec<Value> = applied.iter().map(applied_json).collect();
            json_text(&json!({ "targets": list }))
        }
    }
}

fn applied_json(applied: &Applied) -> Value {
    let planned = &applied.planned;
    let changes: Vec<Value> = planned.changes.iter().map(change_json).collect();
    match &applied.result {
        Ok(Version::New(version)) => json!({
            "target": planned.target, "version": version, "changed": true, "changes": changes,
        }),
        Ok(Version::Same(version)) => json!({
            "target": planned.target, "version": version, "changed": false, "changes": changes,
        }),
        Err(error) => json!({
            "target": planned.target, "error": error, "changes": changes,
        }),
    }
}

/// Versions of a policy, newest first.
pub(in crate::ctl) fn versions(
    target: &str,
    versions: &[wire::PolicyVersion],
    form: Form,
) -> String {
    match form {
        Form::Table => {
            let mut table = table(&["VERSION", "AGE", "PUT BY", "CHANGES"]);
            let before = versions.iter().skip(1).map(Some).chain([None]);
            for (version, before) in versions.iter().zip(before) {
                table.add_row([
                    version.version.to_string(),
                    span(version.age_us),
                    version.put_by.clone(),
                    summary(version, before),
                ]);
            }
            lines(&table)
        }
        Form::Json => {
            let list = versions.iter().enumerate().map(|(place, version)| {
                json!({
                    "version": version.version,
                    "in_force": place == 0,
                    "age_us": version.age_us,
                    "put_by": version.put_by,
                    "policy": version.policy.as_ref().map(json::policy),
                })
            });
            json_text(&json!({ "target": target, "versions": list.collect::<Vec<_>>() }))
        }
    }
}

fn summary(version: &wire::PolicyVersion, before: Option<&wire::PolicyVersion>) -> String {
    let Some(before) = before else {
        return "first that is remembered".into();
    };
    let policy = version.policy.clone().unwrap_or_default();
    let mut changes = changes(before.policy.as_ref(), &policy);
    changes.retain(|change| !change.is_default);
    let mut told: Vec<String> = changes
        .iter()
        .take(CHANGES_SHOWN)
        .map(|change| {
            format!(
                "{} {} -> {}",
                change.key,
                text(&change.old),
                text(&change.new)
            )
        })
        .collect();
    let more = changes.len().saturating_sub(CHANGES_SHOWN);
    if more > 0 {
        told.push(format!("{more} more"));
    }
    if told.is_empty() {
        "none: put again after it was removed".into()
    } else {
        told.join("; ")
    }
}
