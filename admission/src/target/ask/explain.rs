//! Why an ask would be answered as it would be.

use super::{Ask, Charge, Target};
use crate::meter::Meter;
use crate::meter::Need;
use crate::order::{Key, Sums};
use crate::target::at;
use crate::{Explanation, LimitAhead, PriorityAhead};

impl Target {
    /// Answers as a dry run would, and tells what stands before the ask. Changes nothing.
    pub(crate) fn explain(&self, now: u64, ask: &Ask<'_>) -> Explanation {
        let waiting = self.waiting_ticket(ask.key);
        let waits = waiting.is_some();
        let ticket = waiting.unwrap_or_else(|| self.ticket_at_end(ask));
        let charge = self.estimate(self.queue(ask.queue), &ask.bounds);
        let priorities = self.ahead_by_priority(ask.class, ticket.key());
        let mut ahead = Sums::default();
        for sums in &priorities {
            ahead.add(sums);
        }
        let limits = self.limits_ahead(now, ask.class, &charge, &ahead);
        let priorities = self.classes.iter().zip(&priorities);
        Explanation {
            outcome: self.ask_dry(now, ask),
            waits,
            held_for: self.held_until.saturating_sub(now),
            limits,
            priorities: priorities
                .map(|(class, sums)| PriorityAhead {
                    name: class.name.clone(),
                    waiting: class.line.len(),
                    ahead: sums.count,
                    share_ns: u64::try_from(sums.share).unwrap_or(u64::MAX),
                })
                .collect(),
        }
    }

    /// What [`Target::ahead`] adds up, one priority after the other.
    fn ahead_by_priority(&self, class: usize, key: Key) -> Vec<Sums> {
        let Some(own) = self.classes.get(class) else {
            return Vec::new();
        };
        let before = own.line.before(key);
        let own_share = i64::try_from(before.share).unwrap_or(i64::MAX);
        let start = self
            .class_tag(own)
            .saturating_add(self.class_advance(class, own_share));
        let sums = self.classes.iter().enumerate().map(|(index, other)| {
            if index == class {
                before
            } else {
                self.served_before(other, start, index < class)
            }
        });
        sums.collect()
    }

    /// Each limit alone, as [`Target::earliest`] asks it.
    fn limits_ahead(
        &self,
        now: u64,
        class: usize,
        charge: &Charge,
        ahead: &Sums,
    ) -> Vec<LimitAhead> {
        let room = self.headroom(class, now);
        let skip_pacer = self.is_newcomer(class, ahead, &room);
        let sigmas_milli = self
            .policy
            .as_ref()
            .map_or(0, |policy| policy.estimate_sigmas_milli);
        let tell = |meter: &Meter| {
            let need = Need {
                cost: at(&charge.units, meter.slot),
                ahead: at(&ahead.units, meter.slot),
                room: at(&room, meter.slot),
                variance: charge.variance(meter.slot),
                sigmas_milli,
                skip_pacer,
            };
            LimitAhead {
                name: meter.limit.name.clone(),
                dimension: meter.limit.dimension.clone(),
                cap: meter.limit.cap,
                used: meter.used(now),
                ahead: need.ahead,
                cost: need.cost,
                earliest_in: meter.earliest(now, need).saturating_sub(now),
            }
        };
        self.meters.iter().map(tell).collect()
    }
}
