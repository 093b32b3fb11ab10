//! What a proposed batch comes to.

use crate::NodeId;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
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

/// Why a batch has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another node leads, or none that we know. Nothing happened.
    #[error("not the leader of this shard")]
    NotLeader {
        /// Who leads, as far as we know.
        leader: Option<NodeId>,
    },
    /// We led, but lost touch with the quorum before the batch entered the log. Nothing happened.
    #[error("no quorum")]
    NoQuorum,
    /// The batch entered the log, but its outcome is not known here.
    #[error("outcome unknown")]
    Unknown,
    /// More is in flight than a group takes. Nothing happened.
    #[error("too much in flight")]
    Overloaded,
    /// The batch is empty or larger than an entry may be. Nothing happened.
    #[error("a batch of this size cannot be an entry")]
    BatchSize,
    /// The node stops. Nothing happened.
    #[error("node is stopping")]
    Stopped,
}

/// A batch on its way; resolves once it is applied here, or surely will not be answered.
pub struct Pending {
    inner: Pin<Box<dyn Future<Output = Result<Committed, ProposeError>> + Send>>,
}

impl Pending {
    pub(crate) fn new(
        inner: impl Future<Output = Result<Committed, ProposeError>> + Send + 'static,
    ) -> Self {
        Self {
            inner: Box::pin(inner),
        }
    }
}

impl Future for Pending {
    type Output = Result<Committed, ProposeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.as_mut().poll(cx)
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}
