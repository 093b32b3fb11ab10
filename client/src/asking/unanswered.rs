//! What becomes of a call that the cluster did not answer: a deferral of the client's own, or what the
//! mode decides.

use super::{Asking, Effort, Recess};
use crate::answer::{Deferral, Origin, Rejection};
use crate::breaker::Verdict;
use crate::guard::Guard;
use crate::limits::{LOCAL_RETRY_MAX, LOCAL_RETRY_MIN};
use crate::local::Take;
use crate::lock::lock;
use crate::retry::Trouble;
use crate::ungated::{Kept, UngatedKey, UngatedUse};
use crate::zone::ZoneKey;
use crate::{Answer, Error, Mode};
use std::time::Duration;
use tokio::time::Instant;

impl Asking {
    /// Time or patience is used up without an answer that could be used.
    pub(super) fn give_up(&mut self, zone: ZoneKey, effort: &Effort) -> Result<Answer, Error> {
        let shared = self.owner.shared.clone();
        let now = Instant::now();
        let Some((trouble, message)) = &effort.trouble else {
            return Ok(self.rest_after(zone, Origin::NoAnswer, Duration::ZERO));
        };
        if effort.in_vain {
            shared.zones.in_vain(zone, effort.begun_at, now);
        }
        match *trouble {
            Trouble::Overloaded { retry_in } => {
                Ok(self.rest_after(zone, Origin::Overloaded, retry_in.unwrap_or_default()))
            }
            Trouble::Stale => {
                self.handed_over();
                Ok(Answer::Rejected(Rejection::taken_over()))
            }
            Trouble::Late => {
                if shared.zones.warns_of_late(zone, now) {
                    tracing::warn!(target_name = %self.call.target, "{message}: it is not used");
                }
                let answer = self.rest_after(zone, Origin::LateAnswer, Duration::ZERO);
                self.give_back_before(&answer);
                Ok(answer)
            }
            Trouble::NotLeader { .. } | Trouble::NoAnswer { .. } => {
                if let Some(since) = effort.silent_since {
                    self.missed(zone, since, now);
                }
                if let Verdict::Decide { since } = shared.zones.wanted(zone, now) {
                    return self.decide_by_mode(zone, since, effort);
                }
                Ok(self.rest_after(zone, Origin::NoAnswer, Duration::ZERO))
            }
        }
    }

    /// A deferral of the client's own, whose pause grows with the visits in vain.
    fn rest_after(&mut self, zone: ZoneKey, origin: Origin, at_least: Duration) -> Answer {
        let now = Instant::now();
        self.recess = Some(Recess {
            zone,
            not_before: now + at_least,
        });
        let pause = self.owner.shared.zones.pause(zone, now);
        self.defer_locally(origin, at_least.max(pause))
    }

    /// Gives back a grant that came too late, if the next ask, which undoes it, is some time off: what nobody
    /// uses is of use to others. Sent once: where that is lost, the next ask does it.
    fn give_back_before(&self, answer: &Answer) {
        if let Answer::Deferred(deferral) = answer
            && deferral.retry_in > LOCAL_RETRY_MAX
        {
            let cancel = self.call.cancel(self.ticket);
            self.owner.give_back(self.call.target.clone(), cancel);
        }
    }

    fn defer_locally(&mut self, origin: Origin, retry_in: Duration) -> Answer {
        self.handed_over();
        Answer::Deferred(Deferral::local(origin, retry_in, self.ticket))
    }

    /// True if the mode decides from now on.
    pub(super) fn missed(&self, zone: ZoneKey, since: Instant, now: Instant) -> bool {
        let shared = &self.owner.shared;
        let out = shared.zones.missed(zone, since, now, &self.call.ask);
        if out {
            // The background probes the zone.
            shared.nudge.notify_one();
        }
        out
    }

    /// The zone is out: no ask, no wait.
    pub(super) fn decide_by_mode(
        &mut self,
        zone: ZoneKey,
        since: Instant,
        effort: &Effort,
    ) -> Result<Answer, Error> {
        let shared = self.owner.shared.clone();
        match shared.options.mode {
            Mode::Open => {
                shared.counters.ungated_open.add(1);
                Ok(self.go_ungated(zone))
            }
            Mode::Closed => Err(self.refuse("the mode is closed", effort)),
            Mode::Local => {
                let now = Instant::now();
                let (target, bound) = (&self.call.target, &self.call.bound);
                let taken = lock(&shared.shares).take(target, bound, since, now);
                match taken {
                    Take::Go => {
                        shared.counters.ungated_local.add(1);
                        Ok(self.go_ungated(zone))
                    }
                    Take::Wait(wait) => {
                        let usual = shared.dice.between(LOCAL_RETRY_MIN, LOCAL_RETRY_MAX);
                        Ok(self.defer_locally(Origin::LocalShare, wait.max(usual)))
                    }
                    Take::Never => Err(self.refuse("no local share of this target", effort)),
                }
            }
        }
    }

    fn refuse(&self, why: &str, effort: &Effort) -> Error {
        self.owner.shared.counters.refused.add(1);
        Error::Unavailable {
            message: why.to_owned(),
            may_have_happened: effort.may_have_happened,
        }
    }

    fn go_ungated(&mut self, zone: ZoneKey) -> Answer {
        self.handed_over();
        let shared = &self.owner.shared;
        let ask = &self.call.ask;
        let key = UngatedKey::new(&self.call.target, &ask.admission_id, self.ticket.attempt);
        let call = UngatedUse {
            tenant: ask.tenant.clone(),
            priority: ask.priority.clone(),
            actual: self.call.bound.clone(),
            sent_at: Instant::now(),
        };
        let kept = lock(&shared.ungated).keep(key.clone(), call);
        if kept == Kept::Full {
            shared.counters.reports_lost.add(1);
        }
        if shared.zones.let_through(zone, kept == Kept::Full) {
            tracing::warn!("too many ungated calls to report them all; the rest is only counted");
        }
        let target = self.call.target.clone();
        let charged = self.call.bound.clone();
        Answer::Admitted(Guard::ungated(self.owner.clone(), target, key, charged))
    }
}
