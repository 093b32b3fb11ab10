//! The invariants of a target, in full. Linear in its size: for tests, and for bytes from elsewhere.

use super::class::NO_CLASS;
use super::{Place, Target};
use crate::limits::DIMENSIONS_MAX;
use std::collections::BTreeMap;

impl Target {
    /// The first broken invariant.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        self.check_shape()?;
        self.check_tickets()?;
        self.check_grants()
    }

    fn check_shape(&self) -> Result<(), &'static str> {
        let policy = self.policy.as_ref();
        let (limits, priorities) = policy.map_or((0, 0), |policy| {
            (policy.limits.len(), policy.priorities.len())
        });
        ensure(
            policy.is_none_or(|p| p.violations().is_empty()),
            "the policy is valid",
        )?;
        self.history.check(self.version, policy.is_some())?;
        ensure(self.meters.len() == limits, "one meter for each limit")?;
        ensure(
            self.classes.len() == priorities,
            "one class for each priority",
        )?;
        let placed = |queue: &super::Queue| {
            queue.class == NO_CLASS
                || self
                    .classes
                    .get(queue.class)
                    .is_some_and(|c| c.name == queue.priority)
        };
        ensure(
            self.queues.all(|_, queue| placed(queue)),
            "queues point to their priority",
        )?;
        let meters = self
            .meters
            .iter()
            .chain(self.retired.iter().map(|retired| &retired.meter));
        for meter in meters {
            ensure(meter.slot <= DIMENSIONS_MAX, "slots are in range")?;
        }
        let slotted =
            |meter: &crate::meter::Meter| self.slot_of(&meter.limit.dimension) == Some(meter.slot);
        ensure(
            self.meters.iter().all(slotted),
            "meters stand at their dimension's slot",
        )
    }

    fn check_tickets(&self) -> Result<(), &'static str> {
        let mut waiting = 0u64;
        let mut in_line = 0u64;
        let mut by_queue = BTreeMap::new();
        for (key, admission) in self.admissions.sorted() {
            let Place::Waiting(ticket) = &admission.place else {
                continue;
            };
            waiting = waiting.saturating_add(1);
            in_line = in_line.saturating_add(u64::from(!ticket.lapsed));
            let count: &mut u32 = by_queue.entry(admission.queue).or_default();
            *count = count.saturating_add(1);
            ensure(
                self.due.contains(&(ticket.noted, key)),
                "waiting admissions are due",
            )?;
            ensure(
                self.queues.get(admission.queue).is_some(),
                "waiting admissions have a queue",
            )?;
        }
        ensure(self.tickets == waiting, "tickets are counted")?;
        ensure(self.due.len() as u64 == waiting, "nothing else is due")?;
        let lines = self.classes.iter().map(|class| class.line.len());
        ensure(
            lines.fold(0, u64::saturating_add) == in_line,
            "lines hold the tickets in line",
        )?;
        let counted = |key: u128, queue: &super::Queue| {
            queue.tickets == by_queue.get(&key).copied().unwrap_or(0)
        };
        ensure(self.queues.all(counted), "queues count their tickets")
    }

    fn check_grants(&self) -> Result<(), &'static str> {
        let mut by_queue = BTreeMap::new();
        for grant in self.grants.iter().filter_map(|(_, record)| record.live()) {
            let count: &mut u32 = by_queue.entry(grant.queue).or_default();
            *count = count.saturating_add(1);
        }
        let live = by_queue
            .values()
            .fold(0u64, |sum, n| sum.saturating_add(u64::from(*n)));
        ensure(self.live_grants == live, "live grants are counted")?;
        let counted = |key: u128, queue: &super::Queue| {
            queue.grants == by_queue.get(&key).copied().unwrap_or(0)
        };
        ensure(self.queues.all(counted), "queues count their grants")?;
        let known = |admission: &super::Admission| match &admission.place {
            Place::Granted(id) => self.grants.contains(*id),
            Place::Nothing | Place::Waiting(_) | Place::Reported => true,
        };
        ensure(
            self.admissions.all(|_, admission| known(admission)),
            "granted admissions have their grant",
        )
    }
}

fn ensure(holds: bool, invariant: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(invariant) }
}
