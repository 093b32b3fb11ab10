//! Priorities and tenants with their weights.

use super::fields::{Fields, entry};
use crate::v1;
use std::collections::BTreeMap;
use weir_admission::limits::{PRIORITIES_MAX, TENANT_WEIGHT_DEFAULT, TENANT_WEIGHTS_MAX};
use weir_admission::{Priority, TenantName};

/// Reads the priorities. Weights are checked with the whole policy.
pub(super) fn read_priorities(fields: &mut Fields, list: &[v1::Priority]) -> Vec<Priority> {
    if list.len() > PRIORITIES_MAX {
        let rule = format!(
            "must have 1 to {PRIORITIES_MAX} priorities, has {}",
            list.len()
        );
        fields.refuse("priorities", &rule);
    }
    let mut priorities = Vec::with_capacity(list.len().min(PRIORITIES_MAX));
    for (i, v1::Priority { name, weight }) in list.iter().take(PRIORITIES_MAX).enumerate() {
        if let Some(name) = fields.name_or_stand_in(&format!("priorities[{i}].name"), name) {
            priorities.push(Priority {
                name,
                weight: *weight,
            });
        }
    }
    priorities
}

/// Reads the weights of tenants.
pub(super) fn read_tenants(
    fields: &mut Fields,
    map: &BTreeMap<String, u32>,
) -> BTreeMap<TenantName, u32> {
    let mut weights = BTreeMap::new();
    if map.len() > TENANT_WEIGHTS_MAX {
        let rule = format!(
            "must name at most {TENANT_WEIGHTS_MAX} tenants, names {}",
            map.len()
        );
        fields.refuse("tenant_weights", &rule);
        return weights;
    }
    for (name, weight) in map {
        match TenantName::new(name) {
            Ok(tenant) => {
                weights.insert(tenant, *weight);
            }
            Err(rule) => fields.refuse(&entry("tenant_weights", name), &rule.to_string()),
        }
    }
    weights
}

/// Reads the weight of tenants without one of their own.
pub(super) fn read_default(weight: u32) -> u32 {
    if weight == 0 {
        TENANT_WEIGHT_DEFAULT
    } else {
        weight
    }
}

/// The priorities as they are written.
pub(super) fn write_priorities(list: &[Priority]) -> Vec<v1::Priority> {
    let written = |p: &Priority| v1::Priority {
        name: p.name.to_string(),
        weight: p.weight,
    };
    list.iter().map(written).collect()
}

/// The weights of tenants as they are written.
pub(super) fn write_tenants(weights: &BTreeMap<TenantName, u32>) -> BTreeMap<String, u32> {
    weights
        .iter()
        .map(|(tenant, weight)| (tenant.to_string(), *weight))
        .collect()
}
