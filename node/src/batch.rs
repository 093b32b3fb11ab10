//! Many operations, one log entry.
//!
//! Each shard has one [`Batcher`]. The first operation goes at once; while entries are on their way the
//! next one fills. The queue is bounded in operations and bytes; a part of it is kept for operations that
//! give capacity back. What does not fit is refused at once, and nothing grows.
//!
//! Promises, whatever happens to the shard:
//! - every submission gets exactly one answer: an ask by [`QUEUE_WAIT_MAX`] plus [`COMMIT_WAIT_MAX`], what
//!   gives capacity back so soon after entries last landed;
//! - submissions enter the log in the order in which they were accepted, each within one entry;
//! - an answer other than [`SubmitError::Unknown`] is definite: it says what happened, or that nothing did.
//!
//! [`QUEUE_WAIT_MAX`]: crate::limits::QUEUE_WAIT_MAX
//! [`COMMIT_WAIT_MAX`]: crate::limits::COMMIT_WAIT_MAX

mod pump;
mod queue;
mod size;
#[cfg(test)]
mod tests;

use self::pump::Pump;
pub(crate) use self::queue::gives_back;
use self::queue::{Queue, Submission};
use crate::limits::{QUEUE_WAIT_MAX, RETRY_HINT_MIN, SUBMISSION_OPERATIONS_MAX};
use crate::metrics::BatchMetrics;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, timeout_at};
use weir_admission::{Operation, Outcome, ShardId};
use weir_raft::{Committed, NodeId, ProposeError};

/// Where batches go: a group, or a stand-in for one.
pub trait Propose: Send + Sync + 'static {
    /// Resolves when the batch's entry is committed and applied, or when that can no longer be known.
    type Pending: Future<Output = Result<Committed, ProposeError>> + Send + 'static;

    /// The shard, for traces.
    fn shard(&self) -> Option<ShardId> {
        None
    }

    /// Puts a batch into the log. Batches enter it in the order of the calls.
    fn propose(
        &self,
        batch: Vec<Operation>,
    ) -> impl Future<Output = Result<Self::Pending, ProposeError>> + Send;
}

/// Why a submission has no outcomes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The queue is full. Nothing happened.
    #[error("overloaded")]
    Overloaded {
        /// When it is worth coming back.
        retry_in: Duration,
    },
    /// The caller's deadline passed before the operations entered the log. Nothing happened.
    #[error("deadline passed before the operation was proposed")]
    Expired,
    /// Another node leads, or none that we know. Nothing happened.
    #[error("not the leader of this shard")]
    NotLeader {
        /// Who leads, as far as we know.
        leader: Option<NodeId>,
    },
    /// No quorum answers the leader. Nothing happened.
    #[error("no quorum")]
    NoQuorum,
    /// The operations entered the log, but what became of them is not known here.
    #[error("outcome unknown")]
    Unknown,
    /// The operations cannot be a log entry, for example because they are too large. Nothing happened.
    #[error("not a log entry: {0}")]
    NotAnEntry(String),
    /// The node stops. Nothing happened.
    #[error("node is stopping")]
    Stopped,
}

impl From<ProposeError> for SubmitError {
    fn from(error: ProposeError) -> SubmitError {
        match error {
            ProposeError::NotLeader { leader } => SubmitError::NotLeader { leader },
            ProposeError::NoQuorum => SubmitError::NoQuorum,
            ProposeError::Unknown => SubmitError::Unknown,
            ProposeError::Overloaded => SubmitError::Overloaded {
                retry_in: RETRY_HINT_MIN,
            },
            ProposeError::NotABatch(why) => SubmitError::NotAnEntry(why),
            ProposeError::Stopped => SubmitError::Stopped,
        }
    }
}

/// A submission that was not accepted. Nothing happened.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub error: SubmitError,
    /// What was submitted.
    pub operations: Vec<Operation>,
}

/// The answer to one submission: one outcome per operation, in order.
pub type Answer = Result<Vec<Outcome>, SubmitError>;

/// Resolves to the answer of one submission.
///
/// Dropping it gives the answer up. Asks that nobody waits for any more are not proposed, because their
/// grants would reach nobody; operations that give capacity back are.
#[derive(Debug)]
pub struct Completion(oneshot::Receiver<Answer>);

impl Future for Completion {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        // The sender is dropped without an answer only if the pump itself was torn down.
        Pin::new(&mut self.0)
            .poll(context)
            .map(|answer| answer.unwrap_or(Err(SubmitError::Unknown)))
    }
}

/// Collects operations of one shard into log entries. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Batcher {
    shared: Arc<Shared>,
    drained: watch::Receiver<bool>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Told of each submission and of the closing.
    changed: Notify,
    /// Told whenever something left the queue, and of the closing.
    room: Notify,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A poisoned queue is still whole: no code that can panic runs while it is held.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batcher {
    /// Starts a batcher that proposes to `proposer` until it is closed. Needs a running tokio runtime.
    pub fn start(proposer: impl Propose, metrics: BatchMetrics) -> Batcher {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::default()),
            changed: Notify::new(),
            room: Notify::new(),
        });
        let (done, drained) = watch::channel(false);
        let pump = Pump::new(proposer, shared.clone(), metrics);
        tokio::spawn(async move {
            pump.run().await;
            done.send_replace(true);
        });
        Batcher { shared, drained }
    }

    /// Accepts operations for one log entry, or refuses them at once.
    ///
    /// `operations` are at most [`SUBMISSION_OPERATIONS_MAX`]; they are applied in order, next to each
    /// other. Submissions of one caller keep their order if they are made one after the other. Once
    /// `deadline` has passed, operations that did not enter the log never will. A submission may use the
    /// reserved part of the queue only if all its operations give capacity back.
    pub fn submit(
        &self,
        operations: Vec<Operation>,
        deadline: Option<Instant>,
    ) -> Result<Completion, SubmitError> {
        self.try_submit(operations, deadline)
            .map_err(|refused| refused.error)
    }

    /// As [`Batcher::submit`], but gives operations back that are not accepted.
    pub fn try_submit(
        &self,
        operations: Vec<Operation>,
        deadline: Option<Instant>,
    ) -> Result<Completion, Refused> {
        debug_assert!(operations.len() <= SUBMISSION_OPERATIONS_MAX);
        let (answer, completion) = oneshot::channel();
        if operations.is_empty() {
            let _ = answer.send(Ok(Vec::new()));
            return Ok(Completion(completion));
        }
        let submission = Submission::new(operations, deadline, answer, Instant::now());
        self.shared.queue().push(submission)?;
        self.shared.changed.notify_one();
        Ok(Completion(completion))
    }

    /// Submits and waits for the answer. Operations that all give capacity back are never refused for want
    /// of room: they wait for it, as long as anything moves.
    pub async fn answer(
        &self,
        mut operations: Vec<Operation>,
        deadline: Option<Instant>,
    ) -> Answer {
        let waits = operations.iter().all(gives_back);
        loop {
            let mut room = pin!(self.shared.room.notified());
            // Before the try, so that no room that comes in between is missed.
            room.as_mut().enable();
            match self.try_submit(operations, deadline) {
                Ok(completion) => return completion.await,
                Err(Refused {
                    error: SubmitError::Overloaded { .. },
                    operations: refused,
                }) if waits => operations = refused,
                Err(refused) => return Err(refused.error),
            }
            let stuck = Instant::now() + QUEUE_WAIT_MAX;
            let until = deadline.map_or(stuck, |deadline| deadline.min(stuck));
            if timeout_at(until, room).await.is_err() {
                let expired = until < stuck;
                return Err(if expired {
                    SubmitError::Expired
                } else {
                    SubmitError::NoQuorum
                });
            }
        }
    }

    /// Operations that wait for their entry.
    pub fn depth(&self) -> usize {
        self.shared.queue().operations()
    }

    /// Accepts nothing more. What was accepted is still answered.
    pub fn close(&self) {
        self.shared.queue().close();
        self.shared.changed.notify_one();
        self.shared.room.notify_waiters();
    }

    /// Resolves when the batcher is closed and everything it accepted is answered.
    pub async fn drained(&self) {
        // An error says that the pump is gone, and with it everything that could still be answered.
        let _ = self.drained.clone().wait_for(|drained| *drained).await;
    }
}
