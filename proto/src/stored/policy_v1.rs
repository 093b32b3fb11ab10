//! Format 1 of a policy. As with the operations, nothing here may change.

use super::fault::Fault;
use super::names::Names;
use super::reader::Reader;
use super::writer::Writer;
use std::collections::BTreeMap;
use weir_admission::limits::{LIMITS_MAX, PRIORITIES_MAX, TENANT_WEIGHTS_MAX};
use weir_admission::{
    EnforcedBy, Estimate, Headroom, InitialUse, Kind, Limit, Policy, Priority, TenantName,
};

/// Writes a policy; refuses one that breaks a rule.
pub(super) fn write(w: &mut Writer, policy: &Policy) -> Result<(), Fault> {
    check(policy)?;
    w.length(policy.limits.len());
    for limit in &policy.limits {
        write_limit(w, limit);
    }
    w.length(policy.priorities.len());
    for priority in &policy.priorities {
        w.text(priority.name.as_str());
        w.u32(priority.weight);
    }
    w.length(policy.tenant_weights.len());
    for (tenant, weight) in &policy.tenant_weights {
        w.text(tenant.as_str());
        w.u32(*weight);
    }
    w.u32(policy.default_tenant_weight);
    w.optional_u64(policy.reply_window);
    w.optional_u64(policy.send_spread);
    w.u64(policy.horizon);
    w.u32(number(policy.headroom, &HEADROOMS));
    w.u32(number(policy.estimate, &ESTIMATES));
    w.bool(policy.rejected_counts);
    w.u32(policy.estimate_sigmas_milli);
    Ok(())
}

/// Reads a policy; refuses one that breaks a rule.
pub(super) fn read(r: &mut Reader<'_>, names: &mut Names) -> Result<Policy, Fault> {
    let policy = Policy {
        limits: read_limits(r, names)?,
        priorities: read_priorities(r, names)?,
        tenant_weights: read_tenant_weights(r, names)?,
        default_tenant_weight: r.u32("default_tenant_weight")?,
        reply_window: r.optional_u64("reply_window_us")?,
        send_spread: r.optional_u64("send_spread_us")?,
        horizon: r.u64("horizon_us")?,
        headroom: variant(r, "headroom", &HEADROOMS)?,
        estimate: variant(r, "estimate", &ESTIMATES)?,
        rejected_counts: r.bool("rejected_counts")?,
        estimate_sigmas_milli: r.u32("estimate_sigmas_milli")?,
    };
    check(&policy)?;
    Ok(policy)
}

fn write_limit(w: &mut Writer, limit: &Limit) {
    w.text(limit.name.as_str());
    w.text(limit.dimension.as_str());
    w.u64(limit.cap);
    w.u64(limit.per);
    w.u32(number(limit.kind, &KINDS));
    w.u32(number(limit.enforced_by, &ENFORCERS));
    w.optional_u64(limit.burst);
    w.u32(number(limit.initial_use, &INITIAL_USES));
}

fn read_limit(r: &mut Reader<'_>, names: &mut Names) -> Result<Limit, Fault> {
    Ok(Limit {
        name: names.limits.read(r, "name")?,
        dimension: names.dimensions.read(r, "dimension")?,
        cap: r.u64("cap")?,
        per: r.u64("per_us")?,
        kind: variant(r, "kind", &KINDS)?,
        enforced_by: variant(r, "enforced_by", &ENFORCERS)?,
        burst: r.optional_u64("burst_us")?,
        initial_use: variant(r, "initial_use", &INITIAL_USES)?,
    })
}

fn read_limits(r: &mut Reader<'_>, names: &mut Names) -> Result<Vec<Limit>, Fault> {
    let length = r.length("limits", LIMITS_MAX)?;
    let mut limits = Vec::with_capacity(length);
    for i in 0..length {
        let limit = read_limit(r, names);
        limits.push(limit.map_err(|fault| fault.within(&format!("limits[{i}]")))?);
    }
    Ok(limits)
}

fn read_priorities(r: &mut Reader<'_>, names: &mut Names) -> Result<Vec<Priority>, Fault> {
    let length = r.length("priorities", PRIORITIES_MAX)?;
    let mut priorities = Vec::with_capacity(length);
    for _ in 0..length {
        let name = names.priorities.read(r, "priorities")?;
        priorities.push(Priority {
            name,
            weight: r.u32("priorities")?,
        });
    }
    Ok(priorities)
}

fn read_tenant_weights(
    r: &mut Reader<'_>,
    names: &mut Names,
) -> Result<BTreeMap<TenantName, u32>, Fault> {
    let field = "tenant_weights";
    let mut weights = BTreeMap::new();
    for _ in 0..r.length(field, TENANT_WEIGHTS_MAX)? {
        let tenant = names.tenants.read(r, field)?;
        if weights
            .last_key_value()
            .is_some_and(|(before, _)| *before >= tenant)
        {
            return Err(Fault::invalid(
                field,
                "must be in order of the tenants, each once",
            ));
        }
        weights.insert(tenant, r.u32(field)?);
    }
    Ok(weights)
}

fn check(policy: &Policy) -> Result<(), Fault> {
    match policy.violations().into_iter().next() {
        Some(violation) => Err(Fault::invalid(violation.field, violation.description)),
        None => Ok(()),
    }
}

// Values of the enums, each at the number under which it is stored.
const KINDS: [Kind; 2] = [Kind::Sliding, Kind::Bucket];
const ENFORCERS: [EnforcedBy; 2] = [EnforcedBy::Provider, EnforcedBy::Us];
const INITIAL_USES: [InitialUse; 2] = [InitialUse::Full, InitialUse::Empty];
const HEADROOMS: [Headroom; 3] = [Headroom::Auto, Headroom::On, Headroom::Off];
const ESTIMATES: [Estimate; 2] = [Estimate::Learned, Estimate::Reserve];

fn number<T: PartialEq>(value: T, values: &[T]) -> u32 {
    let place = values.iter().position(|listed| *listed == value);
    place
        .and_then(|place| u32::try_from(place).ok())
        .unwrap_or(u32::MAX)
}

fn variant<T: Copy>(r: &mut Reader<'_>, field: &'static str, values: &[T]) -> Result<T, Fault> {
    let number = r.u32(field)?;
    let value = usize::try_from(number)
        .ok()
        .and_then(|number| values.get(number));
    value
        .copied()
        .ok_or_else(|| Fault::malformed(field, "is no value that is known"))
}
