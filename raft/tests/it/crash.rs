//! What is left of a log after a process died, a disk failed, or bytes were lost.

use crate::faulty::{Faults, FaultyDisk};
use crate::store::{all, append, entries, entry, group, id, open, queue, vote};
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;
use weir_raft::log::{LogOptions, LogStore};

/// Set for the child process of [`what_was_acknowledged_survives_a_kill`]: its data directory.
const CHILD_DIR: &str = "WEIR_RAFT_TEST_CHILD_DIR";
const KILLS: u64 = 30;

/// Appends for ever, in three groups, and prints each position once it is acknowledged.
async fn append_until_killed(dir: &Path) {
    let store = open(dir, 3);
    let mut at = Vec::new();
    for shard in 0..3 {
        at.push(group(&store, shard).range().end);
    }
    for round in 0_u64.. {
        let mut waiting = Vec::new();
        for shard in 0..3 {
            let mut log = group(&store, shard);
            let next = &mut at[shard as usize];
            let count = 1 + (round + u64::from(shard)) % 4;
            let size = 100 + usize::try_from(round % 7).unwrap() * 300;
            let new = (*next..*next + count).map(|index| entry(1 + index / 100, index, size));
            let new = new.collect();
            *next += count;
            waiting.push((shard, *next, queue(&mut log, new).await.unwrap()));
            if round % 5 == u64::from(shard) {
                log.save_vote(&vote(round, 1)).await.unwrap();
                println!("vote {shard} {round}");
            }
            if round % 50 == 49 {
                let upto = *next - 20;
                log.purge(id(1 + upto / 100, upto)).await.unwrap();
            }
        }
        for (shard, end, durable) in waiting {
            durable.await.unwrap().unwrap();
            println!("end {shard} {end}");
        }
    }
}

fn spawn(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "crash::what_was_acknowledged_survives_a_kill",
            "--nocapture",
        ])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Reads what a child acknowledges, kills it after so many lines, and gives every line it printed.
fn kill_after(mut child: Child, lines: u64) -> Vec<(String, usize, u64)> {
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut acknowledged = Vec::new();
    for line in out.lines() {
        let line = line.unwrap();
        let mut words = line.split(' ');
        let kind = words.next().unwrap().to_owned();
        if kind != "end" && kind != "vote" {
            continue;
        }
        let (Some(shard), Some(number)) = (words.next(), words.next()) else {
            continue;
        };
        acknowledged.push((kind, shard.parse().unwrap(), number.parse().unwrap()));
        if acknowledged.len() as u64 == lines {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    acknowledged
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        runtime.block_on(append_until_killed(Path::new(&dir)));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut ends = [0; 3];
    let mut votes = [0; 3];
    for kill in 0..KILLS {
        // Lines differ in number, so that kills fall on every phase of a round.
        let acknowledged = kill_after(spawn(dir.path()), 1 + kill * kill * 7919 % 400);
        let mut round_votes = [None; 3];
        for (kind, shard, number) in acknowledged {
            match kind.as_str() {
                "end" => ends[shard] = number,
                _ => round_votes[shard] = Some(number),
            }
        }
        for (vote, new) in votes.iter_mut().zip(round_votes) {
            *vote = new.unwrap_or(0);
        }
        runtime.block_on(check_survivors(dir.path(), &ends, &votes, kill));
    }
}

async fn check_survivors(dir: &Path, ends: &[u64; 3], votes: &[u64; 3], kill: u64) {
    let store = open(dir, 3);
    for shard in 0..3_u32 {
        let mut log = group(&store, shard);
        let at = shard as usize;
        let range = log.range();
        assert!(
            range.end >= ends[at],
            "kill {kill}, shard {shard}: {range:?}, {ends:?}"
        );
        for (index, entry) in range.zip(all(&mut log).await) {
            assert_eq!(entry.log_id, id(1 + index / 100, index));
            let openraft::EntryPayload::Normal(batch) = &entry.payload else {
                panic!("{entry:?}");
            };
            assert!(
                batch
                    .0
                    .starts_with(format!("{}:{index};", 1 + index / 100).as_bytes())
            );
        }
        let stored = log
            .read_vote()
            .await
            .unwrap()
            .map_or(0, |vote| vote.leader_id.term);
        assert!(
            stored >= votes[at],
            "kill {kill}, shard {shard}: vote {stored} of {votes:?}"
        );
    }
    store.close().await.unwrap();
}

/// A directory for damaged copies, in memory where the system offers that: what they prove does not
/// need a disk, and there are thousands.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// A copy of a directory's files, to be damaged.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// A small log of two groups, with the length of its file when `durable` entries of each were
/// acknowledged and that length's mark, and then some more written behind.
struct Sample {
    dir: TempDir,
    file: PathBuf,
    durable: u64,
    durable_bytes: u64,
    bytes: u64,
}

const SAMPLE_DURABLE: u64 = 6;
const SAMPLE_ALL: u64 = 9;

async fn sample() -> Sample {
    let dir = scratch();
    let store = open(dir.path(), 2);
    for index in 0..SAMPLE_DURABLE {
        for shard in 0..2 {
            append(&mut group(&store, shard), entries(1, index..index + 1, 60))
                .await
                .unwrap();
        }
    }
    group(&store, 0).save_vote(&vote(3, 1)).await.unwrap();
    store.close().await.unwrap();
    let file = dir.path().join("log/0000000000000001.raftlog");
    let durable_bytes = fs::metadata(&file).unwrap().len();
    let mark = fs::read(dir.path().join("log.mark")).unwrap();
    let store = open(dir.path(), 2);
    for index in SAMPLE_DURABLE..SAMPLE_ALL {
        for shard in 0..2 {
            append(&mut group(&store, shard), entries(1, index..index + 1, 60))
                .await
                .unwrap();
        }
    }
    store.close().await.unwrap();
    // As after a crash in the middle of writing: the bytes are there, nobody was told.
    fs::write(dir.path().join("log.mark"), mark).unwrap();
    Sample {
        bytes: fs::metadata(&file).unwrap().len(),
        dir,
        file,
        durable: SAMPLE_DURABLE,
        durable_bytes,
    }
}

/// Opens a damaged copy: it must hold a prefix with everything durable, or be refused by name without
/// a change. Returns how many entries each group has left if it opened.
async fn check_damaged(sample: &Sample, damage: impl Fn(&mut Vec<u8>)) -> Option<[u64; 2]> {
    let copied = scratch();
    copy(sample.dir.path(), copied.path());
    let file = copied
        .path()
        .join(sample.file.strip_prefix(sample.dir.path()).unwrap());
    let mut bytes = fs::read(&file).unwrap();
    damage(&mut bytes);
    fs::write(&file, &bytes).unwrap();
    match LogStore::open(&LogOptions::new(copied.path(), 2)) {
        Ok(store) => {
            let mut left = [0; 2];
            for shard in 0..2 {
                let mut log = group(&store, shard);
                let found = all(&mut log).await;
                left[shard as usize] = found.len() as u64;
                assert!(
                    found.len() as u64 >= sample.durable,
                    "{} entries",
                    found.len()
                );
                assert_eq!(found, entries(1, 0..found.len() as u64, 60));
            }
            let stored = group(&store, 0).read_vote().await.unwrap();
            assert_eq!(stored, Some(vote(3, 1)));
            let end = group(&store, 1).range().end;
            append(&mut group(&store, 1), entries(1, end..end + 1, 60))
                .await
                .unwrap();
            store.close().await.unwrap();
            Some(left)
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("0000000000000001.raftlog"), "{text}");
            assert_eq!(fs::read(&file).unwrap(), bytes, "{text}");
            None
        }
    }
}

#[tokio::test]
async fn a_torn_tail_is_cut_and_a_lost_one_is_refused() {
    let sample = sample().await;
    for len in (0..=sample.bytes).rev().step_by(3) {
        let opened = check_damaged(&sample, |bytes| bytes.truncate(len as usize)).await;
        assert_eq!(
            opened.is_some(),
            len >= sample.durable_bytes,
            "cut to {len}"
        );
    }
}

#[tokio::test]
async fn a_flipped_bit_is_never_taken_for_a_torn_tail() {
    let sample = sample().await;
    for at in 0..sample.bytes {
        let bit = 1 << (at % 8);
        let left = check_damaged(&sample, |bytes| bytes[at as usize] ^= bit).await;
        // Some bits of the file's header mean nothing; then nothing may be missing.
        if at < sample.durable_bytes
            && let Some(left) = left
        {
            assert_eq!(
                left, [SAMPLE_ALL; 2],
                "byte {at} of {}",
                sample.durable_bytes
            );
        }
    }
}

#[tokio::test]
async fn a_missing_file_is_refused() {
    let sample = sample().await;
    for name in ["log/0000000000000001.raftlog", "log.mark"] {
        let copied = scratch();
        copy(sample.dir.path(), copied.path());
        fs::remove_file(copied.path().join(name)).unwrap();
        let error = LogStore::open(&LogOptions::new(copied.path(), 2))
            .err()
            .unwrap();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[tokio::test]
async fn a_damaged_mark_is_refused_unless_a_copy_is_whole() {
    let sample = sample().await;
    let mark = sample.dir.path().join("log.mark");
    let whole = fs::read(&mark).unwrap();
    let mut one = whole.clone();
    one[20] ^= 1;
    fs::write(&mark, &one).unwrap();
    open(sample.dir.path(), 2).close().await.unwrap();
    let mut both = fs::read(&mark).unwrap();
    both[20] ^= 1;
    both[4096 + 20] ^= 1;
    fs::write(&mark, &both).unwrap();
    let error = LogStore::open(&LogOptions::new(sample.dir.path(), 2))
        .err()
        .unwrap();
    assert!(error.to_string().contains("log.mark is damaged"), "{error}");
}

fn faulty(dir: &Path) -> (LogStore, Arc<Faults>) {
    let disk = FaultyDisk::default();
    let faults = disk.0.clone();
    let options = LogOptions {
        disk: Arc::new(disk),
        ..LogOptions::new(dir, 2)
    };
    (LogStore::open(&options).unwrap(), faults)
}

/// Which fault, and what the failure must mention.
fn fault(faults: &Faults, which: usize) -> (&AtomicBool, &'static str) {
    match which {
        0 => (&faults.fail_writes, "os error 5"),
        1 => (&faults.fail_syncs, "os error 5"),
        _ => (&faults.full, "os error 28"),
    }
}

/// A write error, a sync error and a full disk each end the log: everybody is told, nothing is tried
/// again, and what was acknowledged before is there afterwards.
#[tokio::test]
async fn a_failing_disk_ends_the_log() {
    for which in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let (store, faults) = faulty(dir.path());
        let mut failure = store.failure();
        let (mut one, mut two) = (group(&store, 0), group(&store, 1));
        append(&mut one, entries(1, 0..4, 100)).await.unwrap();
        append(&mut two, entries(1, 0..4, 100)).await.unwrap();
        let (flag, expected) = fault(&faults, which);
        Faults::set(flag, true);
        let mut queued = Vec::new();
        for index in 4..8 {
            queued.push(queue(&mut one, entries(1, index..index + 1, 100)).await);
        }
        assert!(two.save_vote(&vote(9, 1)).await.is_err());
        for waiting in queued.into_iter().flatten() {
            assert!(waiting.await.unwrap().is_err());
        }
        let failed = failure
            .wait_for(Option::is_some)
            .await
            .unwrap()
            .clone()
            .unwrap();
        assert!(failed.to_string().contains(expected), "{failed}");

        // The disk is well again: too late.
        Faults::set(flag, false);
        let (syncs, writes) = (faults.synced(), faults.written());
        assert!(append(&mut two, entries(1, 4..5, 100)).await.is_err());
        assert!(one.save_vote(&vote(9, 1)).await.is_err());
        assert!(one.purge(id(1, 2)).await.is_err());
        assert_eq!((faults.synced(), faults.written()), (syncs, writes));
        assert!(store.close().await.is_err());

        let store = open(dir.path(), 2);
        for shard in 0..2 {
            let found = all(&mut group(&store, shard)).await;
            assert!(found.len() >= 4);
            assert_eq!(found, entries(1, 0..found.len() as u64, 100));
        }
        store.close().await.unwrap();
    }
}

/// A log can be opened and read while its disk is full, and goes on when there is room.
#[tokio::test]
async fn a_log_opens_on_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), 2);
    append(&mut group(&store, 1), entries(1, 0..50, 100))
        .await
        .unwrap();
    store.close().await.unwrap();

    let disk = FaultyDisk::default();
    Faults::set(&disk.0.full, true);
    let options = LogOptions {
        disk: Arc::new(disk.clone()),
        ..LogOptions::new(dir.path(), 2)
    };
    let store = LogStore::open(&options).unwrap();
    assert_eq!(all(&mut group(&store, 1)).await, entries(1, 0..50, 100));
    assert!(
        append(&mut group(&store, 1), entries(1, 50..51, 100))
            .await
            .is_err()
    );
    assert!(store.close().await.is_err());

    Faults::set(&disk.0.full, false);
    let store = LogStore::open(&options).unwrap();
    append(&mut group(&store, 1), entries(1, 50..51, 100))
        .await
        .unwrap();
    assert_eq!(all(&mut group(&store, 1)).await, entries(1, 0..51, 100));
    store.close().await.unwrap();
}

/// Every acknowledged round has had a sync of its own.
#[tokio::test]
async fn each_round_is_synced_once() {
    let dir = tempfile::tempdir().unwrap();
    let (store, faults) = faulty(dir.path());
    let mut log = group(&store, 0);
    append(&mut log, entries(1, 0..1, 100)).await.unwrap();
    let (before, syncs) = (store.stats(), faults.synced());
    for index in 1..101 {
        append(&mut log, entries(1, index..index + 1, 100))
            .await
            .unwrap();
        log.save_vote(&vote(index, 1)).await.unwrap();
    }
    assert_eq!(store.stats().rounds - before.rounds, 200);
    assert_eq!(faults.synced() - syncs, 200);
    store.close().await.unwrap();
}

/// Set for the child process of [`the_system_is_asked_to_sync`]: its data directory.
const STRACED_DIR: &str = "WEIR_RAFT_TEST_STRACED_DIR";
const STRACED_APPENDS: u64 = 50;

/// What counters of ours claim, the system confirms: as many `fdatasync` calls as acknowledged rounds.
#[test]
fn the_system_is_asked_to_sync() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    if let Some(dir) = std::env::var_os(STRACED_DIR) {
        runtime.block_on(async {
            let store = open(Path::new(&dir), 1);
            for index in 0..STRACED_APPENDS {
                append(&mut group(&store, 0), entries(1, index..index + 1, 100))
                    .await
                    .unwrap();
            }
            store.close().await.unwrap();
        });
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let run = Command::new("strace")
        .args(["-f", "-y", "-e", "trace=fdatasync", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "crash::the_system_is_asked_to_sync"])
        .env(STRACED_DIR, dir.path().join("data"))
        .output();
    let traced = match run {
        Ok(output) if output.status.success() => fs::read_to_string(&trace).unwrap(),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("skipped: strace may not trace here: {text}");
            return;
        }
        Err(error) => {
            println!("skipped: no strace: {error}");
            return;
        }
    };
    let synced = traced.lines().filter(|line| {
        line.contains(".raftlog>") && (line.ends_with("= 0") || line.contains("unfinished"))
    });
    let synced = synced.count() as u64;
    assert!(
        (STRACED_APPENDS..STRACED_APPENDS + 10).contains(&synced),
        "{synced}:\n{traced}"
    );
}
