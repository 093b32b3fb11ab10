//! One stream to one node that carries the operations of all callers at once.
//!
//! Callers put operations into the [`Lane`]; whoever writes the stream takes them out, as many as fit a
//! frame. So the first operation goes at once, and frames fill while the one before is being written.
//! One task per session hears the answers and hands each to its caller. Nothing here retries or judges:
//! a session that breaks tells every caller what it knows of its operation, and callers go on from there
//! as after a broken unary call.

mod lane;
mod run;

pub(crate) use self::lane::{Heard, Unheard};
use self::lane::{Lane, Stage};
use crate::failure::{Failure, Silence};
use crate::limits::FAIR_TRY_MIN;
use crate::lock::lock;
use crate::waits::Waits;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::transport::Channel;
use weir_proto::v1::ClientHello;
use weir_proto::v1::session_operation::Operation;

/// A session that calls may use. Dropping it lets the calls in it end, then the stream.
pub(crate) struct Session {
    shared: Arc<Shared>,
}

/// What callers, the writer of the stream and the listening task share.
struct Shared {
    /// Not that of any other session of this client.
    id: u64,
    lane: Mutex<Lane>,
    waits: Arc<Waits>,
    /// Told when a retired session has nothing left to do.
    finished: Notify,
}

/// How a session that is over went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    /// What calls hear that come too late.
    pub(crate) why: Unheard,
    /// True if the node had said hello.
    pub(crate) was_open: bool,
}

impl Session {
    /// Opens a session over `channel` in the background. Calls may be made at once. Needs a running
    /// tokio runtime.
    pub(crate) fn open(
        id: u64,
        channel: Channel,
        hello: ClientHello,
        waits: Arc<Waits>,
    ) -> Session {
        let shared = Arc::new(Shared {
            id,
            lane: Mutex::new(Lane::new()),
            waits,
            finished: Notify::new(),
        });
        tokio::spawn(run::run(shared.clone(), channel, hello));
        Session { shared }
    }

    /// A way to call that outlives the session's place among the connections.
    pub(crate) fn caller(&self) -> Caller {
        Caller {
            shared: self.shared.clone(),
        }
    }

    /// True once the node said hello.
    pub(crate) fn was_open(&self) -> bool {
        lock(&self.shared.lane).was_open()
    }

    /// True if the node said something in it after that time.
    pub(crate) fn was_heard_after(&self, at: Instant) -> bool {
        lock(&self.shared.lane).was_heard_after(at)
    }

    /// How it went, once it is over.
    pub(crate) fn over(&self) -> Option<Over> {
        let lane = lock(&self.shared.lane);
        let why = lane.why_over()?.clone();
        let was_open = lane.was_open();
        Some(Over { why, was_open })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let writer = {
            let mut lane = lock(&self.shared.lane);
            if lane.retire() {
                self.shared.finished.notify_one();
            }
            lane.writer.take()
        };
        if let Some(writer) = writer {
            writer.wake();
        }
    }
}

/// See [`Session::caller`].
pub(crate) struct Caller {
    shared: Arc<Shared>,
}

impl Caller {
    /// True once the node said hello.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.shared.lane).was_open()
    }

    /// Sends one operation and waits at most `timeout` for its answer.
    pub(crate) async fn call(
        &self,
        operation: Operation,
        timeout: Duration,
    ) -> Result<Heard, Unheard> {
        let since = Instant::now();
        let until = since + timeout;
        if let Operation::Admit(ask) = &operation
            && ask.wake
        {
            self.shared.waits.asks_in(ask.attempt, self.shared.id);
        }
        let (pushed, writer) = {
            let mut lane = lock(&self.shared.lane);
            let pushed = lane.push(operation, until)?;
            (pushed, lane.writer.take())
        };
        let _call = Call(&self.shared);
        if let Some(writer) = writer {
            writer.wake();
        }
        let (sequence, reply) = pushed;
        match tokio::time::timeout_at(until, reply).await {
            Ok(Ok(heard)) => heard,
            // The lane replies to all it holds before it goes.
            Ok(Err(_)) => Err(Unheard::Failed(Failure::unread())),
            Err(_) => Err(Unheard::Failed(self.unanswered(sequence, since, timeout))),
        }
    }

    fn unanswered(&self, sequence: u64, since: Instant, timeout: Duration) -> Failure {
        let stage = lock(&self.shared.lane).stage(sequence, since);
        let silent = |silence| Failure::NoAnswer {
            message: format!("not sent within {} ms", timeout.as_millis()),
            may_have_happened: false,
            retry_in: None,
            silence,
        };
        match stage {
            Stage::Handed(at) if !is_fair(at.elapsed(), timeout) => {
                // It stood in line behind others for most of its time.
                Failure::cut_short(at.elapsed().max(Duration::from_micros(1)))
            }
            Stage::Handed(_) => Failure::timed_out(timeout),
            Stage::Unsent => silent(Silence::Hung),
            Stage::Crowded => silent(Silence::Caller),
        }
    }
}

/// A call counts until this is dropped.
struct Call<'a>(&'a Shared);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if lock(&self.0.lane).call_ended() {
            self.0.finished.notify_one();
        }
    }
}

/// True if a node that had an operation for so long, of a try of `timeout`, is to blame for having said nothing.
///
/// Every operation waits a moment before it is handed over: a try of no more than [`FAIR_TRY_MIN`] is fair without
/// that moment too, or nothing that a node leaves unanswered would ever tell of an outage.
fn is_fair(handed_for: Duration, timeout: Duration) -> bool {
    handed_for >= FAIR_TRY_MIN.min(timeout / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_is_unfair_if_it_stood_in_line_for_most_of_its_time() {
        let us = Duration::from_micros;
        let rows = [
            // A short try, handed over at once, a moment later, and late.
            (50_000, 50_000, true),
            (49_900, 50_000, true),
            (25_000, 50_000, true),
            (24_999, 50_000, false),
            (900, 1_000, true),
            (400, 1_000, false),
            // The usual one.
            (249_000, 250_000, true),
            (50_000, 250_000, true),
            (49_999, 250_000, false),
        ];
        for (handed_for, timeout, fair) in rows {
            let is_fair = is_fair(us(handed_for), us(timeout));
            assert_eq!(is_fair, fair, "{handed_for} of {timeout} us");
        }
    }
}
