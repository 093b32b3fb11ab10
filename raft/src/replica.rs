//! This node's copy of one shard: the state, how far it is, and cluster time as seen from here.

use crate::Clock;
use crate::cluster_time::{Anchor, ClusterTime};
use crate::types::{Applied, Entry, LogId, Payload, SnapshotMeta, StoredMembership};
use openraft::EntryPayload;
use openraft::entry::RaftEntry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};
use weir_admission::{Checkpoint, CheckpointStep, Operation, ShardId, Stamp, State};
use weir_proto::stored::{StoredError, decode_batch};

/// Records of a part of a snapshot: a few tenths of a millisecond.
const PART_RECORDS: usize = 512;

/// One shard's replica. Applied to by the state machine, read by everybody.
pub(crate) struct Replica {
    shard: ShardId,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    /// Held while entries are applied and while a part of a snapshot is taken, so that applying waits for
    /// that by yielding and not by blocking every other group of the thread.
    turn: Arc<tokio::sync::Mutex<()>>,
    anchor: watch::Sender<Option<Anchor>>,
    /// Bytes of batches that may be applied without a snapshot, if it is not larger itself.
    unsaved_bytes_max: u64,
    /// Told when they are reached.
    full: Notify,
}

struct Inner {
    state: State,
    applied: Option<LogId>,
    membership: StoredMembership,
    time: ClusterTime,
    /// Bytes of batches applied since the last snapshot was begun.
    unsaved_bytes: u64,
    /// Bytes of the state in the last snapshot.
    snapshot_bytes: u64,
    /// Position of the checkpoint under way.
    checkpoint: Option<SnapshotMeta>,
}

impl Replica {
    /// A replica as a snapshot has it, or of a new shard. A snapshot is due after each
    /// `unsaved_bytes_max` bytes of batches, or as many as the last one had if they are more: so that snapshots
    /// do not write more than the log.
    pub(crate) fn new(
        shard: ShardId,
        clock: Arc<dyn Clock>,
        unsaved_bytes_max: u64,
        snapshot: Option<(&SnapshotMeta, &[u8])>,
    ) -> io::Result<Self> {
        let snapshot_bytes = snapshot.map_or(0, |(_, state)| state.len() as u64);
        let (state, applied, membership) = match snapshot {
            Some((meta, state)) => {
                let state = decode_state(shard, state)?;
                (state, meta.last_log_id, meta.last_membership.clone())
            }
            None => (State::default(), None, StoredMembership::default()),
        };
        let time = ClusterTime::loaded(term_of(applied), state.now(), clock.now());
        Ok(Self {
            shard,
            clock,
            inner: Mutex::new(Inner {
                state,
                applied,
                membership,
                time,
                unsaved_bytes: 0,
                snapshot_bytes,
                checkpoint: None,
            }),
            turn: Arc::new(tokio::sync::Mutex::new(())),
            anchor: watch::Sender::new(None),
            unsaved_bytes_max,
            full: Notify::new(),
        })
    }

    pub(crate) fn shard(&self) -> ShardId {
        self.shard
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The right to apply entries or to take a part of a snapshot.
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

    /// Resolves when so many bytes of batches were applied that a snapshot is due.
    pub(crate) async fn snapshot_due(&self) {
        self.full.notified().await;
    }

    /// Bytes of batches after which a snapshot is due.
    pub(crate) fn snapshot_due_after(&self) -> u64 {
        self.lock().snapshot_bytes.max(self.unsaved_bytes_max)
    }

    /// Notes how large a snapshot of this replica was.
    pub(crate) fn snapshot_taken(&self, bytes: usize) {
        self.lock().snapshot_bytes = bytes as u64;
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
            let unsaved_before = inner.unsaved_bytes;
            inner.unsaved_bytes = unsaved_before.saturating_add(bytes as u64);
            let most = inner.snapshot_bytes.max(self.unsaved_bytes_max);
            if unsaved_before < most && inner.unsaved_bytes >= most {
                self.full.notify_one();
            }
        }
        let anchor = inner.time.anchor();
        drop(inner);
        if anchor != anchor_before {
            self.anchor.send_replace(anchor);
        }
        Ok(applied)
    }

    /// Begins to take the state as it is now, for a snapshot. Call it with the [turn](Self::turn) taken.
    pub(crate) fn begin_checkpoint(&self) {
        let mut inner = self.lock();
        inner.checkpoint = Some(SnapshotMeta {
            last_log_id: inner.applied,
            last_membership: inner.membership.clone(),
        });
        inner.unsaved_bytes = 0;
        inner.state.begin_checkpoint();
    }

    /// Takes a part of it; with the last one gives all of it, with its position. Call it with the
    /// [turn](Self::turn) taken.
    ///
    /// # Errors
    /// The state was replaced by a leader's snapshot meanwhile.
    pub(crate) fn continue_checkpoint(
        &self,
    ) -> io::Result<Option<(SnapshotMeta, Box<Checkpoint>)>> {
        let mut inner = self.lock();
        let step = inner.state.continue_checkpoint(PART_RECORDS);
        match (step, inner.checkpoint.take()) {
            (CheckpointStep::UnderWay, Some(meta)) => {
                inner.checkpoint = Some(meta);
                Ok(None)
            }
            (CheckpointStep::Done(checkpoint), Some(meta)) => Ok(Some((meta, checkpoint))),
            (CheckpointStep::NotBegun, _) | (_, None) => Err(io::Error::other(
                "another state was installed while a snapshot was taken",
            )),
        }
    }

    /// Reads a snapshot's state without taking it over yet.
    pub(crate) fn decode_state(&self, state: &[u8]) -> io::Result<State> {
        decode_state(self.shard, state)
    }

    /// Replaces everything by a leader's snapshot of so many bytes, and gives back the state as it was. Call
    /// it with the [turn](Self::turn) taken.
    pub(crate) fn install(&self, meta: &SnapshotMeta, state: State, bytes: usize) -> State {
        let mut inner = self.lock();
        let now = self.clock.now();
        inner.time = ClusterTime::loaded(term_of(meta.last_log_id), state.now(), now);
        let replaced = std::mem::replace(&mut inner.state, state);
        inner.applied = meta.last_log_id;
        inner.membership = meta.last_membership.clone();
        inner.unsaved_bytes = 0;
        inner.snapshot_bytes = bytes as u64;
        inner.checkpoint = None;
        drop(inner);
        self.anchor.send_replace(None);
        replaced
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MonotonicClock;
    use crate::types::Batch;
    use bytes::Bytes;
    use weir_admission::{DeletePolicy, TargetName};
    use weir_proto::stored::encode_batch;

    fn replica(unsaved_bytes_max: u64) -> Replica {
        let clock = Arc::new(MonotonicClock::new());
        Replica::new(ShardId(3), clock, unsaved_bytes_max, None).unwrap()
    }

    fn entry(index: u64, batch: Bytes) -> Entry {
        let term = openraft::impls::leader_id_std::LeaderId {
            term: 1,
            voted_for: 1,
        };
        let id = LogId::new(openraft::vote::RaftLeaderId::to_committed(&term), index);
        Entry {
            log_id: id,
            payload: EntryPayload::Normal(Batch(batch)),
        }
    }

    fn batch(stamp_us: u64) -> Bytes {
        let target = TargetName::new("a").unwrap();
        let delete = DeletePolicy {
            target,
            expected_version: None,
        };
        let operations = [Operation::DeletePolicy(delete)];
        encode_batch(Stamp::from_micros(stamp_us), &operations).unwrap()
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_an_error_and_changes_nothing() {
        let replica = replica(u64::MAX);
        replica.apply(entry(1, batch(5))).unwrap();
        let before = (replica.position(), replica.peek(State::digest));
        let whole = batch(9);
        let wrong = [
            Bytes::new(),
            whole.slice(..whole.len() - 1),
            Bytes::from([&whole[..], &[0]].concat()),
            Bytes::from_static(b"\x63what a later version wrote"),
        ];
        for bytes in wrong {
            let error = replica.apply(entry(2, bytes)).unwrap_err().to_string();
            assert!(error.contains("entry 2 of shard 3"), "{error}");
            assert_eq!((replica.position(), replica.peek(State::digest)), before);
        }
        let applied = replica.apply(entry(2, whole)).unwrap();
        assert_eq!(
            (applied.stamp, applied.outcomes.len()),
            (Stamp::from_micros(9), 1)
        );
    }

    #[test]
    fn a_snapshot_that_cannot_be_read_is_refused() {
        let error = replica(1)
            .decode_state(b"nonsense")
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("snapshot of shard 3"), "{error}");
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let meta = SnapshotMeta {
            last_log_id: None,
            last_membership: StoredMembership::default(),
        };
        assert!(Replica::new(ShardId(3), clock, 1, Some((&meta, b"nonsense"))).is_err());
    }

    /// The position, and the bytes as of it, of a snapshot that is taken to its end.
    fn rest(replica: &Replica) -> (Option<LogId>, Vec<u8>) {
        loop {
            if let Some((meta, checkpoint)) = replica.continue_checkpoint().unwrap() {
                return (meta.last_log_id, checkpoint.encode());
            }
        }
    }

    #[test]
    fn a_snapshot_is_of_its_beginning_whatever_is_applied_meanwhile() {
        let replica = replica(u64::MAX);
        replica.apply(entry(1, batch(5))).unwrap();
        let begun = (replica.position().0, replica.peek(State::encode));
        replica.begin_checkpoint();
        replica.apply(entry(2, batch(9))).unwrap();
        assert_eq!(rest(&replica), begun);
        assert!(replica.continue_checkpoint().is_err(), "it ended");
        replica.begin_checkpoint();
        let meta = SnapshotMeta {
            last_log_id: replica.position().0,
            last_membership: StoredMembership::default(),
        };
        let replaced = replica.install(&meta, State::default(), 0);
        assert_eq!(replaced.now(), Stamp::from_micros(9));
        let error = replica.continue_checkpoint().unwrap_err().to_string();
        assert!(error.contains("another state was installed"), "{error}");
    }

    #[tokio::test]
    async fn a_snapshot_is_due_once_when_the_bytes_are_reached_and_again_after_the_next() {
        let size = batch(0).len() as u64;
        let replica = replica(2 * size);
        for round in 0..3 {
            for (index, due) in [(1, false), (2, true), (3, false)] {
                replica.apply(entry(10 * round + index, batch(0))).unwrap();
                let told = futures::FutureExt::now_or_never(replica.snapshot_due());
                assert_eq!(told.is_some(), due);
            }
            replica.begin_checkpoint();
        }
    }

    #[tokio::test]
    async fn a_large_state_is_saved_after_as_many_bytes_of_log() {
        let size = batch(0).len();
        let replica = replica(1);
        replica.snapshot_taken(3 * size);
        assert_eq!(replica.snapshot_due_after(), 3 * size as u64);
        for (index, due) in [(1, false), (2, false), (3, true), (4, false)] {
            replica.apply(entry(index, batch(0))).unwrap();
            let told = futures::FutureExt::now_or_never(replica.snapshot_due());
            assert_eq!(told.is_some(), due);
        }
    }
}
