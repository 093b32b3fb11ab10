//! What an operator may see.

use super::Target;
use crate::meter::Meter;
use crate::{LimitUse, PriorityUse, TargetName, TargetView};

impl Target {
    /// Policy and use at `now`; `None` without a policy.
    pub(crate) fn view(&self, name: &TargetName, now: u64) -> Option<TargetView> {
        let policy = self.policy.clone()?;
        let limits = self
            .meters
            .iter()
            .map(|meter| limit_use(meter, now))
            .collect();
        let priorities = self
            .classes
            .iter()
            .map(|class| PriorityUse {
                name: class.name.clone(),
                waiting: class.line.len(),
                admitted: class.admitted,
                deferred: class.deferred,
                rejected: class.rejected,
                throttled: class.throttled,
                served_ns: class.served_ns,
            })
            .collect();
        Some(TargetView {
            name: name.clone(),
            version: self.version,
            policy,
            limits,
            priorities,
            tenants: self.queues.len() as u64,
            grants: self.live_grants,
            waiting: self.tickets,
            held_for: self.held_until.saturating_sub(now),
        })
    }
}

fn limit_use(meter: &Meter, now: u64) -> LimitUse {
    LimitUse {
        name: meter.limit.name.clone(),
        used: meter.used(now),
        cap: meter.limit.cap,
        guard: meter.guard.total(meter.limit.enforced_by),
    }
}
