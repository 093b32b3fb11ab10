//! What a policy changes, field by field.

use super::policy_file::write_span;
use super::show::word;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_proto::convert;
use weir_proto::v1 as wire;

/// One field that changes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    /// Its path in the words of a policy file, for example `limit["rpm"].per`.
    pub(super) key: String,
    /// The same in the words of the wire, for programs: `limits["rpm"].per_us`.
    pub(super) field: String,
    /// What it is; `None` if it is not there yet.
    pub(super) old: Option<Field>,
    /// What it becomes; `None` if it goes away.
    pub(super) new: Option<Field>,
    /// It comes in with the default, which it has without being written.
    pub(super) is_default: bool,
}

/// The value of a field, as a policy file writes it and for programs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) text: String,
    pub(super) json: Value,
}

impl Field {
    fn number(value: u64) -> Field {
        Field {
            text: value.to_string(),
            json: value.into(),
        }
    }

    fn text(text: String) -> Field {
        Field {
            json: text.as_str().into(),
            text,
        }
    }

    fn span_us(us: u64) -> Field {
        Field {
            text: write_span(us),
            json: us.into(),
        }
    }

    /// A span that a default replaces if it is unset.
    fn optional_us(us: Option<u64>) -> Field {
        us.map_or_else(
            || Field {
                text: "default".into(),
                json: Value::Null,
            },
            Field::span_us,
        )
    }

    fn word(name: &str, prefix: &str) -> Field {
        Field::text(word(name, prefix))
    }
}

/// A field with its two names.
struct Line {
    key: String,
    field: String,
    value: Field,
}

/// A field of which the two names may differ: the wire's says the unit, and has lists in the plural.
fn line(key: impl Into<String>, field: impl Into<String>, value: Field) -> Line {
    Line {
        key: key.into(),
        field: field.into(),
        value,
    }
}

/// The fields that differ, in the order of the new policy; what goes away comes last. Both policies must
/// be as the cluster tells them, with every default spelt out.
pub(super) fn changes(old: Option<&wire::Policy>, new: &wire::Policy) -> Vec<Change> {
    let mut gone: BTreeMap<String, Line> = BTreeMap::new();
    let named = |line: Line| (line.field.clone(), line);
    gone.extend(old.into_iter().flat_map(lines).map(named));
    let defaults: BTreeMap<String, Field> = defaults(new).collect();
    let mut changes = Vec::new();
    for Line { key, field, value } in lines(new) {
        let old = gone.remove(&field).map(|line| line.value);
        if old.as_ref() != Some(&value) {
            changes.push(Change {
                is_default: old.is_none() && defaults.get(&field) == Some(&value),
                key,
                field,
                old,
                new: Some(value),
            });
        }
    }
    changes.extend(gone.into_values().map(|line| Change {
        key: line.key,
        field: line.field,
        old: Some(line.value),
        new: None,
        is_default: false,
    }));
    changes
}

/// The fields that a file may leave out, as they are then.
fn defaults(policy: &wire::Policy) -> impl Iterator<Item = (String, Field)> {
    let plain = wire::Policy {
        limits: policy
            .limits
            .iter()
            .map(|limit| wire::Limit {
                kind: wire::LimitKind::Sliding.into(),
                burst_us: None,
                initial_use: wire::InitialUse::Unspecified.into(),
                ..limit.clone()
            })
            .collect(),
        priorities: policy.priorities.clone(),
        ..wire::Policy::default()
    };
    let mut spelt_out = convert::policy::read(&plain).map_or_else(
        // One that this program does not understand has no known defaults.
        |_| wire::Policy::default(),
        |policy| convert::policy::write(&policy),
    );
    for limit in &mut spelt_out.limits {
        // Only now: what is assumed to be used depends on who enforces the limit.
        limit.enforced_by = wire::EnforcedBy::Provider.into();
    }
    let may_be_left_out = |line: &Line| {
        let last = line.key.rsplit('.').next().unwrap_or_default();
        !matches!(last, "dimension" | "cap" | "per" | "weight" | "priority")
    };
    let left_out = lines(&spelt_out).into_iter().filter(may_be_left_out);
    left_out.map(|line| (line.field, line.value))
}

/// Every field of a policy. Limits and priorities go by name, so that moving one changes nothing but the order.
fn lines(policy: &wire::Policy) -> Vec<Line> {
    let mut lines = Vec::new();
    for limit in &policy.limits {
        let name = &limit.name;
        lines.extend(limit_lines(limit).map(|part| Line {
            key: format!("limit[{name:?}].{}", part.key),
            field: format!("limits[{name:?}].{}", part.field),
            ..part
        }));
    }
    // Their order is their rank.
    let order: Vec<&str> = policy.priorities.iter().map(|p| p.name.as_str()).collect();
    let order = Field {
        text: order.join(", "),
        json: json!(order),
    };
    lines.push(line("priority", "priorities", order));
    for priority in &policy.priorities {
        let name = &priority.name;
        lines.push(line(
            format!("priority[{name:?}].weight"),
            format!("priorities[{name:?}].weight"),
            Field::number(priority.weight.into()),
        ));
    }
    for (tenant, weight) in &policy.tenant_weights {
        let path = format!("tenant_weights[{tenant:?}]");
        lines.push(line(path.clone(), path, Field::number((*weight).into())));
    }
    lines.extend(knobs(policy));
    lines
}

fn limit_lines(limit: &wire::Limit) -> impl Iterator<Item = Line> {
    let same = |name: &str, value| line(name, name, value);
    [
        same("dimension", Field::text(limit.dimension.clone())),
        same("cap", Field::number(limit.cap)),
        line("per", "per_us", Field::span_us(limit.per_us)),
        same(
            "kind",
            Field::word(limit.kind().as_str_name(), "LIMIT_KIND_"),
        ),
        same(
            "enforced_by",
            Field::word(limit.enforced_by().as_str_name(), "ENFORCED_BY_"),
        ),
        line("burst", "burst_us", Field::optional_us(limit.burst_us)),
        same(
            "initial_use",
            Field::word(limit.initial_use().as_str_name(), "INITIAL_USE_"),
        ),
    ]
    .into_iter()
}

/// What a policy says besides limits, priorities and tenants, as a file says it.
pub(super) fn settings(policy: &wire::Policy) -> impl Iterator<Item = (String, String)> {
    knobs(policy).map(|line| (line.key, line.value.text))
}

fn knobs(policy: &wire::Policy) -> impl Iterator<Item = Line> {
    let same = |name: &str, value| line(name, name, value);
    let span = |name: &str, value| line(name, format!("{name}_us"), value);
    let sigmas = u64::from(policy.estimate_sigmas_milli.unwrap_or_default());
    let counts = policy.rejected_counts();
    let rejected_counts = Field {
        text: (counts != wire::RejectedCounts::No).to_string(),
        json: word(counts.as_str_name(), "REJECTED_COUNTS_").into(),
    };
    [
        same(
            "default_tenant_weight",
            Field::number(policy.default_tenant_weight.into()),
        ),
        span("reply_window", Field::optional_us(policy.reply_window_us)),
        span("send_spread", Field::optional_us(policy.send_spread_us)),
        span("horizon", Field::span_us(policy.horizon_us)),
        same(
            "headroom",
            Field::word(policy.headroom().as_str_name(), "HEADROOM_"),
        ),
        same(
            "estimate",
            Field::word(policy.estimate().as_str_name(), "ESTIMATE_"),
        ),
        same("rejected_counts", rejected_counts),
        same("estimate_sigmas_milli", Field::number(sigmas)),
    ]
    .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::policy_file;

    fn policy(cap: u64, order: &[(&str, u32)]) -> wire::Policy {
        let text = format!(
            "[[target]]\nname = \"t\"\n[[target.limit]]\nname = \"rpm\"\ndimension = \"requests\"\n\
             cap = {cap}\nper = \"60s\"\n"
        );
        let priorities: String = order
            .iter()
            .map(|(name, weight)| {
                format!("[[target.priority]]\nname = \"{name}\"\nweight = {weight}\n")
            })
            .collect();
        let parsed = crate::ctl::policy_file::parse(&(text + &priorities)).unwrap();
        parsed[0].spelt_out().unwrap()
    }

    fn told(old: Option<&wire::Policy>, new: &wire::Policy) -> Vec<String> {
        let text = |field: Option<Field>| field.map_or("-".into(), |field| field.text);
        changes(old, new)
            .into_iter()
            .map(|change| {
                format!(
                    "{}{}: {} -> {}",
                    if change.is_default { "(default) " } else { "" },
                    change.key,
                    text(change.old),
                    text(change.new)
                )
            })
            .collect()
    }

    #[test]
    fn equal_policies_change_nothing() {
        let policy = policy(600, &[("p1", 2), ("p2", 1)]);
        assert_eq!(told(Some(&policy), &policy), [""; 0]);
    }

    #[test]
    fn a_new_target_tells_what_is_written_and_what_is_default() {
        let told = told(None, &policy(600, &[("p1", 2)]));
        let (default, written): (Vec<_>, Vec<_>) = told
            .into_iter()
            .partition(|line| line.starts_with("(default) "));
        assert_eq!(
            written,
            [
                "limit[\"rpm\"].dimension: - -> requests",
                "limit[\"rpm\"].cap: - -> 600",
                "limit[\"rpm\"].per: - -> 1m",
                "priority: - -> p1",
                "priority[\"p1\"].weight: - -> 2",
            ]
        );
        assert_eq!(
            default,
            [
                "(default) limit[\"rpm\"].kind: - -> sliding",
                "(default) limit[\"rpm\"].enforced_by: - -> provider",
                "(default) limit[\"rpm\"].burst: - -> default",
                "(default) limit[\"rpm\"].initial_use: - -> full",
                "(default) default_tenant_weight: - -> 100",
                "(default) reply_window: - -> default",
                "(default) send_spread: - -> default",
                "(default) horizon: - -> 30ms",
                "(default) headroom: - -> auto",
                "(default) estimate: - -> learned",
                "(default) rejected_counts: - -> true",
                "(default) estimate_sigmas_milli: - -> 2500",
            ]
        );
    }

    /// What is assumed to be used follows from who enforces the limit.
    #[test]
    fn a_default_may_depend_on_another_field() {
        let mut own = policy(600, &[("p1", 2)]);
        own.limits[0].enforced_by = wire::EnforcedBy::Us.into();
        own.limits[0].initial_use = wire::InitialUse::Empty.into();
        let changes = changes(None, &own);
        let is_default = |key: &str| {
            let found = changes.iter().find(|change| change.key.ends_with(key));
            found.unwrap().is_default
        };
        assert!(is_default("initial_use") && !is_default("enforced_by"));
    }

    /// What is shown is what a file may say.
    #[test]
    fn times_are_written_as_a_file_reads_them() {
        for us in [
            0,
            1,
            999,
            1_000,
            1_500_000,
            60_000_000,
            90_000_000,
            86_400_000_000,
            u64::MAX,
        ] {
            assert_eq!(policy_file::parse_span(&write_span(us)), Ok(us));
        }
        let texts = [1_500_000, 60_000_000, 90_000_000, 7_200_000_000].map(write_span);
        assert_eq!(texts, ["1500ms", "1m", "90s", "2h"]);
    }

    #[test]
    fn order_weights_and_what_goes_away_are_told() {
        let old = policy(600, &[("p1", 2), ("p2", 1)]);
        let new = policy(900, &[("p2", 3), ("p1", 2)]);
        assert_eq!(
            told(Some(&old), &new),
            [
                "limit[\"rpm\"].cap: 600 -> 900",
                "priority: p1, p2 -> p2, p1",
                "priority[\"p2\"].weight: 1 -> 3",
            ]
        );
        let fewer = policy(600, &[("p1", 2)]);
        assert_eq!(
            told(Some(&old), &fewer),
            ["priority: p1, p2 -> p1", "priority[\"p2\"].weight: 1 -> -"]
        );
    }

    /// A field that the diff forgets would be changed without being shown.
    #[test]
    fn every_field_of_a_policy_is_told() {
        let old = policy(600, &[("p1", 2)]);
        let text = r#"
            [[target]]
            name = "t"
            tenant_weights = { acme = 3 }
            default_tenant_weight = 7
            reply_window = "50ms"
            send_spread = "51ms"
            horizon = "52ms"
            headroom = "off"
            estimate = "reserve"
            rejected_counts = false
            estimate_sigmas_milli = 1000
            [[target.limit]]
            name = "rpm"
            dimension = "calls"
            cap = 601
            per = "61s"
            kind = "bucket"
            enforced_by = "us"
            burst = "5s"
            initial_use = "empty"
            [[target.priority]]
            name = "p1"
            weight = 4
        "#;
        let new = crate::ctl::policy_file::parse(text).unwrap()[0]
            .spelt_out()
            .unwrap();
        assert_eq!(
            told(Some(&old), &new).len(),
            7 + 1 + 1 + 8,
            "{:?}",
            told(Some(&old), &new)
        );
    }
}
