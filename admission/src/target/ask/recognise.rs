//! What is known of the admission that asks.

use super::answer::Return;
use super::{Ask, Charge};
use crate::target::{Place, Target};
use crate::{AdmitOutcome, GrantId, Rejected};

/// What a known admission makes of an ask.
pub(super) enum Step {
    /// Decide it at its ticket, or as a new one.
    Decide,
    /// Answer without deciding.
    Answer(Box<AdmitOutcome>),
}

impl Target {
    /// Finds what is known of the admission and settles which ask and attempt is the newest.
    pub(super) fn recognise(&mut self, now: u64, ask: &Ask<'_>) -> Step {
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
            Place::Granted(id) => match self.grants.live(*id) {
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
        let Some(grant) = self.grants.live(id) else {
            return stale();
        };
        if grant.start >= now {
            let again = self.admitted(now, grant.start, Some(id), &grant.units);
            return Step::Answer(Box::new(AdmitOutcome::Admitted(again)));
        }
        self.undo(now, id);
        Step::Decide
    }
}

fn stale() -> Step {
    Step::Answer(Box::new(AdmitOutcome::Rejected(Rejected::Stale)))
}
