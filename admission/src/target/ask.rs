//! Asks: who may start, and when.

mod answer;
mod explain;
mod recognise;
mod slot;

use super::class::TAG_MIN;
use super::estimate::{Bounds, Charge};
use super::{
    Admission, AdmissionKey, Grant, GrantRecord, Place, Queue, QueueKey, Target, Ticket, Units, at,
};
use crate::by_digest::Seen;
use crate::limits::{
    BUSY_BURST_HORIZONS, LAPSE_HORIZONS, LATENESS_MAX, TICKETS_PER_TARGET_MAX,
    TICKETS_PER_TENANT_MAX, UNRELEASED_MEMORY_MIN,
};
use crate::order::Sums;
use crate::{
    AdmitOutcome, Admitted, Deferred, Estimate, GrantId, Micros, PriorityName, Rejected, TenantName,
};
use answer::Return;
use recognise::Step;

pub(crate) use slot::Slot;

const _: () = assert!(
    BUSY_BURST_HORIZONS == LAPSE_HORIZONS,
    "a burst bridges one late caller"
);

/// An ask whose names were resolved against the policy.
pub(crate) struct Ask<'a> {
    /// The admission.
    pub(crate) key: AdmissionKey,
    /// Its tenant and priority.
    pub(crate) queue: QueueKey,
    /// The tenant's name.
    pub(crate) tenant: &'a TenantName,
    /// The priority's name, and its place in the policy.
    pub(crate) priority: &'a PriorityName,
    /// See above.
    pub(crate) class: usize,
    /// Digest of the principal.
    pub(crate) owner: u64,
    /// Digest of priority, costs and labels; never 0.
    pub(crate) body: u64,
    /// The attempt.
    pub(crate) attempt: u64,
    /// The ask's number.
    pub(crate) ask: u32,
    /// The cost.
    pub(crate) bounds: Bounds,
    /// Refuse beyond this from now.
    pub(crate) deadline: Option<Micros>,
    /// The caller is told when its turn is near.
    pub(crate) wake: bool,
}

impl Target {
    /// Decides an ask. `id` names the grant if there is one.
    pub(crate) fn ask(&mut self, now: u64, id: GrantId, ask: &Ask<'_>) -> AdmitOutcome {
        match self.recognise(now, ask) {
            Step::Answer(answer) => {
                return match *answer {
                    AdmitOutcome::Rejected(rejected) => self.count_rejected(ask.class, rejected),
                    AdmitOutcome::Admitted(_) | AdmitOutcome::Deferred(_) => *answer,
                };
            }
            Step::Decide => {}
        }
        if let Some(refusal) = self.never_fits(ask) {
            // Its place, if it has one, can no longer be served.
            self.drop_place(now, ask.key, true);
            return self.count_rejected(ask.class, refusal);
        }
        let (ticket, fresh) = match self.waiting_ticket(ask.key) {
            Some(ticket) => (ticket, false),
            None => match self.line_full(ask) {
                Some(refusal) => return self.count_rejected(ask.class, refusal),
                None => (self.new_ticket(ask), true),
            },
        };
        self.decide(now, id, ask, ticket, fresh)
    }

    /// Answers as if asked, changing nothing.
    pub(crate) fn ask_dry(&self, now: u64, ask: &Ask<'_>) -> AdmitOutcome {
        if let Some(refusal) = self.never_fits(ask) {
            return AdmitOutcome::Rejected(refusal);
        }
        let ticket = match self.waiting_ticket(ask.key) {
            Some(ticket) => ticket,
            None => self.ticket_at_end(ask),
        };
        let charge = self.estimate(self.queue(ask.queue), &ask.bounds);
        let ahead = self.ahead(ask.class, ticket.key());
        let own = self.earliest(now, ask.class, &charge, &ahead);
        let horizon = self.horizon();
        if own.start <= now.saturating_add(horizon) {
            let slot = self.earliest(now, ask.class, &charge, &Sums::default());
            return AdmitOutcome::Admitted(self.admitted(now, slot.start, None, &charge.units));
        }
        if self.misses(now, own.start, ask.deadline) {
            let earliest_in = own.start.saturating_sub(now);
            return AdmitOutcome::Rejected(Rejected::Deadline { earliest_in });
        }
        AdmitOutcome::Deferred(self.deferred(now, own, &ahead, Return::Clock, None))
    }

    fn never_fits(&self, ask: &Ask<'_>) -> Option<Rejected> {
        let reserve = self
            .policy
            .as_ref()
            .is_some_and(|p| p.estimate == Estimate::Reserve);
        let cost = if reserve {
            &ask.bounds.upper
        } else {
            &ask.bounds.lower
        };
        let meter = self
            .meters
            .iter()
            .find(|meter| at(cost, meter.slot) > meter.largest_fitting())?;
        Some(Rejected::NeverFits {
            limit: meter.limit.name.clone(),
            cap: meter.largest_fitting(),
            cost: at(cost, meter.slot),
            policy_version: self.version,
        })
    }

    fn count_rejected(&mut self, class: usize, rejected: Rejected) -> AdmitOutcome {
        if let Some(class) = self.classes.get_mut(class) {
            class.rejected = class.rejected.saturating_add(1);
        }
        AdmitOutcome::Rejected(rejected)
    }

    fn waiting_ticket(&self, key: AdmissionKey) -> Option<Ticket> {
        match &self.admissions.get(key)?.place {
            Place::Waiting(ticket) => Some((**ticket).clone()),
            Place::Nothing | Place::Granted(_) | Place::Reported => None,
        }
    }

    fn line_full(&self, ask: &Ask<'_>) -> Option<Rejected> {
        let of_tenant = self.queues.get(ask.queue).map_or(0, |queue| queue.tickets);
        if of_tenant >= TICKETS_PER_TENANT_MAX {
            Some(Rejected::QueueFull { tenant: true })
        } else if self.tickets >= TICKETS_PER_TARGET_MAX {
            Some(Rejected::QueueFull { tenant: false })
        } else {
            None
        }
    }

    /// The ticket that a new ask would get: at the end of its tenant's line.
    fn ticket_at_end(&self, ask: &Ask<'_>) -> Ticket {
        let queue = self.queue(ask.queue);
        let finish = queue.map_or(TAG_MIN, |queue| queue.finish);
        let charge = self.estimate(queue, &ask.bounds);
        Ticket {
            serial: self.next_serial,
            tag: self.next_tag(ask.class, finish),
            units: charge.units,
            share: self.share(&charge.units),
            due: 0,
            noted: 0,
            lapsed: false,
        }
    }

    /// Takes a place at the end of the tenant's line.
    fn new_ticket(&mut self, ask: &Ask<'_>) -> Ticket {
        let ticket = self.ticket_at_end(ask);
        self.next_serial = self.next_serial.saturating_add(1);
        let weight = self.tenant_weight(ask.tenant);
        let finish = ticket
            .tag
            .saturating_add(self.tenant_advance(weight, ticket.share));
        let queue = self.queues.get_or_insert_with(ask.queue, || Queue {
            tenant: ask.tenant.clone(),
            priority: ask.priority.clone(),
            class: ask.class,
            weight,
            finish: TAG_MIN,
            tickets: 0,
            grants: 0,
            learned: Vec::new(),
            idle_since: 0,
            listed: false,
            seen: Seen::default(),
        });
        queue.finish = finish;
        self.admissions
            .get_or_insert_with(ask.key, || Admission::new(ask.owner, ask.attempt, ask.ask))
            .describe(ask);
        ticket
    }

    /// Grants the ask if its slot is near, defers it otherwise.
    fn decide(
        &mut self,
        now: u64,
        id: GrantId,
        ask: &Ask<'_>,
        ticket: Ticket,
        fresh: bool,
    ) -> AdmitOutcome {
        self.measure_lateness(now, &ticket, fresh);
        let charge = self.estimate(self.queue(ask.queue), &ask.bounds);
        if let Some(class) = self.classes.get_mut(ask.class) {
            class.last_ask = Some((now, charge.units));
        }
        let ahead = self.ahead(ask.class, ticket.key());
        let own = self.earliest(now, ask.class, &charge, &ahead);
        if own.start <= now.saturating_add(self.horizon()) {
            if !fresh {
                self.detach(ask.key, false);
            }
            let slot = if ahead == Sums::default() {
                own
            } else {
                self.earliest(now, ask.class, &charge, &Sums::default())
            };
            return AdmitOutcome::Admitted(self.grant(now, slot.start, id, ask, &ticket, charge));
        }
        if self.misses(now, own.start, ask.deadline) {
            let earliest_in = own.start.saturating_sub(now);
            if fresh {
                self.give_back_finish(ask.queue, &ticket);
                self.hold_nothing(now, ask.key);
            } else {
                self.drop_place(now, ask.key, true);
            }
            return self.count_rejected(ask.class, Rejected::Deadline { earliest_in });
        }
        AdmitOutcome::Deferred(self.defer(now, ask, (ticket, fresh), charge.units, own, &ahead))
    }

    fn measure_lateness(&mut self, now: u64, ticket: &Ticket, fresh: bool) {
        if fresh || ticket.lapsed || now < ticket.due {
            return;
        }
        let late = now.saturating_sub(ticket.due).min(LATENESS_MAX);
        let kept = self.lateness.saturating_mul(31);
        self.lateness = kept.saturating_add(late).div_ceil(32);
    }

    fn misses(&self, now: u64, start: u64, deadline: Option<Micros>) -> bool {
        deadline.is_some_and(|deadline| start > now.saturating_add(deadline))
    }

    /// Charges a start and remembers the grant.
    fn grant(
        &mut self,
        now: u64,
        start: u64,
        id: GrantId,
        ask: &Ask<'_>,
        ticket: &Ticket,
        charge: Charge,
    ) -> Admitted {
        let share = self.share(&charge.units);
        self.charge(start, &charge);
        self.serve(ask.class, ticket.tag, share);
        self.last_start = self.last_start.max(start);
        if let Some(queue) = self.queues.get_mut(ask.queue) {
            queue.grants = queue.grants.saturating_add(1);
        }
        if let Some(class) = self.classes.get_mut(ask.class) {
            class.admitted = class.admitted.saturating_add(1);
        }
        let memory = self.longest_period().max(UNRELEASED_MEMORY_MIN);
        let answer = self.admitted(now, start, Some(id), &charge.units);
        let grant = Grant {
            admission: ask.key,
            queue: ask.queue,
            owner: ask.owner,
            start,
            units: charge.units,
            share,
            uncertain: charge.uncertain,
            tag: ticket.tag,
            serial: ticket.serial,
            expires: start.saturating_add(memory),
        };
        self.expiring.push_back((grant.expires, id));
        self.grants.insert(id, GrantRecord::Live(Box::new(grant)));
        self.live_grants = self.live_grants.saturating_add(1);
        if let Some(admission) = self.admissions.get_mut(ask.key) {
            admission.place = Place::Granted(id);
        }
        self.forget_surplus();
        answer
    }

    /// Charges a start in every meter.
    pub(crate) fn charge(&mut self, start: u64, charge: &Charge) {
        let busy = self.anybody_in_line().then(|| self.horizon());
        for (largest, units) in self.largest.iter_mut().zip(charge.units) {
            *largest = (*largest).max(units);
        }
        let largest = self.largest;
        self.served = true;
        for meter in self.charged_meters() {
            let slot = meter.slot;
            let variance = charge.variance(slot);
            meter.charge(
                start,
                at(&charge.units, slot),
                variance,
                at(&largest, slot),
                busy,
            );
        }
    }

    /// Keeps a place until its caller is due back.
    fn defer(
        &mut self,
        now: u64,
        ask: &Ask<'_>,
        (ticket, fresh): (Ticket, bool),
        units: Units,
        own: Slot,
        ahead: &Sums,
    ) -> Deferred {
        let back = if ask.wake {
            Return::Wake
        } else {
            Return::Clock
        };
        let answer = self.deferred(now, own, ahead, back, Some(ticket.serial));
        let due = now.saturating_add(answer.retry_in);
        let stays = !fresh && !ticket.lapsed && ticket.units == units && ticket.noted <= due;
        if stays {
            self.move_due(ask.key, due);
        } else {
            if !fresh {
                self.detach(ask.key, false);
            }
            let share = self.share(&units);
            let ticket = Ticket {
                units,
                share,
                due,
                noted: due,
                lapsed: false,
                ..ticket
            };
            self.attach(ask.key, ask.class, ticket);
        }
        if let Some(class) = self.classes.get_mut(ask.class) {
            class.deferred = class.deferred.saturating_add(1);
        }
        answer
    }

    fn tenant_weight(&self, tenant: &TenantName) -> u32 {
        self.policy.as_ref().map_or(1, |policy| {
            policy
                .tenant_weights
                .get(tenant)
                .copied()
                .unwrap_or(policy.default_tenant_weight)
        })
    }
}

impl Admission {
    /// Notes what an ask says of its admission.
    fn describe(&mut self, ask: &Ask<'_>) {
        self.queue = ask.queue;
        self.body = ask.body;
    }
}
