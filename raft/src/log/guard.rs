//! Stands between the engine and the disk: keeps the high-water mark, refuses repairs that would lose
//! what was durable, and remembers the first failure.

use super::OpenError;
use super::mark::{LogFile, Mark};
use crate::Failure;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Locks a mutex whose data stays whole even if a holder panicked.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module.
pub(super) struct Guard {
    mark: Mutex<Mark>,
    failure: watch::Sender<Option<Failure>>,
    damage: Mutex<Option<Damage>>,
    last_read: Mutex<Option<(PathBuf, u64)>>,
}

/// Durable bytes that are not there or not readable.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    pub(super) synced: u64,
}

impl Guard {
    pub(super) fn new(mark: Mark) -> Self {
        Self {
            mark: Mutex::new(mark),
            failure: watch::Sender::new(None),
            damage: Mutex::new(None),
            last_read: Mutex::new(None),
        }
    }

    /// Checks that the files of the mark are there and long enough.
    pub(super) fn check_files(
        &self,
        log_dir: &Path,
        size: impl Fn(&Path) -> io::Result<u64>,
    ) -> Result<(), OpenError> {
        for (name, synced) in lock(&self.mark).expected() {
            let path = log_dir.join(name);
            let found = match size(&path) {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                Err(source) => return Err(OpenError::Io { path, source }),
            };
            if found < synced {
                return Err(OpenError::Lost {
                    path,
                    offset: found,
                    synced,
                });
            }
        }
        Ok(())
    }

    /// Called before a file is cut. While the log is opened the engine cuts what it cannot read; that
    /// is only right behind the mark.
    pub(super) fn check_cut(&self, path: &Path, len: u64) -> io::Result<()> {
        let Some(file) = LogFile::parse(path) else {
            return Ok(());
        };
        let synced = lock(&self.mark).synced(file);
        if len >= synced {
            // Torn writes of a crash, or the room set aside in a file that is closed.
            tracing::debug!(path = %path.display(), len, "cutting the log file behind its durable part");
            return Ok(());
        }
        let damage = Damage {
            path: path.to_path_buf(),
            offset: len,
            synced,
        };
        lock(&self.damage).get_or_insert(damage);
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "durable bytes are damaged",
        ))
    }

    /// The damage that stopped the opening.
    pub(super) fn damage(&self) -> Option<Damage> {
        lock(&self.damage).clone()
    }

    /// Notes where the engine reads, so that an error while the log is opened can name the place.
    pub(super) fn reading(&self, path: &Path, offset: u64) {
        *lock(&self.last_read) = Some((path.to_path_buf(), offset));
    }

    /// Where the engine read last.
    pub(super) fn last_read(&self) -> Option<(PathBuf, u64)> {
        lock(&self.last_read).clone()
    }

    /// Notes that the first `end` bytes of a file are durable.
    pub(super) fn synced(&self, path: &Path, end: u64) {
        let Some(file) = LogFile::parse(path) else {
            return;
        };
        if let Err(error) = lock(&self.mark).raise(file, end) {
            self.fail("log mark", &error);
        }
    }

    /// Makes the mark durable.
    pub(super) fn sync_mark(&self) {
        if let Err(error) = lock(&self.mark).sync() {
            self.fail("log mark", &error);
        }
    }

    /// Records a failure; the first one stays.
    pub(super) fn fail(&self, what: &str, why: &dyn std::fmt::Display) {
        self.failure.send_if_modified(|failure| {
            if failure.is_some() {
                return false;
            }
            tracing::error!(what, %why, "the log has failed");
            *failure = Some(Failure {
                what: what.to_owned(),
                why: why.to_string(),
            });
            true
        });
    }

    /// The failure, if there was one.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.failure.borrow().clone()
    }

    /// An error for everybody who waits on a failed log.
    pub(super) fn check(&self) -> io::Result<()> {
        self.failure().map_or(Ok(()), |f| Err(io::Error::other(f)))
    }

    pub(super) fn watch(&self) -> watch::Receiver<Option<Failure>> {
        self.failure.subscribe()
    }
}
