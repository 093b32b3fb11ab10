//! The durable log of a node: entries, votes and purges of all its groups in one sequence of files.
//!
//! One writer (`writer`) gathers what all groups ask for, makes one write and one `fdatasync`, and
//! then tells everybody who waited, so that the cost of a sync is shared. Readers find the tail of each
//! log in memory (`group`) and older entries in the engine.
//!
//! What this log promises:
//!
//! - Whatever was acknowledged is there after a crash of the process or the machine.
//! - A write or sync that fails is never tried again. Everybody who waits gets an error, and so does
//!   everybody who comes later; [`LogStore::failure`] tells the node, which must end.
//! - Opening either gives everything that was acknowledged, or refuses and names the file. It cuts off
//!   only what was never acknowledged.
//!
//! Files in the data directory: `log/` belongs to the engine, `log.mark` is the high-water mark.

mod engine;
mod group;
mod guard;
mod mark;
mod open;
mod record;
pub(crate) mod seam;
mod storage;
mod writer;

pub use open::{LogOptions, OpenError, Worker};
pub use storage::GroupLog;

use crate::Failure;
use engine::Engine;
use guard::{Guard, lock};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use weir_admission::ShardId;
use writer::{Command, Counters, SharedGroup};

/// The log of a node, open.
pub struct LogStore {
    shared: Arc<Shared>,
    groups: BTreeMap<u64, SharedGroup>,
    ended: oneshot::Receiver<()>,
}

/// What every handle of the log shares.
struct Shared {
    queue: mpsc::Sender<Command>,
    /// Room for entries that wait, in bytes.
    room: Arc<Semaphore>,
    guard: Arc<Guard>,
    engine: Arc<EngineCell>,
    counters: Arc<Counters>,
}

/// The engine while the log is open. The writer empties it at its end, so that a late reader gets an
/// error and the directory can be opened again.
#[derive(Default)]
struct EngineCell(RwLock<Option<Arc<Engine>>>);

impl EngineCell {
    fn get(&self) -> io::Result<Arc<Engine>> {
        let cell = self.0.read().unwrap_or_else(PoisonError::into_inner);
        cell.clone()
            .ok_or_else(|| io::Error::other("the log is closed"))
    }

    fn empty(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// What the log has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Writes, each with one sync.
    pub rounds: u64,
    /// Appends of groups that these writes carried.
    pub appends: u64,
}

impl LogStore {
    /// The log of a shard; `None` if the log was opened for fewer shards.
    pub fn group(&self, shard: ShardId) -> Option<GroupLog> {
        let group = u64::from(shard.0);
        let state = self.groups.get(&group)?.clone();
        Some(GroupLog::new(group, state, self.shared.clone()))
    }

    /// Encoded bytes of the live entries of a shard: what a group must bound by snapshots and purges.
    pub fn bytes(&self, shard: ShardId) -> u64 {
        let state = self.groups.get(&u64::from(shard.0));
        state.map_or(0, |state| lock(state).bytes())
    }

    /// Turns into `Some` when the log can no longer be written. The process must end then.
    pub fn failure(&self) -> watch::Receiver<Option<Failure>> {
        self.shared.guard.watch()
    }

    /// What was done since the log was opened.
    pub fn stats(&self) -> LogStats {
        let counters = &self.shared.counters;
        LogStats {
            rounds: counters.rounds.load(Ordering::Relaxed),
            appends: counters.appends.load(Ordering::Relaxed),
        }
    }

    /// Writes what is queued and ends. When it returns every handle of the log answers with an error,
    /// and the directory can be opened again.
    ///
    /// # Errors
    ///
    /// The log had failed, or fails now.
    pub async fn close(self) -> Result<(), Failure> {
        // Either may find the writer gone, which is what is wanted.
        let _ = self.shared.queue.send(Command::Close).await;
        let _ = self.ended.await;
        self.shared.guard.failure().map_or(Ok(()), Err)
    }
}
