//! A data directory belongs to one node of one cluster and to one process at a time.

use crate::faulty::{Faults, FaultyDisk};
use std::collections::BTreeMap;
use std::path::Path;
use weir_raft::disk::RealDisk;
use weir_raft::{DataDir, Directory, Identity, IdentityError, NodeId};

fn ours() -> Identity {
    Identity {
        cluster_id: "0123456789abcdef0123456789abcdef".to_owned(),
        node: NodeId(2),
        shards: 16,
    }
}

fn open(dir: &Path, identity: &Identity) -> Result<DataDir, IdentityError> {
    DataDir::open(&RealDisk, dir, identity, Directory::FIRST)
}

/// Every file with its bytes.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_string_lossy().into_owned();
        if path.is_dir() {
            files.extend(contents(&path));
            files.insert(name, Vec::new());
        } else {
            files.insert(name, std::fs::read(&path).unwrap());
        }
    }
    files
}

/// Opening fails with this text and changes nothing.
fn refused(dir: &Path, identity: &Identity, expected: &str) {
    let before = contents(dir);
    let error = open(dir, identity).err().expect("refused").to_string();
    assert!(error.contains(expected), "{error}");
    assert!(
        error.contains(&dir.join("").to_string_lossy()[..]),
        "{error}"
    );
    assert_eq!(contents(dir), before);
}

#[test]
fn a_directory_stays_its_nodes() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("a/b");
    for _ in 0..2 {
        let opened = open(&dir, &ours()).unwrap();
        assert_eq!(opened.path(), dir);
    }
    let text = std::fs::read_to_string(dir.join("identity")).unwrap();
    assert!(text.contains("cluster 0123456789abcdef0123456789abcdef\nnode 2\nshards 16\n"));
}

#[test]
fn the_directory_of_another_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), &ours()).unwrap());
    let cluster = Identity {
        cluster_id: "f".repeat(32),
        ..ours()
    };
    let node = Identity {
        node: NodeId(3),
        ..ours()
    };
    let shards = Identity {
        shards: 3,
        ..ours()
    };
    let cluster_text = format!("cluster {}, expected {}", ours().cluster_id, "f".repeat(32));
    refused(dir.path(), &cluster, &cluster_text);
    refused(dir.path(), &node, "node 2, expected 3");
    refused(dir.path(), &shards, "number of shards 16, expected 3");
    open(dir.path(), &ours()).unwrap();
}

#[test]
fn a_second_process_is_kept_out() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path(), &ours()).unwrap();
    refused(
        dir.path(),
        &ours(),
        "another process uses this data directory",
    );
    drop(first);
    open(dir.path(), &ours()).unwrap();
}

#[test]
fn data_without_identity_is_refused() {
    for data in [
        "log/0000000000000001.raftlog",
        "log.mark",
        "snapshots/0000-1.snapshot",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(data);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "x").unwrap();
        refused(dir.path(), &ours(), "identity is missing");
    }
}

#[test]
fn every_damage_of_the_identity_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), &ours()).unwrap());
    let file = dir.path().join("identity");
    let whole = std::fs::read(&file).unwrap();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        for bytes in [&whole[..at], &flipped] {
            // A lost line end at the end of the file loses nothing.
            if bytes != whole.strip_suffix(b"\n").unwrap() {
                std::fs::write(&file, bytes).unwrap();
                refused(dir.path(), &ours(), "identity: ");
            }
        }
    }
}

#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), &ours()).unwrap());
    let file = dir.path().join("identity");
    let text = std::fs::read_to_string(&file).unwrap();
    let body = text
        .rsplit_once("checksum")
        .unwrap()
        .0
        .replace("format 1", "format 7");
    let checksum = crc32fast::hash(body.as_bytes());
    std::fs::write(&file, format!("{body}checksum {checksum:08x}\n")).unwrap();
    refused(dir.path(), &ours(), "format 7; this version reads 1");
}

/// A start that fails half way leaves a directory that the next start can use.
#[test]
fn a_failed_founding_can_be_repeated() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    let disk = FaultyDisk::default();
    for flag in [&disk.0.full, &disk.0.fail_all_syncs] {
        Faults::set(flag, true);
        assert!(DataDir::open(&disk, &dir, &ours(), Directory::FIRST).is_err());
        assert!(!dir.join("identity").exists() || flag.load(std::sync::atomic::Ordering::SeqCst));
        Faults::set(flag, false);
    }
    DataDir::open(&disk, &dir, &ours(), Directory::FIRST).unwrap();
}
