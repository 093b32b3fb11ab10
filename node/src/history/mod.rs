//! The history of use: what this node decided for each target, priority and tenant in each minute.
//!
//! A record for people, kept by each node for itself. It counts what the node answered while it led
//! (`recorder`), in memory (`counts`, bounded), and a thread of its own writes the sums every few
//! seconds (`keeper`, `store`). Minutes are those of the node's wall clock, the only use of it: nothing
//! here decides anything, all of it may be lost, and no error of it stops the node. A panic inside
//! sled would: release builds abort.
//!
//! What a release or a cancel changes is read before its entry is proposed. One that travels with its grant,
//! or while that is on its way, finds none yet: its correction is missing here, never in the rules.

mod counts;
mod keeper;
mod read;
mod recorder;
mod row;
mod store;
#[cfg(test)]
mod tests;

pub use self::read::{Answer, OTHER, ReadError};
pub(crate) use self::recorder::Counted;

use self::counts::{Minutes, Taken};
use self::keeper::Keeper;
use crate::config::HistoryConfig;
use crate::limits::{HISTORY_CLOSE_WITHIN, HISTORY_COMMANDS_MAX};
use crate::metrics::HistoryMetrics;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;
use weir_proto::convert::history::ReadHistory;

/// Seconds since 1970 in UTC.
pub type Wall = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The wall clock of this machine.
pub fn wall() -> Wall {
    Arc::new(|| {
        // A clock before 1970 is as good as none.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    })
}

/// The history of one node. Cheap to clone. When all clones are gone the thread ends, as in a crash.
#[derive(Clone)]
pub struct History {
    /// `None`: nothing is counted.
    shared: Option<Arc<Shared>>,
    commands: SyncSender<Command>,
}

/// Where decisions are counted.
#[derive(Clone, Default)]
pub struct Recorder(Option<Arc<Shared>>);

/// What the thread is told.
enum Command {
    Read(ReadHistory, oneshot::Sender<Result<Answer, ReadError>>),
    /// Write everything and end.
    Close(oneshot::Sender<()>),
}

/// What those who count share with the thread.
struct Shared {
    minutes: Mutex<Minutes>,
    wall: Wall,
}

impl Shared {
    fn minutes(&self) -> MutexGuard<'_, Minutes> {
        // Counts are whole after every line that can panic.
        self.minutes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_s(&self) -> u64 {
        (self.wall)()
    }

    /// The minute that it is, counted from 1970.
    fn now(&self) -> u32 {
        u32::try_from(self.now_s() / 60).unwrap_or(u32::MAX)
    }

    fn take(&self) -> Taken {
        self.minutes().take(self.now())
    }
}

impl History {
    /// Starts to count, and to keep what is counted in `dir`.
    pub fn start(
        dir: PathBuf,
        config: HistoryConfig,
        wall: Wall,
        metrics: HistoryMetrics,
    ) -> History {
        let (commands, told) = sync_channel(HISTORY_COMMANDS_MAX);
        if config.retention_hours == 0 {
            return History {
                shared: None,
                commands,
            };
        }
        let shared = Arc::new(Shared {
            minutes: Mutex::default(),
            wall,
        });
        let retention = config.retention_hours.saturating_mul(60);
        let bytes_max = u64::from(config.max_mib) * 1024 * 1024;
        let keeper = Keeper::new(dir, retention, bytes_max, shared.clone(), metrics);
        let thread = std::thread::Builder::new()
            .name("history".into())
            .spawn(move || keeper.run(&told));
        match thread {
            Ok(_runs) => History {
                shared: Some(shared),
                commands,
            },
            Err(error) => {
                tracing::warn!(%error, "no thread for the history of use: none is kept");
                History {
                    shared: None,
                    commands,
                }
            }
        }
    }

    /// Where decisions are counted.
    pub fn recorder(&self) -> Recorder {
        Recorder(self.shared.clone())
    }

    /// Reads what this node counted, the moments before included.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn read(&self, read: ReadHistory) -> Result<Answer, ReadError> {
        if self.shared.is_none() {
            return Ok(Answer {
                trouble: "it keeps none".into(),
                ..Answer::default()
            });
        }
        let (answer, told) = oneshot::channel();
        match self.commands.try_send(Command::Read(read, answer)) {
            Ok(()) => told.await.unwrap_or(Err(ReadError::Stopped)),
            Err(TrySendError::Full(_)) => Err(ReadError::Busy),
            Err(TrySendError::Disconnected(_)) => Err(ReadError::Stopped),
        }
    }

    /// Writes what was counted and ends the thread, within [`HISTORY_CLOSE_WITHIN`].
    pub async fn close(&self) {
        if !self.close_within(HISTORY_CLOSE_WITHIN).await {
            tracing::warn!("the last moments of the history of use may be lost");
        }
    }

    /// Whether all was written in time. Nothing is left to write if the thread had ended before.
    async fn close_within(&self, time: Duration) -> bool {
        let (closed, told) = oneshot::channel();
        match self.commands.try_send(Command::Close(closed)) {
            Ok(()) => tokio::time::timeout(time, told).await.is_ok(),
            Err(TrySendError::Full(_)) => false,
            Err(TrySendError::Disconnected(_)) => true,
        }
    }
}
