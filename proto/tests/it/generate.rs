//! Random valid values of the domain.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use weir_admission::limits::{
    CALLER_DURATION_MAX, DIMENSIONS_MAX, HORIZON_MAX, HORIZON_MIN, LIMITS_MAX, PERIOD_MAX,
    PERIOD_MIN, PRIORITIES_MAX, SIGMAS_MILLI_MAX, UNITS_MAX, WEIGHT_MAX, WINDOW_KNOB_MAX,
};
use weir_admission::{
    Admit, Amounts, AskName, CallOutcome, DeletePolicy, DimensionName, EnforcedBy, Estimate,
    Extend, GrantId, Headroom, InitialUse, Kind, Limit, LimitName, Operation, Policy, Principal,
    Priority, PriorityName, PutPolicy, Release, Report, Stamp, TargetName, TenantName,
};

/// A text that is a valid name: short or long, plain or not.
pub(crate) fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,3}",
        "[a-z0-9/_.-]{1,128}",
        "[\\P{C}]{1,32}".prop_filter("must be a name", |text| TargetName::new(text).is_ok()),
    ]
}

pub(crate) fn target() -> impl Strategy<Value = TargetName> {
    name().prop_map(|text| TargetName::new(&text).unwrap())
}

pub(crate) fn tenant() -> impl Strategy<Value = TenantName> {
    name().prop_map(|text| TenantName::new(&text).unwrap())
}

pub(crate) fn principal() -> impl Strategy<Value = Principal> {
    name().prop_map(|text| Principal::new(&text).unwrap())
}

pub(crate) fn priority() -> impl Strategy<Value = PriorityName> {
    name().prop_map(|text| PriorityName::new(&text).unwrap())
}

pub(crate) fn dimension() -> impl Strategy<Value = DimensionName> {
    name().prop_map(|text| DimensionName::new(&text).unwrap())
}

pub(crate) fn limit_name() -> impl Strategy<Value = LimitName> {
    name().prop_map(|text| LimitName::new(&text).unwrap())
}

pub(crate) fn stamp() -> impl Strategy<Value = Stamp> {
    any::<u64>().prop_map(Stamp::from_micros)
}

/// A number of units, often at an edge.
pub(crate) fn units() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(UNITS_MAX), 0..=UNITS_MAX]
}

pub(crate) fn amounts() -> impl Strategy<Value = Amounts> {
    btree_map(dimension(), units(), 0..=DIMENSIONS_MAX)
        .prop_map(|map| Amounts::new(map.into_iter().collect()).unwrap())
}

/// A cost that an ask may have, and upper bounds to it.
pub(crate) fn costs() -> impl Strategy<Value = (Amounts, Amounts)> {
    let entry = (units(), option::of(units()));
    btree_map(dimension(), entry, 1..=DIMENSIONS_MAX).prop_map(|map| {
        let mut cost: Vec<_> = map
            .iter()
            .map(|(name, (units, _))| (name.clone(), *units))
            .collect();
        if cost.iter().all(|(_, units)| *units == 0) {
            cost[0].1 = 1;
        }
        let cost = Amounts::new(cost).unwrap();
        let most = map.into_iter().filter_map(|(name, (_, most))| {
            let least = cost.get(&name).unwrap_or(0);
            most.map(|most| (name, most.max(least)))
        });
        let most = Amounts::new(most.collect()).unwrap();
        (cost, most)
    })
}

pub(crate) fn admission_id() -> impl Strategy<Value = Box<[u8]>> {
    name().prop_map(|text| text.into_bytes().into_boxed_slice())
}

/// An attempt is never 0.
pub(crate) fn attempt() -> impl Strategy<Value = u64> {
    1..=u64::MAX
}

/// A duration that a caller may name.
pub(crate) fn caller_duration() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1), Just(CALLER_DURATION_MAX), 1..=CALLER_DURATION_MAX]
}

pub(crate) fn grant() -> impl Strategy<Value = GrantId> {
    (1..=u64::MAX, 0..512_u32).prop_map(|(index, offset)| GrantId { index, offset })
}

pub(crate) fn admit() -> impl Strategy<Value = Admit> {
    let who = (target(), tenant(), principal(), priority(), admission_id());
    let what = (attempt(), 1..=u32::MAX, costs(), any::<u64>());
    (
        who,
        what,
        option::of(caller_duration()),
        any::<(bool, bool)>(),
    )
        .prop_map(
            |(who, (attempt, ask, (cost, cost_max), labels_digest), deadline, (dry_run, wake))| {
                let (target, tenant, principal, priority, admission_id) = who;
                Admit {
                    target,
                    tenant,
                    principal,
                    priority,
                    admission_id,
                    attempt,
                    ask,
                    cost,
                    cost_max,
                    labels_digest,
                    deadline,
                    dry_run,
                    // A dry run leaves nobody waiting who could be woken.
                    wake: wake && !dry_run,
                }
            },
        )
}

pub(crate) fn call_outcome() -> impl Strategy<Value = CallOutcome> {
    prop_oneof![
        Just(CallOutcome::Ok),
        caller_duration().prop_map(|retry_after| CallOutcome::Throttled { retry_after }),
        Just(CallOutcome::Throttled { retry_after: 0 }),
        Just(CallOutcome::Failed),
        Just(CallOutcome::NotSent),
    ]
}

pub(crate) fn release() -> impl Strategy<Value = Release> {
    (target(), principal(), grant(), amounts(), call_outcome()).prop_map(
        |(target, principal, grant, actual, outcome)| Release {
            target,
            principal,
            grant,
            actual,
            outcome,
        },
    )
}

pub(crate) fn ask_name() -> impl Strategy<Value = AskName> {
    (
        target(),
        tenant(),
        principal(),
        admission_id(),
        attempt(),
        1..=u32::MAX,
    )
        .prop_map(
            |(target, tenant, principal, admission_id, attempt, ask)| AskName {
                target,
                tenant,
                principal,
                admission_id,
                attempt,
                ask,
            },
        )
}

pub(crate) fn extend() -> impl Strategy<Value = Extend> {
    (target(), principal(), grant()).prop_map(|(target, principal, grant)| Extend {
        target,
        principal,
        grant,
    })
}

pub(crate) fn report() -> impl Strategy<Value = Report> {
    let who = (target(), tenant(), principal(), priority(), admission_id());
    (who, attempt(), amounts(), 0..=CALLER_DURATION_MAX).prop_map(|(who, attempt, actual, age)| {
        let (target, tenant, principal, priority, admission_id) = who;
        Report {
            target,
            tenant,
            principal,
            priority,
            admission_id,
            attempt,
            actual,
            age,
        }
    })
}

fn limit() -> impl Strategy<Value = Limit> {
    let kind = prop_oneof![Just(Kind::Sliding), Just(Kind::Bucket)];
    let enforced_by = prop_oneof![Just(EnforcedBy::Provider), Just(EnforcedBy::Us)];
    let initial_use = prop_oneof![Just(InitialUse::Full), Just(InitialUse::Empty)];
    let burst = option::of(0..=PERIOD_MAX);
    let per = prop_oneof![Just(PERIOD_MIN), Just(PERIOD_MAX), PERIOD_MIN..=PERIOD_MAX];
    (
        limit_name(),
        dimension(),
        units(),
        per,
        kind,
        enforced_by,
        burst,
        initial_use,
    )
        .prop_map(
            |(name, dimension, cap, per, kind, enforced_by, burst, initial_use)| Limit {
                name,
                dimension,
                cap,
                per,
                kind,
                enforced_by,
                burst: burst.map(|burst| burst.min(per)),
                initial_use,
            },
        )
}

fn limits() -> impl Strategy<Value = Vec<Limit>> {
    vec(limit(), 1..=LIMITS_MAX).prop_map(|mut limits| {
        let dimensions: Vec<_> = limits
            .iter()
            .take(DIMENSIONS_MAX)
            .map(|limit| limit.dimension.clone())
            .collect();
        for (i, limit) in limits.iter_mut().enumerate() {
            limit.dimension = dimensions[i % dimensions.len()].clone();
        }
        limits.sort_by(|a, b| a.name.cmp(&b.name));
        limits.dedup_by(|a, b| a.name == b.name);
        limits
    })
}

fn priorities() -> impl Strategy<Value = Vec<Priority>> {
    btree_map(priority(), 1..=WEIGHT_MAX, 1..=PRIORITIES_MAX).prop_map(|map| {
        map.into_iter()
            .map(|(name, weight)| Priority { name, weight })
            .collect()
    })
}

pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    let headroom = prop_oneof![
        Just(Headroom::Auto),
        Just(Headroom::On),
        Just(Headroom::Off)
    ];
    let estimate = prop_oneof![Just(Estimate::Learned), Just(Estimate::Reserve)];
    let knobs = (
        option::of(0..=WINDOW_KNOB_MAX),
        option::of(0..=WINDOW_KNOB_MAX),
        HORIZON_MIN..=HORIZON_MAX,
        0..=SIGMAS_MILLI_MAX,
    );
    let weights = (btree_map(tenant(), 1..=WEIGHT_MAX, 0..20), 1..=WEIGHT_MAX);
    (
        limits(),
        priorities(),
        weights,
        knobs,
        headroom,
        estimate,
        any::<bool>(),
    )
        .prop_map(
            |(limits, priorities, weights, knobs, headroom, estimate, rejected_counts)| {
                let (tenant_weights, default_tenant_weight) = weights;
                let (reply_window, send_spread, horizon, estimate_sigmas_milli) = knobs;
                Policy {
                    limits,
                    priorities,
                    tenant_weights,
                    default_tenant_weight,
                    reply_window,
                    send_spread,
                    horizon,
                    headroom,
                    estimate,
                    rejected_counts,
                    estimate_sigmas_milli,
                }
            },
        )
}

pub(crate) fn put_policy() -> impl Strategy<Value = PutPolicy> {
    let expected = option::of(any::<u64>());
    (target(), principal(), policy(), expected).prop_map(
        |(target, principal, policy, expected_version)| PutPolicy {
            target,
            principal,
            policy,
            expected_version,
        },
    )
}

pub(crate) fn delete_policy() -> impl Strategy<Value = DeletePolicy> {
    (target(), option::of(any::<u64>())).prop_map(|(target, expected_version)| DeletePolicy {
        target,
        expected_version,
    })
}

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        admit().prop_map(|admit| Operation::Admit(Box::new(admit))),
        release().prop_map(|release| Operation::Release(Box::new(release))),
        ask_name().prop_map(|ask| Operation::Cancel(Box::new(ask))),
        extend().prop_map(Operation::Extend),
        ask_name().prop_map(|ask| Operation::Unwake(Box::new(ask))),
        report().prop_map(|report| Operation::Report(Box::new(report))),
        put_policy().prop_map(|put| Operation::PutPolicy(Box::new(put))),
        delete_policy().prop_map(Operation::DeletePolicy),
        any::<[u8; 16]>().prop_map(Operation::Seed),
    ]
}
