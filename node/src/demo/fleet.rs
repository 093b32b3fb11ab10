//! A fleet of workers as a workflow engine runs them.
//!
//! Workflows want one call after the other. A call waits in one queue for a *slot* of a worker process;
//! in the slot an [`Activity`] runs. It ends the call, or hands it back: then the slot is free at once,
//! and a durable timer or a signal, late as real ones are, puts the call back into the queue. An activity
//! that waits inside itself holds its slot for as long.

use super::tally::{Figures, Tally};
use super::workload::Workload;
use hdrhistogram::CreationError;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What runs in a slot.
pub trait Activity: Send + Sync + 'static {
    /// What a call keeps from one run to the next, until it is done.
    type Memory: Default + Send;

    /// Tries to make one call from a slot of this worker. Returns early once `stop` is cancelled.
    fn run(
        &self,
        worker: usize,
        call: &mut Call<Self::Memory>,
        stop: &CancellationToken,
    ) -> impl Future<Output = Step> + Send;
}

/// How a run ended.
pub enum Step {
    /// The provider served the call.
    Done,
    /// Give the slot to somebody else and run the call again after this.
    Again(Duration),
    /// The same, and run it again when this resolves.
    When(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// One call that a workflow wants.
#[derive(Debug)]
pub struct Call<M> {
    /// Who wants it.
    pub tenant: &'static str,
    /// Its priority.
    pub priority: &'static str,
    /// Its name, unique in the run.
    pub id: String,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Upper bound of its completion.
    pub max_tokens: u64,
    /// Kept by the activity.
    pub memory: M,
}

/// A workflow and the call that it waits for.
struct Workflow<M> {
    index: usize,
    class: usize,
    calls: u64,
    draws: StdRng,
    call: Call<M>,
}

struct Shared<A: Activity> {
    activity: Arc<A>,
    workload: Workload,
    queue: mpsc::Sender<Box<Workflow<A::Memory>>>,
    ready: tokio::sync::Mutex<mpsc::Receiver<Box<Workflow<A::Memory>>>>,
    tally: Mutex<Tally>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// A fleet at work.
pub struct Fleet<A: Activity> {
    shared: Arc<Shared<A>>,
}

impl<A: Activity> Fleet<A> {
    /// Starts the workers and all workflows. Figures count from `warm` on.
    pub fn start(
        workload: Workload,
        activity: Arc<A>,
        warm: Instant,
    ) -> Result<Fleet<A>, CreationError> {
        // Each workflow is at most once in the queue, so a send never waits.
        let (queue, ready) = mpsc::channel(workload.workflows().max(1));
        let shared = Arc::new(Shared {
            tally: Mutex::new(Tally::new(&workload, warm)?),
            activity,
            queue,
            ready: tokio::sync::Mutex::new(ready),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            workload,
        });
        for worker in 0..shared.workload.workers {
            for _slot in 0..shared.workload.slots {
                shared.tasks.spawn(Arc::clone(&shared).slot(worker));
            }
        }
        for workflow in workflows::<A::Memory>(&shared.workload) {
            shared.put_back(workflow, Duration::ZERO);
        }
        Ok(Fleet { shared })
    }

    /// Stops dispatch, waits for the calls in flight up to `drain`, and adds up.
    pub async fn stop(self, drain: Duration) -> Figures {
        let ended = Instant::now();
        self.shared.stop.cancel();
        self.shared.tasks.close();
        if tokio::time::timeout(drain, self.shared.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("calls were still in flight when the fleet stopped");
        }
        self.shared.tally().figures(ended)
    }
}

impl<A: Activity> Shared<A> {
    async fn slot(self: Arc<Self>, worker: usize) {
        while let Some(mut workflow) = self.next().await {
            let taken = Instant::now();
            let step = self
                .activity
                .run(worker, &mut workflow.call, &self.stop)
                .await;
            let now = Instant::now();
            self.tally().slot_held(workflow.class, taken, now);
            match step {
                Step::Done => {
                    self.tally().done(workflow.index, workflow.class, now);
                    workflow.want_next(&self.workload);
                    self.put_back(workflow, Duration::ZERO);
                }
                Step::Again(delay) => self.put_back(workflow, delay),
                Step::When(turn) => self.put_back_when(workflow, turn),
            }
        }
    }

    /// The next call in the queue; `None` once the fleet stops.
    async fn next(&self) -> Option<Box<Workflow<A::Memory>>> {
        let next = async { self.ready.lock().await.recv().await };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            workflow = next => workflow,
        }
    }

    /// Queues a call now, or when a durable timer of `delay` fires.
    fn put_back(self: &Arc<Self>, workflow: Box<Workflow<A::Memory>>, delay: Duration) {
        if delay.is_zero() {
            self.enqueue(workflow);
        } else {
            self.put_back_when(workflow, tokio::time::sleep(delay));
        }
    }

    /// Queues a call when `turn` has come and the engine has noticed.
    fn put_back_when(
        self: &Arc<Self>,
        mut workflow: Box<Workflow<A::Memory>>,
        turn: impl Future<Output = ()> + Send + 'static,
    ) {
        let (least, most) = self.workload.engine_late;
        let late = workflow.draws.random_range(least..=most.max(least));
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            let noticed = async {
                turn.await;
                tokio::time::sleep(late).await;
            };
            tokio::select! {
                biased;
                () = shared.stop.cancelled() => {}
                () = noticed => shared.enqueue(workflow),
            }
        });
    }

    fn enqueue(&self, workflow: Box<Workflow<A::Memory>>) {
        if let Err(error) = self.queue.try_send(workflow) {
            tracing::error!(%error, "a workflow was queued twice");
        }
    }

    /// Sums stay true whatever happened to a task that held them.
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Default> Workflow<M> {
    fn want_next(&mut self, workload: &Workload) {
        self.calls += 1;
        let (least, most) = workload.prompt_tokens;
        self.call.id = format!("workflow-{}-call-{}", self.index, self.calls);
        self.call.prompt_tokens = self.draws.random_range(least..=most.max(least));
        self.call.memory = M::default();
    }
}

fn workflows<M: Default>(workload: &Workload) -> Vec<Box<Workflow<M>>> {
    let mut all = Vec::with_capacity(workload.workflows());
    for (class, of) in workload.classes.iter().enumerate() {
        for tenant in of.tenants {
            for _workflow in 0..of.workflows {
                let index = all.len();
                let seed = workload.seed.wrapping_add(index as u64);
                let call = Call {
                    tenant,
                    priority: of.name,
                    id: String::new(),
                    prompt_tokens: 0,
                    max_tokens: workload.max_tokens,
                    memory: M::default(),
                };
                let draws = StdRng::seed_from_u64(seed);
                let mut workflow = Box::new(Workflow {
                    index,
                    class,
                    calls: 0,
                    draws,
                    call,
                });
                workflow.want_next(workload);
                all.push(workflow);
            }
        }
    }
    all
}
