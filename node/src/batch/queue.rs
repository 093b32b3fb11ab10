//! The bounded queue in front of the log.

use super::size::stored_bytes;
use super::{Answer, Refused, SubmitError};
use crate::limits::{
    ENTRY_BYTES_MAX, ENTRY_OPERATIONS_MAX, QUEUE_BYTES_MAX, QUEUE_BYTES_RESERVED,
    QUEUE_CROWDED_AFTER, QUEUE_CROWDED_OPERATIONS, QUEUE_OPERATIONS_MAX, QUEUE_OPERATIONS_RESERVED,
    QUEUE_WAIT_MAX, RETRY_HINT_MAX, RETRY_HINT_MIN,
};
use crate::road;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;
use weir_admission::Operation;

/// Operations of one caller that go into one entry and share one answer.
#[derive(Debug)]
pub(super) struct Submission {
    operations: Vec<Operation>,
    deadline: Option<Instant>,
    pub(super) since: Instant,
    bytes: usize,
    /// True if every operation gives capacity back.
    gives_back: bool,
    answer: oneshot::Sender<Answer>,
    /// The span in which it came in, and that of its wait here.
    receive: Span,
    _batch: Span,
}

/// What is left of a submission once its operations are in the log.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) operations: usize,
    deadline: Option<Instant>,
    /// `None` once answered.
    answer: Option<oneshot::Sender<Answer>>,
}

impl Waiter {
    /// Answers, if that did not happen yet. A caller that went away misses it.
    pub(super) fn answer(&mut self, answer: Answer) {
        if let Some(sender) = self.answer.take() {
            let _ = sender.send(answer);
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.answer.is_some()
    }

    pub(super) fn is_past(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl Submission {
    pub(super) fn new(
        operations: Vec<Operation>,
        deadline: Option<Instant>,
        answer: oneshot::Sender<Answer>,
        since: Instant,
    ) -> Submission {
        let bytes = operations.iter().map(stored_bytes).sum();
        let gives_back = operations.iter().all(gives_back);
        let batch = road::batch(operations.len());
        Submission {
            operations,
            deadline,
            since,
            bytes,
            gives_back,
            answer,
            receive: Span::current(),
            _batch: batch,
        }
    }

    /// Answers without proposing.
    pub(super) fn refuse(self, error: SubmitError) {
        let _ = self.answer.send(Err(error));
    }

    /// Parts the operations from who waits for their outcomes, and tells the span in which they came in.
    pub(super) fn split(self) -> (Vec<Operation>, Waiter, Span) {
        let waiter = Waiter {
            operations: self.operations.len(),
            deadline: self.deadline,
            answer: Some(self.answer),
        };
        (self.operations, waiter, self.receive)
    }

    fn given_back(self, error: SubmitError) -> Refused {
        Refused {
            error,
            operations: self.operations,
        }
    }

    pub(super) fn is_past(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// True if it waited too long: an ask since it came, what gives capacity back since an entry last
    /// landed, so that it is dropped only if nothing moves.
    pub(super) fn is_stuck(&self, now: Instant, progress: Instant) -> bool {
        let since = if self.gives_back {
            self.since.max(progress)
        } else {
            self.since
        };
        now - since >= QUEUE_WAIT_MAX
    }

    /// True if nobody waits and nothing is lost by forgetting it.
    pub(super) fn is_abandoned(&self) -> bool {
        self.answer.is_closed() && !self.gives_back
    }
}

/// True for operations that free capacity or tell of use: they get through when asks do not.
pub(crate) fn gives_back(operation: &Operation) -> bool {
    match operation {
        Operation::Release(_)
        | Operation::Cancel(_)
        | Operation::Extend(_)
        | Operation::Unwake(_)
        | Operation::Report(_) => true,
        Operation::Admit(_)
        | Operation::PutPolicy(_)
        | Operation::DeletePolicy(_)
        | Operation::Seed(_) => false,
    }
}

/// Submissions in order, never more than the bounds in [`crate::limits`].
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Submission>,
    operations: usize,
    bytes: usize,
    closed: bool,
    /// Since when more has waited than fills the entries in flight, if it has not gone since.
    crowded_since: Option<Instant>,
    /// How long one entry takes now, as far as known.
    entry_time: Duration,
    /// Operations that were accepted and refused lately.
    accepted: u64,
    refused: u64,
}

impl Queue {
    /// Accepts a submission, or gives its operations back because there is no room.
    pub(super) fn push(&mut self, submission: Submission) -> Result<(), Refused> {
        if self.closed {
            return Err(submission.given_back(SubmitError::Stopped));
        }
        let (operations_max, bytes_max) = if submission.gives_back {
            (QUEUE_OPERATIONS_MAX, QUEUE_BYTES_MAX)
        } else if self.is_crowded(submission.since) {
            (
                QUEUE_CROWDED_OPERATIONS,
                QUEUE_BYTES_MAX - QUEUE_BYTES_RESERVED,
            )
        } else {
            (
                QUEUE_OPERATIONS_MAX - QUEUE_OPERATIONS_RESERVED,
                QUEUE_BYTES_MAX - QUEUE_BYTES_RESERVED,
            )
        };
        let more = submission.operations.len();
        let operations = self.operations + more;
        let bytes = self.bytes + submission.bytes;
        if operations > operations_max || bytes > bytes_max {
            self.refused += more as u64;
            let retry_in = self.retry_in();
            return Err(submission.given_back(SubmitError::Overloaded { retry_in }));
        }
        if operations > QUEUE_CROWDED_OPERATIONS {
            self.crowded_since.get_or_insert(submission.since);
        }
        self.accepted += more as u64;
        self.operations = operations;
        self.bytes = bytes;
        self.waiting.push_back(submission);
        Ok(())
    }

    /// True if what waits is no burst, but more than the log takes: to let it grow would only make everybody
    /// wait longer.
    fn is_crowded(&self, now: Instant) -> bool {
        let since = self.crowded_since;
        since.is_some_and(|since| now.saturating_duration_since(since) >= QUEUE_CROWDED_AFTER)
    }

    /// When half of what waits now will have gone, and as many times later as there are more who come than who
    /// find room.
    fn retry_in(&self) -> Duration {
        let entries = self.operations.div_ceil(ENTRY_OPERATIONS_MAX).div_ceil(2) as u64;
        let times = 1 + self.refused / self.accepted.max(1);
        let entries = u32::try_from(entries.saturating_mul(times)).unwrap_or(u32::MAX);
        self.entry_time
            .saturating_mul(entries)
            .clamp(RETRY_HINT_MIN, RETRY_HINT_MAX)
    }

    /// Tells how long the last entry took from propose to commit.
    pub(super) fn observe(&mut self, entry_time: Duration) {
        self.entry_time = (self.entry_time * 7 + entry_time) / 8;
        // What is lately fades with each entry.
        self.accepted -= self.accepted.div_ceil(8);
        self.refused -= self.refused.div_ceil(8);
    }

    /// Takes the submissions of the next entry: the oldest that fit together, at least one.
    pub(super) fn cut(&mut self) -> Vec<Submission> {
        let (mut operations, mut bytes) = (0, 0);
        let mut count = 0;
        for submission in &self.waiting {
            operations += submission.operations.len();
            bytes += submission.bytes;
            if count > 0 && (operations > ENTRY_OPERATIONS_MAX || bytes > ENTRY_BYTES_MAX) {
                break;
            }
            count += 1;
        }
        let taken: Vec<Submission> = self.waiting.drain(..count).collect();
        self.forget(&taken);
        taken
    }

    /// Takes every submission for which `leaves` holds, in order.
    pub(super) fn take(&mut self, leaves: impl Fn(&Submission) -> bool) -> Vec<Submission> {
        if !self.waiting.iter().any(&leaves) {
            return Vec::new();
        }
        let (taken, kept): (Vec<_>, Vec<_>) = self.waiting.drain(..).partition(|s| leaves(s));
        self.waiting.extend(kept);
        self.forget(&taken);
        taken
    }

    fn forget(&mut self, taken: &[Submission]) {
        for submission in taken {
            self.operations -= submission.operations.len();
            self.bytes -= submission.bytes;
        }
        if self.operations <= ENTRY_OPERATIONS_MAX {
            self.crowded_since = None;
        }
    }

    /// True if what waits fills an entry.
    pub(super) fn has_full_entry(&self) -> bool {
        self.operations >= ENTRY_OPERATIONS_MAX || self.bytes >= ENTRY_BYTES_MAX
    }

    pub(super) fn operations(&self) -> usize {
        self.operations
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}
