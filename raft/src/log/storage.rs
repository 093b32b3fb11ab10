//! One group's log as openraft sees it.

use super::group::View;
use super::guard::lock;
use super::writer::{Command, SharedGroup};
use super::{Shared, record};
use crate::limits;
use crate::types::{Entry, LogId, TypeConfig, Vote};
use futures::Stream;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;
use tokio::sync::oneshot;

/// One group's log: store and reader, cheap to clone.
#[derive(Clone)]
pub struct GroupLog {
    group: u64,
    state: SharedGroup,
    shared: Arc<Shared>,
}

impl GroupLog {
    pub(super) fn new(group: u64, state: SharedGroup, shared: Arc<Shared>) -> Self {
        Self {
            group,
            state,
            shared,
        }
    }

    /// Encoded bytes of the log's live entries.
    pub fn bytes(&self) -> u64 {
        lock(&self.state).bytes()
    }

    /// Indices of the log's entries.
    pub fn range(&self) -> Range<u64> {
        let state = lock(&self.state);
        state.start()..state.end()
    }

    /// Reads entries from the start of a range, as they are at one moment.
    fn read(&self, range: Range<u64>, max_bytes: Option<usize>) -> io::Result<Vec<Entry>> {
        for _ in 0..limits::LOG_READ_ATTEMPTS {
            let View {
                epoch,
                stored,
                cached,
            } = lock(&self.state).view(range.clone(), max_bytes);
            if stored.is_empty() {
                return Ok(cached);
            }
            let records = self.read_stored(stored.clone());
            // What was cut or purged meanwhile may be gone from the engine, or be other entries.
            if lock(&self.state).epoch() != epoch {
                continue;
            }
            let mut entries = Vec::with_capacity(cached.len());
            for (index, record) in stored.zip(records?) {
                entries.push(record::decode(record, index).map_err(|e| self.broken(index, e))?);
            }
            entries.extend(cached);
            return Ok(entries);
        }
        Err(io::Error::other(format!(
            "log of shard {}: changed under a reader {} times",
            self.group,
            limits::LOG_READ_ATTEMPTS
        )))
    }

    fn read_stored(&self, range: Range<u64>) -> io::Result<Vec<Vec<u8>>> {
        let engine = self.shared.engine.get()?;
        let records = engine
            .read(self.group, range.clone(), None)
            .map_err(|error| self.broken(range.start, error))?;
        if records.len() as u64 != range.end - range.start {
            return Err(self.broken(range.start, "fewer entries than the log holds"));
        }
        Ok(records)
    }

    fn broken(&self, index: u64, why: impl std::fmt::Display) -> io::Error {
        let text = format!("log of shard {}, entry {index}: {why}", self.group);
        io::Error::new(io::ErrorKind::InvalidData, text)
    }

    async fn send(&self, command: Command) -> io::Result<()> {
        self.shared.guard.check()?;
        let sent = self.shared.queue.send(command).await;
        sent.map_err(|_| io::Error::other("the log is closed"))
    }
}

fn indices(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(&index) => index,
        Bound::Excluded(&index) => index.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&index) => index.saturating_add(1),
        Bound::Excluded(&index) => index,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

impl RaftLogReader<TypeConfig> for GroupLog {
    async fn try_get_log_entries<R>(&mut self, range: R) -> Result<Vec<Entry>, io::Error>
    where
        R: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.read(indices(&range), None)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        self.read(start..end, Some(limits::LOG_READ_BYTES))
    }

    /// In pieces: after a restart the range can be all of the log.
    async fn entries_stream<R>(
        &mut self,
        range: R,
    ) -> impl Stream<Item = Result<Entry, io::Error>> + OptionalSend
    where
        R: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let from = (self.clone(), indices(&range), VecDeque::new());
        futures::stream::try_unfold(from, |(log, mut rest, mut piece)| async move {
            if piece.is_empty() && !rest.is_empty() {
                piece = log.read(rest.clone(), Some(limits::LOG_READ_BYTES))?.into();
                rest.start = piece
                    .back()
                    .map_or(rest.end, |entry: &Entry| entry.log_id.index + 1);
            }
            Ok(piece.pop_front().map(|entry| (entry, (log, rest, piece))))
        })
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(lock(&self.state).vote)
    }
}

impl RaftLogStorage<TypeConfig> for GroupLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let state = lock(&self.state);
        Ok(LogState {
            last_purged_log_id: state.purged,
            last_log_id: state.last,
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let (done, written) = oneshot::channel();
        self.send(Command::Vote {
            group: self.group,
            vote: *vote,
            done,
        })
        .await?;
        match written.await {
            Ok(result) => result,
            Err(_) => Err(io::Error::other("the log is closed")),
        }
    }

    /// Kept in memory; the group's next write carries it.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        lock(&self.state).committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(lock(&self.state).committed)
    }

    /// Returns when the entries can be read; `done` is called when they are durable. Waits for room if
    /// the disk does not keep up.
    async fn append<I>(&mut self, entries: I, done: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        if entries.is_empty() {
            done.io_completed(self.shared.guard.check());
            return Ok(());
        }
        self.shared.guard.check()?;
        let (bytes, cuts) = {
            let mut state = lock(&self.state);
            (state.append(&entries)?, state.cuts())
        };
        let permits =
            u32::try_from(bytes.min(limits::LOG_QUEUE_BYTES)).map_err(io::Error::other)?;
        let room = self.shared.room.clone().acquire_many_owned(permits);
        let room = room.await.map_err(io::Error::other)?;
        self.send(Command::Append {
            group: self.group,
            entries,
            bytes,
            cuts,
            room,
            done,
        })
        .await
    }

    /// Durable soon, and before every later append; a crash until then leaves the log as it was before
    /// the cut, as if the request for it had never come.
    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let end = {
            let mut state = lock(&self.state);
            if !state.truncate_after(last) {
                return Ok(());
            }
            state.end()
        };
        self.send(Command::Truncate {
            group: self.group,
            end,
        })
        .await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        if !lock(&self.state).purge(upto) {
            return Ok(());
        }
        self.send(Command::Purge {
            group: self.group,
            upto,
        })
        .await
    }
}
