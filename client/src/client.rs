//! The client as its users see it.

use crate::asking::Asking;
use crate::background::{self, Chore, ChoreKind};
use crate::call::CheckedCall;
use crate::dice::Dice;
use crate::limits::{CHORES_QUEUED_MAX, DRAIN_MAX, RETRY_MAX};
use crate::lock::lock;
use crate::route::Routes;
use crate::shared::{Aim, Shared};
use crate::stats::Stats;
use crate::turn::Turn;
use crate::{Answer, Call, Deferral, Error, Guard, Mode, Options, OptionsError, Ticket};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use weir_admission::TargetName;
use weir_proto::v1::{CancelRequest, CancelStatus, ReleaseRequest};

/// A client of one cluster. Cheap to clone: clones share routes, connections and counts.
///
/// One task works in the background of all clones. It ends when the last of them, and of the guards
/// they gave out, is dropped; then it still has [`DRAIN_MAX`] to deliver what is left.
#[derive(Clone)]
pub struct Client {
    pub(crate) owner: Arc<Owner>,
}

/// Keeps the background task alive: when the last owner goes, its queue closes and it ends.
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    chores: mpsc::Sender<Chore>,
    background: JoinHandle<()>,
}

/// The answer to [`Client::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// A waiting place was given up.
    PlaceDropped,
    /// An unused grant was given back with its charge.
    GrantRefunded,
    /// Nothing was there.
    Nothing,
    /// A newer ask or attempt was seen: nothing changed.
    Stale,
}

impl Client {
    /// Checks the options and makes a client. Sends nothing: the cluster may be down.
    ///
    /// Must be called inside a tokio runtime with its timer enabled, where the background task lives.
    pub fn new(options: Options) -> Result<Client, OptionsError> {
        options.check()?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| OptionsError::NoRuntime)?;
        let dice = Dice::new(options.random_seed);
        let mut seeds = options.seeds.clone();
        // Each client begins at another seed, so that no node meets them all.
        let first = usize::try_from(dice.name()).unwrap_or(0) % seeds.len().max(1);
        seeds.rotate_left(first);
        let routes = Routes::new(&seeds).ok_or(OptionsError::Seeds { count: 0 })?;
        let shared = Arc::new(Shared::new(options, routes, dice, Instant::now()));
        let (chores, queue) = mpsc::channel(CHORES_QUEUED_MAX);
        let background = runtime.spawn(background::run(shared.clone(), queue));
        Ok(Client {
            owner: Arc::new(Owner {
                shared,
                chores,
                background,
            }),
        })
    }

    /// Asks once whether the call may start now.
    ///
    /// Without a ticket this is a new attempt. With the ticket of a deferral the call comes back to its
    /// place in line. `Admitted` is returned when it is time to send; up to the policy's horizon (30 ms
    /// by default) is slept through here. Holds the caller for at most [`Options::answer_within`] plus
    /// that, or the call's deadline.
    ///
    /// Dropping the future of a new attempt gives up its place and what it may have got. With a ticket
    /// both wait for the caller to come back with it.
    pub async fn try_admit(&self, call: &Call, ticket: Option<Ticket>) -> Result<Answer, Error> {
        let deadline_at = deadline_of(call);
        let mut asking = Asking::new(self.owner.clone(), CheckedCall::new(call)?, ticket);
        asking.decide(deadline_at).await
    }

    /// The same as [`Client::try_admit`], for a caller that gives its slot back and can still be told when
    /// its turn is near: a worker that lets an engine sleep and resumes it by a signal.
    ///
    /// A call that can be told needs no guess of when to come back: about two asks instead of four or
    /// more while many wait. The durable timer is then only the way back if this process ends.
    ///
    /// ```no_run
    /// # async fn run(client: weir_client::Client, call: weir_client::Call, place: Option<weir_client::Ticket>)
    /// # -> Result<(), weir_client::Error> {
    /// # fn sleep_durably(_: std::time::Duration, _: weir_client::Ticket) {}
    /// # fn resume() {}
    /// use weir_client::Answer;
    ///
    /// let mut turn = client.turn(&call, place)?;
    /// if let Answer::Deferred(deferral) = turn.try_admit().await? {
    ///     sleep_durably(deferral.retry_in, deferral.ticket);
    ///     tokio::spawn(async move {
    ///         turn.near().await;
    ///         resume();
    ///     });
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Only [`crate::Transport::Session`] tells of turns; without it [`Turn::near`] is the deferral's time.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the call is not one.
    pub fn turn(&self, call: &Call, ticket: Option<Ticket>) -> Result<Turn, Error> {
        let asking = Asking::new(self.owner.clone(), CheckedCall::new(call)?, ticket);
        Ok(Turn::new(asking, deadline_of(call)))
    }

    /// Waits until the call may start: until it is admitted, rejected, or its deadline passes. Comes back
    /// when a deferral says so, or earlier if the cluster says that its turn is near.
    ///
    /// Dropping the future gives up its place in line.
    pub async fn admit_wait(&self, call: &Call) -> Result<Guard, Error> {
        let deadline_at = deadline_of(call);
        let mut asking = Asking::new(self.owner.clone(), CheckedCall::new(call)?, None);
        asking.wait_here();
        loop {
            asking.keep_hold();
            let deferral = match asking.decide(deadline_at).await? {
                Answer::Admitted(guard) => return Ok(guard),
                Answer::Rejected(rejection) => return Err(Error::Rejected(rejection)),
                Answer::Deferred(deferral) => deferral,
            };
            asking.keep_hold();
            let pause = pause_before(&deferral, deadline_at).ok_or(Error::DeadlinePassed)?;
            asking.rest(pause).await;
        }
    }

    /// Gives up a place in line, or a grant that was not used. Nothing newer than the ticket is undone.
    /// Repeated for up to ten seconds.
    pub async fn cancel(&self, call: &Call, ticket: Ticket) -> Result<Cancellation, Error> {
        let call = CheckedCall::new(call)?;
        let shared = &self.owner.shared;
        let aim = Aim::Target(call.target.clone());
        let until = Instant::now() + RETRY_MAX;
        let try_timeout = shared.options.try_timeout;
        let delivered = shared
            .deliver(&aim, call.cancel(ticket), try_timeout, until)
            .await;
        let answer = delivered.map_err(|undelivered| undelivered.error)?;
        Ok(match answer.status() {
            CancelStatus::PlaceDropped => Cancellation::PlaceDropped,
            CancelStatus::GrantRefunded => Cancellation::GrantRefunded,
            CancelStatus::Nothing | CancelStatus::Unspecified => Cancellation::Nothing,
            CancelStatus::Stale => Cancellation::Stale,
        })
    }

    /// What this client and its clones counted.
    pub fn stats(&self) -> Stats {
        self.owner.shared.stats()
    }

    /// Sends what is left to send (releases, cancels, reports), for at most [`DRAIN_MAX`], and answers
    /// what was counted. Other clones and guards still work afterwards.
    pub async fn shutdown(self) -> Stats {
        let shared = self.owner.shared.clone();
        let until = Instant::now() + DRAIN_MAX;
        match Arc::into_inner(self.owner) {
            Some(Owner {
                chores, background, ..
            }) => {
                drop(chores);
                // It ends by itself within the same bound; only a panic could end it otherwise.
                let _ended = tokio::time::timeout_at(until, background).await;
            }
            None => shared.drained(until).await,
        }
        shared.stats()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("options", &self.owner.shared.options)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Owner {
    /// Lets the background release a grant; `again` if that was tried before.
    pub(crate) fn release_later(&self, target: TargetName, request: ReleaseRequest, again: bool) {
        self.do_later(target, ChoreKind::Release(request), again);
    }

    /// Lets the background give up what an attempt got.
    pub(crate) fn cancel_later(&self, target: TargetName, request: CancelRequest) {
        self.do_later(target, ChoreKind::Cancel(request), false);
    }

    /// Lets the background give up what an attempt got, by one send.
    pub(crate) fn give_back(&self, target: TargetName, request: CancelRequest) {
        self.do_later(target, ChoreKind::GiveBack(request), false);
    }

    fn do_later(&self, target: TargetName, kind: ChoreKind, again: bool) {
        let chore = Chore {
            target,
            kind,
            again,
            until: Instant::now() + RETRY_MAX,
        };
        self.shared.chores_pending.fetch_add(1, Ordering::Relaxed);
        if self.chores.try_send(chore).is_err() {
            self.shared.chore_done(false);
        }
    }

    /// A call on the target was decided by this version of its policy, which the local mode will need.
    pub(crate) fn decided_by(&self, target: &TargetName, policy_version: u64) {
        match self.shared.options.mode {
            Mode::Open | Mode::Closed => {}
            Mode::Local => {
                let mut shares = lock(&self.shared.shares);
                if shares.decided_by(target, policy_version, Instant::now()) {
                    self.shared.nudge.notify_one();
                }
            }
        }
    }
}

fn deadline_of(call: &Call) -> Option<Instant> {
    // A deadline beyond the clock's end is none.
    call.deadline
        .and_then(|deadline| Instant::now().checked_add(deadline))
}

/// How long to wait before coming back; `None` if the deadline passes before.
///
/// A pause that the cluster chose is kept, for it says when asking can succeed. One that the client chose
/// is cut to half of the time left, so that the last moments are used as well.
fn pause_before(deferral: &Deferral, deadline_at: Option<Instant>) -> Option<Duration> {
    let Some(deadline_at) = deadline_at else {
        return Some(deferral.retry_in);
    };
    let left = deadline_at.saturating_duration_since(Instant::now());
    let pause = if deferral.is_local() {
        deferral.retry_in.min(left / 2)
    } else {
        deferral.retry_in
    };
    (pause < left).then_some(pause)
}
