//! Who is told that its turn is near: connected waiters, by their place in line.
//!
//! The rules say whose turn is near ([`weir_raft::Group::near`]); this node asks them every few
//! milliseconds while anybody waits here, and tells the sessions. Nothing depends on a wake: a waiter that
//! hears none comes back by the clock. Who can be told is given longer for that, so a waiter that can be
//! told no more (its session ended, or there is no room for it here) is said so to the rules: one that
//! died must not hold up its line.

use crate::batch::SubmitError;
use crate::limits::{
    LOST_AGAIN, LOST_AT_ONCE, WAKE_INTERVAL, WAKE_LINES_MAX, WAKE_NEAR_MAX, WAKE_REST, WAKE_SPREAD,
    WAKES_MAX,
};
use crate::shards::Shards;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use weir_admission::{
    Admit, AdmitOutcome, AskName, CancelOutcome, Operation, Outcome, Rejected, ShardId, TargetName,
    TenantName,
};

/// The waiting line of one target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// The target's shard.
    pub shard: ShardId,
    /// The target.
    pub target: TargetName,
}

/// A place in a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    /// The line.
    pub line: Line,
    /// Number of the ticket.
    pub ticket: u64,
}

/// An admission, whoever asks for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    target: TargetName,
    tenant: TenantName,
    admission_id: Box<[u8]>,
}

impl Name {
    fn of(ask: &AskName) -> Name {
        Name {
            target: ask.target.clone(),
            tenant: ask.tenant.clone(),
            admission_id: ask.admission_id.clone(),
        }
    }
}

/// The name of an ask.
pub(crate) fn name_of(admit: &Admit) -> AskName {
    AskName {
        target: admit.target.clone(),
        tenant: admit.tenant.clone(),
        principal: admit.principal.clone(),
        admission_id: admit.admission_id.clone(),
        attempt: admit.attempt,
        ask: admit.ask,
    }
}

/// True if the one who waits for the admission of an ask or a cancel waits for nothing after this outcome: its
/// place was granted, given up or taken over.
fn ends_wait(waits: &AskName, ask: &AskName, outcome: &Outcome) -> bool {
    match outcome {
        // The same ask once more changes nothing.
        Outcome::Admit(AdmitOutcome::Deferred(_)) => {
            (waits.attempt, waits.ask) != (ask.attempt, ask.ask)
        }
        Outcome::Admit(AdmitOutcome::Admitted(_))
        | Outcome::Admit(AdmitOutcome::Rejected(
            Rejected::NeverFits { .. } | Rejected::Deadline { .. } | Rejected::QueueFull { .. },
        ))
        | Outcome::Cancel(CancelOutcome::PlaceDropped | CancelOutcome::GrantRefunded) => true,
        Outcome::Admit(AdmitOutcome::Rejected(Rejected::IdConflict | Rejected::Stale))
        | Outcome::Cancel(CancelOutcome::Nothing | CancelOutcome::Stale)
        | Outcome::Release(_)
        | Outcome::Extend(_)
        | Outcome::Report(_)
        | Outcome::Unwoken
        | Outcome::Policy(_)
        | Outcome::Seeded
        | Outcome::Refused(_) => false,
    }
}

/// How a session is told.
pub trait Waker: Send + Sync {
    /// The call of that attempt should ask again, at a random moment within `spread`. Must not block.
    fn wake(&self, attempt: u64, spread: Duration);
}

/// The waiters of one node. Cheap to clone.
#[derive(Clone, Default)]
pub struct Wakes {
    registry: Arc<Mutex<Registry>>,
    /// Told when somebody waits again.
    waiting: Arc<Notify>,
    /// Told when somebody was lost.
    losing: Arc<Notify>,
}

#[derive(Default)]
struct Registry {
    waiters: BTreeMap<Seat, Waiter>,
    /// The seat of each of them: an admission has one.
    seats: BTreeMap<Name, Seat>,
    /// How many of them were told and have not asked since.
    called: usize,
    /// Who can be told no more, at most [`WAKES_MAX`].
    lost: VecDeque<(ShardId, Box<AskName>)>,
    sessions: BTreeMap<u64, Session>,
    next_session: u64,
}

struct Waiter {
    session: u64,
    /// The ask that waits.
    unwake: Box<AskName>,
    since: Instant,
    /// It was told, and stays until it asks: should its session end first, it never will.
    called: bool,
}

struct Session {
    waker: Arc<dyn Waker>,
    /// Its waiters, by attempt: one seat each, unless a client gave one name to several calls.
    waiting: BTreeMap<u64, BTreeSet<Seat>>,
}

impl Registry {
    /// Forgets a waiter, and tells whom to wake if it was not told yet.
    fn take(&mut self, seat: &Seat) -> Option<(Arc<dyn Waker>, u64)> {
        let waiter = self.remove(seat)?;
        let attempt = waiter.unwake.attempt;
        let session = self.sessions.get_mut(&waiter.session)?;
        if let Some(seats) = session.waiting.get_mut(&attempt) {
            seats.remove(seat);
            if seats.is_empty() {
                session.waiting.remove(&attempt);
            }
        }
        (!waiter.called).then(|| (session.waker.clone(), attempt))
    }

    fn remove(&mut self, seat: &Seat) -> Option<Waiter> {
        let waiter = self.waiters.remove(seat)?;
        self.seats.remove(&Name::of(&waiter.unwake));
        self.called -= usize::from(waiter.called);
        Some(waiter)
    }

    /// Tells whom to wake, if the waiter rested and was not told yet.
    fn call(&mut self, seat: &Seat, rested: Option<Instant>) -> Option<(Arc<dyn Waker>, u64)> {
        let waiter = self.waiters.get_mut(seat)?;
        if waiter.called || rested.is_some_and(|at| waiter.since > at) {
            return None;
        }
        let session = self.sessions.get(&waiter.session)?;
        waiter.called = true;
        self.called += 1;
        Some((session.waker.clone(), waiter.unwake.attempt))
    }

    /// A waiter can be told no more. One that does not fit comes back late, no worse.
    fn lose(&mut self, shard: ShardId, unwake: Box<AskName>) {
        if self.lost.len() < WAKES_MAX {
            self.lost.push_back((shard, unwake));
        }
    }

    /// The first line with waiters after another one, in order.
    fn next_line(&self, after: Option<&Line>) -> Option<&Line> {
        use std::ops::Bound::{Excluded, Unbounded};
        let last = after.map(|line| Seat {
            line: line.clone(),
            ticket: u64::MAX,
        });
        let from = last.as_ref().map_or(Unbounded, Excluded);
        let next = self.waiters.range((from, Unbounded)).next();
        next.map(|(seat, _)| &seat.line)
    }
}

impl Wakes {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        // A poisoned registry is still whole: no code that can panic runs while it is held.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn of these tickets is near: tells those who wait with them, once. Who came a moment ago was
    /// just told to wait, and rests a little before it asks again.
    pub fn due(&self, line: &Line, tickets: &[u64]) {
        let rested = Instant::now().checked_sub(WAKE_REST);
        let mut woken = Vec::new();
        {
            let mut registry = self.registry();
            for ticket in tickets {
                let seat = Seat {
                    line: line.clone(),
                    ticket: *ticket,
                };
                woken.extend(registry.call(&seat, rested));
            }
        }
        for (waker, attempt) in woken {
            waker.wake(attempt, Duration::ZERO);
        }
    }

    /// True if anybody waits here, told or not.
    pub fn anybody(&self) -> bool {
        !self.registry().waiters.is_empty()
    }

    /// An ask or a cancel had its outcome. Whoever waits for the same admission, perhaps in another session, is
    /// forgotten if that was the end of its wait.
    pub fn decided(&self, ask: &AskName, outcome: &Outcome) {
        let mut registry = self.registry();
        let Some(seat) = registry.seats.get(&Name::of(ask)).cloned() else {
            return;
        };
        let waiter = registry.waiters.get(&seat);
        if waiter.is_some_and(|waiter| ends_wait(&waiter.unwake, ask, outcome)) {
            registry.take(&seat);
        }
    }

    /// Lines with waiters, at most `most`, from the one after `after` on and round again.
    fn lines(&self, after: Option<Line>, most: usize) -> Vec<Line> {
        let registry = self.registry();
        let mut lines: Vec<Line> = Vec::new();
        let mut from = after.as_ref();
        let mut turned = false;
        while lines.len() < most {
            match registry.next_line(from) {
                Some(next) if lines.first() == Some(next) => break,
                Some(next) => {
                    lines.push(next.clone());
                    from = Some(next);
                }
                None if turned => break,
                None => (from, turned) = (None, true),
            }
        }
        lines
    }

    /// Tells waiters of their turn, for as long as the node runs.
    pub async fn watch(self, shards: Shards) {
        let mut last = None;
        loop {
            if self.waiting() == 0 {
                self.waiting.notified().await;
            }
            tokio::time::sleep(WAKE_INTERVAL).await;
            for line in self.lines(last.take(), WAKE_LINES_MAX) {
                let group = shards.groups().group(line.shard);
                if let Some(near) = group.and_then(|group| group.near(&line.target, WAKE_NEAR_MAX))
                {
                    self.due(&line, &near);
                }
                last = Some(line);
            }
        }
    }

    /// Tells the rules of waiters that can be told no more, for as long as the node runs.
    pub async fn give_up_lost(self, shards: Shards) {
        loop {
            self.losing.notified().await;
            while let Some((shard, operations)) = self.next_lost() {
                // Who leads the shard now knows nothing of them; whoever lives asks there.
                let Err(refused) = shards.enqueue(shard, operations, None) else {
                    continue;
                };
                if matches!(refused.error, SubmitError::Overloaded { .. }) {
                    self.lost_again(shard, refused.operations);
                    tokio::time::sleep(LOST_AGAIN).await;
                }
            }
        }
    }

    /// Some waiters of one shard that were lost.
    fn next_lost(&self) -> Option<(ShardId, Vec<Operation>)> {
        let mut registry = self.registry();
        let shard = registry.lost.front()?.0;
        let mut operations = Vec::new();
        while operations.len() < LOST_AT_ONCE
            && let Some((_, unwake)) = registry.lost.pop_front_if(|(of, _)| *of == shard)
        {
            operations.push(Operation::Unwake(unwake));
        }
        Some((shard, operations))
    }

    fn lost_again(&self, shard: ShardId, operations: Vec<Operation>) {
        let mut registry = self.registry();
        for operation in operations {
            if let Operation::Unwake(unwake) = operation {
                registry.lose(shard, unwake);
            }
        }
    }

    /// The shard is no longer led here: its waiters hear nothing more and should ask its new leader.
    pub fn moved(&self, shard: ShardId) {
        let woken: Vec<_> = {
            let mut registry = self.registry();
            let waiting = registry.waiters.keys();
            let seats: Vec<Seat> = waiting
                .filter(|seat| seat.line.shard == shard)
                .cloned()
                .collect();
            seats
                .iter()
                .filter_map(|seat| registry.take(seat))
                .collect()
        };
        for (waker, attempt) in woken {
            waker.wake(attempt, WAKE_SPREAD);
        }
    }

    /// A session that can have waiters until it is dropped.
    pub fn session(&self, waker: Arc<dyn Waker>) -> Waiters {
        let mut registry = self.registry();
        let id = registry.next_session;
        registry.next_session += 1;
        registry.sessions.insert(
            id,
            Session {
                waker,
                waiting: BTreeMap::new(),
            },
        );
        drop(registry);
        Waiters {
            wakes: self.clone(),
            session: id,
        }
    }

    /// Waiters of all sessions that were not told yet.
    pub fn waiting(&self) -> usize {
        let registry = self.registry();
        registry.waiters.len() - registry.called
    }

    /// Sends waiters on whenever this node stops leading their shard, until the groups are gone.
    pub async fn follow(self, shards: Shards) {
        let own = shards.identity().node;
        let each = shards.groups().all().map(|group| {
            let (wakes, shard) = (self.clone(), group.shard());
            let mut leadership = group.leadership();
            async move {
                let mut leads = false;
                loop {
                    let leader = leadership.borrow_and_update().leader;
                    if std::mem::replace(&mut leads, leader == Some(own)) && !leads {
                        wakes.moved(shard);
                    }
                    if leadership.changed().await.is_err() {
                        return;
                    }
                }
            }
        });
        futures::future::join_all(each).await;
    }
}

impl fmt::Debug for Wakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakes")
            .field("waiting", &self.waiting())
            .finish()
    }
}

/// The waiters of one session. Dropping it gives them up.
#[derive(Debug)]
pub struct Waiters {
    wakes: Wakes,
    session: u64,
}

impl Waiters {
    /// A call was deferred and waits with that ticket: tell the attempt of its ask when its turn is near.
    /// One that does not fit is never told, and given up at once.
    pub fn wait(&self, seat: Seat, unwake: Box<AskName>) {
        let mut registry = self.wakes.registry();
        // Whoever asked last for an admission is the one who waits for it.
        let name = Name::of(&unwake);
        let before = registry.seats.get(&name).cloned();
        for seat in before.iter().chain([&seat]) {
            registry.take(seat);
        }
        if registry.waiters.len() >= WAKES_MAX {
            registry.lose(seat.line.shard, unwake);
            drop(registry);
            self.wakes.losing.notify_one();
            return;
        }
        let Some(session) = registry.sessions.get_mut(&self.session) else {
            return;
        };
        let seats = session.waiting.entry(unwake.attempt).or_default();
        seats.insert(seat.clone());
        let waiter = Waiter {
            session: self.session,
            unwake,
            since: Instant::now(),
            called: false,
        };
        registry.seats.insert(name, seat.clone());
        registry.waiters.insert(seat, waiter);
        drop(registry);
        self.wakes.waiting.notify_one();
    }

    /// An ask that does not wait, or a cancel, had its outcome: its attempt waits no longer in this session, and
    /// nobody elsewhere whose wait it ended.
    pub fn end(&self, ask: &AskName, outcome: &Outcome) {
        self.wakes.decided(ask, outcome);
        if !matches!(outcome, Outcome::Admit(AdmitOutcome::Deferred(_))) {
            self.done(ask.attempt);
        }
    }

    /// The attempt waits no longer.
    fn done(&self, attempt: u64) {
        let mut registry = self.wakes.registry();
        let session = registry.sessions.get(&self.session);
        let seats = session.and_then(|session| session.waiting.get(&attempt));
        let seats = seats.cloned().unwrap_or_default();
        for seat in seats {
            registry.take(&seat);
        }
    }

    /// True if nobody waits, not even for what it was told of to be asked for.
    pub fn is_empty(&self) -> bool {
        let registry = self.wakes.registry();
        let session = registry.sessions.get(&self.session);
        session.is_none_or(|session| session.waiting.is_empty())
    }

    /// How many wait to be told.
    pub fn count(&self) -> usize {
        let registry = self.wakes.registry();
        let session = registry.sessions.get(&self.session);
        let seats = session
            .into_iter()
            .flat_map(|session| session.waiting.values().flatten());
        let waiters = seats.filter_map(|seat| registry.waiters.get(seat));
        waiters.filter(|waiter| !waiter.called).count()
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        let mut registry = self.wakes.registry();
        if let Some(session) = registry.sessions.remove(&self.session) {
            for seat in session.waiting.into_values().flatten() {
                if let Some(waiter) = registry.remove(&seat) {
                    registry.lose(seat.line.shard, waiter.unwake);
                }
            }
        }
        drop(registry);
        self.wakes.losing.notify_one();
    }
}

#[cfg(test)]
mod tests;
