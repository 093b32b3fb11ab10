//! Why an ask would be answered as it would be.

use super::{Ask, Charge, GrantRecord, Place, Target};
use crate::meter::Meter;
use crate::order::Sums;
use crate::{Explanation, Holds, KnownAdmission, LimitAhead, PriorityAhead};

impl Target {
    /// Answers as a dry run would, and tells what stands before the ask. Changes nothing.
    pub(crate) fn explain(&self, now: u64, ask: &Ask<'_>) -> Explanation {
        let waiting = self.waiting_ticket(ask.key);
        let waits = waiting.is_some();
        let ticket = waiting.unwrap_or_else(|| self.ticket_at_end(ask));
        let charge = self.estimate(self.queue(ask.queue), &ask.bounds);
        let priorities: Vec<_> = self.ahead_by_class(ask.class, ticket.key()).collect();
        let mut ahead = Sums::default();
        for sums in &priorities {
            ahead.add(sums);
        }
        let limits = self.limits_ahead(now, ask.class, &charge, &ahead);
        let priorities = self.classes.iter().zip(&priorities);
        Explanation {
            outcome: self.ask_dry(now, ask),
            waits,
            known: self.known(ask),
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

    /// What is remembered of the ask's admission. Only its owner gets as far as this.
    fn known(&self, ask: &Ask<'_>) -> Option<KnownAdmission> {
        let admission = self.admissions.get(ask.key)?;
        Some(KnownAdmission {
            attempt: admission.attempt,
            ask: admission.ask,
            holds: match admission.place {
                Place::Nothing => Holds::Nothing,
                Place::Waiting(_) => Holds::Place,
                Place::Granted(id) => match self.grants.get(id) {
                    Some(GrantRecord::Live(_)) => Holds::Grant(id),
                    Some(GrantRecord::Ended { .. }) | None => Holds::EndedGrant(id),
                },
                Place::Reported => Holds::Charge,
            },
        })
    }

    /// Each limit alone, as [`Target::earliest`] asks it.
    fn limits_ahead(
        &self,
        now: u64,
        class: usize,
        charge: &Charge,
        ahead: &Sums,
    ) -> Vec<LimitAhead> {
        let terms = self.terms(now, class, charge, ahead);
        let tell = |meter: &Meter| {
            let need = terms.need(meter);
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
