//! Workers that call through the client library, as a user's workers would.

use crate::history::{Costs, End, Pass};
use crate::recorder::{Entry, Recorder};
use anyhow::{Context, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use weir_client::{Answer, Call, Client, Error, Guard, Outcome, RejectReason, Ticket};

/// What the workers of a fleet do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is called.
    pub target: String,
    /// The workers' tenants and priorities; each pair has [`Plan::workers`] workers.
    pub lines: Vec<(String, String)>,
    /// Workers of each line. Each has one call under way, and begins the next when it is served.
    pub workers: u32,
    /// What one call costs. It is exact: the call uses what was estimated.
    pub costs: Costs,
    /// Every fourth call gives up after this, if set.
    pub patience: Option<Duration>,
    /// How long a call takes at the provider.
    pub call_time: Duration,
}

/// Workers at work. Dropping it stops them where they stand.
#[derive(Debug)]
pub struct Fleet {
    stop: watch::Sender<bool>,
    workers: JoinSet<anyhow::Result<()>>,
    tries: Arc<AtomicU64>,
}

/// A call under way.
struct Work {
    call: Call,
    costs: Costs,
    call_time: Duration,
    entry: Entry,
    ticket: Option<Ticket>,
    attempt: u64,
}

/// What one ask came to.
enum Step {
    Again { after: Duration },
    Ended(End),
}

impl Fleet {
    /// Sets the workers to work.
    pub fn start(client: &Client, recorder: &Recorder, plan: &Plan) -> Fleet {
        let (stop, stopped) = watch::channel(false);
        let tries = Arc::new(AtomicU64::new(0));
        let mut workers = JoinSet::new();
        for (line, (tenant, priority)) in plan.lines.iter().enumerate() {
            for worker in 0..plan.workers {
                let worker = Worker {
                    client: client.clone(),
                    recorder: recorder.clone(),
                    plan: plan.clone(),
                    name: format!("{tenant}.{line}.{worker}"),
                    tenant: tenant.clone(),
                    priority: priority.clone(),
                    tries: tries.clone(),
                };
                workers.spawn(worker.run(stopped.clone()));
            }
        }
        Fleet {
            stop,
            workers,
            tries,
        }
    }

    /// Decisions so far for which the client sent anything: for each of them once, or more often.
    pub fn tries(&self) -> u64 {
        self.tries.load(Ordering::Relaxed)
    }

    /// Lets every worker finish the call it has, for at most `within`; then whoever still asks is left
    /// waiting. An error is one that no worker may see, such as an unknown target. Returns the tries.
    pub async fn finish(mut self, within: Duration) -> anyhow::Result<u64> {
        self.stop.send_replace(true);
        let all = async {
            while let Some(ended) = self.workers.join_next().await {
                ended??;
            }
            anyhow::Ok(())
        };
        if let Ok(ended) = tokio::time::timeout(within, all).await {
            ended?;
        }
        Ok(self.tries())
    }
}

struct Worker {
    client: Client,
    recorder: Recorder,
    plan: Plan,
    name: String,
    tenant: String,
    priority: String,
    tries: Arc<AtomicU64>,
}

impl Worker {
    async fn run(self, stopped: watch::Receiver<bool>) -> anyhow::Result<()> {
        let mut number = 0_u32;
        while !*stopped.borrow() {
            number += 1;
            let mut work = self.begin(number);
            let end = self.ask_until_it_ends(&mut work).await;
            let end = end.with_context(|| format!("call {}", work.call.admission_id()))?;
            self.recorder.ends(work.entry, end);
        }
        Ok(())
    }

    fn begin(&self, number: u32) -> Work {
        let id = format!("{}.{number}", self.name);
        let entry = self.recorder.asks(&id);
        let mut call = Call::new(&self.plan.target, &self.tenant, &self.priority).id(id);
        for (dimension, units) in &self.plan.costs {
            call = call.cost(dimension, *units);
        }
        if let Some(patience) = self.plan.patience
            && number.is_multiple_of(4)
        {
            call = call.deadline(patience);
        }
        Work {
            call,
            costs: self.plan.costs.clone(),
            call_time: self.plan.call_time,
            entry,
            ticket: None,
            attempt: 1,
        }
    }

    async fn ask_until_it_ends(&self, work: &mut Work) -> anyhow::Result<End> {
        loop {
            match self.ask(work).await? {
                Step::Again { after } => tokio::time::sleep(after).await,
                Step::Ended(end) => return Ok(end),
            }
        }
    }

    async fn ask(&self, work: &mut Work) -> anyhow::Result<Step> {
        let answer = self.client.try_admit(&work.call, work.ticket).await;
        if answer
            .as_ref()
            .is_ok_and(|answer| is_of_a_try(work, answer))
        {
            self.tries.fetch_add(1, Ordering::Relaxed);
        }
        match answer {
            Ok(Answer::Admitted(guard)) => self.send(work, guard).await,
            Ok(Answer::Deferred(deferral)) => {
                if !deferral.is_local() {
                    self.recorder.answered();
                }
                work.ticket = Some(deferral.ticket);
                Ok(Step::Again {
                    after: deferral.retry_in,
                })
            }
            Ok(Answer::Rejected(rejection)) => {
                self.recorder.answered();
                match rejection.reason {
                    RejectReason::Deadline => Ok(Step::Ended(End::GivenUp)),
                    RejectReason::NeverFits => Ok(Step::Ended(End::Rejected)),
                    RejectReason::QueueFull
                    | RejectReason::TenantQueueFull
                    | RejectReason::IdConflict
                    | RejectReason::Stale
                    | RejectReason::Other => bail!("rejected: {rejection:?}"),
                }
            }
            Err(Error::DeadlinePassed) => Ok(Step::Ended(End::GivenUp)),
            Err(error) if error.is_retryable() => Ok(Step::Again {
                after: Duration::from_millis(100),
            }),
            Err(error) => Err(error.into()),
        }
    }

    async fn send(&self, work: &mut Work, guard: Guard) -> anyhow::Result<Step> {
        if !guard.is_ungated() {
            self.recorder.answered();
        }
        if !guard.is_current() {
            guard.not_sent().await?;
            work.ticket = None;
            work.attempt += 1;
            return Ok(Step::Again {
                after: Duration::ZERO,
            });
        }
        let pass = if guard.is_ungated() {
            Pass::Ungated
        } else {
            Pass::Granted
        };
        self.recorder
            .arrives(work.entry, work.attempt, pass, &work.costs);
        tokio::time::sleep(work.call_time).await;
        guard.settle(Outcome::Ok, work.costs.clone()).await?;
        Ok(Step::Ended(End::Served))
    }
}

/// True if the client sent something before it gave this answer: a ticket ends with the number of sends.
fn is_of_a_try(work: &Work, answer: &Answer) -> bool {
    match answer {
        Answer::Deferred(deferral) => match work.ticket {
            Some(ticket) => ticket != deferral.ticket,
            None => !deferral.ticket.to_string().ends_with(".0"),
        },
        Answer::Admitted(_) | Answer::Rejected(_) => true,
    }
}
