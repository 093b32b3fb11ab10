//! What the tests of the durable half share: entries, calls that wait, disks that count and fail.

use bytes::Bytes;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::OneshotReceiverOf;
use openraft::{EntryPayload, RaftLogReader};
use std::io;
use weir_admission::ShardId;
use weir_raft::log::{GroupLog, LogOptions, LogStore};
use weir_raft::types::{Batch, Entry, LogId, TypeConfig, Vote};

pub(crate) fn id(term: u64, index: u64) -> LogId {
    LogId::new_term_index(term, index)
}

pub(crate) fn vote(term: u64, node: u64) -> Vote {
    Vote::new(term, node)
}

/// An entry whose bytes tell its position, so that a mix-up is seen.
pub(crate) fn entry(term: u64, index: u64, bytes: usize) -> Entry {
    let seed = format!("{term}:{index};");
    let body: Vec<u8> = seed.bytes().cycle().take(bytes).collect();
    Entry {
        log_id: id(term, index),
        payload: EntryPayload::Normal(Batch(Bytes::from(body))),
    }
}

pub(crate) fn entries(term: u64, range: std::ops::Range<u64>, bytes: usize) -> Vec<Entry> {
    range.map(|index| entry(term, index, bytes)).collect()
}

pub(crate) fn group(store: &LogStore, shard: u32) -> GroupLog {
    store.group(ShardId(shard)).unwrap()
}

/// Queues an append; the receiver tells when it is durable.
pub(crate) async fn queue(
    log: &mut GroupLog,
    entries: Vec<Entry>,
) -> io::Result<OneshotReceiverOf<TypeConfig, io::Result<()>>> {
    let (done, durable) = TypeConfig::oneshot();
    log.append(entries, IOFlushed::<TypeConfig>::signal(done))
        .await?;
    Ok(durable)
}

/// Appends and waits until it is durable.
pub(crate) async fn append(log: &mut GroupLog, entries: Vec<Entry>) -> io::Result<()> {
    queue(log, entries).await?.await.map_err(io::Error::other)?
}

/// All of a log.
pub(crate) async fn all(log: &mut GroupLog) -> Vec<Entry> {
    log.try_get_log_entries(..).await.unwrap()
}

pub(crate) fn open(dir: &std::path::Path, shards: u32) -> LogStore {
    LogStore::open(&LogOptions::new(dir, shards)).unwrap()
}

/// Options with files so small that they rotate and are reused within a test.
pub(crate) fn small_files(dir: &std::path::Path, shards: u32) -> LogOptions {
    LogOptions {
        file_bytes: 8 * 1024,
        files_bytes: 24 * 1024,
        cache_bytes: 32 * 1024,
        ..LogOptions::new(dir, shards)
    }
}
