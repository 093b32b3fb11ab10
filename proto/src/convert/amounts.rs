//! Units per dimension.

use super::fields::{Fields, entry};
use std::collections::BTreeMap;
use weir_admission::Amounts;
use weir_admission::limits::{DIMENSIONS_MAX, UNITS_MAX};

/// Reads a map of dimension to units.
pub(super) fn read(
    fields: &mut Fields,
    field: &str,
    map: &BTreeMap<String, u64>,
) -> Option<Amounts> {
    if map.is_empty() {
        return Some(Amounts::default());
    }
    if map.len() > DIMENSIONS_MAX {
        let rule = format!(
            "must have at most {DIMENSIONS_MAX} dimensions, has {}",
            map.len()
        );
        fields.refuse(field, &rule);
        return None;
    }
    let mut list = Vec::with_capacity(map.len());
    for (key, units) in map {
        if *units > UNITS_MAX {
            fields.refuse(
                &entry(field, key),
                &format!("must be at most {UNITS_MAX} units"),
            );
        }
        // The path is worth making only for a name that is refused.
        match weir_admission::DimensionName::new(key) {
            Ok(name) => list.push((name, *units)),
            Err(rule) => fields.refuse(&entry(field, key), &rule.to_string()),
        }
    }
    if list.len() < map.len() {
        return None;
    }
    Amounts::new(list).ok()
}

/// Checks what a cost must be, and its upper bounds against it.
pub(super) fn check_cost(fields: &mut Fields, cost: &Amounts, cost_max: &Amounts) {
    if cost.is_zero() {
        fields.refuse("cost", "must have at least one unit in some dimension");
    }
    for (dimension, most) in cost_max.iter() {
        if let Some(least) = cost.get(dimension).filter(|least| *least > most) {
            let rule = format!("must be at least the cost, {least}");
            fields.refuse(&entry("cost_max", dimension.as_str()), &rule);
        }
    }
}

/// The map of amounts.
pub(super) fn write(amounts: &Amounts) -> BTreeMap<String, u64> {
    amounts
        .iter()
        .map(|(name, units)| (name.as_str().to_owned(), units))
        .collect()
}
