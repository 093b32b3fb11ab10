//! The keys of policy files.

use super::{json_text, lines, table};
use crate::ctl::Form;
use crate::ctl::policy_keys::{KEYS, Key};
use serde_json::{Value, json};

/// Every key, what it may be and what it does.
pub(in crate::ctl) fn keys(form: Form) -> String {
    match form {
        Form::Table => text(),
        Form::Json => {
            let keys: Vec<Value> = KEYS.iter().map(json_of).collect();
            json_text(&json!({ "keys": keys }))
        }
    }
}

fn text() -> String {
    let mut text = String::new();
    for of_table in KEYS.chunk_by(|one, next| one.table == next.table) {
        let first = of_table.first().map_or("", |key| key.table);
        let mut table = table(&[first, "KIND", "RANGE", "DEFAULT", "WHAT IT DOES"]);
        for key in of_table {
            let default = if key.default.is_empty() {
                "must be given"
            } else {
                key.default
            };
            table.add_row([key.name, key.kind, key.range, default, key.what]);
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text += &lines(&table);
    }
    text
}

fn json_of(key: &Key) -> Value {
    json!({
        "table": key.table,
        "key": key.name,
        "kind": key.kind,
        "range": key.range,
        "default": (!key.default.is_empty()).then_some(key.default),
        "what": key.what,
    })
}
