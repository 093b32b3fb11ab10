//! The keys of policy files.

use super::json_text;
use crate::ctl::Form;
use crate::ctl::policy_keys::{KEYS, Key};
use serde_json::{Value, json};

/// Characters of a line, and what stands before a sentence.
const WIDTH: usize = 100;
const INDENT: &str = "      ";

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
        let table = of_table.first().map_or("", |key| key.table);
        text += &format!("{table}\n");
        for key in of_table {
            let default = if key.default.is_empty() {
                "must be given".to_owned()
            } else {
                format!("default {}", key.default)
            };
            text += &format!("  {}: {}, {}; {default}\n", key.name, key.kind, key.range);
            text += &wrapped(key.what);
        }
        text.push('\n');
    }
    text.pop();
    text
}

/// A sentence below its key, in lines of at most [`WIDTH`] characters.
fn wrapped(sentence: &str) -> String {
    let mut lines = vec![INDENT.to_owned()];
    for word in sentence.split(' ') {
        let fits = |line: &String| {
            line == INDENT || line.chars().count() + 1 + word.chars().count() <= WIDTH
        };
        match lines.last_mut().filter(|line| fits(line)) {
            Some(line) if line == INDENT => line.push_str(word),
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(format!("{INDENT}{word}")),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
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
