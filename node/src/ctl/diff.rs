//! What a policy changes, field by field.

use super::show::{span, word};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_proto::v1 as wire;

/// One field that changes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    /// Its path, for example `limits["rpm"].cap`.
    pub(super) field: String,
    /// What it is; `None` if it is not there yet.
    pub(super) old: Option<Field>,
    /// What it becomes; `None` if it goes away.
    pub(super) new: Option<Field>,
}

/// The value of a field, for people and for programs.
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

    fn span_us(us: u64) -> Field {
        Field {
            text: span(us),
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
        let text = word(name, prefix);
        Field {
            json: text.as_str().into(),
            text,
        }
    }
}

/// The fields that differ, in the order of the new policy; what goes away comes last. Both policies must
/// be as the cluster tells them, with every default spelt out.
pub(super) fn changes(old: Option<&wire::Policy>, new: &wire::Policy) -> Vec<Change> {
    let mut gone: BTreeMap<String, Field> = BTreeMap::new();
    gone.extend(old.into_iter().flat_map(fields));
    let mut changes = Vec::new();
    for (field, new) in fields(new) {
        let old = gone.remove(&field);
        if old.as_ref() != Some(&new) {
            changes.push(Change {
                field,
                old,
                new: Some(new),
            });
        }
    }
    changes.extend(gone.into_iter().map(|(field, old)| Change {
        field,
        old: Some(old),
        new: None,
    }));
    changes
}

/// Every field of a policy with its path. Limits and priorities go by name, so that moving one changes
/// nothing but the order.
fn fields(policy: &wire::Policy) -> Vec<(String, Field)> {
    let mut fields = Vec::new();
    for limit in &policy.limits {
        let path = |part: &str| format!("limits[{:?}].{part}", limit.name);
        fields.extend(limit_fields(limit).map(|(part, field)| (path(part), field)));
    }
    // Their order is their rank.
    let order: Vec<&str> = policy.priorities.iter().map(|p| p.name.as_str()).collect();
    fields.push((
        "priorities".into(),
        Field {
            text: order.join(", "),
            json: json!(order),
        },
    ));
    for priority in &policy.priorities {
        let path = format!("priorities[{:?}].weight", priority.name);
        fields.push((path, Field::number(priority.weight.into())));
    }
    for (tenant, weight) in &policy.tenant_weights {
        let path = format!("tenant_weights[{tenant:?}]");
        fields.push((path, Field::number(u64::from(*weight))));
    }
    fields.extend(knobs(policy).map(|(name, field)| (name.to_owned(), field)));
    fields
}

fn limit_fields(limit: &wire::Limit) -> impl Iterator<Item = (&'static str, Field)> {
    [
        (
            "dimension",
            Field {
                text: limit.dimension.clone(),
                json: limit.dimension.as_str().into(),
            },
        ),
        ("cap", Field::number(limit.cap)),
        ("per_us", Field::span_us(limit.per_us)),
        (
            "kind",
            Field::word(limit.kind().as_str_name(), "LIMIT_KIND_"),
        ),
        (
            "enforced_by",
            Field::word(limit.enforced_by().as_str_name(), "ENFORCED_BY_"),
        ),
        ("burst_us", Field::optional_us(limit.burst_us)),
        (
            "initial_use",
            Field::word(limit.initial_use().as_str_name(), "INITIAL_USE_"),
        ),
    ]
    .into_iter()
}

fn knobs(policy: &wire::Policy) -> impl Iterator<Item = (&'static str, Field)> {
    let sigmas = u64::from(policy.estimate_sigmas_milli.unwrap_or_default());
    [
        (
            "default_tenant_weight",
            Field::number(policy.default_tenant_weight.into()),
        ),
        (
            "reply_window_us",
            Field::optional_us(policy.reply_window_us),
        ),
        ("send_spread_us", Field::optional_us(policy.send_spread_us)),
        ("horizon_us", Field::span_us(policy.horizon_us)),
        (
            "headroom",
            Field::word(policy.headroom().as_str_name(), "HEADROOM_"),
        ),
        (
            "estimate",
            Field::word(policy.estimate().as_str_name(), "ESTIMATE_"),
        ),
        (
            "rejected_counts",
            Field::word(policy.rejected_counts().as_str_name(), "REJECTED_COUNTS_"),
        ),
        ("estimate_sigmas_milli", Field::number(sigmas)),
    ]
    .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

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
                    "{}: {} -> {}",
                    change.field,
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
    fn a_new_target_tells_every_field() {
        let told = told(None, &policy(600, &[("p1", 2)]));
        assert!(
            told.contains(&"limits[\"rpm\"].per_us: - -> 1m".to_owned()),
            "{told:?}"
        );
        assert!(
            told.contains(&"reply_window_us: - -> default".to_owned()),
            "{told:?}"
        );
        assert_eq!(told.len(), 7 + 2 + 8, "{told:?}");
    }

    #[test]
    fn order_weights_and_what_goes_away_are_told() {
        let old = policy(600, &[("p1", 2), ("p2", 1)]);
        let new = policy(900, &[("p2", 3), ("p1", 2)]);
        assert_eq!(
            told(Some(&old), &new),
            [
                "limits[\"rpm\"].cap: 600 -> 900",
                "priorities: p1, p2 -> p2, p1",
                "priorities[\"p2\"].weight: 1 -> 3",
            ]
        );
        let fewer = policy(600, &[("p1", 2)]);
        assert_eq!(
            told(Some(&old), &fewer),
            [
                "priorities: p1, p2 -> p1",
                "priorities[\"p2\"].weight: 1 -> -"
            ]
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
