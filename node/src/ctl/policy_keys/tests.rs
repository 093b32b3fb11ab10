//! The list of keys against what reads them.

use super::*;
use crate::ctl::policy_file::parse;
use weir_proto::v1 as wire;

/// A target with one value in the place of another, or beside the others.
fn file_with(table: &str, name: &str, value: &str) -> String {
    let sections: [(&str, &[(&str, &str)]); 3] = [
        ("[[target]]", &[("name", "\"a/x\"")]),
        (
            "[[target.limit]]",
            &[
                ("dimension", "\"requests\""),
                ("cap", "600"),
                ("per", "\"60s\""),
            ],
        ),
        (
            "[[target.priority]]",
            &[("name", "\"p1\""), ("weight", "1")],
        ),
    ];
    let mut text = String::new();
    for (section, given) in sections {
        text += &format!("{section}\n");
        for (key, usual) in given {
            if (section, *key) != (table, name) {
                text += &format!("{key} = {usual}\n");
            }
        }
        if section == table {
            text += &format!("{name} = {value}\n");
        }
    }
    text
}

/// Whether a file with this value is one that `apply` takes.
fn takes(key: &Key, value: &str) -> Result<wire::Policy, String> {
    let targets = parse(&file_with(key.table, key.name, value))?;
    let [target] = targets.try_into().unwrap();
    target.spelt_out().ok_or_else(|| {
        let violations = target.violations();
        let said = violations.iter().map(in_words_of_file);
        said.collect::<Vec<_>>().join("; ")
    })
}

/// The names in an error of serde: what it found, and what it would have taken.
fn quoted(error: &str) -> Vec<&str> {
    error
        .lines()
        .last()
        .unwrap()
        .split('`')
        .skip(1)
        .step_by(2)
        .collect()
}

#[test]
fn every_key_that_is_read_is_listed_and_no_other() {
    for table in ["[[target]]", "[[target.limit]]", "[[target.priority]]"] {
        let error = parse(&file_with(table, "no_such_key", "1"))
            .map(|_| ())
            .unwrap_err();
        let mut read = quoted(&error).split_off(1);
        let of_table = KEYS.iter().filter(|key| key.table == table);
        let mut listed: Vec<&str> = of_table.map(|key| key.name).collect();
        read.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, read, "{table}");
    }
}

#[test]
fn every_choice_is_listed_and_no_other() {
    let choices: Vec<&Key> = KEYS.iter().filter(|key| key.kind == "choice").collect();
    assert_eq!(choices.len(), 5);
    for key in choices {
        let error = takes(key, "\"no such choice\"").unwrap_err();
        assert_eq!(quoted(&error)[1..].join(", "), key.range, "{key:?}");
    }
}

/// Keys whose range has ends: values that are just inside, and just outside.
#[rustfmt::skip]
const EDGES: &[(&str, &str, &[&str], &[&str])] = &[
    ("[[target]]", "default_tenant_weight", &["1", "10000"], &["10001"]),
    ("[[target]]", "tenant_weights", &["{}", "{ a = 1, b = 10000 }"], &["{ a = 0 }", "{ a = 10001 }"]),
    ("[[target]]", "reply_window", &["\"0s\"", "\"10s\""], &["\"10001ms\""]),
    ("[[target]]", "send_spread", &["\"0s\"", "\"10s\""], &["\"10001ms\""]),
    ("[[target]]", "horizon", &["\"1ms\"", "\"1s\""], &["\"999us\"", "\"1001ms\""]),
    ("[[target]]", "estimate_sigmas_milli", &["0", "10000"], &["10001"]),
    ("[[target]]", "rejected_counts", &["true", "false"], &["\"yes\"", "1"]),
    ("[[target.limit]]", "cap", &["0", "70368744177664"], &["70368744177665", "-1"]),
    ("[[target.limit]]", "per", &["\"1s\"", "\"31d\""], &["\"999ms\"", "\"2678401s\""]),
    ("[[target.limit]]", "burst", &["\"0s\"", "\"60s\""], &["\"61s\""]),
    ("[[target.priority]]", "weight", &["1", "10000"], &["0", "10001"]),
];

#[test]
fn ranges_are_as_they_are_listed() {
    for key in KEYS {
        let edges = EDGES
            .iter()
            .find(|(table, name, ..)| (*table, *name) == (key.table, key.name));
        let listed = matches!(key.kind, "text" | "tables" | "choice");
        assert_eq!(edges.is_none(), listed, "{key:?}");
        let Some((_, _, inside, outside)) = edges else {
            continue;
        };
        for value in *inside {
            takes(key, value).unwrap_or_else(|error| panic!("{key:?} = {value}: {error}"));
        }
        for value in *outside {
            let error = takes(key, value).map(|_| ()).unwrap_err();
            let named = error.contains(key.name) || error.contains(value);
            assert!(
                named && !error.contains("_us"),
                "{key:?} = {value}: {error}"
            );
        }
    }
}

#[test]
fn a_default_that_is_written_changes_nothing() {
    let left_out = parse(&file_with("", "", "")).unwrap()[0].spelt_out();
    let mut written = Vec::new();
    for key in KEYS {
        // Others are told in a sentence, and a key that must be there has none.
        let value = match key.kind {
            _ if key.default.is_empty() || key.default.contains(' ') => continue,
            "choice" | TIME => format!("{:?}", key.default),
            _ => key.default.to_owned(),
        };
        assert_eq!(takes(key, &value).ok(), left_out, "{key:?}");
        written.push(key.name);
    }
    assert_eq!(written.len(), 9, "{written:?}");
}

#[test]
fn what_must_be_there_is_missed() {
    for key in KEYS.iter().filter(|key| key.default.is_empty()) {
        if key.kind == "tables" {
            continue;
        }
        let text = file_with(key.table, key.name, "");
        let without = text.replace(&format!("{} = \n", key.name), "");
        let error = parse(&without).map(|_| ()).unwrap_err();
        assert!(
            error.contains(&format!("missing field `{}`", key.name)),
            "{key:?}: {error}"
        );
    }
}

/// A table of the reference as it must stand there.
fn as_markdown(keys: &[Key]) -> String {
    let mut text =
        "| key | kind | range | default | what it does |\n|---|---|---|---|---|\n".to_owned();
    for Key {
        name,
        kind,
        range,
        default,
        what,
        ..
    } in keys
    {
        let default = if default.is_empty() {
            "must be given"
        } else {
            default
        };
        text += &format!("| `{name}` | {kind} | {range} | {default} | {what} |\n");
    }
    text
}

/// `WEIR_GOLDEN=write cargo test` writes the tables anew.
#[test]
fn the_reference_has_every_key() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/policy.md");
    let mut page = std::fs::read_to_string(&file).unwrap();
    for keys in KEYS.chunk_by(|one, next| one.table == next.table) {
        let table = as_markdown(keys);
        let heading = format!("## `{}`\n\n", keys[0].table);
        let (before, rest) = page.split_once(&heading).unwrap();
        let (found, after) = rest.split_once("\n\n").unwrap_or((rest, ""));
        if std::env::var("WEIR_GOLDEN").is_ok_and(|mode| mode == "write") {
            page = format!("{before}{heading}{table}\n{after}");
            std::fs::write(&file, &page).unwrap();
        } else {
            assert_eq!(format!("{found}\n"), table, "{}", file.display());
        }
    }
}
