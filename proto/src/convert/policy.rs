//! Policies.

use super::fields::Fields;
use super::{Violations, weights};
use crate::v1;
use weir_admission::limits::{HORIZON_DEFAULT, LIMITS_MAX, SIGMAS_MILLI_DEFAULT};
use weir_admission::{EnforcedBy, Estimate, Headroom, InitialUse, Kind, Limit, Policy};

/// Reads a policy, giving every field that is not set its default.
///
/// # Errors
/// Every field that breaks a rule.
pub fn read(policy: &v1::Policy) -> Result<Policy, Violations> {
    let mut fields = Fields::new();
    let policy = read_into(&mut fields, policy);
    fields.finish(Some(policy))
}

/// Reads a policy within a message. What comes back is valid only if no field was refused.
pub(super) fn read_into(fields: &mut Fields, policy: &v1::Policy) -> Policy {
    let policy = Policy {
        limits: read_limits(fields, &policy.limits),
        priorities: weights::read_priorities(fields, &policy.priorities),
        tenant_weights: weights::read_tenants(fields, &policy.tenant_weights),
        default_tenant_weight: weights::read_default(policy.default_tenant_weight),
        reply_window: policy.reply_window_us,
        send_spread: policy.send_spread_us,
        horizon: if policy.horizon_us == 0 {
            HORIZON_DEFAULT
        } else {
            policy.horizon_us
        },
        headroom: read_headroom(fields, policy.headroom),
        estimate: read_estimate(fields, policy.estimate),
        rejected_counts: read_rejected_counts(fields, policy.rejected_counts),
        estimate_sigmas_milli: policy.estimate_sigmas_milli.unwrap_or(SIGMAS_MILLI_DEFAULT),
    };
    for violation in policy.violations() {
        fields.refuse(&violation.field, &violation.description);
    }
    policy
}

fn read_limits(fields: &mut Fields, list: &[v1::Limit]) -> Vec<Limit> {
    if list.len() > LIMITS_MAX {
        let rule = format!("must have 1 to {LIMITS_MAX} limits, has {}", list.len());
        fields.refuse("limits", &rule);
    }
    let mut limits = Vec::with_capacity(list.len().min(LIMITS_MAX));
    for (i, limit) in list.iter().take(LIMITS_MAX).enumerate() {
        limits.extend(read_limit(fields, &format!("limits[{i}]"), limit));
    }
    limits
}

fn read_limit(fields: &mut Fields, path: &str, limit: &v1::Limit) -> Option<Limit> {
    let name = fields.name_or_stand_in(&format!("{path}.name"), &limit.name);
    let dimension = fields.name_or_stand_in(&format!("{path}.dimension"), &limit.dimension);
    let kind = read_kind(fields, path, limit.kind);
    let enforced_by = read_enforced_by(fields, path, limit.enforced_by);
    Some(Limit {
        name: name?,
        dimension: dimension?,
        cap: limit.cap,
        per: limit.per_us,
        kind,
        enforced_by,
        burst: limit.burst_us,
        initial_use: read_initial_use(fields, path, limit.initial_use, enforced_by),
    })
}

fn read_kind(fields: &mut Fields, path: &str, kind: i32) -> Kind {
    match v1::LimitKind::try_from(kind) {
        Ok(v1::LimitKind::Sliding) => Kind::Sliding,
        Ok(v1::LimitKind::Bucket) => Kind::Bucket,
        Ok(v1::LimitKind::Unspecified) | Err(_) => {
            let rule = "must be LIMIT_KIND_SLIDING or LIMIT_KIND_BUCKET";
            fields.refuse(&format!("{path}.kind"), rule);
            Kind::Sliding
        }
    }
}

fn read_enforced_by(fields: &mut Fields, path: &str, enforced_by: i32) -> EnforcedBy {
    match v1::EnforcedBy::try_from(enforced_by) {
        Ok(v1::EnforcedBy::Provider) => EnforcedBy::Provider,
        Ok(v1::EnforcedBy::Us) => EnforcedBy::Us,
        Ok(v1::EnforcedBy::Unspecified) | Err(_) => {
            let rule = "must be ENFORCED_BY_PROVIDER or ENFORCED_BY_US";
            fields.refuse(&format!("{path}.enforced_by"), rule);
            EnforcedBy::Provider
        }
    }
}

fn read_initial_use(
    fields: &mut Fields,
    path: &str,
    initial_use: i32,
    enforced_by: EnforcedBy,
) -> InitialUse {
    match v1::InitialUse::try_from(initial_use) {
        Ok(v1::InitialUse::Full) => InitialUse::Full,
        Ok(v1::InitialUse::Empty) => InitialUse::Empty,
        Ok(v1::InitialUse::Unspecified) => match enforced_by {
            EnforcedBy::Provider => InitialUse::Full,
            EnforcedBy::Us => InitialUse::Empty,
        },
        Err(_) => {
            let rule = "must be INITIAL_USE_FULL, INITIAL_USE_EMPTY or unset";
            fields.refuse(&format!("{path}.initial_use"), rule);
            InitialUse::Full
        }
    }
}

fn read_headroom(fields: &mut Fields, headroom: i32) -> Headroom {
    match v1::Headroom::try_from(headroom) {
        Ok(v1::Headroom::Auto | v1::Headroom::Unspecified) => Headroom::Auto,
        Ok(v1::Headroom::On) => Headroom::On,
        Ok(v1::Headroom::Off) => Headroom::Off,
        Err(_) => {
            let rule = "must be HEADROOM_AUTO, HEADROOM_ON, HEADROOM_OFF or unset";
            fields.refuse("headroom", rule);
            Headroom::Auto
        }
    }
}

fn read_estimate(fields: &mut Fields, estimate: i32) -> Estimate {
    match v1::Estimate::try_from(estimate) {
        Ok(v1::Estimate::Learned | v1::Estimate::Unspecified) => Estimate::Learned,
        Ok(v1::Estimate::Reserve) => Estimate::Reserve,
        Err(_) => {
            fields.refuse(
                "estimate",
                "must be ESTIMATE_LEARNED, ESTIMATE_RESERVE or unset",
            );
            Estimate::Learned
        }
    }
}

fn read_rejected_counts(fields: &mut Fields, rejected_counts: i32) -> bool {
    match v1::RejectedCounts::try_from(rejected_counts) {
        Ok(v1::RejectedCounts::Yes | v1::RejectedCounts::Unspecified) => true,
        Ok(v1::RejectedCounts::No) => false,
        Err(_) => {
            let rule = "must be REJECTED_COUNTS_YES, REJECTED_COUNTS_NO or unset";
            fields.refuse("rejected_counts", rule);
            true
        }
    }
}

/// The policy as it is written, with every default spelled out.
pub fn write(policy: &Policy) -> v1::Policy {
    let headroom = match policy.headroom {
        Headroom::Auto => v1::Headroom::Auto,
        Headroom::On => v1::Headroom::On,
        Headroom::Off => v1::Headroom::Off,
    };
    let estimate = match policy.estimate {
        Estimate::Learned => v1::Estimate::Learned,
        Estimate::Reserve => v1::Estimate::Reserve,
    };
    let rejected_counts = match policy.rejected_counts {
        true => v1::RejectedCounts::Yes,
        false => v1::RejectedCounts::No,
    };
    v1::Policy {
        limits: policy.limits.iter().map(write_limit).collect(),
        priorities: weights::write_priorities(&policy.priorities),
        tenant_weights: weights::write_tenants(&policy.tenant_weights),
        default_tenant_weight: policy.default_tenant_weight,
        reply_window_us: policy.reply_window,
        send_spread_us: policy.send_spread,
        horizon_us: policy.horizon,
        headroom: headroom.into(),
        estimate: estimate.into(),
        rejected_counts: rejected_counts.into(),
        estimate_sigmas_milli: Some(policy.estimate_sigmas_milli),
    }
}

fn write_limit(limit: &Limit) -> v1::Limit {
    let kind = match limit.kind {
        Kind::Sliding => v1::LimitKind::Sliding,
        Kind::Bucket => v1::LimitKind::Bucket,
    };
    let enforced_by = match limit.enforced_by {
        EnforcedBy::Provider => v1::EnforcedBy::Provider,
        EnforcedBy::Us => v1::EnforcedBy::Us,
    };
    let initial_use = match limit.initial_use {
        InitialUse::Full => v1::InitialUse::Full,
        InitialUse::Empty => v1::InitialUse::Empty,
    };
    v1::Limit {
        name: limit.name.to_string(),
        dimension: limit.dimension.to_string(),
        cap: limit.cap,
        per_us: limit.per,
        kind: kind.into(),
        enforced_by: enforced_by.into(),
        burst_us: limit.burst,
        initial_use: initial_use.into(),
    }
}
