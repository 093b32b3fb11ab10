//! The one writer of a node's log.
//!
//! It takes whatever all groups have queued, makes one write and one sync of it, and then tells
//! everybody who waited. The next round gathers while the disk works on this one.

use super::engine::{Engine, Round};
use super::group::GroupState;
use super::guard::{Guard, lock};
use super::record::{self, Hard};
use crate::limits;
use crate::types::{Entry, LogId, TypeConfig, Vote};
use openraft::storage::IOFlushed;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// A group's state, shared with its readers.
pub(super) type SharedGroup = Arc<Mutex<GroupState>>;

/// What a group asks of the writer. The order of a group's commands is kept.
pub(super) enum Command {
    Append {
        group: u64,
        entries: Vec<Entry>,
        bytes: usize,
        /// `GroupState::cuts` when it was sent.
        cuts: u64,
        /// Held until the entries are written.
        room: OwnedSemaphorePermit,
        done: IOFlushed<TypeConfig>,
    },
    Vote {
        group: u64,
        vote: Vote,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Everything from this index on is void.
    Truncate {
        group: u64,
        end: u64,
    },
    Purge {
        group: u64,
        upto: LogId,
    },
    /// Write what is queued before it, then end.
    Close,
}

/// Counts since the log was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) rounds: AtomicU64,
    pub(super) appends: AtomicU64,
}

/// What the writer knows of a group: what is, or in this round becomes, durable.
struct Written {
    hard: Hard,
    /// The entries that the engine holds, the void ones included.
    span: Range<u64>,
}

/// See the module.
pub(super) struct Writer {
    engine: Arc<Engine>,
    guard: Arc<Guard>,
    groups: BTreeMap<u64, SharedGroup>,
    written: BTreeMap<u64, Written>,
    counters: Arc<Counters>,
}

impl Written {
    /// Drops the engine's entries before an index, as the engine will: a compaction behind its end
    /// leaves it empty.
    fn compact(&mut self, group: u64, index: u64, round: &mut Round) {
        if self.span.is_empty() || index <= self.span.start {
            return;
        }
        self.span = index..self.span.end.max(index);
        round.compact(group, index);
    }
}

/// Whether the writer goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Go,
    End,
}

/// Takes what is queued, up to the bounds of one round.
fn gather(first: Command, queue: &mut mpsc::Receiver<Command>) -> (Vec<Command>, Next) {
    let mut commands = Vec::new();
    let mut room = limits::LOG_WRITE_BYTES;
    let mut next = Some(first);
    while let Some(command) = next {
        match &command {
            Command::Close => return (commands, Next::End),
            Command::Append { bytes, .. } => room = room.saturating_sub(*bytes),
            Command::Vote { .. } | Command::Truncate { .. } | Command::Purge { .. } => {}
        }
        commands.push(command);
        if room == 0 || commands.len() >= limits::LOG_QUEUE_COMMANDS {
            break;
        }
        next = queue.try_recv().ok();
    }
    (commands, Next::Go)
}

/// Who waits for a round, in the order they came.
#[derive(Default)]
struct Waiters {
    appends: Vec<Appended>,
    votes: Vec<Voted>,
}

struct Appended {
    group: u64,
    end: u64,
    cuts: u64,
    room: OwnedSemaphorePermit,
    done: IOFlushed<TypeConfig>,
}

struct Voted {
    group: u64,
    vote: Vote,
    done: oneshot::Sender<io::Result<()>>,
}

impl Writer {
    pub(super) fn new(
        engine: Arc<Engine>,
        guard: Arc<Guard>,
        groups: BTreeMap<u64, SharedGroup>,
        hards: BTreeMap<u64, Hard>,
        counters: Arc<Counters>,
    ) -> Self {
        let written = hards
            .into_iter()
            .map(|(group, hard)| {
                let span = engine.span(group).unwrap_or(0..0);
                (group, Written { hard, span })
            })
            .collect();
        Self {
            engine,
            guard,
            groups,
            written,
            counters,
        }
    }

    /// Serves a queue on a thread of its own until it is closed.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        while let Some(first) = queue.blocking_recv() {
            if self.serve(first, &mut queue) == Next::End {
                break;
            }
        }
        self.finish(queue);
    }

    /// Serves a queue as a task, which blocks its runtime while the disk works: for simulation, where
    /// threads would not be repeatable.
    pub(super) async fn run_task(mut self, mut queue: mpsc::Receiver<Command>, every: Duration) {
        let mut purge_at = tokio::time::Instant::now() + every;
        loop {
            match tokio::time::timeout_at(purge_at, queue.recv()).await {
                Ok(Some(first)) => {
                    if self.serve(first, &mut queue) == Next::End {
                        break;
                    }
                }
                Ok(None) => break,
                Err(_elapsed) => {
                    self.engine.purge_files();
                    self.guard.sync_mark();
                    purge_at = tokio::time::Instant::now() + every;
                }
            }
        }
        self.finish(queue);
    }

    fn serve(&mut self, first: Command, queue: &mut mpsc::Receiver<Command>) -> Next {
        let (commands, next) = gather(first, queue);
        self.round(commands, BTreeSet::new());
        next
    }

    /// Writes the last committed positions, so that a restart after an orderly end need not wait for a
    /// leader to learn them; refuses what is still queued.
    fn finish(mut self, mut queue: mpsc::Receiver<Command>) {
        let unwritten = |(group, written): (&u64, &Written)| {
            let committed = lock(self.groups.get(group)?).committed;
            (committed != written.hard.committed).then_some(*group)
        };
        let touched = self.written.iter().filter_map(unwritten).collect();
        self.round(Vec::new(), touched);
        queue.close();
        let mut waiters = Waiters::default();
        while let Ok(command) = queue.try_recv() {
            // Nothing of this round is written; only who waits is of interest.
            let _ = self.take(
                command,
                &mut Round::default(),
                &mut BTreeSet::new(),
                &mut waiters,
            );
        }
        self.complete(waiters, Err(io::Error::other("the log is closed")));
    }

    /// One write and one sync for these commands and the hard state of these groups.
    fn round(&mut self, commands: Vec<Command>, touched: BTreeSet<u64>) {
        let mut waiters = Waiters::default();
        let result = self.write(commands, touched, &mut waiters);
        self.complete(waiters, result);
    }

    fn write(
        &mut self,
        commands: Vec<Command>,
        mut touched: BTreeSet<u64>,
        waiters: &mut Waiters,
    ) -> io::Result<()> {
        let mut round = Round::default();
        for command in commands {
            // Every command is taken, even after an error, so that all who wait are told.
            if let Err(error) = self.take(command, &mut round, &mut touched, waiters) {
                self.guard.fail("log writer", &error);
            }
        }
        self.guard.check()?;
        if touched.is_empty() {
            return Ok(());
        }
        self.put_hards(touched, &mut round)?;
        self.engine.write(&mut round)?;
        self.counters.rounds.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Adds a command to the round.
    fn take(
        &mut self,
        command: Command,
        round: &mut Round,
        touched: &mut BTreeSet<u64>,
        waiters: &mut Waiters,
    ) -> io::Result<()> {
        match command {
            Command::Append {
                group,
                entries,
                bytes: _,
                cuts,
                room,
                done,
            } => {
                touched.insert(group);
                let end = entries.last().map_or(0, |entry| entry.log_id.index + 1);
                waiters.appends.push(Appended {
                    group,
                    end,
                    cuts,
                    room,
                    done,
                });
                self.append(group, &entries, round)
            }
            Command::Vote { group, vote, done } => {
                touched.insert(group);
                waiters.votes.push(Voted { group, vote, done });
                self.of(group)?.hard.vote = Some(vote);
                Ok(())
            }
            Command::Truncate { group, end } => {
                touched.insert(group);
                self.of(group)?.hard.end = end;
                Ok(())
            }
            Command::Purge { group, upto } => {
                touched.insert(group);
                let written = self.of(group)?;
                let start = upto.index + 1;
                written.hard.purged = Some(upto);
                written.hard.start = start;
                written.hard.end = written.hard.end.max(start);
                written.compact(group, start, round);
                Ok(())
            }
            Command::Close => Ok(()),
        }
    }

    fn append(&mut self, group: u64, entries: &[Entry], round: &mut Round) -> io::Result<()> {
        let Some((first, last)) = entries.first().zip(entries.last()) else {
            return Ok(());
        };
        let (first, end) = (first.log_id.index, last.log_id.index + 1);
        let mut records = Vec::with_capacity(entries.len());
        for entry in entries {
            records.push(record::encode(entry).map_err(io::Error::other)?);
        }
        let written = self.of(group)?;
        if written.hard.start == written.hard.end {
            written.hard.start = first;
        }
        // Entries that a lost compaction left behind, or all of them if the log goes on elsewhere: the
        // engine knows no holes.
        written.compact(group, written.hard.start, round);
        if !(written.span.start..=written.span.end).contains(&first) {
            written.compact(group, written.span.end, round);
        }
        if written.span.is_empty() {
            written.span.start = first;
        }
        written.span.end = end;
        written.hard.end = end;
        round.append(group, records)
    }

    /// Adds the hard state of groups, each with the last committed position that was told.
    fn put_hards(&mut self, groups: BTreeSet<u64>, round: &mut Round) -> io::Result<()> {
        for group in groups {
            let committed = self
                .groups
                .get(&group)
                .and_then(|state| lock(state).committed);
            let written = self.of(group)?;
            // A position may be told before this round has its entry; it must not be stored first.
            if let Some(committed) = committed.filter(|id| id.index < written.hard.end) {
                written.hard.committed = Some(committed);
            }
            let hard = written.hard.encode().map_err(io::Error::other)?;
            round.put_hard(group, hard)?;
        }
        Ok(())
    }

    fn of(&mut self, group: u64) -> io::Result<&mut Written> {
        self.written
            .get_mut(&group)
            .ok_or_else(|| io::Error::other(format!("the log has no group {group}")))
    }

    /// Tells everybody who waited.
    fn complete(&self, waiters: Waiters, result: io::Result<()>) {
        let again = || match &result {
            Ok(()) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        for waiter in waiters.appends {
            if let Some(state) = self.groups.get(&waiter.group).filter(|_| result.is_ok()) {
                lock(state).written(waiter.end, waiter.cuts);
            }
            self.counters.appends.fetch_add(1, Ordering::Relaxed);
            drop(waiter.room);
            waiter.done.io_completed(again());
        }
        for waiter in waiters.votes {
            if let Some(state) = self.groups.get(&waiter.group).filter(|_| result.is_ok()) {
                lock(state).vote = Some(waiter.vote);
            }
            // Whoever no longer waits needs no answer.
            let _ = waiter.done.send(again());
        }
    }
}
