//! Answers as text.

mod decision;
mod explain;
mod history;
mod json;
mod keys;
mod plot;
mod policy;
mod status;
mod target;
#[cfg(test)]
mod tests;
mod watch;

pub(super) use self::decision::{cancelled, decision, grant_only, released};
pub(super) use self::explain::explained;
pub(super) use self::history::history;
pub(super) use self::keys::keys;
pub(super) use self::plot::{Paper, plot};
pub(super) use self::policy::{applied, planned, versions};
pub(super) use self::status::status;
pub(super) use self::target::{list_exit, target, targets, word};
pub(super) use self::watch::watched;

use super::Form;
use crate::words::named;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};
use std::fmt::Display;
use std::time::Duration;

/// A table without lines: easy on the eye, and on `awk`.
fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.to_vec());
    table
}

/// The table's text, without the spaces at the ends of lines.
fn lines(table: &Table) -> String {
    table
        .lines()
        .map(|line| format!("{}\n", line.trim().to_owned()))
        .collect()
}

/// What a list says that lacks the targets of some shards.
fn incomplete(missing_shards: &[u32]) -> String {
    let shards = named("shard", missing_shards);
    format!("incomplete: no leader answers for {shards}\n")
}

fn json_text(value: &Value) -> String {
    format!("{value:#}\n")
}

/// A sentence that says that something was done.
pub(super) fn done(form: Form, sentence: &str) -> String {
    match form {
        Form::Table => format!("{sentence}\n"),
        Form::Json => json_text(&json!({ "done": sentence })),
    }
}

/// A length of time as people read it: exact where a unit fits, otherwise rounded.
pub(super) fn span(us: u64) -> String {
    const UNITS: [(u64, &str); 5] = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "m"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ];
    // Milliseconds only below a second, where seconds would need a fraction.
    let exact = UNITS
        .iter()
        .find(|(unit, _)| us > 0 && us < unit * 1_000 && us.is_multiple_of(*unit));
    if let Some((unit, name)) = exact {
        return format!("{}{name}", us / unit);
    }
    let duration = Duration::from_micros(us);
    match us {
        0..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{:.1}ms", duration.as_secs_f64() * 1e3),
        1_000_000..120_000_000 => format!("{:.1}s", duration.as_secs_f64()),
        _ => {
            let minutes = duration.as_secs() / 60;
            let (hours, days) = (minutes / 60, minutes / 60 / 24);
            match (days, hours) {
                (0, 0) => format!("{minutes}m"),
                (0, _) => format!("{hours}h{:02}m", minutes % 60),
                (_, _) => format!("{days}d{:02}h", hours % 24),
            }
        }
    }
}

/// Units per dimension, in order of name.
fn units(map: impl IntoIterator<Item = (impl Display, impl Display)>) -> String {
    let list: Vec<String> = map
        .into_iter()
        .map(|(dimension, units)| format!("{dimension}={units}"))
        .collect();
    if list.is_empty() {
        "-".into()
    } else {
        list.join(",")
    }
}
