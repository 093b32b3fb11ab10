//! What a proposed batch comes to.

use crate::NodeId;
use crate::types::{ForwardToLeader, WriteError, WriteResult};
use openraft::errors::ForwardReason;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Sleep;
use weir_admission::{Outcome, Stamp};

/// What one committed batch came to.
#[derive(Debug)]
pub struct Committed {
    /// Index of its log entry: with the offset, the name of each grant in it.
    pub index: u64,
    /// The entry's stamp.
    pub stamp: Stamp,
    /// One outcome per operation.
    pub outcomes: Vec<Outcome>,
}

/// Why a batch has no outcome, or a read no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another node leads, or none that we know. Nothing happened.
    #[error("not the leader of this shard")]
    NotLeader {
        /// Who leads, as far as we know.
        leader: Option<NodeId>,
    },
    /// We lead, but are out of touch with the quorum; the batch did not enter the log. Nothing happened.
    #[error("no quorum")]
    NoQuorum,
    /// The batch may have entered the log; its outcome is not known here.
    #[error("outcome unknown")]
    Unknown,
    /// More is in flight than a group takes. Nothing happened.
    #[error("too much in flight")]
    Overloaded,
    /// The batch cannot be a log entry: it is empty, has too many operations or bytes, or holds one that
    /// no replica would read. Nothing happened.
    #[error("not a batch: {0}")]
    NotABatch(String),
    /// The node stops. Nothing happened.
    #[error("node is stopping")]
    Stopped,
}

impl From<ForwardToLeader> for ProposeError {
    fn from(forward: ForwardToLeader) -> Self {
        match forward.reason {
            ForwardReason::LeaseExpired => ProposeError::NoQuorum,
            // The node that is to lead next does not lead yet, but asking it is the right thing to do.
            ForwardReason::NotLeader | ForwardReason::LeadershipTransfer => {
                ProposeError::NotLeader {
                    leader: forward.leader_id.map(NodeId),
                }
            }
        }
    }
}

/// A batch on its way. Resolves when it is applied here, when it surely will not be, or, with
/// [`ProposeError::Unknown`], when that is not known in time. Dropping it changes nothing.
#[derive(Debug)]
pub struct Pending {
    result: oneshot::Receiver<WriteResult>,
    deadline: Pin<Box<Sleep>>,
}

impl Pending {
    pub(crate) fn new(result: oneshot::Receiver<WriteResult>, within: Duration) -> Self {
        Self {
            result,
            deadline: Box::pin(tokio::time::sleep(within)),
        }
    }
}

impl Future for Pending {
    type Output = Result<Committed, ProposeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(result) = Pin::new(&mut self.result).poll(cx) {
            // A reply that was dropped: the group's core ended with the batch in its hands.
            return Poll::Ready(result.map_or(Err(ProposeError::Unknown), committed));
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(ProposeError::Unknown))
    }
}

fn committed(result: WriteResult) -> Result<Committed, ProposeError> {
    match result {
        Ok(response) => Ok(Committed {
            index: response.log_id.index,
            stamp: response.data.stamp,
            outcomes: response.data.outcomes,
        }),
        Err(WriteError::ForwardToLeader(forward)) => Err(forward.into()),
        // Another leader's log replaced ours; the entry may be in that log all the same.
        Err(WriteError::LogEntryDiscarded(_)) => Err(ProposeError::Unknown),
        // Neither is an answer to a batch.
        Err(WriteError::ChangeMembershipError(_) | WriteError::PreconditionFailed(_)) => {
            Err(ProposeError::Unknown)
        }
    }
}
