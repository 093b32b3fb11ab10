//! Policies that meet their limits: small caps, short and long periods, every kind and knob.

use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_admission::{
    DimensionName, EnforcedBy, Estimate, Headroom, InitialUse, Kind, Limit, LimitName, Policy,
    Priority, PriorityName, TenantName,
};

/// What a history may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All there is.
    Everything,
    /// Costs are known before the call, nothing goes ungated, and all policies have the same limits and
    /// guards: what a cap promises can be judged from the answers.
    Exact,
}

pub(crate) const DIMENSIONS: [&str; 2] = ["requests", "tokens"];

pub(crate) fn dimension(place: usize) -> DimensionName {
    DimensionName::new(DIMENSIONS[place % DIMENSIONS.len()]).unwrap()
}

pub(crate) fn tenant(place: usize) -> TenantName {
    TenantName::new(["ann", "bob", "cy"][place % super::TENANTS]).unwrap()
}

fn limit(place: usize) -> impl Strategy<Value = Limit> {
    const S: u64 = 1_000_000;
    let dimension_of = prop_oneof![2 => Just(0usize), 1 => Just(1)];
    let cap = prop_oneof![
        8 => prop::sample::select(vec![1u64, 2, 3, 10, 16, 100, 1_000]),
        1 => 1..5_000u64,
        1 => Just(0),
    ];
    let per = prop_oneof![
        8 => prop::sample::select(vec![S, 2 * S, 10 * S, 60 * S, 3_600 * S]),
        1 => S..100 * S,
    ];
    let kind = prop_oneof![2 => Just(Kind::Sliding), 1 => Just(Kind::Bucket)];
    let by = prop_oneof![Just(EnforcedBy::Provider), Just(EnforcedBy::Us)];
    let burst = prop_oneof![2 => Just(None), 2 => (0..9u64).prop_map(Some)];
    let full = prop::bool::ANY;
    (dimension_of, cap, per, kind, by, burst, full).prop_map(
        move |(dimension_of, cap, per, kind, enforced_by, burst, full)| Limit {
            name: LimitName::new(["a", "b", "c"][place]).unwrap(),
            dimension: dimension(dimension_of),
            cap,
            per,
            kind,
            enforced_by,
            burst: burst.map(|eighths| per * eighths / 8),
            initial_use: if full {
                InitialUse::Full
            } else {
                InitialUse::Empty
            },
        },
    )
}

fn priorities() -> impl Strategy<Value = Vec<Priority>> {
    let weight = prop_oneof![1..10u32, Just(10_000u32)];
    prop::collection::vec(weight, 1..4).prop_map(|weights| {
        let named = weights.iter().zip(["high", "mid", "low"]);
        named
            .map(|(weight, name)| Priority {
                name: PriorityName::new(name).unwrap(),
                weight: *weight,
            })
            .collect()
    })
}

pub(crate) fn policy(scope: Scope) -> impl Strategy<Value = Policy> {
    let limits = (limit(0), limit(1), limit(2), 1..4usize).prop_map(|(a, b, c, count)| {
        let mut limits = vec![a, b, c];
        limits.truncate(count);
        limits
    });
    let knob = || prop_oneof![3 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(200_000u64))];
    let weights = prop::collection::btree_map(0..super::TENANTS, 1..500u32, 0..3);
    let horizon = prop::sample::select(vec![1_000, 30_000, 30_000, 30_000, 1_000_000u64]);
    let headroom = prop::sample::select(vec![Headroom::Auto, Headroom::On, Headroom::Off]);
    let estimate = match scope {
        Scope::Everything => prop_oneof![Just(Estimate::Learned), Just(Estimate::Reserve)].boxed(),
        Scope::Exact => Just(Estimate::Reserve).boxed(),
    };
    let sigmas = prop::sample::select(vec![0, 1_250, 2_500, 10_000u32]);
    let knobs = (knob(), knob(), horizon, headroom, estimate, sigmas);
    let usual = prop::sample::select(vec![100, 100, 1, 7, 10_000u32]);
    (
        limits,
        priorities(),
        weights,
        usual,
        knobs,
        prop::bool::weighted(0.7),
    )
        .prop_map(
            |(limits, priorities, weights, usual, knobs, rejected_counts)| {
                let named = weights
                    .into_iter()
                    .map(|(place, weight)| (tenant(place), weight));
                Policy {
                    limits,
                    priorities,
                    tenant_weights: BTreeMap::from_iter(named),
                    default_tenant_weight: usual,
                    reply_window: knobs.0,
                    send_spread: knobs.1,
                    horizon: knobs.2,
                    headroom: knobs.3,
                    estimate: knobs.4,
                    rejected_counts,
                    estimate_sigmas_milli: knobs.5,
                }
            },
        )
}
