//! Format 1 of a policy.
//!
//! As in the operations, order is the format, and nothing here may change.

use super::field::FieldError;
use super::list::{AtMost, Text};
use super::names::Names;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_admission::limits::{LIMITS_MAX, PRIORITIES_MAX, TENANT_WEIGHTS_MAX};
use weir_admission::{
    EnforcedBy, Estimate, Headroom, InitialUse, Kind, Limit, Policy, Priority, TenantName,
};

#[derive(Serialize, Deserialize)]
pub(super) struct PolicyV1<'a> {
    #[serde(borrow)]
    limits: AtMost<LimitV1<'a>, LIMITS_MAX>,
    priorities: AtMost<(Text<'a>, u32), PRIORITIES_MAX>,
    tenant_weights: AtMost<(Text<'a>, u32), TENANT_WEIGHTS_MAX>,
    default_tenant_weight: u32,
    reply_window_us: Option<u64>,
    send_spread_us: Option<u64>,
    horizon_us: u64,
    headroom: HeadroomV1,
    estimate: EstimateV1,
    rejected_counts: bool,
    estimate_sigmas_milli: u32,
}

#[derive(Serialize, Deserialize)]
struct LimitV1<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    dimension: Text<'a>,
    cap: u64,
    per_us: u64,
    kind: KindV1,
    enforced_by: EnforcedByV1,
    burst_us: Option<u64>,
    initial_use: InitialUseV1,
}

/// An enum as it is stored, and the way there and back.
macro_rules! stored_enum {
    ($stored:ident is $domain:ident { $($variant:ident),+ }) => {
        #[derive(Clone, Copy, Serialize, Deserialize)]
        enum $stored { $($variant),+ }

        impl From<$domain> for $stored {
            fn from(value: $domain) -> Self {
                match value { $($domain::$variant => $stored::$variant),+ }
            }
        }

        impl From<$stored> for $domain {
            fn from(value: $stored) -> Self {
                match value { $($stored::$variant => $domain::$variant),+ }
            }
        }
    };
}

stored_enum!(KindV1 is Kind { Sliding, Bucket });
stored_enum!(EnforcedByV1 is EnforcedBy { Provider, Us });
stored_enum!(InitialUseV1 is InitialUse { Full, Empty });
stored_enum!(HeadroomV1 is Headroom { Auto, On, Off });
stored_enum!(EstimateV1 is Estimate { Learned, Reserve });

impl<'a> PolicyV1<'a> {
    /// The stored form; refuses a policy that breaks a rule.
    pub(super) fn new(policy: &'a Policy) -> Result<Self, FieldError> {
        check(policy)?;
        Ok(PolicyV1 {
            limits: AtMost::new(policy.limits.iter().map(LimitV1::new).collect()),
            priorities: AtMost::new(
                policy
                    .priorities
                    .iter()
                    .map(|p| (p.name.as_str().into(), p.weight))
                    .collect(),
            ),
            tenant_weights: AtMost::new(
                policy
                    .tenant_weights
                    .iter()
                    .map(|(t, w)| (t.as_str().into(), *w))
                    .collect(),
            ),
            default_tenant_weight: policy.default_tenant_weight,
            reply_window_us: policy.reply_window,
            send_spread_us: policy.send_spread,
            horizon_us: policy.horizon,
            headroom: policy.headroom.into(),
            estimate: policy.estimate.into(),
            rejected_counts: policy.rejected_counts,
            estimate_sigmas_milli: policy.estimate_sigmas_milli,
        })
    }

    /// The policy; refuses one that breaks a rule.
    pub(super) fn read(self, names: &mut Names) -> Result<Policy, FieldError> {
        let policy = Policy {
            limits: read_limits(self.limits, names)?,
            priorities: read_priorities(self.priorities, names)?,
            tenant_weights: read_tenant_weights(self.tenant_weights, names)?,
            default_tenant_weight: self.default_tenant_weight,
            reply_window: self.reply_window_us,
            send_spread: self.send_spread_us,
            horizon: self.horizon_us,
            headroom: self.headroom.into(),
            estimate: self.estimate.into(),
            rejected_counts: self.rejected_counts,
            estimate_sigmas_milli: self.estimate_sigmas_milli,
        };
        check(&policy)?;
        Ok(policy)
    }
}

impl<'a> LimitV1<'a> {
    fn new(limit: &'a Limit) -> Self {
        LimitV1 {
            name: limit.name.as_str().into(),
            dimension: limit.dimension.as_str().into(),
            cap: limit.cap,
            per_us: limit.per,
            kind: limit.kind.into(),
            enforced_by: limit.enforced_by.into(),
            burst_us: limit.burst,
            initial_use: limit.initial_use.into(),
        }
    }

    fn read(self, names: &mut Names) -> Result<Limit, FieldError> {
        Ok(Limit {
            name: names.limits.read("name", self.name)?,
            dimension: names.dimensions.read("dimension", self.dimension)?,
            cap: self.cap,
            per: self.per_us,
            kind: self.kind.into(),
            enforced_by: self.enforced_by.into(),
            burst: self.burst_us,
            initial_use: self.initial_use.into(),
        })
    }
}

fn read_limits(
    stored: AtMost<LimitV1<'_>, LIMITS_MAX>,
    names: &mut Names,
) -> Result<Vec<Limit>, FieldError> {
    check_length("limits", &stored)?;
    let limits = stored.kept.into_iter().enumerate();
    limits
        .map(|(i, l)| l.read(names).map_err(|e| e.within(&format!("limits[{i}]"))))
        .collect()
}

fn read_priorities(
    stored: AtMost<(Text<'_>, u32), PRIORITIES_MAX>,
    names: &mut Names,
) -> Result<Vec<Priority>, FieldError> {
    check_length("priorities", &stored)?;
    let priorities = stored.kept.into_iter().enumerate();
    priorities
        .map(
            |(i, (name, weight))| match names.priorities.read("name", name) {
                Ok(name) => Ok(Priority { name, weight }),
                Err(error) => Err(error.within(&format!("priorities[{i}]"))),
            },
        )
        .collect()
}

fn read_tenant_weights(
    stored: AtMost<(Text<'_>, u32), TENANT_WEIGHTS_MAX>,
    names: &mut Names,
) -> Result<BTreeMap<TenantName, u32>, FieldError> {
    check_length("tenant_weights", &stored)?;
    let mut weights = BTreeMap::new();
    for (name, weight) in stored.kept {
        let tenant = names.tenants.read("tenant_weights", name)?;
        if let Some(before) = weights.insert(tenant, weight) {
            let rule = format!("must name a tenant once, one has weights {before} and {weight}");
            return Err(FieldError::new("tenant_weights", rule));
        }
    }
    Ok(weights)
}

fn check_length<T, const MAX: usize>(
    field: &'static str,
    list: &AtMost<T, MAX>,
) -> Result<(), FieldError> {
    if list.is_too_long() {
        return Err(FieldError::new(
            field,
            format!("must be at most {MAX}, is {}", list.listed),
        ));
    }
    Ok(())
}

fn check(policy: &Policy) -> Result<(), FieldError> {
    match policy.violations().into_iter().next() {
        Some(violation) => Err(FieldError::new(violation.field, violation.description)),
        None => Ok(()),
    }
}
