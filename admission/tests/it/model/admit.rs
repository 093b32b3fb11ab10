//! Asks.

use super::estimate::Bounds;
use super::order::{Ahead, Slot};
use super::{Call, CallName, Charge, Grant, Holds, Queue, QueueName, Record, Target, Ticket, of};
use weir_admission::{
    Admit, AdmitOutcome, Admitted, Amounts, AskName, Deferred, Estimate, GrantId, Outcome, Policy,
    Refusal, Rejected,
};

/// An ask with its names looked up.
struct Ask<'a> {
    admit: &'a Admit,
    call: CallName,
    queue: QueueName,
    class: usize,
    bounds: Bounds,
}

type Answer = Result<Outcome, Refusal>;

impl Target {
    pub(super) fn policy(&self) -> &Policy {
        self.policy.as_ref().expect("asks need a policy")
    }

    pub(super) fn admit(&mut self, id: GrantId, admit: &Admit) -> Answer {
        let unknown = || Refusal::PriorityUnknown(admit.priority.clone());
        let ask = Ask {
            admit,
            call: (admit.tenant.clone(), admit.admission_id.clone()),
            queue: (admit.tenant.clone(), admit.priority.clone()),
            class: self.class(&admit.priority).ok_or_else(unknown)?,
            bounds: self.bounds(&admit.cost, &admit.cost_max)?,
        };
        if let Some(call) = self.calls.get(&ask.call)
            && call.owner != admit.principal
        {
            return Err(Refusal::NotOwner);
        }
        let answer = if admit.dry_run {
            self.dry(&ask)
        } else {
            let answer = self.recognise(&ask);
            let answer = answer.unwrap_or_else(|| self.decide(id, &ask));
            let class = &mut self.classes[ask.class];
            class.rejected += u64::from(matches!(answer, AdmitOutcome::Rejected(_)));
            answer
        };
        Ok(Outcome::Admit(answer))
    }

    /// The answer that the ids alone give, if they do.
    fn recognise(&mut self, ask: &Ask<'_>) -> Option<AdmitOutcome> {
        let call = self.calls.get_mut(&ask.call)?;
        let (attempt, number) = (ask.admit.attempt, ask.admit.ask);
        let body = body(ask.admit);
        if call.stands_for.is_none() {
            call.stands_for = Some(body.clone());
            call.queue = Some(ask.queue.clone());
        }
        if call.stands_for.as_ref() != Some(&body) {
            return Some(AdmitOutcome::Rejected(Rejected::IdConflict));
        }
        if call.attempt != attempt {
            if call.was_closed(attempt).is_some() {
                return stale();
            }
            // What an earlier attempt was granted may have been used; its place goes over.
            if call.open(attempt, number) {
                self.hold_nothing(&ask.call);
            }
            return None;
        }
        if number < call.ask {
            return stale();
        }
        if number == call.ask {
            return Some(self.repeat(ask));
        }
        match call.holds {
            Holds::Report => return stale(),
            Holds::Nothing | Holds::Ticket(_) | Holds::Grant(_) => call.ask = number,
        }
        let Holds::Grant(id) = call.holds else {
            return None;
        };
        match self.grants.get(&id) {
            Some(Record::Live(grant)) if grant.start >= self.now => {
                Some(AdmitOutcome::Admitted(self.admitted(id, grant)))
            }
            Some(Record::Live(_)) => {
                self.undo(id);
                None
            }
            Some(Record::Ended { .. }) | None => stale(),
        }
    }

    /// The same ask once more gets the same answer, while that is of use.
    fn repeat(&self, ask: &Ask<'_>) -> AdmitOutcome {
        match &self.calls[&ask.call].holds {
            Holds::Nothing | Holds::Report => AdmitOutcome::Rejected(Rejected::Stale),
            Holds::Ticket(ticket) => {
                let charge = Charge::exact(ticket.units.clone());
                let ahead = self.ahead(ask.class, (ticket.tag, ticket.serial));
                let slot = self.earliest(ask.class, &charge, &ahead);
                let back_in = ticket.due.saturating_sub(self.now).max(1_000);
                AdmitOutcome::Deferred(Deferred {
                    ticket: Some(ticket.serial),
                    ..self.deferred(slot, &ahead, Some(back_in))
                })
            }
            Holds::Grant(id) => match self.grants.get(id) {
                Some(Record::Live(grant)) if self.now <= grant.start + self.reply_window() => {
                    AdmitOutcome::Admitted(self.admitted(*id, grant))
                }
                Some(_) | None => AdmitOutcome::Rejected(Rejected::Stale),
            },
        }
    }

    /// From now on the caller of that ask comes back by the clock alone.
    pub(super) fn unwake(&mut self, unwake: &AskName) {
        let name = (unwake.tenant.clone(), unwake.admission_id.clone());
        let Some(call) = self.calls.get(&name) else {
            return;
        };
        let asked = (&call.owner, call.attempt, call.ask);
        let (Some(ticket), Some(queue)) = (call.ticket(), call.queue.clone()) else {
            return;
        };
        let Some(class) = self.class(&queue.1) else {
            return;
        };
        if asked != (&unwake.principal, unwake.attempt, unwake.ask) || ticket.lapsed {
            return;
        }
        let charge = Charge::exact(ticket.units.clone());
        let ahead = self.ahead(class, (ticket.tag, ticket.serial));
        let slot = self.earliest(class, &charge, &ahead);
        let due = self.now + self.deferred(slot, &ahead, None).retry_in;
        if let Some(call) = self.calls.get_mut(&name)
            && let Holds::Ticket(ticket) = &mut call.holds
        {
            ticket.due = ticket.due.min(due);
        }
    }

    fn never_fits(&self, ask: &Ask<'_>) -> Option<AdmitOutcome> {
        let reserve = self.policy().estimate == Estimate::Reserve;
        let cost = if reserve {
            &ask.bounds.upper
        } else {
            &ask.bounds.lower
        };
        let too_small = |meter: &&super::Meter| of(cost, meter.dimension()) > meter.largest();
        let meter = self.meters.iter().find(too_small)?;
        Some(AdmitOutcome::Rejected(Rejected::NeverFits {
            limit: meter.limit.name.clone(),
            cap: meter.largest(),
            cost: of(cost, meter.dimension()),
            policy_version: self.version,
        }))
    }

    fn dry(&self, ask: &Ask<'_>) -> AdmitOutcome {
        if let Some(refusal) = self.never_fits(ask) {
            return refusal;
        }
        let ticket = self.calls.get(&ask.call).and_then(Call::ticket).cloned();
        let ticket = ticket.unwrap_or_else(|| self.last_place(ask));
        let charge = self.estimate(&ask.queue, &ask.bounds);
        let ahead = self.ahead(ask.class, (ticket.tag, ticket.serial));
        let slot = self.earliest(ask.class, &charge, &ahead);
        if slot.start <= self.now + self.policy().horizon {
            let slot = self.earliest(ask.class, &charge, &Ahead::default());
            return AdmitOutcome::Admitted(Admitted {
                grant: None,
                start_in: slot.start - self.now,
                reply_window: self.reply_window(),
                charged: amounts(&charge),
                policy_version: self.version,
            });
        }
        match self.too_late(ask, &slot) {
            Some(refusal) => refusal,
            None => AdmitOutcome::Deferred(self.deferred(slot, &ahead, None)),
        }
    }

    fn too_late(&self, ask: &Ask<'_>, slot: &Slot) -> Option<AdmitOutcome> {
        let deadline = ask.admit.deadline?;
        let earliest_in = slot.start - self.now;
        let late = earliest_in > deadline;
        late.then_some(AdmitOutcome::Rejected(Rejected::Deadline { earliest_in }))
    }

    /// A ticket behind all of its tenant's.
    fn last_place(&self, ask: &Ask<'_>) -> Ticket {
        let units = self.estimate(&ask.queue, &ask.bounds).units;
        let finish = self.queues.get(&ask.queue).map(|queue| queue.finish);
        Ticket {
            tag: self.next_tag(ask.class, finish),
            serial: self.next_serial,
            share: self.share(&units),
            units,
            due: 0,
            lapsed: false,
        }
    }

    fn new_ticket(&mut self, ask: &Ask<'_>) -> Ticket {
        let ticket = self.last_place(ask);
        self.next_serial += 1;
        let weight = self.tenant_weight(&ask.admit.tenant);
        let finish = ticket.tag + self.tenant_step(weight, ticket.share);
        let queue = self.queues.entry(ask.queue.clone());
        let queue = queue.or_insert_with(|| Queue {
            weight,
            finish,
            grants: 0,
            learned: Default::default(),
            idle_since: 0,
            listed: false,
        });
        queue.finish = finish;
        let (owner, attempt) = (&ask.admit.principal, ask.admit.attempt);
        let call = self.calls.entry(ask.call.clone());
        let call = call.or_insert_with(|| Call::new(owner, attempt, ask.admit.ask));
        call.queue = Some(ask.queue.clone());
        call.stands_for = Some(body(ask.admit));
        ticket
    }

    /// Grants, defers, or gives up for the deadline.
    fn decide(&mut self, id: GrantId, ask: &Ask<'_>) -> AdmitOutcome {
        if let Some(refusal) = self.never_fits(ask) {
            self.drop_place(&ask.call, true);
            return refusal;
        }
        let waiting = self.calls.get(&ask.call).and_then(Call::ticket).cloned();
        let fresh = waiting.is_none();
        let ticket = waiting.unwrap_or_else(|| self.new_ticket(ask));
        if !fresh && !ticket.lapsed {
            self.note_lateness(ticket.due);
        }
        let charge = self.estimate(&ask.queue, &ask.bounds);
        self.classes[ask.class].last_ask = Some((self.now, charge.units.clone()));
        let ahead = self.ahead(ask.class, (ticket.tag, ticket.serial));
        let slot = self.earliest(ask.class, &charge, &ahead);
        if slot.start <= self.now + self.policy().horizon {
            self.take_ticket(&ask.call);
            let slot = self.earliest(ask.class, &charge, &Ahead::default());
            return AdmitOutcome::Admitted(self.grant(id, ask, &ticket, charge, slot.start));
        }
        if let Some(refusal) = self.too_late(ask, &slot) {
            self.take_ticket(&ask.call);
            self.give_turn_back(&ask.queue, &ticket);
            self.hold_nothing(&ask.call);
            return refusal;
        }
        let patience = self.wake_patience(ask, &slot);
        let answer = Deferred {
            ticket: Some(ticket.serial),
            ..self.deferred(slot, &ahead, patience)
        };
        let ticket = Ticket {
            share: self.share(&charge.units),
            units: charge.units,
            due: self.now + answer.retry_in,
            lapsed: false,
            ..ticket
        };
        self.hold(&ask.call, Holds::Ticket(ticket));
        self.classes[ask.class].deferred += 1;
        AdmitOutcome::Deferred(answer)
    }

    fn grant(
        &mut self,
        id: GrantId,
        ask: &Ask<'_>,
        ticket: &Ticket,
        charge: Charge,
        start: u64,
    ) -> Admitted {
        let share = self.share(&charge.units);
        self.charge(start, &charge);
        self.serve(ask.class, share);
        let class = &mut self.classes[ask.class];
        class.virtual_time = class.virtual_time.max(ticket.tag);
        class.admitted += 1;
        self.last_start = self.last_start.max(start);
        self.queue_mut(&ask.queue).grants += 1;
        let grant = Grant {
            call: ask.call.clone(),
            queue: ask.queue.clone(),
            owner: ask.admit.principal.clone(),
            start,
            charge,
            share,
            tag: ticket.tag,
            serial: ticket.serial,
            expires: start + self.grant_memory(),
        };
        let answer = self.admitted(id, &grant);
        self.to_expire.push((grant.expires, id));
        self.grants.insert(id, Record::Live(grant));
        self.hold(&ask.call, Holds::Grant(id));
        answer
    }

    pub(super) fn hold(&mut self, call: &CallName, holds: Holds) {
        self.calls.get_mut(call).expect("a call").holds = holds;
    }

    pub(super) fn queue_mut(&mut self, name: &QueueName) -> &mut Queue {
        self.queues.get_mut(name).expect("a tenant")
    }

    /// A grant has to be usable under all limits.
    fn reply_window(&self) -> u64 {
        let windows = self.meters.iter().map(|meter| meter.reply_window);
        windows.min().unwrap_or(0)
    }

    fn admitted(&self, id: GrantId, grant: &Grant) -> Admitted {
        Admitted {
            grant: Some(id),
            start_in: grant.start.saturating_sub(self.now),
            reply_window: self.reply_window(),
            charged: amounts(&grant.charge),
            policy_version: self.version,
        }
    }

    /// Who is told of its turn comes back by itself after twice the wait and a second, at most a minute;
    /// unless its turn is as good as there.
    fn wake_patience(&self, ask: &Ask<'_>, slot: &Slot) -> Option<u64> {
        let wait = slot.start - self.now;
        let told = ask.admit.wake && wait > self.policy().horizon + 20_000;
        told.then(|| (2 * wait + super::SECOND).min(60 * super::SECOND))
    }

    /// The caller comes back half a horizon and the usual lateness before its slot, 1 ms to 60 s from now.
    fn deferred(&self, slot: Slot, ahead: &Ahead, back_in: Option<u64>) -> Deferred {
        let earliest_in = slot.start - self.now;
        let early = self.policy().horizon / 2 + self.lateness;
        let usual = earliest_in.saturating_sub(early);
        let retry_in = back_in.unwrap_or(usual.clamp(1_000, 60 * super::SECOND));
        Deferred {
            retry_in,
            earliest_in,
            place: ahead.tickets,
            limit: slot.limit,
            place_until: retry_in + self.lapse() + self.expire(),
            ticket: None,
            policy_version: self.version,
        }
    }
}

fn stale() -> Option<AdmitOutcome> {
    Some(AdmitOutcome::Rejected(Rejected::Stale))
}

type Body = (weir_admission::PriorityName, Amounts, Amounts, u64);

/// What an id stands for.
fn body(admit: &Admit) -> Body {
    let priority = admit.priority.clone();
    let (cost, most) = (admit.cost.clone(), admit.cost_max.clone());
    (priority, cost, most, admit.labels_digest)
}

fn amounts(charge: &Charge) -> Amounts {
    let units = charge.units.iter();
    let list = units.map(|(dimension, units)| (dimension.clone(), *units));
    Amounts::new(list.collect()).expect("at most eight dimensions")
}
