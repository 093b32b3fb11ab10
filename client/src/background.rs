//! What one task does behind all clones of a client: chores, probes, reports, routes and policies.
//!
//! All of it runs in one set of tasks that ends with this one. It sleeps unless something is queued, a
//! shard is out, a report is pending or somebody wants the routes.

use crate::failure::Failure;
use crate::limits::{
    CHORES_IN_FLIGHT_MAX, DRAIN_MAX, HINTS_IN_A_ROW_MAX, PROBE_MAX, PROBE_MIN, REFRESH_MIN, TICK,
};
use crate::lock::lock;
use crate::shared::{Aim, Shared, Undelivered};
use crate::ungated::Batch;
use crate::zone::Probe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_admission::TargetName;
use weir_proto::v1::{
    AdmitRequest, CancelRequest, GetTargetRequest, ReleaseRequest, ReportRequest, ReportStatus,
};

/// Something that must reach the cluster although nobody waits for it.
pub(crate) struct Chore {
    pub(crate) target: TargetName,
    pub(crate) kind: ChoreKind,
    /// True if it was sent before, for want of an answer.
    pub(crate) again: bool,
    /// Given up after this: the cluster may have forgotten the first try by then.
    pub(crate) until: Instant,
}

pub(crate) enum ChoreKind {
    Release(ReleaseRequest),
    Cancel(CancelRequest),
    /// Sent once: it is undone later by itself.
    GiveBack(CancelRequest),
}

/// What ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Chore,
    Probe,
    Report,
    Policy,
    Routes { learnt: bool },
}

struct Background {
    shared: Arc<Shared>,
    work: JoinSet<Ended>,
    chores: usize,
    asking_routes: bool,
    /// No question for the routes before this.
    routes_at: Instant,
}

/// Works until every owner is gone, then delivers what is left for at most [`DRAIN_MAX`].
pub(crate) async fn run(shared: Arc<Shared>, mut queue: mpsc::Receiver<Chore>) {
    let mut background = Background {
        shared: shared.clone(),
        work: JoinSet::new(),
        chores: 0,
        asking_routes: false,
        routes_at: Instant::now(),
    };
    loop {
        background.start_what_is_due();
        let busy = background.is_busy();
        tokio::select! {
            biased;
            Some(ended) = background.work.join_next() => background.ended(ended.ok()),
            chore = queue.recv(), if background.chores < CHORES_IN_FLIGHT_MAX => match chore {
                Some(chore) => background.start_chore(chore),
                None => break,
            },
            () = shared.nudge.notified() => {}
            () = tokio::time::sleep(TICK), if busy => {}
        }
    }
    background.drain().await;
}

impl Background {
    fn is_busy(&self) -> bool {
        self.shared.zones.out_count() > 0
            || lock(&self.shared.ungated).len() > 0
            || self.shared.routes_wanted.load(Ordering::Relaxed)
    }

    fn start_what_is_due(&mut self) {
        let now = Instant::now();
        let reports_left = lock(&self.shared.ungated).len() > 0;
        for probe in self.shared.zones.due_probes(reports_left, now) {
            self.work.spawn(send_probe(self.shared.clone(), probe));
        }
        self.start_reports(now);
        while let Some(target) = self.next_policy() {
            self.work.spawn(read_policy(self.shared.clone(), target));
        }
        let wanted = self.shared.routes_wanted.load(Ordering::Relaxed);
        if wanted && !self.asking_routes && self.routes_at <= now {
            self.shared.routes_wanted.store(false, Ordering::Relaxed);
            self.asking_routes = true;
            self.work.spawn(ask_routes(self.shared.clone()));
        }
    }

    fn next_policy(&self) -> Option<TargetName> {
        if self.work.len() >= 2 * CHORES_IN_FLIGHT_MAX {
            return None;
        }
        lock(&self.shared.shares).next_wanted()
    }

    fn start_reports(&mut self, now: Instant) {
        let due = lock(&self.shared.ungated).due_targets();
        for target in due {
            let Some(shard) = self.shared.shard_of(&target) else {
                continue;
            };
            if !self.shared.zones.reports_open(Some(shard), now) {
                continue;
            }
            let batch = lock(&self.shared.ungated).next_report(&target, now);
            if let Some(batch) = batch {
                self.work.spawn(send_report(self.shared.clone(), batch));
            }
        }
    }

    fn start_chore(&mut self, chore: Chore) {
        self.chores += 1;
        self.work.spawn(do_chore(self.shared.clone(), chore));
    }

    fn ended(&mut self, ended: Option<Ended>) {
        match ended {
            Some(Ended::Chore) => self.chores = self.chores.saturating_sub(1),
            Some(Ended::Routes { learnt }) => {
                self.asking_routes = false;
                let pause = if learnt {
                    REFRESH_MIN
                } else {
                    self.shared.dice.between(PROBE_MIN, PROBE_MAX)
                };
                self.routes_at = Instant::now() + pause;
            }
            Some(Ended::Probe | Ended::Report | Ended::Policy) | None => {}
        }
        self.shared.progress.notify_waiters();
    }

    async fn drain(mut self) {
        let until = Instant::now() + DRAIN_MAX;
        loop {
            self.start_reports(Instant::now());
            match tokio::time::timeout_at(until, self.work.join_next()).await {
                Ok(Some(ended)) => self.ended(ended.ok()),
                Ok(None) | Err(_) => break,
            }
        }
        let unreported = lock(&self.shared.ungated).len();
        let unsent = self.shared.chores_pending.load(Ordering::Relaxed);
        if unreported > 0 || unsent > 0 {
            tracing::warn!(
                unreported,
                unsent,
                "client ends before everything was delivered"
            );
        }
    }
}

async fn do_chore(shared: Arc<Shared>, chore: Chore) -> Ended {
    let aim = Aim::Target(chore.target);
    let try_timeout = shared.options.try_timeout;
    let undelivered = match chore.kind {
        ChoreKind::Release(request) => shared
            .deliver_on(&aim, request, try_timeout, chore.until, chore.again)
            .await
            .err(),
        ChoreKind::Cancel(request) => shared
            .deliver_on(&aim, request, try_timeout, chore.until, chore.again)
            .await
            .err(),
        ChoreKind::GiveBack(request) => {
            let sent = shared
                .send_to(&aim, request, try_timeout.saturating_mul(2))
                .await;
            if let Err(failure) = sent {
                tracing::debug!(?failure, "a late grant was not given back at once");
            }
            None
        }
    };
    if let Some(Undelivered { error, .. }) = &undelivered {
        tracing::debug!(%error, "a release or cancel was given up");
    }
    shared.chore_done(undelivered.is_none());
    Ended::Chore
}

/// Asks, as a dry run, what could not be asked before. Hints are followed: it is the shard that is
/// probed, not a node.
async fn send_probe(shared: Arc<Shared>, probe: Probe) -> Ended {
    let timeout = shared.options.try_timeout;
    let answered = match probe.ask {
        None => shared.learn_routes(timeout).await.is_ok(),
        Some(ask) => {
            let name = shared.dice.name();
            let ask = AdmitRequest {
                admission_id: format!("probe-{name:016x}"),
                attempt: name,
                ask: 1,
                dry_run: true,
                ..ask
            };
            let mut answered = false;
            for _ in 0..=HINTS_IN_A_ROW_MAX {
                let node = shared.node_for(probe.zone);
                match shared
                    .send_unjudged(probe.zone, &node, ask.clone(), timeout)
                    .await
                {
                    Ok(_) => answered = true,
                    Err(Failure::NotLeader { hint: Some(_) }) => continue,
                    Err(failure) => answered = failure.is_answer(),
                }
                break;
            }
            answered
        }
    };
    shared.zones.probed(probe.zone, answered, Instant::now());
    Ended::Probe
}

async fn ask_routes(shared: Arc<Shared>) -> Ended {
    let learnt = shared
        .learn_routes(shared.options.try_timeout)
        .await
        .is_ok();
    Ended::Routes { learnt }
}

async fn read_policy(shared: Arc<Shared>, target: TargetName) -> Ended {
    let request = GetTargetRequest {
        target: target.as_str().to_owned(),
    };
    let until = Instant::now() + shared.options.answer_within;
    let aim = Aim::Target(target.clone());
    match shared
        .deliver(&aim, request, shared.options.try_timeout, until)
        .await
    {
        Ok(answer) => {
            if let Some(read) = answer.target {
                lock(&shared.shares).learn(&target, &read);
            }
        }
        Err(Undelivered { error, .. }) => {
            tracing::debug!(target_name = %target, %error, "policy for the local mode not read");
        }
    }
    Ended::Policy
}

async fn send_report(shared: Arc<Shared>, batch: Batch) -> Ended {
    let sent_at = Instant::now();
    let until = sent_at + shared.options.answer_within;
    let request = ReportRequest { calls: batch.calls };
    let aim = Aim::Target(batch.target.clone());
    let delivered = shared
        .deliver(&aim, request, shared.options.try_timeout, until)
        .await;
    let now = Instant::now();
    let mut ungated = lock(&shared.ungated);
    let reported = match delivered {
        Ok(answer) => {
            let statuses: Vec<ReportStatus> = answer.statuses().collect();
            ungated.answered(&batch.keys, &statuses)
        }
        Err(Undelivered { error, .. }) if error.is_retryable() => {
            shared
                .zones
                .delay_reports(shared.shard_of(&batch.target), now);
            ungated.unanswered(&batch.keys, error.may_have_happened(), sent_at, now)
        }
        Err(Undelivered { error, .. }) => {
            tracing::warn!(%error, calls = batch.keys.len(), "a report of ungated calls was refused");
            ungated.answered(&batch.keys, &[])
        }
    };
    drop(ungated);
    shared.counters.reports_done.add(reported.done);
    shared.counters.reports_lost.add(reported.lost);
    Ended::Report
}
