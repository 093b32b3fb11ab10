//! The real log on a simulated disk: what a power cut leaves, and whether a run can be repeated.

use crate::store::{all, append, entry, group, id, queue, vote};
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use weir_raft::disk::Disk;
use weir_raft::disk::sim::{Fault, SimDisk};
use weir_raft::log::{LogOptions, LogStore, Worker};
use weir_raft::types::Entry;
use weir_raft::{DataDir, Directory, Identity, NodeId};

const SHARDS: u32 = 2;

/// The names of a simulated disk's files are real; in memory where the system offers that.
fn names() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn options(dir: &Path, disk: &SimDisk) -> LogOptions {
    LogOptions {
        disk: Arc::new(disk.clone()),
        worker: Worker::Task,
        file_bytes: 8 * 1024,
        files_bytes: 32 * 1024,
        cache_bytes: 4 * 1024,
        purge_every: Duration::from_millis(100),
        ..LogOptions::new(dir, SHARDS)
    }
}

fn small(term: u64, range: std::ops::Range<u64>) -> Vec<Entry> {
    range
        .map(|index| entry(term, index, 50 + (index % 5) as usize * 100))
        .collect()
}

/// What was acknowledged of each shard: the end of its log and its vote.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Acknowledged {
    end: u64,
    vote: u64,
}

type Shared = Rc<RefCell<[Acknowledged; SHARDS as usize]>>;

/// Appends for ever and notes what is acknowledged.
async fn work(store: &LogStore, acknowledged: &Shared) -> std::io::Result<()> {
    let mut ends = [0, 1].map(|shard| group(store, shard).range().end);
    for round in 1_u64.. {
        let mut waiting = Vec::new();
        for shard in 0..SHARDS {
            let at = shard as usize;
            let mut log = group(store, shard);
            let next = ends[at] + 1 + round % 3;
            waiting.push((at, next, queue(&mut log, small(1, ends[at]..next)).await?));
            ends[at] = next;
            if round % 4 == u64::from(shard) {
                let term = acknowledged.borrow()[at].vote + 1;
                log.save_vote(&vote(term, 1)).await?;
                acknowledged.borrow_mut()[at].vote = term;
            }
            if round % 20 == 19 {
                log.purge(id(1, next - 10)).await?;
            }
        }
        for (at, end, durable) in waiting {
            durable.await.map_err(std::io::Error::other)??;
            acknowledged.borrow_mut()[at].end = end;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

async fn check(store: &LogStore, acknowledged: &[Acknowledged]) {
    for (shard, acknowledged) in (0..).zip(acknowledged) {
        let mut log = group(store, shard);
        let range = log.range();
        assert!(range.end >= acknowledged.end, "{range:?}, {acknowledged:?}");
        assert_eq!(all(&mut log).await, small(1, range));
        let stored = log
            .read_vote()
            .await
            .unwrap()
            .map_or(0, |vote| vote.leader_id.term);
        assert!(stored >= acknowledged.vote, "{stored}, {acknowledged:?}");
    }
}

/// The power is cut again and again at any moment; unsynced writes are lost in whole or in part.
#[test]
fn a_power_cut_takes_nothing_that_was_acknowledged() {
    for seed in 0..20 {
        let (dir, disk) = (names(), SimDisk::new());
        let acknowledged = Shared::default();
        for cut in 0..6 {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(async {
                let store = LogStore::open(&options(dir.path(), &disk)).unwrap();
                let before = *acknowledged.borrow();
                check(&store, &before).await;
                let time = Duration::from_micros((seed * 6 + cut) * 7919 % 90_000);
                let worked = tokio::time::timeout(time, work(&store, &acknowledged)).await;
                assert!(worked.is_err(), "{worked:?}");
                // Whatever is queued is written, but nobody is told and nothing is synced.
                disk.set_fault(Fault::Syncs);
                for shard in 0..SHARDS {
                    let mut log = group(&store, shard);
                    let end = log.range().end;
                    let unsynced = append(&mut log, small(1, end..end + 3)).await;
                    assert!(unsynced.is_err());
                }
                disk.cut_power(seed * 100 + cut).unwrap();
                disk.set_fault(Fault::None);
            });
        }
    }
}

/// Everything that two runs are compared by.
type Trace = (Vec<String>, BTreeMap<PathBuf, Vec<u8>>);

/// Two nodes in one simulation, each crashed and started again twice.
fn simulate(seed: u64) -> Trace {
    let dirs = [names(), names()];
    let disks = [SimDisk::new(), SimDisk::new()];
    let trace = Rc::new(RefCell::new(Vec::new()));
    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .simulation_duration(Duration::from_secs(60))
        .build();
    let mut all_acknowledged = Vec::new();
    for (node, (dir, disk)) in (1_u64..).zip(dirs.iter().zip(&disks)) {
        let acknowledged = Shared::default();
        all_acknowledged.push(acknowledged.clone());
        let (dir, disk, trace) = (dir.path().to_path_buf(), disk.clone(), trace.clone());
        sim.host(format!("node-{node}"), move || {
            let (dir, disk) = (dir.clone(), disk.clone());
            let (acknowledged, trace) = (acknowledged.clone(), trace.clone());
            async move {
                let identity = Identity {
                    cluster_id: "0".repeat(32),
                    node: NodeId(node),
                    shards: SHARDS,
                };
                let data = DataDir::open(&disk, &dir, &identity, Directory::FIRST)?;
                let store = LogStore::open(&options(data.path(), &disk))?;
                let before = *acknowledged.borrow();
                check(&store, &before).await;
                let at = turmoil::sim_elapsed();
                let noted = format!("node {node} at {at:?}: {:?}", acknowledged.borrow());
                trace.borrow_mut().push(noted);
                work(&store, &acknowledged).await?;
                Ok(())
            }
        });
    }
    for round in 0..4_u64 {
        for _ in 0..40 + seed * 7 % 30 + round {
            sim.step().unwrap();
        }
        let node = (round % 2) as usize;
        disks[node].cut_power(seed + round).unwrap();
        sim.crash(format!("node-{}", node + 1));
        sim.bounce(format!("node-{}", node + 1));
    }
    for _ in 0..50 {
        sim.step().unwrap();
    }
    for acknowledged in all_acknowledged {
        trace.borrow_mut().push(format!("{acknowledged:?}"));
    }
    let mut files = BTreeMap::new();
    for (node, (dir, disk)) in dirs.iter().zip(&disks).enumerate() {
        for (path, bytes) in disk.contents() {
            let name = path.strip_prefix(dir.path()).unwrap();
            files.insert(Path::new(&node.to_string()).join(name), bytes);
        }
    }
    drop(sim);
    (trace.take(), files)
}

/// The same seed gives the same bytes; another one does not.
#[test]
fn a_simulated_run_can_be_repeated() {
    let first = simulate(1);
    assert!(first.0.len() >= 8, "{:?}", first.0);
    assert!(first.1.len() >= 8, "{:?}", first.1.keys());
    assert!(simulate(1) == first);
    assert!(simulate(2) != first);
}

#[test]
fn a_simulated_disk_loses_names_that_were_not_synced() {
    let (dir, disk) = (names(), SimDisk::new());
    let path = dir.path().join("a");
    let other = dir.path().join("b");
    disk.open(&path, weir_raft::disk::Open::Create).unwrap();
    disk.sync_dir(dir.path()).unwrap();
    disk.rename(&path, &other).unwrap();
    assert_eq!(disk.list(dir.path()).unwrap(), ["b"]);
    disk.cut_power(1).unwrap();
    assert_eq!(disk.list(dir.path()).unwrap(), ["a"]);
    assert!(path.exists() && !other.exists());
}
