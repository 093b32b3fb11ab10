//! Ends of grants and places.

use super::estimate::without_zeros;
use super::{Call, CallName, Charge, Grant, Holds, Record, Target, Ticket, Units, of};
use weir_admission::{
    Amounts, AskName, CallOutcome, CancelOutcome, ExtendOutcome, GrantId, Outcome, Principal,
    Refusal, ReleaseOutcome, Report, ReportOutcome,
};

/// Earlier attempts of a call that are recognised.
const CLOSED_MOST: usize = 8;

type Answer = Result<Outcome, Refusal>;

impl Call {
    pub(super) fn new(owner: &Principal, attempt: u64, ask: u32) -> Call {
        Call {
            owner: owner.clone(),
            stands_for: None,
            queue: None,
            attempt,
            ask,
            closed: Vec::new(),
            holds: Holds::Nothing,
            forget_at: 0,
        }
    }

    pub(super) fn ticket(&self) -> Option<&Ticket> {
        match &self.holds {
            Holds::Ticket(ticket) => Some(ticket),
            Holds::Nothing | Holds::Grant(_) | Holds::Report => None,
        }
    }

    /// Whether an attempt was closed, and if it left a charge.
    pub(super) fn was_closed(&self, attempt: u64) -> Option<bool> {
        let mut closed = self.closed.iter().filter(|closed| closed.0 == attempt);
        closed.next().map(|closed| closed.1)
    }

    /// Closes the attempt for another. True if it leaves a charge.
    pub(super) fn open(&mut self, attempt: u64, ask: u32) -> bool {
        let charged = matches!(self.holds, Holds::Grant(_) | Holds::Report);
        self.close(self.attempt, charged);
        self.attempt = attempt;
        self.ask = ask;
        charged
    }

    /// Makes an attempt stale that is not the open one.
    fn close(&mut self, attempt: u64, charged: bool) {
        self.closed.retain(|closed| closed.0 != attempt);
        self.closed.push((attempt, charged));
        if self.closed.len() > CLOSED_MOST {
            self.closed.remove(0);
        }
    }
}

impl Record {
    fn owner(&self) -> &Principal {
        match self {
            Record::Live(grant) => &grant.owner,
            Record::Ended { owner, .. } => owner,
        }
    }
}

impl Target {
    pub(super) fn release(
        &mut self,
        principal: &Principal,
        id: GrantId,
        actual: &Amounts,
        outcome: CallOutcome,
    ) -> Answer {
        let outcome = match self.grants.get(&id) {
            None => ReleaseOutcome::Unknown,
            Some(record) if record.owner() != principal => return Err(Refusal::NotOwner),
            Some(Record::Ended { expired: true, .. }) => ReleaseOutcome::Expired,
            Some(Record::Ended { expired: false, .. }) => ReleaseOutcome::Already,
            Some(Record::Live(_)) => {
                // The caller cannot know that a dimension is no longer counted.
                let counted = actual
                    .iter()
                    .filter(|(name, _)| self.counted.contains(name));
                let known = counted.map(|(name, units)| (name.clone(), units)).collect();
                self.finish(id, &known, outcome);
                ReleaseOutcome::Applied
            }
        };
        Ok(Outcome::Release(outcome))
    }

    fn finish(&mut self, id: GrantId, known: &Units, outcome: CallOutcome) {
        let Some(grant) = self.end(id, false) else {
            return;
        };
        let policy = self.policy.as_ref();
        let rejected_counts = policy.is_none_or(|policy| policy.rejected_counts);
        let mut units = grant.charge.units.clone();
        match outcome {
            CallOutcome::Ok | CallOutcome::Failed => {
                units.extend(known.iter().map(|(name, units)| (name.clone(), *units)));
            }
            CallOutcome::Throttled { retry_after } => {
                self.held_until = self.held_until.max(self.now + retry_after);
                if let Some(class) = self.class(&grant.queue.1) {
                    self.classes[class].throttled += 1;
                }
                if !rejected_counts {
                    units.clear();
                }
            }
            CallOutcome::NotSent => units.clear(),
        }
        self.settle(&grant, &without_zeros(units), true);
        if outcome == CallOutcome::Ok {
            self.learn(&grant.queue, &grant.charge, known);
        }
    }

    /// Replaces what a grant that ended is charged, in the limits and in the order of turns.
    fn settle(&mut self, grant: &Grant, units: &Units, over: bool) {
        let now = self.now;
        for meter in self.all_meters() {
            let dimension = meter.dimension().clone();
            let charged = of(&grant.charge.units, &dimension);
            let old = (charged, grant.charge.variance(&dimension));
            meter.correct(now, grant.start, old, (of(units, &dimension), 0));
        }
        let change = match units.is_empty() {
            true => -grant.share,
            false => self.share(units) - self.share(&grant.charge.units),
        };
        self.leave_queue(grant, change, over);
    }

    /// One grant less. Its priority's turn moves by the change of its share; its tenant's too, if the
    /// call is over.
    pub(super) fn leave_queue(&mut self, grant: &Grant, change: i128, over: bool) {
        let weight = self.queues[&grant.queue].weight;
        let step = self.tenant_step(weight, change);
        let queue = self.queue_mut(&grant.queue);
        queue.grants -= 1;
        if over {
            queue.finish += step;
        }
        if let Some(class) = self.class(&grant.queue.1) {
            let step = self.class_step(class, change);
            let class = &mut self.classes[class];
            class.tag += step;
            class.served_ns = (class.served_ns + change).max(0);
        }
        self.note_idle(&grant.queue);
    }

    /// Takes a start back as if it never was. The call waits again where it stood, in no line until it
    /// is decided anew.
    pub(super) fn undo(&mut self, id: GrantId) {
        let Some(Record::Live(grant)) = self.grants.remove(&id) else {
            return;
        };
        let ticket = Ticket {
            tag: grant.tag,
            serial: grant.serial,
            units: Units::new(),
            share: 1,
            due: self.now,
            lapsed: true,
        };
        self.settle(&grant, &Units::new(), false);
        self.hold(&grant.call, Holds::Ticket(ticket));
    }

    pub(super) fn cancel(&mut self, cancel: &AskName) -> Answer {
        let name = (cancel.tenant.clone(), cancel.admission_id.clone());
        let Some(call) = self.calls.get_mut(&name) else {
            let call = Call::new(&cancel.principal, cancel.attempt, cancel.ask);
            self.calls.insert(name.clone(), call);
            self.hold_nothing(&name);
            return Ok(Outcome::Cancel(CancelOutcome::Nothing));
        };
        if call.owner != cancel.principal {
            return Err(Refusal::NotOwner);
        }
        let outcome = if call.was_closed(cancel.attempt).is_some() {
            CancelOutcome::Stale
        } else if call.attempt != cancel.attempt {
            // What another attempt holds is not the canceller's.
            call.close(cancel.attempt, false);
            if matches!(call.holds, Holds::Nothing) {
                self.hold_nothing(&name);
            }
            CancelOutcome::Nothing
        } else if cancel.ask < call.ask {
            CancelOutcome::Stale
        } else {
            call.ask = cancel.ask;
            self.give_up(&name)
        };
        Ok(Outcome::Cancel(outcome))
    }

    fn give_up(&mut self, name: &CallName) -> CancelOutcome {
        match self.calls[name].holds {
            Holds::Report => CancelOutcome::Nothing,
            Holds::Nothing => {
                self.hold_nothing(name);
                CancelOutcome::Nothing
            }
            Holds::Ticket(_) => {
                self.drop_place(name, true);
                CancelOutcome::PlaceDropped
            }
            Holds::Grant(id) => match self.end(id, false) {
                None => CancelOutcome::Nothing,
                Some(grant) => {
                    self.settle(&grant, &Units::new(), true);
                    self.hold_nothing(name);
                    CancelOutcome::GrantRefunded
                }
            },
        }
    }

    pub(super) fn extend(&mut self, principal: &Principal, id: GrantId) -> Answer {
        let (now, memory) = (self.now, self.grant_memory());
        let outcome = match self.grants.get_mut(&id) {
            None => ExtendOutcome::Unknown,
            Some(record) if record.owner() != principal => return Err(Refusal::NotOwner),
            Some(Record::Ended { .. }) => ExtendOutcome::Ended,
            Some(Record::Live(grant)) => {
                grant.expires = grant.expires.max(now + memory);
                let expires_in = grant.expires - now;
                ExtendOutcome::Extended { expires_in }
            }
        };
        Ok(Outcome::Extend(outcome))
    }

    pub(super) fn report(&mut self, report: &Report) -> Answer {
        let unknown = || Refusal::PriorityUnknown(report.priority.clone());
        let class = self.class(&report.priority).ok_or_else(unknown)?;
        let known = self.named(&report.actual)?;
        let name = (report.tenant.clone(), report.admission_id.clone());
        if let Some(call) = self.calls.get(&name) {
            if call.owner != report.principal {
                return Err(Refusal::NotOwner);
            }
            if call.was_closed(report.attempt) == Some(true) {
                return Ok(Outcome::Report(ReportOutcome::Settled));
            }
            let mine = call.attempt == report.attempt;
            match call.holds {
                Holds::Report if mine => return Ok(Outcome::Report(ReportOutcome::Already)),
                Holds::Grant(id) if mine => return Ok(self.settle_report(id, &known)),
                Holds::Report | Holds::Grant(_) | Holds::Nothing | Holds::Ticket(_) => {}
            }
        }
        self.charge_report(report, class, without_zeros(known));
        Ok(Outcome::Report(ReportOutcome::Charged))
    }

    fn settle_report(&mut self, id: GrantId, known: &Units) -> Outcome {
        let outcome = match self.grants.get(&id) {
            Some(Record::Live(_)) => {
                self.finish(id, known, CallOutcome::Ok);
                ReportOutcome::Settled
            }
            Some(Record::Ended { .. }) | None => ReportOutcome::Already,
        };
        Outcome::Report(outcome)
    }

    fn charge_report(&mut self, report: &Report, class: usize, units: Units) {
        let share = self.share(&units);
        let now = self.now;
        self.charge(now.saturating_sub(report.age), &Charge::exact(units));
        for meter in self.all_meters() {
            meter.look(now);
        }
        self.serve(class, share);
        let queue = (report.tenant.clone(), report.priority.clone());
        if let Some(weight) = self.queues.get(&queue).map(|queue| queue.weight) {
            let step = self.tenant_step(weight, share);
            self.queue_mut(&queue).finish += step;
        }
        let name = (report.tenant.clone(), report.admission_id.clone());
        if let Some(call) = self.calls.get_mut(&name)
            && call.attempt != report.attempt
        {
            // What another attempt holds is not the reporter's either.
            call.close(report.attempt, true);
            match call.holds {
                Holds::Nothing => self.hold_nothing(&name),
                Holds::Report => self.hold_report(&name),
                Holds::Ticket(_) | Holds::Grant(_) => {}
            }
            return;
        }
        self.drop_place(&name, false);
        let call = self.calls.entry(name.clone());
        let call = call.or_insert_with(|| Call::new(&report.principal, report.attempt, u32::MAX));
        call.ask = u32::MAX;
        call.queue = Some(queue);
        self.hold_report(&name);
    }
}
