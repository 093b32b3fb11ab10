//! Looks after one group: tells who leads, bounds the log, moves a misplaced lead back, and notices the
//! end of the group's core.

use crate::balance::{Balance, Look};
use crate::duty::Duty;
use crate::limits::{KEEP_EVERY, LOG_BYTES_SHARES_MAX, TAIL_ENTRIES_MIN};
use crate::log::GroupLog;
use crate::peer::Cut;
use crate::types::{Metrics, ServerMetrics};
use crate::{Failure, Group, Leadership, NodeId};
use openraft::Instant;
use openraft::async_runtime::WatchReceiver;
use openraft::vote::RaftLeaderId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

/// Everything one group's keeper needs.
pub(crate) struct Keeper {
    pub(crate) group: Group,
    pub(crate) leadership: watch::Sender<Leadership>,
    /// Where the end of a core is told.
    pub(crate) failure: watch::Sender<Option<Failure>>,
    pub(crate) duty: Duty,
    /// Set when a leader handed the lead to this node.
    pub(crate) given: Arc<AtomicBool>,
    /// The node that should lead.
    pub(crate) preferred: Option<NodeId>,
    pub(crate) me: NodeId,
    pub(crate) log: GroupLog,
    pub(crate) cut: Cut,
    /// A leader that is silent for longer is not told of any more.
    pub(crate) silence_max: Duration,
}

impl Keeper {
    /// Runs until the group's core ends.
    pub(crate) async fn run(self) {
        // Moving a lead waits until the new leader is told of, so the two run side by side.
        tokio::select! {
            () = self.tell_all() => {}
            () = self.look_all() => {}
        }
        self.report_end();
    }

    /// Tells of every change of leader, until the core is gone.
    async fn tell_all(&self) {
        let mut server = self.group.raft().server_metrics();
        loop {
            let now = server.borrow_watched().clone();
            self.tell(&now, true);
            if server.changed().await.is_err() {
                return;
            }
        }
    }

    /// Looks at the group now and then, until its core is dead.
    async fn look_all(&self) {
        let mut looks = tokio::time::interval(KEEP_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut balance = Balance::new();
        loop {
            tokio::select! {
                () = self.group.replica().snapshot_due() => self.snapshot().await,
                _ = looks.tick() => {
                    if self.is_dead() {
                        return;
                    }
                    let in_touch = self.in_touch().await;
                    let now = self.group.raft().server_metrics().borrow_watched().clone();
                    self.tell(&now, in_touch);
                    self.bound_log().await;
                    self.place_lead(&mut balance).await;
                }
            }
        }
    }

    /// True while the leader that is known shows signs of life: a quorum answers this node if it leads,
    /// otherwise this node hears of the leader.
    async fn in_touch(&self) -> bool {
        let metrics = self.metrics();
        if self.group.leads() {
            let alone = metrics.membership_config.voter_ids().nth(1).is_none();
            let acked = metrics.last_quorum_acked;
            return alone || acked.is_some_and(|at| at.elapsed() < self.silence_max);
        }
        let heard = self
            .group
            .raft()
            .with_raft_state(|state| state.vote_last_modified())
            .await;
        heard.is_ok_and(|heard| heard.is_some_and(|at| at.elapsed() < self.silence_max))
    }

    fn tell(&self, metrics: &ServerMetrics, in_touch: bool) {
        let now = Leadership {
            leader: metrics.current_leader.map(NodeId).filter(|_| in_touch),
            term: metrics.vote.leader_id.term(),
        };
        self.leadership
            .send_if_modified(|told| std::mem::replace(told, now) != now);
    }

    fn metrics(&self) -> Metrics {
        self.group.raft().metrics().borrow_watched().clone()
    }

    fn is_dead(&self) -> bool {
        self.metrics().running_state.is_err()
    }

    async fn snapshot(&self) {
        // An error means that the core ended, which the next look finds.
        drop(self.group.raft().trigger().snapshot().await);
    }

    /// Cuts a log that grew too long in spite of snapshots because a peer does not keep up.
    async fn bound_log(&self) {
        let due_after = self.group.replica().snapshot_due_after();
        let too_long = self.log.bytes() > due_after.saturating_mul(LOG_BYTES_SHARES_MAX);
        let metrics = self.metrics();
        let snapshot = metrics.snapshot.map_or(0, |id| id.index);
        let upto = snapshot.saturating_sub(TAIL_ENTRIES_MIN);
        let due = too_long && upto > metrics.purged.map_or(0, |id| id.index);
        self.cut.set(if due { upto } else { 0 });
        if due {
            tracing::warn!(
                shard = self.group.shard().0,
                upto,
                "the log is too long and is cut"
            );
            drop(self.group.raft().trigger().purge_log(upto).await);
        }
    }

    async fn place_lead(&self, balance: &mut Balance) {
        if self.duty.is_drained() && self.group.leads() {
            // An election that had begun before the drain was won after it.
            self.group.hand_over().await;
        }
        let look = self.look();
        let (true, Some(to)) = (balance.look(look), self.preferred) else {
            return;
        };
        if let Err(error) = self.group.transfer(to).await {
            tracing::info!(shard = self.group.shard().0, %error, "the lead stays where it is");
        }
    }

    fn look(&self) -> Look {
        let given = self.given.swap(false, Ordering::Relaxed);
        let elsewhere = self.preferred.filter(|preferred| *preferred != self.me);
        match elsewhere {
            Some(preferred) if self.duty.takes_leads() && self.group.leads() => {
                let ready = self.group.ready_peers().contains(&preferred);
                Look {
                    misplaced: true,
                    ready,
                    given,
                }
            }
            Some(_) | None => Look {
                misplaced: false,
                ready: false,
                given,
            },
        }
    }

    fn report_end(&self) {
        let shard = self.group.shard().0;
        let why = match self.metrics().running_state {
            Err(error) => error.to_string(),
            Ok(()) => "its core is gone".to_owned(),
        };
        if self.duty.is_stopping() {
            tracing::debug!(shard, why, "group stopped");
            return;
        }
        tracing::error!(shard, why, "group failed");
        let failure = Failure {
            what: format!("group of shard {shard}"),
            why,
        };
        self.failure.send_if_modified(|told| {
            let first = told.is_none();
            told.get_or_insert(failure);
            first
        });
    }
}
