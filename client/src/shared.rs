//! What all clones of a client share, and the two ways to send: once, or until it is delivered.

use crate::connections::{Carried, Connections};
use crate::dice::Dice;
use crate::failure::{Failure, Silence};
use crate::limits::{BLAME_BROKEN, BLAME_HUNG, FAIR_TRY_MIN};
use crate::local::LocalShares;
use crate::lock::lock;
use crate::retry::{Next, Purpose, Tally, Trouble};
use crate::route::{Address, Routes, RoutesError};
use crate::rpc::Rpc;
use crate::stats::{Counters, Stats};
use crate::ungated::Ungated;
use crate::waits::Waits;
use crate::zone::{ZoneKey, Zones};
use crate::{Error, Options};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use weir_admission::{ShardId, TargetName};
use weir_proto::v1::{RoutesRequest, RoutesResponse};

/// Shared by all clones of a client, its guards and its background task.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) counters: Counters,
    pub(crate) zones: Zones,
    pub(crate) ungated: Mutex<Ungated>,
    pub(crate) shares: Mutex<LocalShares>,
    /// Releases and cancels that the background still has to send.
    pub(crate) chores_pending: AtomicU64,
    /// Wakes the background task.
    pub(crate) nudge: Notify,
    /// Something left the background's hands.
    pub(crate) progress: Notify,
    /// Somebody heard that the routes are out of date.
    pub(crate) routes_wanted: AtomicBool,
    pub(crate) dice: Arc<Dice>,
    /// Calls that can be woken.
    pub(crate) waits: Arc<Waits>,
    routes: Mutex<Routes>,
    connections: Connections,
    /// Held by the one call that asks for the routes while all wait for them.
    asking_routes: tokio::sync::Mutex<()>,
}

/// Whom a delivery is for.
#[derive(Clone, Debug)]
pub(crate) enum Aim {
    /// The leader of a target's shard.
    Target(TargetName),
    /// The leader of a shard.
    Shard(ShardId),
    /// Any node.
    Any,
}

/// Why a delivery ended without an answer.
#[derive(Debug)]
pub(crate) struct Undelivered {
    pub(crate) error: Error,
    /// True if no node spoke for the shard: another try later may succeed.
    pub(crate) unanswered: bool,
}

impl Shared {
    pub(crate) fn new(options: Options, routes: Routes, dice: Dice, now: Instant) -> Shared {
        let dice = Arc::new(dice);
        let waits = Arc::new(Waits::default());
        let connections = Connections::new(
            options.connector.clone(),
            options.transport,
            dice.clone(),
            waits.clone(),
        );
        Shared {
            counters: Counters::default(),
            zones: Zones::new(options.ungated_after, options.mode, dice.clone(), now),
            ungated: Mutex::new(Ungated::default()),
            shares: Mutex::new(LocalShares::new(options.local_share_ppm)),
            chores_pending: AtomicU64::new(0),
            nudge: Notify::new(),
            progress: Notify::new(),
            routes_wanted: AtomicBool::new(false),
            dice,
            routes: Mutex::new(routes),
            waits,
            connections,
            asking_routes: tokio::sync::Mutex::new(()),
            options,
        }
    }

    /// The shard of a target; `None` while the cluster is not known.
    pub(crate) fn shard_of(&self, target: &TargetName) -> Option<ShardId> {
        lock(&self.routes).shard_of(target)
    }

    /// Number of shards; `None` while the cluster is not known.
    pub(crate) fn shards(&self) -> Option<u32> {
        lock(&self.routes).shards()
    }

    /// The node that is asked about a shard now.
    pub(crate) fn node_for(&self, shard: Option<ShardId>) -> Address {
        lock(&self.routes).node_for(shard)
    }

    /// Sends one request to one node and waits at most `timeout` for its answer. What it teaches about
    /// nodes, leaders and outages is learnt here.
    pub(crate) async fn send<R: Rpc>(
        &self,
        shard: Option<ShardId>,
        address: &Address,
        message: R,
        timeout: Duration,
    ) -> Result<R::Answer, Failure> {
        let carried = self.send_timed(shard, address, message, timeout).await;
        carried.map(|carried| carried.answer)
    }

    /// As [`Shared::send`], telling when the request was handed over.
    pub(crate) async fn send_timed<R: Rpc>(
        &self,
        shard: Option<ShardId>,
        address: &Address,
        message: R,
        timeout: Duration,
    ) -> Result<Carried<R::Answer>, Failure> {
        let sent = self.send_unjudged(shard, address, message, timeout).await;
        let answered = match &sent {
            Ok(_) => R::COMMITS,
            Err(failure) => failure.is_answer(),
        };
        if answered && shard.is_some() {
            self.zones.answered(shard, Instant::now());
        }
        sent
    }

    /// As [`Shared::send`], but an answer does not end an outage.
    pub(crate) async fn send_unjudged<R: Rpc>(
        &self,
        shard: Option<ShardId>,
        address: &Address,
        message: R,
        timeout: Duration,
    ) -> Result<Carried<R::Answer>, Failure> {
        let sent_at = Instant::now();
        let failure = match self.connections.carry(address, message, timeout).await {
            Ok(carried) => {
                self.node_answered(address);
                return Ok(carried);
            }
            Err(failure) => failure,
        };
        // The connection has a timer of its own, which may be first to say that time is up.
        let timed_out = failure.is_nobodys() && sent_at.elapsed() >= timeout;
        if !timed_out {
            return Err(self.heard(shard, address, failure));
        }
        if timeout < self.options.try_timeout.min(FAIR_TRY_MIN) {
            return Err(Failure::cut_short(timeout));
        }
        self.connections.unanswered(address, sent_at);
        Err(self.heard(shard, address, Failure::timed_out(timeout)))
    }

    fn node_answered(&self, address: &Address) {
        lock(&self.routes).answered(address);
        self.connections.answered(address);
    }

    /// Learns from a failure where to send next.
    fn heard(&self, shard: Option<ShardId>, address: &Address, mut failure: Failure) -> Failure {
        let now = Instant::now();
        let elsewhere = match &mut failure {
            Failure::NotLeader { hint } => {
                self.node_answered(address);
                if let Some(shard) = shard
                    && !lock(&self.routes).not_leader(shard, address, hint.as_ref(), now)
                {
                    // Nobody is known who could be asked at once: followers name a dead leader for a
                    // while, and a whole fleet that asks around without a pause helps nobody.
                    *hint = None;
                }
                true
            }
            Failure::NoAnswer {
                silence: Silence::Shard,
                ..
            } => {
                self.node_answered(address);
                if let Some(shard) = shard {
                    // Cut off from its peers, it may not know that another leads by now.
                    lock(&self.routes).not_leader(shard, address, None, now);
                }
                true
            }
            Failure::NoAnswer {
                silence: Silence::Node,
                ..
            } => {
                lock(&self.routes).missing(shard, address, BLAME_BROKEN, now);
                true
            }
            Failure::NoAnswer {
                silence: Silence::Session,
                ..
            } => {
                lock(&self.routes).missing(shard, address, 0, now);
                true
            }
            Failure::NoAnswer {
                silence: Silence::Hung,
                ..
            } => {
                lock(&self.routes).missing(shard, address, BLAME_HUNG, now);
                true
            }
            Failure::NoAnswer {
                silence: Silence::Caller,
                ..
            } => false,
            Failure::Overloaded { .. } | Failure::Fault(_) => {
                self.node_answered(address);
                false
            }
        };
        if elsewhere && shard.is_some() {
            self.want_routes();
        }
        failure
    }

    fn want_routes(&self) {
        self.routes_wanted.store(true, Ordering::Relaxed);
        self.nudge.notify_one();
    }

    /// Asks one node for the routes. Calls that need them at the same time share one question.
    pub(crate) async fn learn_routes(&self, timeout: Duration) -> Result<(), Failure> {
        let known = self.shards().is_some();
        let turn = match tokio::time::timeout(timeout, self.asking_routes.lock()).await {
            Ok(turn) => turn,
            Err(_) => return Err(Failure::timed_out(timeout)),
        };
        if !known && self.shards().is_some() {
            return Ok(());
        }
        let address = self.node_for(None);
        let routes = self.send(None, &address, RoutesRequest {}, timeout).await?;
        drop(turn);
        self.learn(&routes).map_err(|error| {
            tracing::warn!(node = %address, %error, "routes refused");
            lock(&self.routes).missing(None, &address, BLAME_BROKEN, Instant::now());
            Failure::unsendable(format!("{address}: {error}"))
        })
    }

    /// Takes over routes, if they can be ours.
    pub(crate) fn learn(&self, routes: &RoutesResponse) -> Result<(), RoutesError> {
        lock(&self.routes).learn(routes)?;
        self.zones.answered(None, Instant::now());
        Ok(())
    }

    /// Sends a request to whom it is for until it is answered, `until` passes, the retry budget is used up
    /// or the request turns out to be wrong. Only for requests that may be repeated.
    ///
    /// What must arrive ([`Rpc::MUST_ARRIVE`]) is sent again without a budget too, but each time with twice
    /// the patience: nothing is lost for it, a node that only got slow has time to answer, and there are a
    /// dozen such sends at most.
    pub(crate) async fn deliver<R: Rpc>(
        &self,
        aim: &Aim,
        message: R,
        try_timeout: Duration,
        until: Instant,
    ) -> Result<R::Answer, Undelivered> {
        self.deliver_on(aim, message, try_timeout, until, false)
            .await
    }

    /// As [`Shared::deliver`]; `again` if the request was sent before.
    pub(crate) async fn deliver_on<R: Rpc>(
        &self,
        aim: &Aim,
        message: R,
        try_timeout: Duration,
        until: Instant,
        again: bool,
    ) -> Result<R::Answer, Undelivered> {
        let mut tally = Tally::new(Purpose::Delivery);
        let mut may_have_happened = again;
        let mut patience = try_timeout;
        let mut tried = None;
        if again && !self.zones.pays_retry(self.zone_of(aim)) {
            patience = patience.saturating_mul(2);
        }
        loop {
            let zone = self.zone_of(aim);
            if tried.replace(zone) != Some(zone) && !again {
                self.zones.tries(zone);
            }
            let remaining = until.saturating_duration_since(Instant::now());
            let timeout = patience.min(remaining);
            let failure = match self.send_to(aim, message.clone(), timeout).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            may_have_happened |= failure.may_have_happened();
            let (trouble, mut message) = match failure.into_trouble() {
                Ok(trouble) => trouble,
                Err(error) => {
                    return Err(Undelivered {
                        error,
                        unanswered: false,
                    });
                }
            };
            let remaining = until.saturating_duration_since(Instant::now());
            let mut next = tally.after(trouble, remaining, self.dice.roll());
            if next != Next::Stop && tally.costs(trouble) && !self.zones.pays_retry(zone) {
                if R::MUST_ARRIVE {
                    patience = patience.saturating_mul(2);
                } else {
                    self.counters.retries_withheld.add(1);
                    message += "; not sent again, the retry budget is used up";
                    next = Next::Stop;
                }
            }
            match next {
                Next::Send(pause) => tokio::time::sleep(pause).await,
                Next::Stop => {
                    let error = match trouble {
                        Trouble::Overloaded { .. } if !may_have_happened => Error::Overloaded,
                        Trouble::Overloaded { .. }
                        | Trouble::NotLeader { .. }
                        | Trouble::NoAnswer { .. }
                        | Trouble::Late
                        | Trouble::Stale => Error::Unavailable {
                            message,
                            may_have_happened,
                        },
                    };
                    return Err(Undelivered {
                        error,
                        unanswered: true,
                    });
                }
            }
            self.counters.retries.add(1);
        }
    }

    /// The shard of whom a delivery is for, as far as it is known.
    fn zone_of(&self, aim: &Aim) -> ZoneKey {
        match aim {
            Aim::Any => None,
            Aim::Shard(shard) => Some(*shard),
            Aim::Target(target) => self.shard_of(target),
        }
    }

    /// Sends a request once to whom it is for.
    pub(crate) async fn send_to<R: Rpc>(
        &self,
        aim: &Aim,
        message: R,
        timeout: Duration,
    ) -> Result<R::Answer, Failure> {
        match aim {
            Aim::Any | Aim::Shard(_) => {}
            Aim::Target(_) => {
                if self.shards().is_none() {
                    self.learn_routes(timeout).await?;
                }
            }
        }
        let shard = self.zone_of(aim);
        let address = self.node_for(shard);
        self.send(shard, &address, message, timeout).await
    }

    /// A release or cancel left the background's hands.
    pub(crate) fn chore_done(&self, delivered: bool) {
        self.chores_pending.fetch_sub(1, Ordering::Relaxed);
        if !delivered {
            self.counters.releases_lost.add(1);
        }
        self.progress.notify_waiters();
    }

    /// Waits until nothing is left to send, or `until`.
    pub(crate) async fn drained(&self, until: Instant) {
        loop {
            let progress = self.progress.notified();
            let chores = self.chores_pending.load(Ordering::Relaxed);
            if chores == 0 && lock(&self.ungated).len() == 0 {
                return;
            }
            if tokio::time::timeout_at(until, progress).await.is_err() {
                return;
            }
        }
    }

    /// What was counted, with the levels of now.
    pub(crate) fn stats(&self) -> Stats {
        let counters = &self.counters;
        Stats {
            admitted: counters.admitted.get(),
            deferred: counters.deferred.get(),
            deferred_locally: counters.deferred_locally.get(),
            rejected: counters.rejected.get(),
            woken: counters.woken.get(),
            asks: counters.asks.get(),
            retries: counters.retries.get(),
            retries_withheld: counters.retries_withheld.get(),
            late_answers: counters.late_answers.get(),
            stale_answers: counters.stale_answers.get(),
            ungated_open: counters.ungated_open.get(),
            ungated_local: counters.ungated_local.get(),
            refused: counters.refused.get(),
            outages: self.zones.outages(),
            shards_out: self.zones.out_count(),
            reports_pending: lock(&self.ungated).len() as u64,
            reports_done: counters.reports_done.get(),
            reports_lost: counters.reports_lost.get(),
            releases_pending: self.chores_pending.load(Ordering::Relaxed),
            releases_lost: counters.releases_lost.get(),
        }
    }
}
