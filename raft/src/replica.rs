//! This node's copy of one shard: the state, how far it is, and cluster time as seen from here.

use crate::Clock;
use crate::cluster_time::{Anchor, ClusterTime};
use crate::types::{Applied, Entry, LogId, Payload, SnapshotMeta, StoredMembership};
use bytes::Bytes;
use openraft::EntryPayload;
use openraft::entry::RaftEntry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use weir_admission::{Operation, ShardId, Stamp, State};
use weir_proto::stored::{StoredError, decode_batch};

/// One shard's replica. Applied to by the state machine, read by everybody.
pub(crate) struct Replica {
    shard: ShardId,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    /// Held while entries are applied and while a snapshot is encoded, so that applying waits for an
    /// encode by yielding and not by blocking every other group of the thread.
    turn: Arc<tokio::sync::Mutex<()>>,
    anchor: watch::Sender<Option<Anchor>>,
}

struct Inner {
    state: State,
    applied: Option<LogId>,
    membership: StoredMembership,
    time: ClusterTime,
    /// Bytes of batches applied since the last snapshot was encoded.
    unsaved_bytes: u64,
}

impl Replica {
    /// A replica of a new shard.
    pub(crate) fn empty(shard: ShardId, clock: Arc<dyn Clock>) -> Self {
        Self::with(
            shard,
            clock,
            State::default(),
            None,
            StoredMembership::default(),
        )
    }

    /// A replica from a snapshot.
    pub(crate) fn loaded(
        shard: ShardId,
        clock: Arc<dyn Clock>,
        meta: &SnapshotMeta,
        state: &[u8],
    ) -> io::Result<Self> {
        let state = decode_state(shard, state)?;
        let membership = meta.last_membership.clone();
        Ok(Self::with(
            shard,
            clock,
            state,
            meta.last_log_id,
            membership,
        ))
    }

    fn with(
        shard: ShardId,
        clock: Arc<dyn Clock>,
        state: State,
        applied: Option<LogId>,
        membership: StoredMembership,
    ) -> Self {
        let time = ClusterTime::loaded(term_of(applied), state.now(), clock.now());
        let inner = Inner {
            state,
            applied,
            membership,
            time,
            unsaved_bytes: 0,
        };
        Self {
            shard,
            clock,
            inner: Mutex::new(inner),
            turn: Arc::new(tokio::sync::Mutex::new(())),
            anchor: watch::Sender::new(None),
        }
    }

    pub(crate) fn shard(&self) -> ShardId {
        self.shard
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The right to apply entries or to encode a snapshot.
    pub(crate) fn turn(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.turn)
    }

    /// Follows the anchor of the newest term.
    pub(crate) fn anchors(&self) -> watch::Receiver<Option<Anchor>> {
        self.anchor.subscribe()
    }

    /// Position and membership of the last entry applied.
    pub(crate) fn position(&self) -> (Option<LogId>, StoredMembership) {
        let inner = self.lock();
        (inner.applied, inner.membership.clone())
    }

    /// Bytes of batches applied since the last snapshot.
    pub(crate) fn unsaved_bytes(&self) -> u64 {
        self.lock().unsaved_bytes
    }

    /// Reads the state.
    pub(crate) fn peek<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        f(&self.lock().state)
    }

    /// Reads the state together with the index of the last entry applied (0 if none).
    pub(crate) fn peek_at<R>(&self, f: impl FnOnce(u64, &State) -> R) -> R {
        let inner = self.lock();
        f(inner.applied.map_or(0, |id| id.index), &inner.state)
    }

    /// Applies one entry. An entry that cannot be read is an error and changes nothing: going on without
    /// it would let this replica drift from the others.
    pub(crate) fn apply(&self, entry: Entry) -> io::Result<Applied> {
        let id = entry.log_id();
        let batch = match &entry.payload {
            EntryPayload::Normal(batch) => Some((batch.0.len(), self.decode(id.index, &batch.0)?)),
            EntryPayload::Blank | EntryPayload::Membership(_) => None,
        };
        let mut inner = self.lock();
        let anchor_before = inner.time.anchor();
        inner.time.entry(term_of(Some(id)));
        inner.applied = Some(id);
        if let Payload::Membership(membership) = entry.payload {
            inner.membership = StoredMembership::new(Some(id), membership);
        }
        let mut applied = Applied::default();
        if let Some((bytes, (stamp, operations))) = batch {
            applied.outcomes = inner.state.apply(id.index, stamp, &operations);
            applied.stamp = inner.state.now();
            inner.time.stamped(applied.stamp, self.clock.now());
            inner.unsaved_bytes = inner.unsaved_bytes.saturating_add(bytes as u64);
        }
        let anchor = inner.time.anchor();
        drop(inner);
        if anchor != anchor_before {
            self.anchor.send_replace(anchor);
        }
        Ok(applied)
    }

    /// The state's bytes with their position. Call it with the [turn](Self::turn) taken.
    pub(crate) fn encode(&self) -> (SnapshotMeta, Bytes) {
        let mut inner = self.lock();
        let meta = SnapshotMeta {
            last_log_id: inner.applied,
            last_membership: inner.membership.clone(),
        };
        let state = Bytes::from(inner.state.encode());
        inner.unsaved_bytes = 0;
        (meta, state)
    }

    /// Reads a snapshot's state without taking it over yet.
    pub(crate) fn decode_state(&self, state: &[u8]) -> io::Result<State> {
        decode_state(self.shard, state)
    }

    /// Replaces everything by a leader's snapshot. Call it with the [turn](Self::turn) taken.
    pub(crate) fn install(&self, meta: &SnapshotMeta, state: State) {
        let mut inner = self.lock();
        let now = self.clock.now();
        inner.time = ClusterTime::loaded(term_of(meta.last_log_id), state.now(), now);
        inner.state = state;
        inner.applied = meta.last_log_id;
        inner.membership = meta.last_membership.clone();
        inner.unsaved_bytes = 0;
        drop(inner);
        self.anchor.send_replace(None);
    }

    fn decode(&self, index: u64, batch: &[u8]) -> io::Result<(Stamp, Vec<Operation>)> {
        decode_batch(batch).map_err(|error: StoredError| {
            let shard = self.shard.0;
            io::Error::other(format!(
                "entry {index} of shard {shard} cannot be read: {error}"
            ))
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing that holds the lock leaves the state half-changed when it panics, except the rules
        // themselves, and they do not panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn decode_state(shard: ShardId, state: &[u8]) -> io::Result<State> {
    State::decode(state).map_err(|error| {
        io::Error::other(format!(
            "snapshot of shard {} cannot be read: {error}",
            shard.0
        ))
    })
}

fn term_of(id: Option<LogId>) -> u64 {
    id.map_or(0, |id| id.committed_leader_id().term)
}
