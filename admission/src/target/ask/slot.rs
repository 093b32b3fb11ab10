//! When an ask may start.

use super::Charge;
use crate::limits::HORIZON_DEFAULT;
use crate::meter::{Meter, Need};
use crate::order::Sums;
use crate::target::{Target, Units, at};
use crate::{Headroom, Micros};

/// When an ask may start, and what holds it.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) start: u64,
    /// Place of the limit in the policy; `None` if none holds it.
    pub(crate) limit: Option<usize>,
}

/// What every limit is asked for a place.
pub(super) struct Terms<'a> {
    charge: &'a Charge,
    /// What is served first.
    ahead: &'a Sums,
    /// What is left free behind it.
    room: Units,
    newcomer: bool,
    sigmas_milli: u32,
}

impl Terms<'_> {
    /// What one limit is asked.
    pub(super) fn need(&self, meter: &Meter) -> Need {
        let slot = meter.slot;
        Need {
            cost: at(&self.charge.units, slot),
            ahead: at(&self.ahead.units, slot),
            room: at(&self.room, slot),
            variance: self.charge.variance(slot),
            sigmas_milli: self.sigmas_milli,
            skip_pacer: self.newcomer,
        }
    }
}

impl Target {
    /// What the limits are asked for a charge behind `ahead`.
    pub(super) fn terms<'a>(
        &self,
        now: u64,
        class: usize,
        charge: &'a Charge,
        ahead: &'a Sums,
    ) -> Terms<'a> {
        let room = self.headroom(class, now);
        Terms {
            charge,
            ahead,
            newcomer: self.is_newcomer(class, ahead, &room),
            room,
            sigmas_milli: self
                .policy
                .as_ref()
                .map_or(0, |policy| policy.estimate_sigmas_milli),
        }
    }

    /// First start of a charge behind `ahead`.
    pub(crate) fn earliest(&self, now: u64, class: usize, charge: &Charge, ahead: &Sums) -> Slot {
        let terms = self.terms(now, class, charge, ahead);
        let floor = now.max(self.held_until);
        let floor = if terms.newcomer {
            floor
        } else {
            floor.max(self.last_start)
        };
        let mut slot = Slot {
            start: floor,
            limit: None,
        };
        for (place, meter) in self.meters.iter().enumerate() {
            let start = meter.earliest(now, terms.need(meter));
            if start > slot.start {
                let limit = Some(place);
                slot = Slot { start, limit };
            }
        }
        slot
    }

    /// A priority behind its share, with nobody before it and no room to leave, need not be paced.
    fn is_newcomer(&self, class: usize, ahead: &Sums, room: &Units) -> bool {
        let headroom = self
            .policy
            .as_ref()
            .map_or(Headroom::Off, |policy| policy.headroom);
        headroom != Headroom::Off
            && ahead.count == 0
            && *room == Units::default()
            && self
                .classes
                .get(class)
                .is_some_and(|class| class.tag < self.virtual_time)
    }

    pub(crate) fn horizon(&self) -> Micros {
        self.policy
            .as_ref()
            .map_or(HORIZON_DEFAULT, |policy| policy.horizon)
    }
}
