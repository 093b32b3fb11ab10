//! The thread that owns the store: it writes what was counted, forgets what is old, and reads.

use super::counts::{Counts, Key};
use super::read::{Answer, Fold, ReadError};
use super::store::{Store, StoreError};
use super::{Command, Shared};
use crate::limits::{
    HISTORY_BATCH_MAX, HISTORY_INTERVAL, HISTORY_MINUTES_MAX, HISTORY_REOPEN,
    HISTORY_REOPEN_IN_USE, HISTORY_TRIM_BATCHES_MAX,
};
use crate::metrics::HistoryMetrics;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;
use weir_proto::convert::history::ReadHistory;

/// What the thread works with.
pub(super) struct Keeper {
    dir: PathBuf,
    /// Minutes that are kept.
    retention: u32,
    bytes_max: u64,
    shared: Arc<Shared>,
    metrics: HistoryMetrics,
    store: Option<Store>,
    /// Why there is no store.
    trouble: String,
    /// When it is opened again.
    open_at: Instant,
    /// What was counted and is not in the store.
    pending: BTreeMap<(u32, Key), Counts>,
}

impl Keeper {
    pub(super) fn new(
        dir: PathBuf,
        retention: u32,
        bytes_max: u64,
        shared: Arc<Shared>,
        metrics: HistoryMetrics,
    ) -> Keeper {
        Keeper {
            dir,
            retention,
            bytes_max,
            shared,
            metrics,
            store: None,
            trouble: "the store is not open yet".into(),
            open_at: Instant::now(),
            pending: BTreeMap::new(),
        }
    }

    /// Works until it is told to end, or nobody is left who could tell it.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        self.open();
        let mut write_at = Instant::now() + HISTORY_INTERVAL;
        loop {
            let wait = write_at.saturating_duration_since(Instant::now());
            match commands.recv_timeout(wait) {
                Ok(Command::Read(read, answer)) => {
                    // Whoever asked may have gone.
                    let _told = answer.send(self.read(&read));
                }
                Ok(Command::Close(closed)) => {
                    self.write();
                    if let Some(store) = self.store.take()
                        && let Err(error) = store.flush()
                    {
                        tracing::warn!(%error, "the last moments of the history are lost");
                    }
                    let _told = closed.send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.write();
                    self.trim();
                    write_at = Instant::now() + HISTORY_INTERVAL;
                }
                // As after a crash: what was not written is lost.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Opens the store if it is time to. A damaged one is put aside, and an empty one takes its place.
    fn open(&mut self) {
        if self.store.is_some() || Instant::now() < self.open_at {
            return;
        }
        match Store::open(&self.dir) {
            Ok(store) => self.opened(store),
            Err(error) => {
                let again = matches!(error, StoreError::Damaged(_));
                self.fail(&error);
                if again {
                    match Store::open(&self.dir) {
                        Ok(store) => self.opened(store),
                        Err(error) => self.fail(&error),
                    }
                }
            }
        }
    }

    fn opened(&mut self, store: Store) {
        self.metrics.store(true, store.bytes());
        self.trouble.clear();
        self.store = Some(store);
    }

    /// The store does not work: it is closed, and opened again later.
    fn fail(&mut self, error: &StoreError) {
        self.store = None;
        self.metrics.store(false, 0);
        self.metrics.store_error();
        let pause = match error {
            StoreError::InUse => HISTORY_REOPEN_IN_USE,
            StoreError::Damaged(_) | StoreError::Unavailable(_) => HISTORY_REOPEN,
        };
        self.open_at = Instant::now() + pause;
        let trouble = error.to_string();
        if let StoreError::Damaged(_) = error {
            self.metrics.store_damaged();
            match put_aside(&self.dir, self.shared.now_s()) {
                Ok(aside) => tracing::warn!(
                    %error,
                    aside = %aside.display(),
                    "the history of use is damaged: it was put aside, and a new one begins; no decision \
                     depends on it"
                ),
                Err(cause) => tracing::warn!(
                    %error,
                    dir = %self.dir.display(),
                    %cause,
                    "the history of use is damaged and cannot be put aside: remove its directory; no \
                     decision depends on it"
                ),
            }
        } else if trouble != self.trouble {
            tracing::warn!(
                %error,
                dir = %self.dir.display(),
                "the history of use is not kept until its store works again; no decision depends on it"
            );
        }
        self.trouble = trouble;
    }

    /// Writes what was counted since the last time.
    fn write(&mut self) {
        self.open();
        let taken = self.shared.take();
        self.metrics.overflowed(taken.overflowed);
        let mut lost = taken.lost;
        for (minute, key, counts) in taken.rows {
            self.pending.entry((minute, key)).or_default().add(&counts);
        }
        while let Some(store) = &mut self.store
            && !self.pending.is_empty()
        {
            let batch = first_rows(&self.pending);
            match store.add(&batch) {
                Ok(()) => {
                    for (minute, key, _) in batch {
                        self.pending.remove(&(minute, key));
                    }
                    self.metrics.store(true, store.bytes());
                }
                Err(error) => self.fail(&error),
            }
        }
        lost += self.give_up();
        self.metrics.lost(lost);
    }

    /// Gives up the oldest minutes of those that wait for the store, if they are too many.
    fn give_up(&mut self) -> u64 {
        let mut minutes: Vec<u32> = self.pending.keys().map(|(minute, _)| *minute).collect();
        minutes.dedup();
        let Some(first) = minutes.iter().rev().nth(HISTORY_MINUTES_MAX - 1) else {
            return 0;
        };
        let before = self.pending.len();
        self.pending.retain(|(minute, _), _| minute >= first);
        (before - self.pending.len()) as u64
    }

    /// Forgets what is older than the retention, and the oldest of what is too much.
    fn trim(&mut self) {
        let first = self.shared.now().saturating_sub(self.retention);
        for _ in 0..HISTORY_TRIM_BATCHES_MAX {
            let Some(store) = &mut self.store else { return };
            match store.trim(first, self.bytes_max) {
                Ok(more) => {
                    self.metrics.store(true, store.bytes());
                    if !more {
                        return;
                    }
                }
                Err(error) => self.fail(&error),
            }
        }
    }

    fn read(&mut self, read: &ReadHistory) -> Result<Answer, ReadError> {
        self.write();
        let mut fold = Fold::new(read);
        let mut oldest = None;
        if let Some(store) = &self.store {
            match read_store(store, &mut fold, read) {
                Ok(first) => oldest = first,
                Err(ReadFailure::TooMany) => return Err(ReadError::TooManyPoints),
                Err(ReadFailure::Store(error)) => {
                    self.fail(&error);
                    fold = Fold::new(read);
                }
            }
        }
        for ((minute, key), counts) in &self.pending {
            fold.add(*minute, key, counts)?;
        }
        let oldest = oldest.or_else(|| self.pending.keys().next().map(|(minute, _)| *minute));
        Ok(fold.finish(oldest, self.trouble.clone()))
    }
}

enum ReadFailure {
    TooMany,
    Store(StoreError),
}

impl From<StoreError> for ReadFailure {
    fn from(error: StoreError) -> ReadFailure {
        ReadFailure::Store(error)
    }
}

/// Folds what the store keeps of the range, and tells the first minute of which it keeps anything.
fn read_store(
    store: &Store,
    fold: &mut Fold<'_>,
    read: &ReadHistory,
) -> Result<Option<u32>, ReadFailure> {
    let Some((first, last)) = store.span()? else {
        return Ok(None);
    };
    let minute = |minute: u64| u32::try_from(minute).unwrap_or(u32::MAX);
    let range =
        minute(read.from_minute).max(first)..minute(read.to_minute).min(last.saturating_add(1));
    for minute in range {
        for row in store.rows(minute, &read.target) {
            let (key, counts) = row?;
            fold.add(minute, &key, &counts)
                .map_err(|_| ReadFailure::TooMany)?;
        }
    }
    Ok(Some(first))
}

fn first_rows(pending: &BTreeMap<(u32, Key), Counts>) -> Vec<(u32, Key, Counts)> {
    let rows = pending.iter().take(HISTORY_BATCH_MAX);
    rows.map(|((minute, key), counts)| (*minute, key.clone(), counts.clone()))
        .collect()
}

/// Moves a damaged store beside its place, where an operator may look at it. Only the last one is kept.
fn put_aside(dir: &Path, now_s: u64) -> std::io::Result<PathBuf> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let parent = dir.parent().unwrap_or(Path::new(""));
    let prefix = format!("{name}.damaged-");
    for entry in std::fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    let aside = dir.with_file_name(format!("{prefix}{now_s}"));
    std::fs::rename(dir, &aside)?;
    Ok(aside)
}
