//! Asks: who may start, and when.

mod explain;

use super::class::TAG_MIN;
use super::estimate::{Bounds, Charge};
use super::{
    Admission, AdmissionKey, Grant, GrantRecord, Place, Queue, QueueKey, Target, Ticket, Units, at,
};
use crate::limits::{
    BUSY_BURST_HORIZONS, EXPIRE_MIN, HORIZON_DEFAULT, LAPSE_HORIZONS, LATENESS_MAX, RETRY_IN_MAX,
    RETRY_IN_MIN, TICKETS_PER_TARGET_MAX, TICKETS_PER_TENANT_MAX, UNRELEASED_MEMORY_MIN,
    WAKE_PATIENCE, WAKE_WORTH,
};
use crate::meter::Need;
use crate::order::Sums;
use crate::{
    AdmitOutcome, Admitted, Amounts, Deferred, DimensionName, GrantId, LimitName, Micros,
    PriorityName, Rejected, TenantName,
};

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

/// What a known admission makes of an ask.
enum Step {
    /// Decide it at its ticket, or as a new one.
    Decide,
    /// Answer without deciding.
    Answer(Box<AdmitOutcome>),
}

/// When an ask may start, and what holds it.
pub(crate) struct Slot {
    pub(crate) start: u64,
    pub(crate) limit: Option<LimitName>,
}

/// How a deferred caller finds its way back.
#[derive(Clone, Copy)]
enum Return {
    /// By the clock, a little before its slot.
    Clock,
    /// It is told, and comes by itself only if it hears nothing.
    Wake,
    /// At the time of an answer that was given before.
    At(u64),
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
            .is_some_and(|p| p.estimate == crate::Estimate::Reserve);
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

    /// Finds what is known of the admission and settles which ask and attempt is the newest.
    fn recognise(&mut self, now: u64, ask: &Ask<'_>) -> Step {
        let Some(admission) = self.admissions.get_mut(ask.key) else {
            return Step::Decide;
        };
        if admission.body == 0 {
            admission.body = ask.body;
            admission.queue = ask.queue;
        }
        if admission.body != ask.body {
            return Step::Answer(Box::new(AdmitOutcome::Rejected(Rejected::IdConflict)));
        }
        if admission.attempt != ask.attempt {
            return self.new_attempt(now, ask);
        }
        if ask.ask <= admission.ask {
            return Step::Answer(Box::new(self.repeated(now, ask)));
        }
        if matches!(admission.place, Place::Reported) {
            return stale();
        }
        admission.ask = ask.ask;
        match admission.place {
            Place::Nothing | Place::Waiting(_) | Place::Reported => Step::Decide,
            Place::Granted(id) => self.asked_again(now, id),
        }
    }

    /// A new attempt: a former grant may have been used, so its charge stays; a place is inherited.
    fn new_attempt(&mut self, now: u64, ask: &Ask<'_>) -> Step {
        let Some(admission) = self.admissions.get_mut(ask.key) else {
            return Step::Decide;
        };
        if admission.closed_attempt(ask.attempt).is_some() {
            return stale();
        }
        let charged = matches!(admission.place, Place::Granted(_) | Place::Reported);
        admission.open_attempt(ask.attempt, ask.ask, charged);
        if charged {
            self.hold_nothing(now, ask.key);
        }
        Step::Decide
    }

    /// The same ask once more (a duplicate on the way), or an older one: never a new charge.
    fn repeated(&self, now: u64, ask: &Ask<'_>) -> AdmitOutcome {
        let stale = AdmitOutcome::Rejected(Rejected::Stale);
        let Some(admission) = self.admissions.get(ask.key) else {
            return stale;
        };
        if ask.ask < admission.ask {
            return stale;
        }
        match &admission.place {
            Place::Nothing | Place::Reported => stale,
            Place::Granted(id) => match self.grants.get(id).and_then(GrantRecord::live) {
                Some(grant) if now <= grant.start.saturating_add(self.reply_window()) => {
                    AdmitOutcome::Admitted(self.admitted(now, grant.start, Some(*id), &grant.units))
                }
                Some(_) | None => stale,
            },
            Place::Waiting(ticket) => {
                let charge = Charge {
                    units: ticket.units,
                    uncertain: None,
                };
                let ahead = self.ahead(ask.class, ticket.key());
                let own = self.earliest(now, ask.class, &charge, &ahead);
                let back = Return::At(ticket.due);
                AdmitOutcome::Deferred(self.deferred(now, own, &ahead, back, Some(ticket.serial)))
            }
        }
    }

    /// A higher ask of an attempt that holds a grant: the client has not sent. A start still to come is
    /// answered again; a passed one is undone and decided anew from its old place.
    fn asked_again(&mut self, now: u64, id: GrantId) -> Step {
        let Some(grant) = self.grants.get(&id).and_then(GrantRecord::live) else {
            return stale();
        };
        if grant.start >= now {
            let again = self.admitted(now, grant.start, Some(id), &grant.units);
            return Step::Answer(Box::new(AdmitOutcome::Admitted(again)));
        }
        self.undo(now, id);
        Step::Decide
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
            let slot = self.earliest(now, ask.class, &charge, &Sums::default());
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

    /// First start of a charge behind `ahead`.
    pub(crate) fn earliest(&self, now: u64, class: usize, charge: &Charge, ahead: &Sums) -> Slot {
        let room = self.headroom(class, now);
        let newcomer = self.is_newcomer(class, ahead, &room);
        let floor = now.max(self.held_until);
        let floor = if newcomer {
            floor
        } else {
            floor.max(self.last_start)
        };
        let sigmas_milli = self
            .policy
            .as_ref()
            .map_or(0, |policy| policy.estimate_sigmas_milli);
        let mut slot = Slot {
            start: floor,
            limit: None,
        };
        for meter in &self.meters {
            let need = Need {
                cost: at(&charge.units, meter.slot),
                ahead: at(&ahead.units, meter.slot),
                room: at(&room, meter.slot),
                variance: charge.variance(meter.slot),
                sigmas_milli,
                skip_pacer: newcomer,
            };
            let start = meter.earliest(now, need);
            if start > slot.start {
                slot = Slot {
                    start,
                    limit: Some(meter.limit.name.clone()),
                };
            }
        }
        slot
    }

    /// A priority behind its share, with nobody before it and no room to leave, need not be paced.
    fn is_newcomer(&self, class: usize, ahead: &Sums, room: &Units) -> bool {
        let headroom = self
            .policy
            .as_ref()
            .map_or(crate::Headroom::Off, |policy| policy.headroom);
        headroom != crate::Headroom::Off
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

    /// The shortest reply window of the limits: a grant must be usable under all of them.
    fn reply_window(&self) -> Micros {
        self.meters
            .iter()
            .map(|meter| meter.guard.reply_window)
            .min()
            .unwrap_or(0)
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

    fn admitted(&self, now: u64, start: u64, grant: Option<GrantId>, units: &Units) -> Admitted {
        Admitted {
            grant,
            start_in: start.saturating_sub(now),
            reply_window: self.reply_window(),
            charged: self.amounts(units),
            policy_version: self.version,
        }
    }

    /// The deferral to a slot.
    fn deferred(
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
            limit: own.limit,
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
            Return::Wake | Return::Clock => {
                let half = horizon.checked_div(2).unwrap_or(0);
                wait.saturating_sub(half.saturating_add(self.lateness))
                    .clamp(RETRY_IN_MIN, RETRY_IN_MAX)
            }
        }
    }

    /// A caller this late blocks nobody.
    pub(crate) fn lapse(&self) -> Micros {
        self.horizon().saturating_mul(LAPSE_HORIZONS)
    }

    /// A lapsed place is kept this long.
    pub(crate) fn expire(&self) -> Micros {
        self.longest_period().max(EXPIRE_MIN)
    }

    fn amounts(&self, units: &Units) -> Amounts {
        let named = |(slot, name): (usize, &Option<DimensionName>)| {
            let units = at(units, slot);
            name.as_ref()
                .filter(|_| units > 0)
                .map(|name| (name.clone(), units))
        };
        let list = self.slots.iter().enumerate().filter_map(named).collect();
        Amounts::new(list).unwrap_or_default()
    }
}

fn stale() -> Step {
    Step::Answer(Box::new(AdmitOutcome::Rejected(Rejected::Stale)))
}

impl Admission {
    /// Notes what an ask says of its admission.
    fn describe(&mut self, ask: &Ask<'_>) {
        self.queue = ask.queue;
        self.body = ask.body;
    }
}
