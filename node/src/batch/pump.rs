//! The loop that turns the queue into entries and entries into answers.

use super::queue::{Submission, Waiter};
use super::{Propose, Shared, SubmitError};
use crate::limits::{
    COMMIT_WAIT_MAX, ENTRIES_IN_FLIGHT_MAX, ENTRY_OPERATIONS_WORTH, ENTRY_PATIENCE, QUEUE_WAIT_MAX,
    SWEEP_INTERVAL,
};
use crate::metrics::BatchMetrics;
use crate::road;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;
use tracing::{Instrument, Span};
use weir_admission::Operation;
use weir_raft::{Committed, ProposeError};

/// An entry on its way, and those who wait for it.
struct Flight {
    since: Instant,
    waiters: Vec<Waiter>,
    /// What is being done: the entry is proposed, or applied.
    span: Span,
}

impl Flight {
    fn is_awaited(&self) -> bool {
        self.waiters.iter().any(Waiter::is_waiting)
    }

    /// Tells those who waited long enough that the outcome is unknown.
    fn sweep(&mut self, now: Instant) {
        let stuck = now - self.since >= COMMIT_WAIT_MAX;
        for waiter in self.waiters.iter_mut().filter(|w| stuck || w.is_past(now)) {
            waiter.answer(Err(SubmitError::Unknown));
        }
    }

    fn refuse(self, error: &SubmitError) {
        for mut waiter in self.waiters {
            waiter.answer(Err(error.clone()));
        }
    }
}

/// An entry that is handed to the log. One at a time, so that the order is kept.
struct Handing<T> {
    flight: Flight,
    taken: BoxFuture<'static, Result<T, ProposeError>>,
}

/// What became of an entry.
type Landed = (u64, Result<Committed, ProposeError>);

pub(super) struct Pump<P: Propose> {
    proposer: Arc<P>,
    shared: Arc<Shared>,
    metrics: BatchMetrics,
    handing: Option<Handing<P::Pending>>,
    flights: BTreeMap<u64, Flight>,
    landings: FuturesUnordered<BoxFuture<'static, Landed>>,
    /// Number of the next flight.
    next: u64,
    /// When waiting operations are next held against their deadlines.
    next_sweep: Instant,
    /// When an entry last landed.
    progress: Instant,
}

impl<P: Propose> Pump<P> {
    pub(super) fn new(proposer: P, shared: Arc<Shared>, metrics: BatchMetrics) -> Pump<P> {
        Pump {
            proposer: Arc::new(proposer),
            shared,
            metrics,
            handing: None,
            flights: BTreeMap::new(),
            landings: FuturesUnordered::new(),
            next: 0,
            next_sweep: Instant::now(),
            progress: Instant::now(),
        }
    }

    /// Works until the queue is closed and empty and everybody was answered.
    pub(super) async fn run(mut self) {
        loop {
            let now = Instant::now();
            if now >= self.next_sweep {
                self.sweep(now);
            }
            while self.may_go(now) {
                self.go(now);
            }
            let (queued, closed) = {
                let queue = self.shared.queue();
                (!queue.is_empty(), queue.is_closed())
            };
            if closed && !queued && !self.all_flights().any(|flight| flight.is_awaited()) {
                return;
            }
            let busy = queued || self.handing.is_some() || !self.flights.is_empty();
            tokio::select! {
                biased;
                taken = taken(&mut self.handing) => self.taken(taken),
                Some(landed) = self.landings.next(), if !self.landings.is_empty() => {
                    self.land(landed);
                }
                () = self.shared.changed.notified() => {}
                () = tokio::time::sleep_until(self.next_sweep), if busy => {}
            }
        }
    }

    fn all_flights(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.handing
            .iter_mut()
            .map(|handing| &mut handing.flight)
            .chain(self.flights.values_mut())
    }

    /// True if the next entry should leave now.
    fn may_go(&self, now: Instant) -> bool {
        let queue = self.shared.queue();
        if queue.is_empty() || self.handing.is_some() || self.flights.len() >= ENTRIES_IN_FLIGHT_MAX
        {
            return false;
        }
        let held_back = self
            .flights
            .values()
            .any(|flight| now - flight.since < ENTRY_PATIENCE);
        !held_back || queue.operations() >= ENTRY_OPERATIONS_WORTH || queue.has_full_entry()
    }

    /// Hands the next entry to the log.
    fn go(&mut self, now: Instant) {
        let mut batch: Vec<Operation> = Vec::new();
        let mut waiters = Vec::new();
        let mut carried = Vec::new();
        let cut = self.shared.queue().cut();
        self.shared.room.notify_waiters();
        for submission in cut {
            if submission.is_past(now) {
                submission.refuse(SubmitError::Expired);
            } else if !submission.is_abandoned() {
                let (operations, waiter, receive) = submission.split();
                batch.extend(operations);
                waiters.push(waiter);
                if !receive.is_none() {
                    carried.push(receive);
                }
            }
        }
        if batch.is_empty() {
            return;
        }
        self.metrics.entry(batch.len());
        let proposer = self.proposer.clone();
        let span = road::propose(&carried, proposer.shard(), batch.len());
        self.handing = Some(Handing {
            flight: Flight {
                since: now,
                waiters,
                span: span.clone(),
            },
            taken: Box::pin(async move { proposer.propose(batch).await }.instrument(span)),
        });
    }

    /// The log took the entry, or refused it.
    fn taken(&mut self, result: Result<P::Pending, ProposeError>) {
        let Some(Handing { mut flight, .. }) = self.handing.take() else {
            return;
        };
        match result {
            Ok(pending) => {
                let number = self.next;
                self.next += 1;
                flight.span = road::apply(&flight.span);
                let landing = async move { (number, pending.await) };
                let landing = landing.instrument(flight.span.clone());
                self.flights.insert(number, flight);
                self.landings.push(Box::pin(landing));
            }
            Err(error) => flight.refuse(&error.into()),
        }
    }

    /// Hands an entry's outcomes to those who wait for them.
    fn land(&mut self, (number, result): Landed) {
        let now = Instant::now();
        let Some(flight) = self.flights.remove(&number) else {
            return;
        };
        let committed = match result {
            Ok(committed) => committed,
            Err(error) => return flight.refuse(&error.into()),
        };
        flight.span.record("index", committed.index);
        self.progress = now;
        self.shared.queue().observe(now - flight.since);
        self.metrics.committed(now - flight.since);
        let expected: usize = flight.waiters.iter().map(|waiter| waiter.operations).sum();
        if committed.outcomes.len() != expected {
            tracing::error!(
                index = committed.index,
                expected,
                outcomes = committed.outcomes.len(),
                "an entry came back with a wrong number of outcomes"
            );
            return flight.refuse(&SubmitError::Unknown);
        }
        let mut outcomes = committed.outcomes.into_iter();
        for mut waiter in flight.waiters {
            let own = outcomes.by_ref().take(waiter.operations).collect();
            waiter.answer(Ok(own));
        }
    }

    /// Drops what waits in vain: past its deadline, given up by its caller, or stuck for too long.
    fn sweep(&mut self, now: Instant) {
        self.next_sweep = now + SWEEP_INTERVAL;
        self.all_flights().for_each(|flight| flight.sweep(now));
        let progress = self.progress;
        let vain = |s: &Submission| s.is_past(now) || s.is_abandoned() || s.is_stuck(now, progress);
        let gone = self.shared.queue().take(vain);
        if !gone.is_empty() {
            self.shared.room.notify_waiters();
        }
        for submission in gone {
            let error = if submission.is_past(now) {
                SubmitError::Expired
            } else if now - progress >= QUEUE_WAIT_MAX {
                // Not one entry landed in all that time.
                SubmitError::NoQuorum
            } else {
                SubmitError::Overloaded {
                    retry_in: QUEUE_WAIT_MAX,
                }
            };
            submission.refuse(error);
        }
    }
}

/// Resolves when the log took or refused the entry that is being handed to it.
async fn taken<T>(handing: &mut Option<Handing<T>>) -> Result<T, ProposeError> {
    match handing {
        Some(handing) => (&mut handing.taken).await,
        None => std::future::pending().await,
    }
}
