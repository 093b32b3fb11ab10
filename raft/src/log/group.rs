//! What is known in memory of one group's log: where it begins and ends, how large it is, and its
//! tail.
//!
//! Invariants:
//!
//! - The log is `start .. end`, one size per entry.
//! - The cache is the last entries of the log, without a gap up to its end.
//! - Entries that the engine may not hold yet (from `written` on) are in the cache.

use super::record::{self, RecordError};
use crate::types::{Entry, LogId, Vote};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct GroupState {
    pub(super) vote: Option<Vote>,
    pub(super) committed: Option<LogId>,
    pub(super) purged: Option<LogId>,
    /// Position of the last entry, or the purged one if there is none.
    pub(super) last: Option<LogId>,
    start: u64,
    sizes: VecDeque<u32>,
    bytes: u64,
    cache: VecDeque<Entry>,
    cache_bytes: usize,
    cache_limit: usize,
    written: u64,
    cuts: u64,
    epoch: u64,
}

/// What a reader gets at one moment: entries to fetch from the engine, followed by those at hand.
pub(super) struct View {
    /// Unchanged as long as nothing was cut or purged.
    pub(super) epoch: u64,
    /// Indices to be fetched from the engine.
    pub(super) stored: Range<u64>,
    /// The entries behind them.
    pub(super) cached: Vec<Entry>,
}

impl GroupState {
    /// An empty log whose cache holds at most `cache_limit` bytes of what the engine has too.
    pub(super) fn new(cache_limit: usize, start: u64) -> Self {
        Self {
            cache_limit,
            start,
            written: start,
            ..Self::default()
        }
    }

    /// Index behind the last entry.
    pub(super) fn end(&self) -> u64 {
        self.start + self.sizes.len() as u64
    }

    /// Index of the first entry.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Encoded bytes of the entries of the log.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How often the log was cut; an append that was sent before a cut proves nothing about what is
    /// written after it.
    pub(super) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Unchanged as long as nothing was cut or purged.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Takes entries into the log. They must follow it; an empty log that was never purged may begin
    /// anywhere. Returns their encoded bytes.
    pub(super) fn append(&mut self, entries: &[Entry]) -> io::Result<usize> {
        let mut sizes = Vec::with_capacity(entries.len());
        let fresh = self.sizes.is_empty() && self.purged.is_none();
        let first = entries.first().map_or(0, |entry| entry.log_id.index);
        let from = if fresh { first } else { self.end() };
        for (expected, entry) in (from..).zip(entries) {
            if entry.log_id.index != expected {
                return Err(invalid(RecordError::Index {
                    expected,
                    found: entry.log_id.index,
                }));
            }
            let size = record::encoded_len(entry).map_err(invalid)?;
            sizes.push(u32::try_from(size).map_err(invalid)?);
        }
        if fresh {
            self.start = from;
            self.written = from;
        }
        let mut total = 0;
        for (entry, size) in entries.iter().zip(sizes) {
            total += size as usize;
            self.sizes.push_back(size);
            self.cache.push_back(entry.clone());
            self.last = Some(entry.log_id);
        }
        self.bytes += total as u64;
        self.cache_bytes += total;
        Ok(total)
    }

    /// Notes that entries before `end` are in the engine, if nothing was cut since they were sent.
    pub(super) fn written(&mut self, end: u64, cuts: u64) {
        if cuts == self.cuts {
            self.written = self.written.max(end);
            self.evict();
        }
    }

    fn evict(&mut self) {
        while self.cache_bytes > self.cache_limit && self.cached_from() < self.written {
            let size = self.size(self.cached_from());
            if self.cache.pop_front().is_none() {
                break;
            }
            self.cache_bytes -= size;
        }
    }

    /// Cuts the log behind `last`. Returns whether anything was cut.
    pub(super) fn truncate_after(&mut self, last: Option<LogId>) -> bool {
        let end = last.map_or(0, |id| id.index + 1).max(self.start);
        if end >= self.end() {
            return false;
        }
        while self.end() > end {
            let size = self.sizes.pop_back().unwrap_or_default();
            self.bytes -= u64::from(size);
            if self.cache.pop_back().is_some() {
                self.cache_bytes -= size as usize;
            }
        }
        self.last = last.or(self.purged);
        self.written = self.written.min(end);
        self.cuts += 1;
        self.epoch += 1;
        true
    }

    /// Drops entries up to a position, which may lie behind the log's end. Returns whether that is news.
    pub(super) fn purge(&mut self, upto: LogId) -> bool {
        if self.purged >= Some(upto) {
            return false;
        }
        let start = upto.index + 1;
        while self.start < start {
            if self.cached_from() == self.start {
                let size = self.size(self.start);
                if self.cache.pop_front().is_some() {
                    self.cache_bytes -= size;
                }
            }
            let Some(size) = self.sizes.pop_front() else {
                break;
            };
            self.bytes -= u64::from(size);
            self.start += 1;
        }
        self.start = self.start.max(start);
        self.written = self.written.max(self.start);
        self.purged = Some(upto);
        if self.sizes.is_empty() {
            self.last = self.purged;
        }
        self.epoch += 1;
        true
    }

    /// What to read of a range: all of it that the log holds, or as much from its start as fits into
    /// `max_bytes`, but at least one entry.
    pub(super) fn view(&self, range: Range<u64>, max_bytes: Option<usize>) -> View {
        let start = range.start.max(self.start);
        let mut end = range.end.min(self.end()).max(start);
        if let Some(max_bytes) = max_bytes {
            end = self.fitting(start..end, max_bytes);
        }
        let cached_from = self.cached_from();
        let stored = start..end.min(cached_from).max(start);
        let cached = (stored.end.max(start)..end)
            .filter_map(|index| self.cache.get(usize::try_from(index - cached_from).ok()?))
            .cloned()
            .collect();
        View {
            epoch: self.epoch,
            stored,
            cached,
        }
    }

    fn fitting(&self, range: Range<u64>, max_bytes: usize) -> u64 {
        let mut total = 0;
        for index in range.clone() {
            total += self.size(index);
            if total > max_bytes && index > range.start {
                return index;
            }
        }
        range.end
    }

    fn cached_from(&self) -> u64 {
        self.end() - self.cache.len() as u64
    }

    fn size(&self, index: u64) -> usize {
        usize::try_from(index - self.start)
            .ok()
            .and_then(|at| self.sizes.get(at))
            .map_or(0, |&size| size as usize)
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
