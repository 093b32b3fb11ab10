//! Opening a log: what is checked, and the threads that serve it.

use super::engine::{self, Engine, Sizes};
use super::group::GroupState;
use super::guard::Guard;
use super::mark::Mark;
use super::record::{self, Hard};
use super::writer::{Command, Counters, SharedGroup, Writer};
use super::{EngineCell, LogStore, Shared};
use crate::disk::{Disk, Open, RealDisk};
use crate::limits;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Where a log is and how it is served.
#[derive(Clone)]
pub struct LogOptions {
    /// The data directory.
    pub dir: PathBuf,
    /// Number of shards; the log has one group for each.
    pub shards: u32,
    /// The disk that holds the directory.
    pub disk: Arc<dyn Disk>,
    /// Who writes.
    pub worker: Worker,
    /// Bytes of one log file; see [`limits::LOG_FILE_BYTES`].
    pub file_bytes: u64,
    /// Bytes of all log files above which old ones are reused; at least two files.
    pub files_bytes: u64,
    /// How often to look for files that nobody needs; see [`limits::LOG_PURGE_EVERY_MS`].
    pub purge_every: Duration,
    /// Bytes of log tails in memory; see [`limits::LOG_CACHE_BYTES`].
    pub cache_bytes: usize,
}

impl LogOptions {
    /// The log of a data directory on the real disk, written by a thread, with the bounds of
    /// [`limits`].
    pub fn new(dir: impl Into<PathBuf>, shards: u32) -> Self {
        Self {
            dir: dir.into(),
            shards,
            disk: Arc::new(RealDisk),
            worker: Worker::Thread,
            file_bytes: limits::LOG_FILE_BYTES,
            files_bytes: limits::LOG_FILES_BYTES,
            purge_every: Duration::from_millis(limits::LOG_PURGE_EVERY_MS),
            cache_bytes: limits::LOG_CACHE_BYTES,
        }
    }
}

/// Who writes the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worker {
    /// A thread of its own, and another one that reuses old files.
    Thread,
    /// A task of the runtime that opens the log, for simulation.
    Task,
}

/// Why a log was not opened. Nothing that was durable has been changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// Bytes that were durable are missing or unreadable. The node must come back empty, as a learner.
    #[error(
        "{path}: unreadable from byte {offset}, but {synced} bytes were durable; \
         acknowledged entries or votes may be lost",
        path = path.display()
    )]
    Lost {
        /// The log file.
        path: PathBuf,
        /// First byte that is missing or unreadable.
        offset: u64,
        /// Bytes that were durable.
        synced: u64,
    },
    /// A log file is damaged where it must not be.
    #[error("{path}: damaged near byte {near}: {why}", path = path.display())]
    Damaged {
        /// The log file read last.
        path: PathBuf,
        /// Where it was read last; the damage is in the block from there on.
        near: u64,
        /// What is wrong.
        why: String,
    },
    /// The engine refused before it read anything; most likely another process has the log open.
    #[error("{dir}: {why}", dir = dir.display())]
    Engine {
        /// The engine's directory.
        dir: PathBuf,
        /// What it said.
        why: String,
    },
    /// The files are whole, but a group in them is not.
    #[error("{dir}: log of shard {group}: {why}", dir = dir.display())]
    Group {
        /// The engine's directory.
        dir: PathBuf,
        /// The shard.
        group: u64,
        /// What is wrong.
        why: String,
    },
    /// There is a log, but no mark that tells how much of it was durable.
    #[error(
        "{path} is missing, but {log_dir} holds a log; without it a loss cannot be seen",
        path = path.display(), log_dir = log_dir.display()
    )]
    MarkMissing {
        /// The mark.
        path: PathBuf,
        /// The engine's directory.
        log_dir: PathBuf,
    },
    /// Both copies of the mark are damaged.
    #[error("{path} is damaged", path = path.display())]
    MarkUnreadable {
        /// The mark.
        path: PathBuf,
    },
    /// The mark is of a newer version.
    #[error("{path}: format {found}; this version reads {newest}", path = path.display())]
    MarkFormat {
        /// The mark.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this version reads.
        newest: u32,
    },
}

impl LogStore {
    /// Opens the log of a data directory, or creates it.
    ///
    /// With [`Worker::Task`] it must be called inside a runtime.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; nothing durable was changed.
    pub fn open(options: &LogOptions) -> Result<LogStore, OpenError> {
        let dir = options.dir.join("log");
        let disk = options.disk.clone();
        let at = |source| OpenError::Io {
            path: dir.clone(),
            source,
        };
        disk.create_dir(&dir).map_err(at)?;
        disk.sync_dir(&options.dir).map_err(at)?;
        let mark = Mark::open(disk.as_ref(), options.dir.join("log.mark"), &dir)?;
        let guard = Arc::new(Guard::new(mark));
        guard.check_files(&dir, |path| disk.open(path, Open::Read)?.size())?;
        let sizes = Sizes {
            file: options.file_bytes,
            files: options.files_bytes,
        };
        let engine = Arc::new(Engine::open(&dir, disk, guard.clone(), sizes)?);
        let (groups, hards) = load(&engine, &guard, &dir, options)?;
        let counters = Arc::new(Counters::default());
        let writer = Writer::new(
            engine.clone(),
            guard.clone(),
            groups.clone(),
            hards,
            counters.clone(),
        );
        let (sender, queue) = mpsc::channel(limits::LOG_QUEUE_COMMANDS);
        let cell = Arc::new(EngineCell(RwLock::new(Some(engine))));
        let every = options.purge_every;
        let ended = match options.worker {
            Worker::Thread => start_threads(writer, queue, cell.clone(), guard.clone(), every),
            Worker::Task => Ok(start_task(
                writer,
                queue,
                cell.clone(),
                guard.clone(),
                every,
            )),
        };
        Ok(LogStore {
            shared: Arc::new(Shared {
                queue: sender,
                room: Arc::new(Semaphore::new(limits::LOG_QUEUE_BYTES)),
                guard,
                engine: cell,
                counters,
            }),
            groups,
            ended: ended.map_err(at)?,
        })
    }
}

type Loaded = (BTreeMap<u64, SharedGroup>, BTreeMap<u64, Hard>);

/// Reads every entry of every group once: damage is found now and not when a peer asks for it.
fn load(
    engine: &Engine,
    guard: &Guard,
    dir: &Path,
    options: &LogOptions,
) -> Result<Loaded, OpenError> {
    let wrong = |group, why| OpenError::Group {
        dir: dir.to_path_buf(),
        group,
        why,
    };
    let shards = u64::from(options.shards);
    if let Some(group) = engine.groups().into_iter().find(|&group| group >= shards) {
        return Err(wrong(group, format!("there are only {shards} shards")));
    }
    let cache_limit = options.cache_bytes / options.shards.max(1) as usize;
    let mut groups = BTreeMap::new();
    let mut hards = BTreeMap::new();
    for group in 0..shards {
        let hard = load_hard(engine, group).map_err(|why| wrong(group, why))?;
        let state = load_entries(engine, group, &hard, cache_limit).map_err(|why| {
            let why = format!("shard {group}, {why}");
            engine::place(dir, guard, why)
        })?;
        groups.insert(group, Arc::new(Mutex::new(state)));
        hards.insert(group, hard);
    }
    Ok((groups, hards))
}

/// The hard state of a group, whose entries the engine must hold.
fn load_hard(engine: &Engine, group: u64) -> Result<Hard, String> {
    let span = engine.span(group);
    let hard = match (engine.hard(group), &span) {
        (Some(bytes), _) => Hard::decode(&bytes).map_err(|error| format!("state: {error}"))?,
        (None, None) => Hard::default(),
        (None, Some(span)) => return Err(format!("entries {span:?}, but no vote and no bounds")),
    };
    let Hard { start, end, .. } = hard;
    let span = span.unwrap_or(0..0);
    if start < end && (span.start > start || span.end < end) {
        return Err(format!("entries {:?} expected, {span:?} found", start..end));
    }
    Ok(hard)
}

fn load_entries(
    engine: &Engine,
    group: u64,
    hard: &Hard,
    cache_limit: usize,
) -> Result<GroupState, String> {
    let mut state = GroupState::new(cache_limit, hard.start);
    state.vote = hard.vote;
    state.purged = hard.purged;
    state.last = hard.purged;
    let mut next = hard.start;
    while next < hard.end {
        let records = engine
            .read(group, next..hard.end, Some(limits::LOG_READ_BYTES))
            .map_err(|error| format!("entry {next} or one soon after it: {error}"))?;
        let mut entries = Vec::with_capacity(records.len());
        for record in records {
            let entry = record::decode(record, next).map_err(|e| format!("entry {next}: {e}"))?;
            entries.push(entry);
            next += 1;
        }
        if entries.is_empty() {
            return Err(format!("entry {next} is missing"));
        }
        state.append(&entries).map_err(|error| error.to_string())?;
        state.written(next, state.cuts());
    }
    state.committed = hard.committed.filter(|id| id.index < hard.end);
    Ok(state)
}

fn start_threads(
    writer: Writer,
    queue: mpsc::Receiver<Command>,
    cell: Arc<EngineCell>,
    guard: Arc<Guard>,
    purge_every: Duration,
) -> io::Result<oneshot::Receiver<()>> {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (tell, ended) = oneshot::channel();
    let (purge_cell, purge_guard) = (cell.clone(), guard.clone());
    let purger = std::thread::Builder::new()
        .name("weir-log-purge".to_owned())
        .spawn(move || {
            while stopped.recv_timeout(purge_every) == Err(RecvTimeoutError::Timeout) {
                let Ok(engine) = purge_cell.get() else { break };
                engine.purge_files();
                purge_guard.sync_mark();
            }
        })?;
    std::thread::Builder::new()
        .name("weir-log-write".to_owned())
        .spawn(move || {
            // However the writer ends, by a panic of ours included, nobody may wait for it in vain.
            let run = std::panic::AssertUnwindSafe(|| writer.run(queue));
            if std::panic::catch_unwind(run).is_err() {
                guard.fail("log writer", &"panicked");
            }
            drop(stop);
            if purger.join().is_err() {
                guard.fail("log purge", &"panicked");
            }
            guard.sync_mark();
            cell.empty();
            // Nobody waits if the log was dropped and not closed.
            let _ = tell.send(());
        })?;
    Ok(ended)
}

fn start_task(
    writer: Writer,
    queue: mpsc::Receiver<Command>,
    cell: Arc<EngineCell>,
    guard: Arc<Guard>,
    purge_every: Duration,
) -> oneshot::Receiver<()> {
    let (tell, ended) = oneshot::channel();
    tokio::spawn(async move {
        writer.run_task(queue, purge_every).await;
        guard.sync_mark();
        cell.empty();
        // Nobody waits if the log was dropped and not closed.
        let _ = tell.send(());
    });
    ended
}
