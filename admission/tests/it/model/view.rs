//! What an operator may see.

use super::{Call, Record, Target};
use weir_admission::{LimitUse, PriorityUse, TargetName, TargetView};

impl Target {
    pub(super) fn view(&self, name: &TargetName) -> Option<TargetView> {
        let policy = self.policy.clone()?;
        let limits = self.meters.iter().map(|meter| LimitUse {
            name: meter.limit.name.clone(),
            used: meter.used(self.now),
            cap: meter.limit.cap,
            guard: meter.guard,
        });
        let priorities = self.classes.iter().enumerate().map(|(place, class)| {
            let waiting = self.line(place).len() as u64;
            PriorityUse {
                name: class.name.clone(),
                waiting,
                admitted: class.admitted,
                deferred: class.deferred,
                rejected: class.rejected,
                throttled: class.throttled,
                served_ns: class.served_ns as u64,
            }
        });
        let live = |record: &&Record| matches!(record, Record::Live(_));
        Some(TargetView {
            name: name.clone(),
            version: self.version,
            policy,
            limits: limits.collect(),
            priorities: priorities.collect(),
            tenants: self.queues.len() as u64,
            grants: self.grants.values().filter(live).count() as u64,
            waiting: self.calls.values().filter_map(Call::ticket).count() as u64,
            held_for: self.held_until.saturating_sub(self.now),
        })
    }
}
