//! One shard's group as this node sees it.

use crate::{GroupStatus, Leadership, NodeId, Pending, ProposeError, Role, TransferError};
use std::sync::Arc;
use tokio::sync::watch;
use weir_admission::{Operation, ShardId, State};

/// A handle on one shard's group. Cheap to clone.
#[derive(Clone)]
pub struct Group {
    inner: Arc<Inner>,
}

struct Inner {
    shard: ShardId,
    state: State,
    leadership: watch::Sender<Leadership>,
}

impl Group {
    /// The shard.
    pub fn shard(&self) -> ShardId {
        self.inner.shard
    }

    /// Stamps a batch and puts it into the log. The order of calls is the order in the log.
    pub async fn submit(&self, batch: Vec<Operation>) -> Result<Pending, ProposeError> {
        if batch.is_empty() {
            return Err(ProposeError::BatchSize);
        }
        Ok(Pending::new(async { Err(ProposeError::NotLeader { leader: None }) }))
    }

    /// Reads the state as of now: everything that was answered before the call is seen. Leader only.
    pub async fn read<R>(&self, _f: impl FnOnce(&State) -> R) -> Result<R, ProposeError> {
        Err(ProposeError::NotLeader { leader: None })
    }

    /// Reads this node's copy of the state, which may be behind.
    pub fn peek<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        f(&self.inner.state)
    }

    /// Positions, term and roles.
    pub fn status(&self) -> GroupStatus {
        GroupStatus {
            shard: self.inner.shard,
            role: Role::Follower,
            leader: None,
            term: 0,
            last_log_index: 0,
            applied_index: 0,
            snapshot_index: 0,
            purged_index: 0,
            voters: Vec::new(),
            digest: self.inner.state.digest(),
            targets: 0,
        }
    }

    /// Follows who leads.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.leadership.subscribe()
    }

    /// Hands leadership to another voter and waits until it leads.
    pub async fn transfer(&self, _to: NodeId) -> Result<(), TransferError> {
        Err(TransferError::NotLeader { leader: None })
    }
}
