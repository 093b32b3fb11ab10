//! One attempt of one call: its asks, and what is made of their answers.
//!
//! **The client rule** stands here, in [`Asking::use_grant`]. Let `a` be the moment just before the ask
//! was handed to the session's stream or the connection and `r` the moment its answer was here. The grant's start lies at most
//! `r - a` before `r + start_in`, so a call that goes out at time `t` is late by at most
//! `t - a - start_in`. Above the reply window it must not go out. This is checked twice: when the
//! answer comes, to spare a vain sleep, and as the last thing before the guard is handed out, which
//! also finds a process that stalled in its sleep. What happens between the guard and the caller's
//! socket is covered by the policy's send spread; [`crate::Guard::is_current`] checks once more.
//!
//! **Numbering.** Every send takes the next number, and the answer to an older number is never looked
//! at: its future is dropped before the next ask is made.

mod unanswered;

use crate::answer::{Deferral, Origin, RejectReason, Rejection};
use crate::breaker::Verdict;
use crate::call::CheckedCall;
use crate::client::Owner;
use crate::failure::Failure;
use crate::guard::Guard;
use crate::limits::{RETRY_IN_MAX, SENDS_PER_DECISION_MAX};
use crate::retry::{Next, Purpose, Tally, Trouble};
use crate::waits::{Ring, Waiting};
use crate::zone::ZoneKey;
use crate::{Answer, Error, Ticket};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use weir_admission::limits::WINDOW_KNOB_MAX;
use weir_proto::v1::{self, AdmitRequest, AdmitResponse, admit_response::Decision};

/// See the module.
pub(crate) struct Asking {
    owner: Arc<Owner>,
    call: CheckedCall,
    ticket: Ticket,
    /// True while dropping this must give up what the attempt may have got.
    abandon: bool,
    /// True if the next decision is a new try for the retry budget: not if it comes back from a deferral
    /// of the client's own.
    is_new: bool,
    /// Set if the caller waits here, so that it can be woken.
    waiting: Option<Waiting>,
    /// Set while its last deferral is the client's own.
    recess: Option<Recess>,
}

/// A pause that the client chose, because it heard nothing of use.
#[derive(Clone, Copy)]
struct Recess {
    zone: ZoneKey,
    /// The node asked not to come back before this.
    not_before: Instant,
}

/// How one pass of the loop ended.
enum Step {
    Done(Answer),
    /// Something to weigh, with a sentence for people. `silent` if it counts as a missing answer.
    Trouble {
        trouble: Trouble,
        message: String,
        silent: bool,
    },
    /// The routes were learnt: nothing was asked yet.
    Routed,
}

/// The time and patience of one decision.
struct Effort {
    begun_at: Instant,
    /// No ask after this.
    until: Instant,
    /// The call's own deadline.
    deadline_at: Option<Instant>,
    tally: Tally,
    /// Since when no answer came, if none came last.
    silent_since: Option<Instant>,
    /// What went wrong last, apart from a try that was cut short, with a sentence for people.
    trouble: Option<(Trouble, String)>,
    may_have_happened: bool,
    /// Whether the last try that had its time tells that asking is of no use.
    in_vain: bool,
    /// Whether the retry budget of its zone knows of the try, and of which.
    tried: Option<ZoneKey>,
}

impl Asking {
    /// A new attempt, or the attempt of a ticket. A new attempt that is dropped half way is given up;
    /// one with a ticket belongs to whoever has the ticket.
    pub(crate) fn new(owner: Arc<Owner>, call: CheckedCall, ticket: Option<Ticket>) -> Asking {
        // Who deferred a call that comes back with a ticket is not known here.
        let is_new = ticket.is_none();
        let abandon = is_new;
        let new = || Ticket {
            attempt: owner.shared.dice.name(),
            ask: 0,
        };
        let ticket = ticket.unwrap_or_else(new);
        Asking {
            owner,
            call,
            ticket,
            abandon,
            is_new,
            waiting: None,
            recess: None,
        }
    }

    /// The caller waits here until its turn: it is woken when that is near.
    pub(crate) fn wait_here(&mut self) {
        self.waiting = Some(self.owner.shared.waits.begin(self.ticket.attempt));
    }

    /// Sleeps for `pause`, or until a wake, or until another caller's answer shows that asking is of use again.
    pub(crate) async fn rest(&self, pause: Duration) {
        let resume_at = Instant::now() + pause;
        tokio::select! {
            biased;
            spread = self.woken() => {
                let shared = &self.owner.shared;
                shared.counters.woken.add(1);
                let jitter = shared.dice.between(Duration::ZERO, spread);
                tokio::time::sleep_until(resume_at.min(Instant::now() + jitter)).await;
            }
            not_before = self.relieved() => {
                tokio::time::sleep_until(resume_at.min(not_before)).await;
            }
            () = tokio::time::sleep_until(resume_at) => {}
        }
    }

    /// Resolves when the cluster has something to tell, or can no longer tell it: come back within this time.
    async fn woken(&self) -> Duration {
        let Some(waiting) = &self.waiting else {
            return std::future::pending().await;
        };
        loop {
            match waiting.woken().await {
                Ring::Turn(spread) => return spread,
                // Who was told nothing misses nothing, and its pause is meant: its session may have ended
                // because nothing was heard in it.
                Ring::Unheard(_) if self.recess.is_some() => {}
                Ring::Unheard(spread) => return spread,
            }
        }
    }

    /// Resolves when a pause of the client's own is no longer needed, with the time until which the node
    /// asked for one.
    async fn relieved(&self) -> Instant {
        let Some(Recess { zone, not_before }) = self.recess else {
            return std::future::pending().await;
        };
        self.owner.shared.zones.relieved(zone).await;
        not_before
    }

    /// The attempt is nobody else's: dropping this gives it up.
    pub(crate) fn keep_hold(&mut self) {
        self.abandon = true;
    }

    /// The call is in the caller's hands: dropping this gives nothing up.
    fn handed_over(&mut self) {
        self.abandon = false;
    }

    /// Asks until there is an answer, the mode decides, or the time of one decision is used up.
    pub(crate) async fn decide(&mut self, deadline_at: Option<Instant>) -> Result<Answer, Error> {
        let started = Instant::now();
        if deadline_at.is_some_and(|deadline| deadline <= started) {
            return Err(Error::DeadlinePassed);
        }
        let answer_by = started + self.owner.shared.options.answer_within;
        let mut effort = Effort {
            begun_at: started,
            until: deadline_at.map_or(answer_by, |deadline| deadline.min(answer_by)),
            deadline_at,
            tally: Tally::new(Purpose::Decision),
            silent_since: None,
            trouble: None,
            may_have_happened: false,
            in_vain: false,
            tried: None,
        };
        self.recess = None;
        let answer = self.ask_until(&mut effort).await?;
        if answer.is_of_use() {
            let shared = &self.owner.shared;
            shared.zones.relieve(shared.shard_of(&self.call.target));
        }
        let counters = &self.owner.shared.counters;
        match &answer {
            Answer::Admitted(guard) if guard.is_ungated() => {}
            Answer::Admitted(_) => counters.admitted.add(1),
            Answer::Deferred(deferral) => {
                counters.deferred.add(1);
                counters
                    .deferred_locally
                    .add(u64::from(deferral.is_local()));
                self.is_new = match deferral.origin {
                    Origin::Cluster | Origin::Overloaded => true,
                    Origin::LateAnswer | Origin::NoAnswer | Origin::LocalShare => false,
                };
            }
            Answer::Rejected(_) => counters.rejected.add(1),
        }
        Ok(answer)
    }

    async fn ask_until(&mut self, effort: &mut Effort) -> Result<Answer, Error> {
        // Set while a hint is followed: that belongs to the turn in which it was heard.
        let mut in_turn = false;
        loop {
            let shared = self.owner.shared.clone();
            let zone = shared.shard_of(&self.call.target);
            let asked_at = Instant::now();
            if let Verdict::Decide { since } = shared.zones.wanted(zone, asked_at) {
                return self.decide_by_mode(zone, since, effort);
            }
            if !in_turn && !self.may_ask(zone, effort).await {
                if Instant::now() < effort.until {
                    continue;
                }
                return self.give_up(zone, effort);
            }
            let (trouble, message, silent) = match self.ask(zone, effort).await? {
                Step::Done(answer) => return Ok(answer),
                Step::Routed => continue,
                Step::Trouble {
                    trouble,
                    message,
                    silent,
                } => (trouble, message, silent),
            };
            let now = Instant::now();
            effort.silent_since = match trouble {
                Trouble::NotLeader { .. } => Some(effort.silent_since.unwrap_or(asked_at)),
                Trouble::NoAnswer { .. } if silent => {
                    let since = effort.silent_since.unwrap_or(asked_at);
                    if self.missed(zone, since, now) {
                        continue;
                    }
                    Some(since)
                }
                Trouble::NoAnswer { .. } => effort.silent_since,
                Trouble::Late | Trouble::Stale | Trouble::Overloaded { .. } => None,
            };
            let cut_short = matches!(trouble, Trouble::NoAnswer { .. }) && !silent;
            if !cut_short {
                effort.in_vain = trouble.is_in_vain();
            }
            if !cut_short || effort.trouble.is_none() {
                effort.trouble = Some((trouble, message));
            }
            let remaining = effort.until.saturating_duration_since(now);
            match effort.tally.after(trouble, remaining, shared.dice.roll()) {
                Next::Send(pause) => {
                    in_turn = pause.is_zero();
                    if !in_turn && effort.silent_since.is_some() {
                        shared.zones.doubt(zone, now + pause);
                    }
                    if effort.tally.costs(trouble) && !self.may_repeat(zone, now) {
                        shared.counters.retries_withheld.add(1);
                        return self.give_up(zone, effort);
                    }
                    shared.counters.retries.add(1);
                    tokio::time::sleep(pause).await;
                }
                Next::Stop => return self.give_up(zone, effort),
            }
        }
    }

    /// True if what may have left work behind is asked again in this decision.
    fn may_repeat(&self, zone: ZoneKey, now: Instant) -> bool {
        let zones = &self.owner.shared.zones;
        !zones.is_strained(zone, now) && zones.pays_retry(zone)
    }

    /// True if it is this call's turn to ask. Otherwise another one asks for all: waits a while for what
    /// it hears.
    async fn may_ask(&self, zone: ZoneKey, effort: &Effort) -> bool {
        let zones = &self.owner.shared.zones;
        let mut settled = pin!(zones.settled());
        // Before looking, so that no answer slips in between.
        settled.as_mut().enable();
        let Err(next_at) = zones.may_ask(zone, Instant::now()) else {
            return true;
        };
        tokio::select! {
            () = settled => {}
            () = tokio::time::sleep_until(next_at.min(effort.until)) => {}
        }
        false
    }

    /// Sends the next ask, or first learns where to.
    async fn ask(&mut self, zone: ZoneKey, effort: &mut Effort) -> Result<Step, Error> {
        let shared = self.owner.shared.clone();
        let remaining = effort.until.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return self.fail(Failure::cut_short(remaining));
        }
        let mut timeout = shared.options.try_timeout;
        if shared.zones.is_strained(zone, Instant::now()) {
            // The only try of this visit: a node that got slow has time to answer.
            timeout = timeout.saturating_mul(2);
        }
        let timeout = timeout.min(remaining);
        if effort.tried.replace(zone) != Some(zone) && self.is_new {
            shared.zones.tries(zone);
        }
        let sent = match zone {
            None => match shared.learn_routes(timeout).await {
                Ok(()) => return Ok(Step::Routed),
                Err(failure) => Err(failure),
            },
            Some(_) => {
                let request = self.next_ask(effort.deadline_at)?;
                let node = shared.node_for(zone);
                shared.counters.asks.add(1);
                let carried = shared.send_timed(zone, &node, request, timeout).await;
                carried.map(|carried| (carried.handed_at, carried.answer))
            }
        };
        match sent {
            Ok((asked_at, answer)) => self.hear(asked_at, answer).await,
            Err(failure) => {
                effort.may_have_happened |= zone.is_some() && failure.may_have_happened();
                self.fail(failure)
            }
        }
    }

    fn fail(&mut self, failure: Failure) -> Result<Step, Error> {
        let silent = failure.is_silence();
        match failure.into_trouble() {
            Ok((trouble, message)) => Ok(Step::Trouble {
                trouble,
                message,
                silent,
            }),
            Err(error) => {
                if !error.may_have_happened() {
                    // Refused: the attempt has got nothing that could be given up.
                    self.abandon = false;
                }
                Err(error)
            }
        }
    }

    fn next_ask(&mut self, deadline_at: Option<Instant>) -> Result<AdmitRequest, Error> {
        let ask = self
            .ticket
            .ask
            .checked_add(1)
            .ok_or_else(|| Error::Invalid {
                message: "the ticket has no number left: ask again without it".to_owned(),
            })?;
        self.ticket.ask = ask;
        let left = deadline_at.map(|at| at.saturating_duration_since(Instant::now()).as_micros());
        Ok(AdmitRequest {
            attempt: self.ticket.attempt,
            ask,
            // Zero would mean none.
            deadline_us: left.map_or(0, |us| u64::try_from(us).unwrap_or(u64::MAX).max(1)),
            wake: self.waiting.is_some(),
            ..self.call.ask.clone()
        })
    }

    async fn hear(&mut self, asked_at: Instant, answer: AdmitResponse) -> Result<Step, Error> {
        let received_at = Instant::now();
        self.owner
            .decided_by(&self.call.target, answer.policy_version);
        match answer.decision {
            Some(Decision::Admitted(admitted)) => {
                self.use_grant(asked_at, received_at, admitted).await
            }
            Some(Decision::Deferred(deferred)) => {
                self.handed_over();
                Ok(Step::Done(Answer::Deferred(Deferral::decided(
                    deferred,
                    self.ticket,
                ))))
            }
            Some(Decision::Rejected(rejected)) => Ok(self.hear_rejection(rejected)),
            None => Err(Error::Internal {
                message: "an answer without a decision".to_owned(),
            }),
        }
    }

    /// Sleeps until the grant's start and hands it out, unless it would be used too late: see the
    /// module.
    async fn use_grant(
        &mut self,
        asked_at: Instant,
        received_at: Instant,
        admitted: v1::Admitted,
    ) -> Result<Step, Error> {
        let window = Duration::from_micros(admitted.reply_window_us.min(WINDOW_KNOB_MAX));
        let start_in = Duration::from_micros(admitted.start_in_us);
        let grant = admitted.grant.filter(|_| start_in <= RETRY_IN_MAX);
        let Some(grant) = grant else {
            return Err(Error::Internal {
                message: "a grant without a name or start".to_owned(),
            });
        };
        let lateness = |now: Instant| now.duration_since(asked_at).saturating_sub(start_in);
        if received_at.duration_since(asked_at) > window {
            return Ok(self.late(received_at.duration_since(asked_at), window));
        }
        if start_in > Duration::ZERO {
            tokio::time::sleep_until(received_at + start_in).await;
        }
        let (owner, target) = (self.owner.clone(), self.call.target.clone());
        let send_by = asked_at + start_in + window;
        // From here to the caller nothing waits: this is the moment that counts.
        let late_by = lateness(Instant::now());
        if late_by > window {
            return Ok(self.late(late_by, window));
        }
        self.handed_over();
        let guard = Guard::granted(owner, target, grant, admitted.charged, send_by);
        Ok(Step::Done(Answer::Admitted(guard)))
    }

    fn late(&self, late_by: Duration, window: Duration) -> Step {
        self.owner.shared.counters.late_answers.add(1);
        let message = format!(
            "a grant would be used {} us after its ask, more than the reply window of {} us",
            late_by.as_micros(),
            window.as_micros()
        );
        tracing::debug!(target_name = %self.call.target, "{message}");
        Step::Trouble {
            trouble: Trouble::Late,
            message,
            silent: false,
        }
    }

    fn hear_rejection(&mut self, rejected: v1::Rejected) -> Step {
        let reason = match rejected.reason() {
            v1::RejectReason::NeverFits => RejectReason::NeverFits,
            v1::RejectReason::QueueFull => RejectReason::QueueFull,
            v1::RejectReason::TenantQueueFull => RejectReason::TenantQueueFull,
            v1::RejectReason::Deadline => RejectReason::Deadline,
            v1::RejectReason::IdConflict => RejectReason::IdConflict,
            v1::RejectReason::Unspecified => RejectReason::Other,
            v1::RejectReason::Stale => {
                self.owner.shared.counters.stale_answers.add(1);
                // Perhaps the caller lost its newest ticket. Each decision sends a bounded number of
                // asks, so this leap passes the numbers of one that was lost.
                self.ticket.ask = self.ticket.ask.saturating_add(SENDS_PER_DECISION_MAX);
                let message = rejected.message;
                return Step::Trouble {
                    trouble: Trouble::Stale,
                    message,
                    silent: false,
                };
            }
        };
        self.handed_over();
        Step::Done(Answer::Rejected(Rejection::decided(reason, rejected)))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.abandon && self.ticket.ask > 0 {
            self.owner
                .cancel_later(self.call.target.clone(), self.call.cancel(self.ticket));
        }
    }
}
