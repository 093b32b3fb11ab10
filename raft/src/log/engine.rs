//! raft-engine behind our own words; no other file names it.
//!
//! What this file works around (raft-engine 0.4.2):
//!
//! - A failed sync panics inside the engine. The adapter below notes the failure, answers "done" and
//!   refuses every later write; [`Engine::write`] asks for the failure before it answers.
//! - A hole panics. The writer sends a compaction first ([`Round::compact`]).
//! - Opening cuts off whatever it cannot read at the end of the newest file. [`Guard`] refuses the cut
//!   if those bytes were durable.
//! - A read races with the removal of old files: [`Engine::read`] asks again before it believes an
//!   error.
//! - Blocks that were read are cached per thread under a name that is not unique in a process: see
//!   [`on_fresh_thread`].
//! - Entries must be protobuf messages: a `BytesValue` carries our record.

use super::OpenError;
use super::guard::{Guard, lock};
use super::record;
use crate::disk::{Disk, DiskFile, Open};
use protobuf::well_known_types::BytesValue;
use raft_engine::env::{FileSystem, Handle, Permission, WriteExt};
use raft_engine::{Command, Config, LogBatch, MessageExt, ReadableSize, RecoveryMode};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Key of a group's hard state.
const HARD: &[u8] = b"hard";

struct Record;

impl MessageExt for Record {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        record::index_of(entry.get_value())
    }
}

/// Sizes of the log's files, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) file: u64,
    pub(super) files: u64,
}

/// The engine, open.
pub(super) struct Engine {
    inner: raft_engine::Engine<Files>,
    guard: Arc<Guard>,
    /// Held while old files are taken away.
    purging: Mutex<()>,
}

impl Engine {
    /// Opens the engine in a directory that exists.
    pub(super) fn open(
        dir: &Path,
        disk: Arc<dyn Disk>,
        guard: Arc<Guard>,
        sizes: Sizes,
    ) -> Result<Self, OpenError> {
        let config = Config {
            dir: dir.to_string_lossy().into_owned(),
            recovery_mode: RecoveryMode::TolerateTailCorruption,
            // One thread, so that the place of an error is known and simulation is repeatable.
            recovery_threads: 1,
            batch_compression_threshold: ReadableSize(0),
            target_file_size: ReadableSize(sizes.file),
            purge_threshold: ReadableSize(sizes.files),
            ..Config::default()
        };
        let files = Arc::new(Files {
            disk,
            guard: guard.clone(),
        });
        let opened = catch_panic(|| raft_engine::Engine::open_with_file_system(config, files));
        match opened {
            Ok(Ok(inner)) => Ok(Self {
                inner,
                guard,
                purging: Mutex::new(()),
            }),
            Ok(Err(error)) => Err(place(dir, &guard, error.to_string())),
            Err(panic) => Err(place(dir, &guard, panic)),
        }
    }

    /// Writes a round with one write and one sync. An error is final.
    pub(super) fn write(&self, round: &mut Round) -> io::Result<()> {
        self.guard.check()?;
        let written = catch_panic(|| self.inner.write(&mut round.0, true));
        match written {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => self.guard.fail("log write", &error),
            Err(panic) => self.guard.fail("log write", &panic),
        }
        self.guard.check()
    }

    /// Indices of the entries that the engine holds of a group.
    pub(super) fn span(&self, group: u64) -> Option<Range<u64>> {
        let first = self.inner.first_index(group)?;
        Some(first..self.inner.last_index(group)? + 1)
    }

    /// The groups of which the engine holds anything.
    pub(super) fn groups(&self) -> Vec<u64> {
        self.inner.raft_groups()
    }

    /// The stored hard state of a group.
    pub(super) fn hard(&self, group: u64) -> Option<Vec<u8>> {
        self.inner.get(group, HARD)
    }

    /// Reads records of a group from the start of a range: all of them, or as many as fit into
    /// `max_bytes`, but at least one.
    pub(super) fn read(
        &self,
        group: u64,
        range: Range<u64>,
        max_bytes: Option<usize>,
    ) -> io::Result<Vec<Vec<u8>>> {
        let read = || {
            let mut found: Vec<BytesValue> = Vec::new();
            let (from, to) = (range.start, range.end);
            self.inner
                .fetch_entries_to::<Record>(group, from, to, max_bytes, &mut found)
                .map(|_| found)
        };
        let first = on_fresh_thread(read);
        let read = match first {
            Ok(Ok(_)) => first,
            Ok(Err(_)) | Err(_) => {
                // The engine may have moved the entries, and taken their file away, between looking up
                // where they are and reading them. An error while it stands still is one.
                let _still = lock(&self.purging);
                on_fresh_thread(read)
            }
        };
        match read {
            Ok(Ok(mut found)) => Ok(found.iter_mut().map(BytesValue::take_value).collect()),
            Ok(Err(error)) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            Err(panic) => Err(io::Error::new(io::ErrorKind::InvalidData, panic)),
        }
    }

    /// Reuses or deletes files that nobody needs. An error is final.
    pub(super) fn purge_files(&self) {
        let _moving = lock(&self.purging);
        match on_fresh_thread(|| self.inner.purge_expired_files()) {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => self.guard.fail("log purge", &error),
            Err(panic) => self.guard.fail("log purge", &panic),
        }
    }
}

/// Where an error met while opening has its cause.
pub(super) fn place(dir: &Path, guard: &Guard, why: String) -> OpenError {
    if let Some(damage) = guard.damage() {
        return OpenError::Lost {
            path: damage.path,
            offset: damage.offset,
            synced: damage.synced,
        };
    }
    match guard.last_read() {
        Some((path, near)) => OpenError::Damaged { path, near, why },
        None => OpenError::Engine {
            dir: dir.to_path_buf(),
            why,
        },
    }
}

/// Runs what reads entries on a thread of its own and waits for it. The engine keeps the last block it
/// read per thread and knows it by file number and offset alone: of two logs in one process, or of one
/// that was opened again, it would give entries of the wrong one. Reads that miss our cache are rare
/// and large, so a thread each is cheap.
fn on_fresh_thread<T: Send>(run: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || catch_panic(run));
        let thread = thread.map_err(|error| format!("no thread to read the log: {error}"))?;
        thread
            .join()
            .unwrap_or_else(|_| Err("the reading thread panicked".to_owned()))
    })
}

/// Runs foreign code that may panic; gives the panic's message. (Built with `panic = "abort"` the
/// process ends instead, which is what a failed log leads to anyway.)
fn catch_panic<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|&text| text.to_owned()));
        text.unwrap_or_else(|| "panicked".to_owned())
    })
}

/// What goes to the disk in one write.
#[derive(Default)]
pub(super) struct Round(LogBatch);

impl Round {
    /// Adds records that follow each other.
    pub(super) fn append(&mut self, group: u64, records: Vec<Vec<u8>>) -> io::Result<()> {
        let entries: Vec<BytesValue> = records
            .into_iter()
            .map(|record| {
                let mut entry = BytesValue::default();
                entry.set_value(record);
                entry
            })
            .collect();
        self.0
            .add_entries::<Record>(group, &entries)
            .map_err(io::Error::other)
    }

    /// Drops the entries before an index.
    pub(super) fn compact(&mut self, group: u64, index: u64) {
        self.0.add_command(group, Command::Compact { index });
    }

    /// Replaces the hard state of a group.
    pub(super) fn put_hard(&mut self, group: u64, hard: Vec<u8>) -> io::Result<()> {
        self.0
            .put(group, HARD.to_vec(), hard)
            .map_err(io::Error::other)
    }
}

/// The engine's view of our disk.
struct Files {
    disk: Arc<dyn Disk>,
    guard: Arc<Guard>,
}

impl Files {
    fn handle(&self, path: &Path, mode: Open) -> io::Result<FileHandle> {
        Ok(FileHandle {
            file: self.disk.open(path, mode)?,
            path: path.to_path_buf(),
            guard: self.guard.clone(),
            disk: self.disk.clone(),
            written: AtomicU64::new(0),
            named: AtomicBool::new(false),
        })
    }
}

impl FileSystem for Files {
    type Handle = FileHandle;
    type Reader = Cursor;
    type Writer = Cursor;

    fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<FileHandle> {
        self.handle(path.as_ref(), Open::Create)
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> io::Result<FileHandle> {
        let mode = match permission {
            Permission::ReadOnly => Open::Read,
            Permission::ReadWrite => Open::Write,
        };
        self.handle(path.as_ref(), mode)
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.disk.remove(path.as_ref())
    }

    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        self.disk.rename(from.as_ref(), to.as_ref())
    }

    fn new_reader(&self, handle: Arc<FileHandle>) -> io::Result<Cursor> {
        Ok(Cursor { handle, offset: 0 })
    }

    fn new_writer(&self, handle: Arc<FileHandle>) -> io::Result<Cursor> {
        Ok(Cursor { handle, offset: 0 })
    }
}

/// An open log file.
struct FileHandle {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    guard: Arc<Guard>,
    disk: Arc<dyn Disk>,
    /// End of the last write since the file was opened.
    written: AtomicU64,
    /// Its directory entry is durable.
    named: AtomicBool,
}

impl FileHandle {
    fn cut(&self, len: u64) -> io::Result<()> {
        self.guard.check()?;
        self.guard.check_cut(&self.path, len)?;
        self.note(self.file.truncate(len))
    }

    /// Syncs the file and, the first time, its directory: the mark must not speak of a file whose name
    /// a power cut could still take.
    fn sync_all(&self) -> io::Result<()> {
        self.file.sync()?;
        if let Some(dir) = self.path.parent()
            && !self.named.load(Ordering::Acquire)
        {
            self.disk.sync_dir(dir)?;
            self.named.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Remembers an error of the disk, so that whatever the engine makes of it, the log has failed.
    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            let what = format!("log file {}", self.path.display());
            self.guard.fail(&what, error);
        })
    }
}

impl Handle for FileHandle {
    fn truncate(&self, offset: usize) -> io::Result<()> {
        self.cut(offset as u64)
    }

    fn file_size(&self) -> io::Result<usize> {
        usize::try_from(self.file.size()?).map_err(io::Error::other)
    }

    fn sync(&self) -> io::Result<()> {
        // Writers of one file and its sync exclude each other in the engine, so this is what the sync
        // covers.
        let end = self.written.load(Ordering::Acquire);
        if self.guard.failure().is_none() && self.note(self.sync_all()).is_ok() {
            self.guard.synced(&self.path, end);
        }
        Ok(())
    }
}

/// A place in a log file.
struct Cursor {
    handle: Arc<FileHandle>,
    offset: u64,
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.handle.guard.reading(&self.handle.path, self.offset);
        let read = self.handle.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl Write for Cursor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let handle = &self.handle;
        handle.guard.check()?;
        handle.note(handle.file.write_at(bytes, self.offset))?;
        self.offset += bytes.len() as u64;
        handle.written.store(self.offset, Ordering::Release);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Cursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(by) => (self.offset, by),
            SeekFrom::End(by) => (self.handle.file.size()?, by),
        };
        self.offset = base
            .checked_add_signed(by)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.offset)
    }
}

impl WriteExt for Cursor {
    fn truncate(&mut self, offset: usize) -> io::Result<()> {
        self.handle.cut(offset as u64)?;
        self.offset = offset as u64;
        Ok(())
    }

    fn allocate(&mut self, offset: usize, size: usize) -> io::Result<()> {
        self.handle.file.reserve(offset as u64, size as u64)
    }
}
