//! Ends of grants and places: release, cancel, extend, report, and taking a start back.

use super::class::{NO_CLASS, advance};
use super::estimate::Charge;
use super::{
    Admission, AdmissionKey, Grant, GrantRecord, Place, QueueKey, Target, Ticket, Units, at,
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

/// What a settlement does beyond the charge.
#[derive(Clone, Copy)]
enum Ending<'a> {
    /// The call is over; `Some` if its use is known and may be learned from.
    Over(Option<&'a Known>),
    /// The start never was; its admission keeps its place, and its tenant stays where it stands.
    Undone,
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
        let Some(record) = self.grants.get_mut(id) else {
            return Ok(ReleaseOutcome::Unknown);
        };
        if record.owner() != owner {
            return Err(Refusal::NotOwner);
        }
        let grant = match record.end(false) {
            Ok(grant) => grant,
            Err(true) => return Ok(ReleaseOutcome::Expired),
            Err(false) => return Ok(ReleaseOutcome::Already),
        };
        self.note_ended(now, id);
        if let CallOutcome::Throttled { retry_after } = outcome {
            self.held_until = self.held_until.max(now.saturating_add(retry_after));
            self.count_throttled(&grant);
        }
        let counts = self
            .policy
            .as_ref()
            .is_none_or(|policy| policy.rejected_counts);
        let units = settled_units(&grant, known, outcome, counts);
        let learn = (outcome == CallOutcome::Ok).then_some(known);
        self.settle(now, &grant, &units, Ending::Over(learn));
        Ok(ReleaseOutcome::Applied)
    }

    fn count_throttled(&mut self, grant: &Grant) {
        let class = self
            .queue(grant.queue)
            .map_or(NO_CLASS, |queue| queue.class);
        if let Some(class) = self.classes.get_mut(class) {
            class.throttled = class.throttled.saturating_add(1);
        }
    }

    /// Turns a live grant into the memory of one, for a while.
    pub(crate) fn end(&mut self, now: u64, id: GrantId, expired: bool) -> Option<Box<Grant>> {
        let grant = self.grants.get_mut(id)?.end(expired).ok()?;
        self.note_ended(now, id);
        Some(grant)
    }

    fn note_ended(&mut self, now: u64, id: GrantId) {
        self.ended
            .push_back((now.saturating_add(RELEASED_MEMORY), id));
        self.live_grants = self.live_grants.saturating_sub(1);
    }

    /// A grant whose time is over: what it was estimated to cost stays, and leaves with the log.
    pub(crate) fn expire_grant(&mut self, now: u64, id: GrantId) {
        if let Some(grant) = self.end(now, id, true) {
            self.leave_queue(now, &grant, 0, Ending::Over(None));
        }
    }

    /// Replaces the charge of a grant that ended, in the meters and in the order of turns.
    fn settle(&mut self, now: u64, grant: &Grant, units: &Units, ending: Ending<'_>) {
        for meter in self.charged_meters() {
            let slot = meter.slot;
            let old = (at(&grant.units, slot), grant.variance(slot));
            meter.correct(now, grant.start, old, (at(units, slot), 0));
        }
        // Both at the caps in force: a new policy alone moves nobody's turn.
        let change = if *units == Units::default() {
            grant.share.saturating_neg()
        } else {
            self.share(units).saturating_sub(self.share(&grant.units))
        };
        self.leave_queue(now, grant, change, ending);
    }

    /// One grant less in its queue, whose turn comes sooner or later by the change of its share.
    fn leave_queue(&mut self, now: u64, grant: &Grant, change: i64, ending: Ending<'_>) {
        let normal = self.normal_weight();
        let Some(queue) = self.queues.get_mut(grant.queue) else {
            return;
        };
        queue.grants = queue.grants.saturating_sub(1);
        if let Ending::Over(known) = ending {
            let advance = advance(change, normal, queue.weight);
            queue.finish = queue.finish.saturating_add(advance);
            if let (Some(uncertain), Some(known)) = (&grant.uncertain, known) {
                queue.learn(uncertain, known);
            }
        }
        let (class, idle) = (queue.class, queue.is_idle());
        let advance = self.class_advance(class, change);
        if let Some(class) = self.classes.get_mut(class) {
            class.tag = class.tag.saturating_add(advance);
            class.served_ns = class.served_ns.saturating_add_signed(change);
        }
        if idle {
            self.note_idle(now, grant.queue);
        }
    }

    /// Takes a passed start back, as if it never was; its admission waits again at its old place.
    pub(crate) fn undo(&mut self, now: u64, id: GrantId) {
        let Some(GrantRecord::Live(grant)) = self.grants.remove(id) else {
            return;
        };
        self.live_grants = self.live_grants.saturating_sub(1);
        self.settle(now, &grant, &Units::default(), Ending::Undone);
        let Some(class) = self.queue(grant.queue).map(|queue| queue.class) else {
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
        let Some(admission) = self.admissions.get_mut(key) else {
            self.admissions
                .get_or_insert_with(key, || Admission::new(owner, attempt, ask));
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
            return Ok(self.cancel_unseen(now, key, attempt));
        }
        if ask < admission.ask {
            return Ok(CancelOutcome::Stale);
        }
        admission.ask = ask;
        match admission.place {
            Place::Nothing => {
                // Remembered for as long from now on: its ask may still be on the way.
                self.hold_nothing(now, key);
                Ok(CancelOutcome::Nothing)
            }
            Place::Reported => Ok(CancelOutcome::Nothing),
            Place::Waiting(_) => {
                self.drop_place(now, key, true);
                Ok(CancelOutcome::PlaceDropped)
            }
            Place::Granted(id) => Ok(self.cancel_grant(now, key, id)),
        }
    }

    /// A cancel of an attempt that was never seen, beside one that is known: it may be older than that
    /// one, so it ends none but itself.
    fn cancel_unseen(&mut self, now: u64, key: AdmissionKey, attempt: u64) -> CancelOutcome {
        if let Some(admission) = self.admissions.get_mut(key) {
            admission.close_attempt(attempt, false);
            if matches!(admission.place, Place::Nothing) {
                self.hold_nothing(now, key);
            }
        }
        CancelOutcome::Nothing
    }

    fn cancel_grant(&mut self, now: u64, key: AdmissionKey, id: GrantId) -> CancelOutcome {
        let Some(grant) = self.end(now, id, false) else {
            return CancelOutcome::Nothing;
        };
        self.settle(now, &grant, &Units::default(), Ending::Over(None));
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
        let memory = self.longest_period().max(UNRELEASED_MEMORY_MIN);
        match self.grants.get_mut(id) {
            None => Ok(ExtendOutcome::Unknown),
            Some(record) if record.owner() != owner => Err(Refusal::NotOwner),
            Some(GrantRecord::Ended { .. }) => Ok(ExtendOutcome::Ended),
            Some(GrantRecord::Live(grant)) => {
                grant.expires = grant.expires.max(now.saturating_add(memory));
                Ok(ExtendOutcome::Extended {
                    expires_in: grant.expires.saturating_sub(now),
                })
            }
        }
    }

    /// Charges a call that was let through ungated, unless its attempt was charged by a grant.
    pub(crate) fn report(&mut self, now: u64, call: &Ungated) -> Result<ReportOutcome, Refusal> {
        if let Some(admission) = self.admissions.get(call.key) {
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
        let weight = self.queues.get(call.queue).map_or(1, |queue| queue.weight);
        let advance = self.tenant_advance(weight, share);
        if let Some(queue) = self.queues.get_mut(call.queue) {
            queue.finish = queue.finish.saturating_add(advance);
        }
        self.note_ungated(now, call);
        self.forget_surplus();
    }

    /// Remembers that an attempt was charged. One beside the attempt that is known may be older than that
    /// one, so it takes nothing from it.
    fn note_ungated(&mut self, now: u64, call: &Ungated) {
        if let Some(admission) = self.admissions.get_mut(call.key)
            && admission.attempt != call.attempt
        {
            admission.close_attempt(call.attempt, true);
            if matches!(admission.place, Place::Nothing | Place::Reported) {
                self.remember(now, call.key);
            }
            return;
        }
        self.drop_place(now, call.key, false);
        let admission = self.admissions.get_or_insert_with(call.key, || {
            Admission::new(call.owner, call.attempt, u32::MAX)
        });
        admission.ask = u32::MAX;
        admission.queue = call.queue;
        admission.place = Place::Reported;
        self.remember(now, call.key);
    }
}

/// What a grant cost in the end. `counts`: the provider counts what it refuses.
pub(super) fn settled_units(
    grant: &Grant,
    known: &Known,
    outcome: CallOutcome,
    counts: bool,
) -> Units {
    match outcome {
        CallOutcome::Ok | CallOutcome::Failed => std::array::from_fn(|slot| {
            known
                .get(slot)
                .copied()
                .flatten()
                .unwrap_or(at(&grant.units, slot))
        }),
        CallOutcome::Throttled { .. } if counts => grant.units,
        CallOutcome::Throttled { .. } | CallOutcome::NotSent => Units::default(),
    }
}
