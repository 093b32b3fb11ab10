//! Ends of grants and places: release, cancel, extend, report, and taking a start back.

use super::estimate::Charge;
use super::{
    Admission, AdmissionKey, Grant, GrantState, Place, QueueKey, Target, Ticket, Units, at,
};
use crate::limits::{DIMENSIONS_MAX, RELEASED_MEMORY, UNRELEASED_MEMORY_MIN};
use crate::{
    CallOutcome, CancelOutcome, ExtendOutcome, GrantId, Refusal, ReleaseOutcome, ReportOutcome,
};

/// Units used where they are known.
pub(crate) type Known = [Option<u64>; DIMENSIONS_MAX];

/// Use that a client let through ungated, with its names resolved.
pub(crate) struct Ungated {
    pub(crate) key: AdmissionKey,
    pub(crate) queue: QueueKey,
    pub(crate) class: usize,
    pub(crate) owner: u64,
    pub(crate) attempt: u64,
    pub(crate) actual: Units,
    pub(crate) known: Known,
    pub(crate) age: u64,
}

impl Target {
    /// Settles a grant.
    pub(crate) fn release(
        &mut self,
        now: u64,
        id: GrantId,
        owner: u64,
        known: &Known,
        outcome: CallOutcome,
    ) -> Result<ReleaseOutcome, Refusal> {
        let Some(grant) = self.grants.get(&id) else {
            return Ok(ReleaseOutcome::Unknown);
        };
        if grant.owner != owner {
            return Err(Refusal::NotOwner);
        }
        match grant.state {
            GrantState::Released => return Ok(ReleaseOutcome::Already),
            GrantState::Expired => return Ok(ReleaseOutcome::Expired),
            GrantState::Live => {}
        }
        if let CallOutcome::Throttled { retry_after } = outcome {
            self.held_until = self.held_until.max(now.saturating_add(retry_after));
            self.count_throttled(id);
        }
        let units = self.settled_units(id, known, outcome);
        self.correct(now, id, &units, true);
        if outcome == CallOutcome::Ok {
            self.learn(id, known);
        }
        self.end(now, id, GrantState::Released);
        Ok(ReleaseOutcome::Applied)
    }

    /// What a grant cost in the end.
    fn settled_units(&self, id: GrantId, known: &Known, outcome: CallOutcome) -> Units {
        let Some(grant) = self.grants.get(&id) else {
            return Units::default();
        };
        let counts = self
            .policy
            .as_ref()
            .is_none_or(|policy| policy.rejected_counts);
        match outcome {
            CallOutcome::Ok | CallOutcome::Failed => {
                std::array::from_fn(|slot| match known.get(slot) {
                    Some(Some(actual)) => *actual,
                    Some(None) | None => at(&grant.units, slot),
                })
            }
            CallOutcome::Throttled { .. } if counts => grant.units,
            CallOutcome::Throttled { .. } | CallOutcome::NotSent => Units::default(),
        }
    }

    fn count_throttled(&mut self, id: GrantId) {
        let class = self
            .grants
            .get(&id)
            .and_then(|grant| self.queues.get(&grant.queue));
        let class = class
            .map(|queue| queue.class)
            .and_then(|class| self.classes.get_mut(class));
        if let Some(class) = class {
            class.throttled = class.throttled.saturating_add(1);
        }
    }

    fn learn(&mut self, id: GrantId, known: &Known) {
        let Some(grant) = self.grants.get(&id) else {
            return;
        };
        let Some(uncertain) = &grant.uncertain else {
            return;
        };
        if let Some(queue) = self.queues.get_mut(&grant.queue) {
            queue.learn(uncertain, known);
        }
    }

    /// Replaces the charge of a grant in meters and tags. `finish`: also where its tenant stands; a start
    /// that is undone keeps it, since the place is kept.
    fn correct(&mut self, now: u64, id: GrantId, units: &Units, finish: bool) {
        let Some(grant) = self.grants.get(&id) else {
            return;
        };
        let before = Charge {
            units: grant.units,
            uncertain: grant.uncertain.clone(),
        };
        let (start, queue, share) = (grant.start, grant.queue, grant.share);
        for meter in self.charged_meters() {
            let slot = meter.slot;
            let old = (at(&before.units, slot), before.variance(slot));
            meter.correct(now, start, old, (at(units, slot), 0));
        }
        let after = if *units == Units::default() {
            0
        } else {
            self.share(units)
        };
        let change = after.saturating_sub(share);
        if let Some(grant) = self.grants.get_mut(&id) {
            grant.units = *units;
            grant.share = after;
        }
        let Some(class) = self.queues.get(&queue).map(|queue| queue.class) else {
            return;
        };
        let advance = self.class_advance(class, change);
        if let Some(class) = self.classes.get_mut(class) {
            class.tag = class.tag.saturating_add(advance);
            class.served_ns = class.served_ns.saturating_add_signed(change);
        }
        let weight = self.queues.get(&queue).map_or(1, |queue| queue.weight);
        let advance = self.tenant_advance(weight, change);
        if let Some(queue) = self.queues.get_mut(&queue).filter(|_| finish) {
            queue.finish = queue.finish.saturating_add(advance);
        }
    }

    /// Moves a live grant to its end and starts to forget it.
    pub(crate) fn end(&mut self, now: u64, id: GrantId, state: GrantState) {
        let Some(grant) = self.grants.get_mut(&id) else {
            return;
        };
        grant.state = state;
        grant.uncertain = None;
        let queue = grant.queue;
        self.ended
            .push_back((now.saturating_add(RELEASED_MEMORY), id));
        self.live_grants = self.live_grants.saturating_sub(1);
        self.leave_queue(now, queue);
    }

    fn leave_queue(&mut self, now: u64, key: QueueKey) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.grants = queue.grants.saturating_sub(1);
        }
        self.note_idle(now, key);
    }

    /// Takes a passed start back, as if it never was; its admission waits again at its old place.
    pub(crate) fn undo(&mut self, now: u64, id: GrantId) {
        self.correct(now, id, &Units::default(), false);
        let Some(grant) = self.grants.remove(&id) else {
            return;
        };
        self.live_grants = self.live_grants.saturating_sub(1);
        let class = self.queues.get(&grant.queue).map(|queue| queue.class);
        if let Some(queue) = self.queues.get_mut(&grant.queue) {
            queue.grants = queue.grants.saturating_sub(1);
        }
        let Some(class) = class else {
            return self.hold_nothing(now, grant.admission);
        };
        // The cost it stands in line with is set when it is decided, in the same operation.
        let ticket = Ticket {
            serial: grant.serial,
            tag: grant.tag,
            units: Units::default(),
            share: 1,
            due: now,
            noted: now,
            lapsed: true,
        };
        self.attach(grant.admission, class, ticket);
    }

    /// Gives up what an attempt holds, unless a newer ask was seen.
    pub(crate) fn cancel(
        &mut self,
        now: u64,
        key: AdmissionKey,
        owner: u64,
        attempt: u64,
        ask: u32,
    ) -> Result<CancelOutcome, Refusal> {
        let Some(admission) = self.admissions.get_mut(&key) else {
            self.admissions
                .insert(key, Box::new(Admission::new(owner, attempt, ask)));
            self.hold_nothing(now, key);
            self.forget_surplus();
            return Ok(CancelOutcome::Nothing);
        };
        if admission.owner != owner {
            return Err(Refusal::NotOwner);
        }
        if admission.closed_attempt(attempt).is_some() {
            return Ok(CancelOutcome::Stale);
        }
        if admission.attempt != attempt {
            return Ok(self.cancel_unseen(now, key, attempt, ask));
        }
        if ask < admission.ask {
            return Ok(CancelOutcome::Stale);
        }
        admission.ask = ask;
        match admission.place {
            Place::Nothing | Place::Reported => Ok(CancelOutcome::Nothing),
            Place::Waiting(_) => {
                self.drop_place(now, key, true);
                Ok(CancelOutcome::PlaceDropped)
            }
            Place::Granted(id) => Ok(self.cancel_grant(now, key, id)),
        }
    }

    /// A cancel of an attempt that was never seen: its asks up to this number are stale from now on. What
    /// an older attempt holds is not the canceller's.
    fn cancel_unseen(
        &mut self,
        now: u64,
        key: AdmissionKey,
        attempt: u64,
        ask: u32,
    ) -> CancelOutcome {
        if let Some(admission) = self.admissions.get_mut(&key) {
            let charged = matches!(admission.place, Place::Granted(_) | Place::Reported);
            admission.open_attempt(attempt, ask, charged);
            if charged {
                self.hold_nothing(now, key);
            }
        }
        CancelOutcome::Nothing
    }

    fn cancel_grant(&mut self, now: u64, key: AdmissionKey, id: GrantId) -> CancelOutcome {
        let live = self
            .grants
            .get(&id)
            .is_some_and(|grant| grant.state == GrantState::Live);
        if !live {
            return CancelOutcome::Stale;
        }
        self.correct(now, id, &Units::default(), true);
        self.end(now, id, GrantState::Released);
        self.hold_nothing(now, key);
        CancelOutcome::GrantRefunded
    }

    /// Keeps a live grant for another while.
    pub(crate) fn extend(
        &mut self,
        now: u64,
        id: GrantId,
        owner: u64,
    ) -> Result<ExtendOutcome, Refusal> {
        let expires_in = self.longest_period().max(UNRELEASED_MEMORY_MIN);
        let Some(grant) = self.grants.get_mut(&id) else {
            return Ok(ExtendOutcome::Unknown);
        };
        if grant.owner != owner {
            return Err(Refusal::NotOwner);
        }
        match grant.state {
            GrantState::Live => {
                grant.expires = grant.expires.max(now.saturating_add(expires_in));
                Ok(ExtendOutcome::Extended {
                    expires_in: grant.expires.saturating_sub(now),
                })
            }
            GrantState::Released | GrantState::Expired => Ok(ExtendOutcome::Ended),
        }
    }

    /// Charges a call that was let through ungated, unless its attempt was charged by a grant.
    pub(crate) fn report(&mut self, now: u64, call: &Ungated) -> Result<ReportOutcome, Refusal> {
        if let Some(admission) = self.admissions.get(&call.key) {
            if admission.owner != call.owner {
                return Err(Refusal::NotOwner);
            }
            if admission.closed_attempt(call.attempt) == Some(true) {
                return Ok(ReportOutcome::Settled);
            }
            if admission.attempt == call.attempt {
                match admission.place {
                    Place::Reported => return Ok(ReportOutcome::Already),
                    Place::Granted(id) => return Ok(self.report_granted(now, id, call)),
                    Place::Nothing | Place::Waiting(_) => {}
                }
            }
        }
        self.charge_ungated(now, call);
        Ok(ReportOutcome::Charged)
    }

    fn report_granted(&mut self, now: u64, id: GrantId, call: &Ungated) -> ReportOutcome {
        match self.release(now, id, call.owner, &call.known, CallOutcome::Ok) {
            Ok(ReleaseOutcome::Applied) => ReportOutcome::Settled,
            Ok(ReleaseOutcome::Already | ReleaseOutcome::Expired | ReleaseOutcome::Unknown)
            | Err(_) => ReportOutcome::Already,
        }
    }

    fn charge_ungated(&mut self, now: u64, call: &Ungated) {
        let start = now.saturating_sub(call.age);
        let share = self.share(&call.actual);
        self.charge(
            start,
            &Charge {
                units: call.actual,
                uncertain: None,
            },
        );
        for meter in self.charged_meters() {
            if let Some(window) = &mut meter.window {
                window.expire(now);
            }
        }
        self.serve(call.class, i128::from(i64::MIN), share);
        let weight = self.queues.get(&call.queue).map_or(1, |queue| queue.weight);
        let advance = self.tenant_advance(weight, share);
        if let Some(queue) = self.queues.get_mut(&call.queue) {
            queue.finish = queue.finish.saturating_add(advance);
        }
        self.drop_place(now, call.key, false);
        let admission = self
            .admissions
            .entry(call.key)
            .or_insert_with(|| Box::new(Admission::new(call.owner, call.attempt, u32::MAX)));
        if admission.attempt != call.attempt {
            let charged = matches!(admission.place, Place::Granted(_) | Place::Reported);
            admission.open_attempt(call.attempt, u32::MAX, charged);
        }
        admission.ask = u32::MAX;
        admission.queue = call.queue;
        admission.place = Place::Reported;
        admission.forget_at = now.saturating_add(RELEASED_MEMORY);
        self.forgetting.push_back((admission.forget_at, call.key));
        self.forget_surplus();
    }
}

impl Grant {
    /// True while it counts.
    pub(crate) fn is_live(&self) -> bool {
        self.state == GrantState::Live
    }
}
