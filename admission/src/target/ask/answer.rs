//! What a caller is told.

use super::Slot;
use crate::limits::{
    EXPIRE_MIN, LAPSE_HORIZONS, RETRY_IN_MAX, RETRY_IN_MIN, WAKE_PATIENCE, WAKE_WORTH,
};
use crate::order::Sums;
use crate::target::{Target, Units, at};
use crate::{Admitted, Amounts, Deferred, GrantId, Micros};

/// How a deferred caller finds its way back.
#[derive(Clone, Copy)]
pub(super) enum Return {
    /// By the clock, a little before its slot.
    Clock,
    /// It is told, and comes by itself only if it hears nothing.
    Wake,
    /// At the time of an answer that was given before.
    At(u64),
}

impl Target {
    pub(super) fn admitted(
        &self,
        now: u64,
        start: u64,
        grant: Option<GrantId>,
        units: &Units,
    ) -> Admitted {
        Admitted {
            grant,
            start_in: start.saturating_sub(now),
            reply_window: self.reply_window(),
            charged: self.amounts(units),
            policy_version: self.version,
        }
    }

    /// The deferral to a slot.
    pub(super) fn deferred(
        &self,
        now: u64,
        own: Slot,
        ahead: &Sums,
        back: Return,
        ticket: Option<u64>,
    ) -> Deferred {
        let wait = own.start.saturating_sub(now);
        let retry_in = self.retry_in(now, wait, back);
        Deferred {
            retry_in,
            earliest_in: wait,
            place: ahead.count,
            limit: own
                .limit
                .and_then(|place| self.meters.get(place))
                .map(|meter| meter.limit.name.clone()),
            place_until: retry_in
                .saturating_add(self.lapse())
                .saturating_add(self.expire()),
            ticket,
            policy_version: self.version,
        }
    }

    fn retry_in(&self, now: u64, wait: Micros, back: Return) -> Micros {
        let horizon = self.horizon();
        let near = wait <= horizon.saturating_add(WAKE_WORTH);
        match back {
            Return::At(due) => due.saturating_sub(now).max(RETRY_IN_MIN),
            Return::Wake if !near => wait
                .saturating_mul(2)
                .saturating_add(WAKE_PATIENCE)
                .min(RETRY_IN_MAX),
            Return::Wake | Return::Clock => self.due_by_clock(wait),
        }
    }

    /// When a caller has to be back that only has a clock: a little before its slot, and callers are late.
    pub(crate) fn due_by_clock(&self, wait: Micros) -> Micros {
        let half = self.horizon().checked_div(2).unwrap_or(0);
        wait.saturating_sub(half.saturating_add(self.lateness))
            .clamp(RETRY_IN_MIN, RETRY_IN_MAX)
    }

    /// A caller this late blocks nobody.
    pub(crate) fn lapse(&self) -> Micros {
        self.horizon().saturating_mul(LAPSE_HORIZONS)
    }

    /// A lapsed place is kept this long.
    pub(crate) fn expire(&self) -> Micros {
        self.longest_period().max(EXPIRE_MIN)
    }

    /// The shortest reply window of the limits: a grant must be usable under all of them.
    pub(super) fn reply_window(&self) -> Micros {
        self.meters
            .iter()
            .map(|meter| meter.guard.reply_window)
            .min()
            .unwrap_or(0)
    }

    fn amounts(&self, units: &Units) -> Amounts {
        let charged = units.iter().filter(|units| **units > 0).count();
        let mut list = Vec::with_capacity(charged);
        for (slot, name) in self.slots.iter().enumerate() {
            let units = at(units, slot);
            if let Some(name) = name.as_ref().filter(|_| units > 0) {
                list.push((name.clone(), units));
            }
        }
        Amounts::new(list).unwrap_or_default()
    }
}
