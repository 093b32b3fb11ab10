//! Names, limits and policies from a few words.

use weir_admission::{
    Amounts, DimensionName, EnforcedBy, InitialUse, Kind, Limit, LimitName, Operation, Policy,
    Principal, Priority, PriorityName, PutPolicy, TargetName, TenantName,
};

pub(crate) fn target(name: &str) -> TargetName {
    TargetName::new(name).unwrap()
}

pub(crate) fn tenant(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

pub(crate) fn principal() -> Principal {
    Principal::new("fleet").unwrap()
}

pub(crate) fn priority(name: &str) -> PriorityName {
    PriorityName::new(name).unwrap()
}

pub(crate) fn amounts(list: &[(&str, u64)]) -> Amounts {
    let list = list.iter();
    let list = list.map(|(name, units)| (DimensionName::new(name).unwrap(), *units));
    Amounts::new(list.collect()).unwrap()
}

/// A sliding limit of the provider, with the burst of the product, on the dimension of its name.
pub(crate) fn limit(name: &str, cap: u64, per: u64) -> Limit {
    Limit {
        name: LimitName::new(name).unwrap(),
        dimension: DimensionName::new(name).unwrap(),
        cap,
        per,
        kind: Kind::Sliding,
        enforced_by: EnforcedBy::Provider,
        burst: None,
        initial_use: InitialUse::Empty,
    }
}

pub(crate) fn policy(limits: Vec<Limit>, priorities: &[(&str, u32)]) -> Policy {
    let weighted = |(name, weight): &(&str, u32)| Priority {
        name: priority(name),
        weight: *weight,
    };
    Policy {
        limits,
        priorities: priorities.iter().map(weighted).collect(),
        ..Policy::default()
    }
}

pub(crate) fn put(name: &str, policy: Policy) -> Operation {
    Operation::PutPolicy(Box::new(PutPolicy {
        target: target(name),
        principal: principal(),
        policy,
        expected_version: None,
    }))
}
