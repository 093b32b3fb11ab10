//! openraft's own suite for log stores, and what it does not ask: the same answers after a restart.

use crate::store::{all, append, entries, entry, group, id, open, queue, small_files, vote};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftLogStorage, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{EntryPayload, OptionalSend, RaftLogReader, RaftSnapshotBuilder, StorageError};
use std::io;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use weir_raft::log::{GroupLog, LogOptions, LogStore};
use weir_raft::types::{
    Applied, Entry, LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig,
};

/// A state machine that remembers nothing but where it is.
#[derive(Clone, Default)]
struct Position(Arc<Mutex<Where>>);

#[derive(Default)]
struct Where {
    applied: Option<LogId>,
    membership: StoredMembership,
    snapshot: Option<SnapshotMeta>,
}

impl RaftSnapshotBuilder<TypeConfig> for Position {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let mut state = self.0.lock().unwrap();
        let meta = SnapshotMeta {
            last_log_id: state.applied,
            last_membership: state.membership.clone(),
        };
        state.snapshot = Some(meta.clone());
        Ok(Snapshot {
            meta,
            snapshot: Bytes::new(),
        })
    }
}

impl RaftStateMachine<TypeConfig> for Position {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let state = self.0.lock().unwrap();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let Entry { log_id, payload } = entry;
            {
                let mut state = self.0.lock().unwrap();
                state.applied = Some(log_id);
                if let EntryPayload::Membership(membership) = payload {
                    state.membership = StoredMembership::new(Some(log_id), membership);
                }
            }
            if let Some(responder) = responder {
                responder.send(Applied::default());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, _: Bytes) -> Result<(), io::Error> {
        let mut state = self.0.lock().unwrap();
        *state = Where {
            applied: meta.last_log_id,
            membership: meta.last_membership.clone(),
            snapshot: Some(meta.clone()),
        };
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        let meta = self.0.lock().unwrap().snapshot.clone();
        Ok(meta.map(|meta| Snapshot {
            meta,
            snapshot: Bytes::new(),
        }))
    }
}

struct Fresh {
    shard: u32,
}

impl StoreBuilder<TypeConfig, GroupLog, Position, (TempDir, LogStore)> for Fresh {
    async fn build(
        &self,
    ) -> Result<((TempDir, LogStore), GroupLog, Position), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), 3);
        let log = group(&store, self.shard);
        Ok(((dir, store), log, Position::default()))
    }
}

#[tokio::test]
async fn openraft_suite_passes() {
    for shard in [0, 2] {
        Suite::test_all(Fresh { shard }).await.unwrap();
    }
}

/// Everything a group is asked at its start.
async fn facts(log: &mut GroupLog) -> impl PartialEq + std::fmt::Debug + use<> {
    let state = log.get_log_state().await.unwrap();
    (
        state.last_purged_log_id,
        state.last_log_id,
        log.read_vote().await.unwrap(),
        log.read_committed().await.unwrap(),
        all(log).await,
        log.bytes(),
    )
}

#[tokio::test]
async fn reopening_gives_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), 3);
    let mut before = Vec::new();
    for shard in 0..3 {
        let mut log = group(&store, shard);
        let last = 20 + u64::from(shard);
        append(&mut log, entries(1, 0..10, 100)).await.unwrap();
        log.save_vote(&vote(2, 1 + u64::from(shard))).await.unwrap();
        append(&mut log, entries(2, 10..last, 300)).await.unwrap();
        log.save_committed(Some(id(2, 12))).await.unwrap();
        log.purge(id(1, 4 + u64::from(shard))).await.unwrap();
        before.push(facts(&mut log).await);
    }
    store.close().await.unwrap();

    let store = open(dir.path(), 3);
    for (shard, before) in (0..).zip(&before) {
        assert_eq!(
            &facts(&mut group(&store, shard)).await,
            before,
            "shard {shard}"
        );
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn memberships_and_blanks_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), 1);
    let mut log = group(&store, 0);
    let voters = vec![[1_u64, 2, 3].into(), [2, 3, 4].into()];
    let given: Vec<Entry> = vec![
        openraft::testing::membership_ent::<TypeConfig>(1, 1, 0, voters),
        openraft::testing::blank_ent::<TypeConfig>(1, 1, 1),
        entry(1, 2, 0),
    ];
    append(&mut log, given.clone()).await.unwrap();
    store.close().await.unwrap();

    let store = open(dir.path(), 1);
    assert_eq!(all(&mut group(&store, 0)).await, given);
    store.close().await.unwrap();
}

/// What stood behind a cut stays away, whether or not something was written in its place.
#[tokio::test]
async fn a_cut_survives_a_restart() {
    for then in ["nothing", "append", "purge", "purge and append"] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), 1);
        let mut log = group(&store, 0);
        append(&mut log, entries(1, 0..100, 50)).await.unwrap();
        log.truncate_after(Some(id(1, 49))).await.unwrap();
        let mut expected = entries(1, 0..50, 50);
        if then.starts_with("purge") {
            log.purge(id(3, 60)).await.unwrap();
            expected.clear();
        }
        if then.ends_with("append") {
            let from = log.range().end;
            append(&mut log, entries(4, from..from + 5, 70))
                .await
                .unwrap();
            expected.extend(entries(4, from..from + 5, 70));
        }
        assert_eq!(all(&mut log).await, expected, "{then}");
        let before = facts(&mut log).await;
        store.close().await.unwrap();

        let store = open(dir.path(), 1);
        let mut log = group(&store, 0);
        assert_eq!(facts(&mut log).await, before, "{then}");
        let from = log.range().end;
        append(&mut log, entries(5, from..from + 3, 10))
            .await
            .unwrap();
        expected.extend(entries(5, from..from + 3, 10));
        store.close().await.unwrap();

        let store = open(dir.path(), 1);
        assert_eq!(all(&mut group(&store, 0)).await, expected, "{then}");
        store.close().await.unwrap();
    }
}

/// A snapshot may lie far ahead of the log; the log goes on behind it.
#[tokio::test]
async fn the_log_goes_on_behind_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), 1);
    let mut log = group(&store, 0);
    append(&mut log, entries(1, 0..10, 50)).await.unwrap();
    log.purge(id(3, 1000)).await.unwrap();
    append(&mut log, entries(3, 1001..1005, 50)).await.unwrap();
    assert_eq!(all(&mut log).await, entries(3, 1001..1005, 50));
    store.close().await.unwrap();

    let store = open(dir.path(), 1);
    let mut log = group(&store, 0);
    assert_eq!(all(&mut log).await, entries(3, 1001..1005, 50));
    assert!(
        append(&mut log, entries(3, 1006..1007, 50)).await.is_err(),
        "a hole"
    );
    append(&mut log, entries(3, 1005..1006, 50)).await.unwrap();
    store.close().await.unwrap();
}

/// A stored committed position is never ahead of the stored log, whenever it was told.
#[tokio::test]
async fn committed_is_stored_with_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), 1);
    let mut log = group(&store, 0);
    append(&mut log, entries(1, 0..5, 10)).await.unwrap();
    log.save_committed(Some(id(1, 900))).await.unwrap();
    append(&mut log, entries(1, 5..6, 10)).await.unwrap();
    log.save_committed(Some(id(1, 5))).await.unwrap();
    store.close().await.unwrap();
    let store = open(dir.path(), 1);
    let committed = group(&store, 0).read_committed().await.unwrap();
    assert_eq!(committed, Some(id(1, 5)));
    store.close().await.unwrap();
}

/// Entries that left the cache come from the files; what a reader gets at once is bounded.
#[tokio::test]
async fn old_entries_are_read_from_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let options = small_files(dir.path(), 2);
    let store = LogStore::open(&options).unwrap();
    let mut log = group(&store, 1);
    let given = entries(1, 0..2000, 1000);
    for piece in given.chunks(7) {
        append(&mut log, piece.to_vec()).await.unwrap();
    }
    for range in [0..2000, 0..1, 3..900, 1500..2000, 1999..2000] {
        let read = log.try_get_log_entries(range.clone()).await.unwrap();
        let expected = &given[range.start as usize..range.end as usize];
        assert_eq!(read, expected, "{range:?}");
    }
    let limited = log.limited_get_log_entries(0, 2000).await.unwrap();
    assert!((900..1100).contains(&limited.len()), "{}", limited.len());
    assert_eq!(limited, given[..limited.len()]);
    let streamed: Vec<Entry> = {
        let stream = log.entries_stream(5..1999).await;
        stream.try_collect().await.unwrap()
    };
    assert_eq!(streamed, given[5..1999]);
    store.close().await.unwrap();

    let store = LogStore::open(&options).unwrap();
    assert_eq!(all(&mut group(&store, 1)).await, given);
    store.close().await.unwrap();
}

/// Old entries that are still needed are moved, and their files taken away, while they are read.
#[tokio::test]
async fn readers_do_not_notice_that_files_go_away() {
    let dir = tempfile::tempdir().unwrap();
    let options = LogOptions {
        purge_every: std::time::Duration::from_millis(1),
        cache_bytes: 0,
        ..small_files(dir.path(), 2)
    };
    let store = LogStore::open(&options).unwrap();
    let (mut quiet, mut busy) = (group(&store, 0), group(&store, 1));
    append(&mut quiet, entries(1, 0..20, 500)).await.unwrap();
    for index in 0..400 {
        append(&mut busy, entries(1, index..index + 1, 3000))
            .await
            .unwrap();
        if index % 10 == 9 {
            busy.purge(id(1, index - 5)).await.unwrap();
        }
        assert_eq!(all(&mut quiet).await, entries(1, 0..20, 500));
    }
    store.close().await.unwrap();
    let store = LogStore::open(&options).unwrap();
    assert_eq!(all(&mut group(&store, 0)).await, entries(1, 0..20, 500));
    store.close().await.unwrap();
}

/// Two logs of one process have blocks of the same number, offset and length; each gives its own.
#[tokio::test]
async fn two_logs_in_one_process_are_kept_apart() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut logs = Vec::new();
    for (term, dir) in (1..).zip(&dirs) {
        let options = LogOptions {
            cache_bytes: 0,
            ..LogOptions::new(dir.path(), 1)
        };
        let store = LogStore::open(&options).unwrap();
        let mut log = group(&store, 0);
        append(&mut log, entries(term, 0..10, 1000)).await.unwrap();
        append(&mut log, entries(term, 10..20, 1000)).await.unwrap();
        logs.push((term, store, log));
    }
    for index in 0..10 {
        for (term, _, log) in &mut logs {
            let read = log.try_get_log_entries(index..=index).await.unwrap();
            assert_eq!(read, entries(*term, index..index + 1, 1000));
        }
    }
}

/// Groups share writes: many appends queued at once need few syncs.
#[tokio::test]
async fn groups_share_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), 64);
    let before = store.stats();
    let mut waiting = Vec::new();
    for round in 0..8 {
        for shard in 0..64 {
            let mut log = group(&store, shard);
            waiting.push(
                queue(&mut log, entries(1, round..round + 1, 200))
                    .await
                    .unwrap(),
            );
        }
    }
    for durable in waiting {
        durable.await.unwrap().unwrap();
    }
    let after = store.stats();
    assert_eq!(after.appends - before.appends, 512);
    assert!(after.rounds - before.rounds < 256, "{after:?}");
    store.close().await.unwrap();
}

/// Random operations of a leader's and a follower's life against a plain model, with restarts.
#[test]
fn a_log_is_what_a_vector_would_be() {
    let strategy = proptest::collection::vec((0_u8..8, 0_u64..30), 1..60);
    proptest::proptest!(proptest::test_runner::Config::with_cases(24), |(steps in strategy)| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(follow_model(&steps));
    });
}

async fn follow_model(steps: &[(u8, u64)]) {
    let dir = tempfile::tempdir().unwrap();
    let options = small_files(dir.path(), 1);
    let mut store = LogStore::open(&options).unwrap();
    let mut log = group(&store, 0);
    let mut model: Vec<Entry> = Vec::new();
    let mut purged: Option<LogId> = None;
    for (term, &(step, amount)) in (1..).zip(steps) {
        let start = purged.map_or(0, |id| id.index + 1);
        let end = start + model.len() as u64;
        match step {
            0..=2 => {
                let new = entries(term, end..end + amount, 400);
                model.extend(new.clone());
                append(&mut log, new).await.unwrap();
            }
            3 | 4 => {
                model.truncate(model.len().saturating_sub(amount as usize));
                let last = model.last().map(|entry| entry.log_id).or(purged);
                log.truncate_after(last).await.unwrap();
            }
            5 => {
                let drop = model.len().min(amount as usize);
                if let Some(last) = model.drain(..drop).next_back() {
                    purged = Some(last.log_id);
                    log.purge(last.log_id).await.unwrap();
                }
            }
            6 => {
                model.clear();
                purged = Some(id(term, end + amount));
                log.purge(id(term, end + amount)).await.unwrap();
            }
            _ => {
                store.close().await.unwrap();
                store = LogStore::open(&options).unwrap();
                log = group(&store, 0);
            }
        }
        let state = log.get_log_state().await.unwrap();
        let last = model.last().map(|entry| entry.log_id).or(purged);
        assert_eq!(state.last_purged_log_id, purged);
        assert_eq!(state.last_log_id, last);
        assert_eq!(all(&mut log).await, model);
    }
    store.close().await.unwrap();
}
