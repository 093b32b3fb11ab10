//! A snapshot is whole or it is not used, and one that is used is durable.

use crate::faulty::{Faults, FaultyDisk};
use crate::store::id;
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use weir_admission::ShardId;
use weir_raft::disk::{Disk, RealDisk};
use weir_raft::snapshot::{Loaded, SnapshotError, SnapshotStore};
use weir_raft::types::{SnapshotMeta, StoredMembership};

fn meta(index: u64) -> SnapshotMeta {
    let membership = openraft::Membership::new_with_defaults(vec![[1, 2, 3].into()], []);
    SnapshotMeta {
        last_log_id: Some(id(3, index)),
        last_membership: StoredMembership::new(Some(id(1, 0)), membership),
    }
}

fn snapshot(index: u64) -> Loaded {
    let state = format!("state at {index};").repeat(100);
    Loaded {
        meta: meta(index),
        state: Bytes::from(state),
    }
}

fn open(dir: &Path, disk: impl Disk) -> SnapshotStore {
    SnapshotStore::open(Arc::new(disk), dir, ShardId(7)).unwrap()
}

fn save(store: &SnapshotStore, index: u64) -> Result<(), SnapshotError> {
    let Loaded { meta, state } = snapshot(index);
    store.save(&meta, &state)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let names = RealDisk.list(&dir.join("snapshots")).unwrap();
    names
        .into_iter()
        .map(|name| dir.join("snapshots").join(name))
        .collect()
}

fn saved(indices: &[u64]) -> (TempDir, SnapshotStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), RealDisk);
    for &index in indices {
        save(&store, index).unwrap();
    }
    (dir, store)
}

#[test]
fn the_newest_is_given_and_two_are_kept() {
    let (dir, store) = saved(&[]);
    assert_eq!(store.newest(0).unwrap(), None);
    for index in [5, 9, 90, 100, 1000] {
        save(&store, index).unwrap();
        assert_eq!(store.newest(index + 1).unwrap(), Some(snapshot(index)));
    }
    assert_eq!(files(dir.path()).len(), 2);
    let again = open(dir.path(), RealDisk);
    assert_eq!(again.newest(1001).unwrap(), Some(snapshot(1000)));
    save(&again, 1000).unwrap();
    assert_eq!(files(dir.path()).len(), 2);
}

#[test]
fn shards_do_not_see_each_others_snapshots() {
    let (dir, store) = saved(&[10]);
    let other = SnapshotStore::open(Arc::new(RealDisk), dir.path(), ShardId(70)).unwrap();
    assert_eq!(other.newest(0).unwrap(), None);
    for index in [1, 2, 3] {
        save(&other, index).unwrap();
    }
    assert_eq!(store.newest(11).unwrap(), Some(snapshot(10)));
    assert_eq!(files(dir.path()).len(), 3);
}

#[test]
fn an_empty_state_before_any_entry_is_a_snapshot() {
    let (_dir, store) = saved(&[]);
    let meta = SnapshotMeta::default();
    store.save(&meta, &Bytes::new()).unwrap();
    let state = Bytes::new();
    assert_eq!(store.newest(0).unwrap(), Some(Loaded { meta, state }));
}

#[test]
fn every_damage_is_seen_and_no_file_is_deleted_for_it() {
    let (dir, store) = saved(&[10, 20]);
    let newest = files(dir.path()).pop().unwrap();
    let whole = std::fs::read(&newest).unwrap();
    let longer = [&whole[..], b"x"].concat();
    let mut variants: Vec<Vec<u8>> = vec![longer, Vec::new()];
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x20;
        variants.push(flipped);
        if at % 7 == 0 {
            variants.push(whole[..at].to_vec());
        }
    }
    for bytes in variants {
        std::fs::write(&newest, &bytes).unwrap();
        // The log reaches back to the older one: it serves. It does not: the newest is named.
        assert_eq!(store.newest(11).unwrap(), Some(snapshot(10)));
        let error = store.newest(12).unwrap_err().to_string();
        assert!(error.contains(&*newest.to_string_lossy()), "{error}");
        assert_eq!(std::fs::read(&newest).unwrap(), bytes);
    }
}

#[test]
fn a_damaged_file_outlives_newer_snapshots_of_this_run() {
    let (dir, _store) = saved(&[10, 20]);
    let damaged = files(dir.path()).pop().unwrap();
    std::fs::write(&damaged, "rubbish").unwrap();
    let store = open(dir.path(), RealDisk);
    assert_eq!(store.newest(0).unwrap(), Some(snapshot(10)));
    save(&store, 30).unwrap();
    save(&store, 40).unwrap();
    let left = files(dir.path());
    assert_eq!(left.len(), 3);
    assert!(left.contains(&damaged));
}

#[test]
fn without_any_whole_snapshot_only_a_whole_log_will_do() {
    let (dir, _store) = saved(&[10]);
    std::fs::write(files(dir.path()).pop().unwrap(), "").unwrap();
    let store = open(dir.path(), RealDisk);
    assert_eq!(store.newest(0).unwrap(), None);
    assert!(store.newest(1).is_err());
}

#[test]
fn a_newer_format_is_refused_as_such() {
    let (dir, store) = saved(&[10]);
    let file = files(dir.path()).pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[8] = 9;
    std::fs::write(&file, bytes).unwrap();
    let error = store.newest(11).unwrap_err().to_string();
    assert!(error.contains("format 9; this version reads 1"), "{error}");
}

/// Whatever the disk does while a snapshot is saved, the one before it stays.
#[test]
fn a_failed_save_changes_nothing() {
    let disk = FaultyDisk::default();
    let faults = disk.0.clone();
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), disk.clone());
    save(&store, 10).unwrap();
    for flag in [&faults.full, &faults.fail_all_syncs, &faults.flip] {
        Faults::set(flag, true);
        assert!(save(&store, 20).is_err());
        Faults::set(flag, false);
        let reopened = open(dir.path(), disk.clone());
        assert_eq!(reopened.newest(11).unwrap(), Some(snapshot(10)));
    }
    save(&store, 20).unwrap();
    assert_eq!(store.newest(21).unwrap(), Some(snapshot(20)));
    assert!(
        files(dir.path())
            .iter()
            .all(|file| file.extension().unwrap() == "snapshot")
    );
}
