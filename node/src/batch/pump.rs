//! The loop that turns the queue into entries and entries into answers.

use super::queue::{Submission, Waiter};
use super::{Propose, Shared, SubmitError};
use crate::limits::{
    COMMIT_WAIT_MAX, ENTRIES_IN_FLIGHT_MAX, ENTRY_OPERATIONS_WORTH, ENTRY_PATIENCE, QUEUE_WAIT_MAX,
    SWEEP_INTERVAL,
};
use crate::metrics::BatchMetrics;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;
use weir_admission::Operation;
use weir_raft::{Committed, ProposeError};

/// An entry on its way.
struct Flight {
    since: Instant,
    waiters: Vec<Waiter>,
}

impl Flight {
    fn is_awaited(&self) -> bool {
        self.waiters.iter().any(Waiter::is_waiting)
    }
}

/// What became of an entry.
type Landed = (u64, Result<Committed, ProposeError>);

pub(super) struct Pump<P: Propose> {
    proposer: P,
    shared: Arc<Shared>,
    metrics: BatchMetrics,
    flights: BTreeMap<u64, Flight>,
    landings: FuturesUnordered<BoxFuture<'static, Landed>>,
    /// Number of the next flight.
    next: u64,
    /// When an entry last landed.
    progress: Instant,
}

impl<P: Propose> Pump<P> {
    pub(super) fn new(proposer: P, shared: Arc<Shared>, metrics: BatchMetrics) -> Pump<P> {
        Pump {
            proposer,
            shared,
            metrics,
            flights: BTreeMap::new(),
            landings: FuturesUnordered::new(),
            next: 0,
            progress: Instant::now(),
        }
    }

    /// Works until the queue is closed and empty and every entry has landed or was given up.
    pub(super) async fn run(mut self) {
        loop {
            let now = Instant::now();
            self.sweep_queue(now);
            self.sweep_flights(now);
            while self.may_go(Instant::now()) {
                self.go().await;
            }
            let (queued, closed) = {
                let queue = self.shared.queue();
                (!queue.is_empty(), queue.is_closed())
            };
            let awaited = self.flights.values().any(Flight::is_awaited);
            if closed && !queued && !awaited {
                return;
            }
            tokio::select! {
                biased;
                Some(landed) = self.landings.next(), if !self.landings.is_empty() => self.land(landed),
                () = self.shared.changed.notified() => {}
                () = tokio::time::sleep(SWEEP_INTERVAL), if queued || awaited => {}
            }
        }
    }

    /// True if the next entry should leave now.
    fn may_go(&self, now: Instant) -> bool {
        let queue = self.shared.queue();
        if queue.is_empty() || self.flights.len() >= ENTRIES_IN_FLIGHT_MAX {
            return false;
        }
        let held_back = self
            .flights
            .values()
            .any(|flight| now - flight.since < ENTRY_PATIENCE);
        !held_back || queue.operations() >= ENTRY_OPERATIONS_WORTH || queue.has_full_entry()
    }

    /// Sends the next entry off.
    async fn go(&mut self) {
        let now = Instant::now();
        let submissions = self.shared.queue().cut();
        let mut batch: Vec<Operation> = Vec::new();
        let mut waiters = Vec::with_capacity(submissions.len());
        for submission in submissions {
            if submission.is_past(now) {
                submission.refuse(SubmitError::Expired);
            } else if !submission.is_abandoned() {
                let (operations, waiter) = submission.split();
                batch.extend(operations);
                waiters.push(waiter);
            }
        }
        if batch.is_empty() {
            return;
        }
        self.metrics.entry(batch.len());
        match self.proposer.propose(batch).await {
            Ok(pending) => {
                let number = self.next;
                self.next += 1;
                self.flights.insert(
                    number,
                    Flight {
                        since: now,
                        waiters,
                    },
                );
                self.landings
                    .push(Box::pin(async move { (number, pending.await) }));
            }
            Err(error) => refuse_all(waiters, &error.into()),
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
            Err(error) => return refuse_all(flight.waiters, &error.into()),
        };
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
            return refuse_all(flight.waiters, &SubmitError::Unknown);
        }
        let mut outcomes = committed.outcomes.into_iter();
        for mut waiter in flight.waiters {
            let own = outcomes.by_ref().take(waiter.operations).collect();
            waiter.answer(Ok(own));
        }
    }

    /// Drops what waits in vain: past its deadline, given up by its caller, or stuck for too long.
    fn sweep_queue(&mut self, now: Instant) {
        let stuck = |s: &Submission| now - s.since >= QUEUE_WAIT_MAX;
        let gone = self
            .shared
            .queue()
            .take(|s| s.is_past(now) || s.is_abandoned() || stuck(s));
        for submission in gone {
            let error = if submission.is_past(now) {
                SubmitError::Expired
            } else if self.progress <= submission.since {
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

    /// Tells those whose entry does not land that its outcome is unknown. The entry keeps its slot.
    fn sweep_flights(&mut self, now: Instant) {
        for flight in self.flights.values_mut() {
            let stuck = now - flight.since >= COMMIT_WAIT_MAX;
            for waiter in flight
                .waiters
                .iter_mut()
                .filter(|w| stuck || w.is_past(now))
            {
                waiter.answer(Err(SubmitError::Unknown));
            }
        }
    }
}

fn refuse_all(waiters: Vec<Waiter>, error: &SubmitError) {
    for mut waiter in waiters {
        waiter.answer(Err(error.clone()));
    }
}
