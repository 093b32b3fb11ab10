//! The fleet behind the cluster: every call is admitted first, and waits without a slot until its worker
//! hears that its turn is near.

use super::chat::{Chat, Reply};
use super::fleet::{Activity, Call, Step};
use super::gap::GapWatch;
use super::limits::RETRY_AFTER_FAILURE;
use std::sync::Arc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_client::{Answer, Client, Guard, Origin, Outcome, Settlement, Ticket, Turn};

/// Asks, waits without a slot, sends, settles.
pub struct Gated {
    target: &'static str,
    chat: Chat,
    /// One client for each worker process.
    clients: Vec<Client>,
    gaps: Arc<GapWatch>,
}

/// What a call keeps while it waits: its name at the cluster and its place in line.
#[derive(Default)]
pub struct Place {
    call: Option<weir_client::Call>,
    ticket: Option<Ticket>,
}

impl Gated {
    /// A fleet of `clients.len()` worker processes.
    pub fn new(
        target: &'static str,
        chat: Chat,
        clients: Vec<Client>,
        gaps: Arc<GapWatch>,
    ) -> Gated {
        Gated {
            target,
            chat,
            clients,
            gaps,
        }
    }

    /// Asks sent by all clients so far.
    pub fn asks(&self) -> u64 {
        self.clients.iter().map(|client| client.stats().asks).sum()
    }

    /// Calls let through without a decision by all clients so far.
    pub fn ungated(&self) -> u64 {
        let ungated = |client: &Client| client.stats().ungated_open + client.stats().ungated_local;
        self.clients.iter().map(ungated).sum()
    }

    /// Writes every client's counts into the log.
    pub fn log_stats(&self) {
        for (worker, client) in self.clients.iter().enumerate() {
            tracing::info!(worker, stats = ?client.stats(), "a worker's client");
        }
    }

    /// Sends the call that the guard stands for and settles it.
    async fn send(&self, guard: Guard, call: &Call<Place>) -> Step {
        if !guard.is_current() {
            self.settled(guard.not_sent().await);
            return Step::Again(std::time::Duration::ZERO);
        }
        let (step, outcome, tokens) = match self.chat.send(call).await {
            Reply::Served { total_tokens } => (Step::Done, Outcome::Ok, Some(total_tokens)),
            Reply::Throttled { retry_after } => (
                Step::Again(retry_after),
                Outcome::Throttled {
                    retry_after,
                    dimension: None,
                },
                None,
            ),
            Reply::Failed => (Step::Again(RETRY_AFTER_FAILURE), Outcome::Failed, None),
        };
        let actual = tokens.map(|tokens| ("tokens", tokens));
        self.settled(guard.settle(outcome, actual).await);
        step
    }

    fn settled(&self, settlement: Result<Settlement, weir_client::Error>) {
        match settlement {
            Ok(
                Settlement::Applied
                | Settlement::Already
                | Settlement::Expired
                | Settlement::Unknown,
            ) => self.gaps.answered(Instant::now()),
            Ok(Settlement::Pending | Settlement::Recorded) => {}
            Err(error) => tracing::warn!(%error, "a call was not settled"),
        }
    }
}

impl Activity for Gated {
    type Memory = Place;

    async fn run(&self, worker: usize, call: &mut Call<Place>, _stop: &CancellationToken) -> Step {
        let Some(client) = self.clients.get(worker % self.clients.len().max(1)) else {
            return Step::Again(RETRY_AFTER_FAILURE);
        };
        let asked = weir_call(self.target, call);
        let turn = client.turn(&asked, call.memory.ticket);
        call.memory.call = Some(asked);
        match turn {
            Ok(turn) => self.visit(turn, call).await,
            Err(error) => again_after(&error),
        }
    }
}

impl Gated {
    /// Asks, and sends the call if it may go.
    async fn visit(&self, mut turn: Turn, call: &mut Call<Place>) -> Step {
        match turn.try_admit().await {
            Ok(Answer::Admitted(guard)) => {
                if !guard.is_ungated() {
                    self.gaps.answered(Instant::now());
                }
                call.memory.ticket = None;
                self.send(guard, call).await
            }
            Ok(Answer::Deferred(deferral)) => {
                match deferral.origin {
                    Origin::Cluster | Origin::Overloaded | Origin::LateAnswer => {
                        self.gaps.answered(Instant::now());
                    }
                    Origin::NoAnswer | Origin::LocalShare => {}
                }
                call.memory.ticket = Some(deferral.ticket);
                Step::When(Box::pin(async move { turn.near().await }))
            }
            Ok(Answer::Rejected(rejection)) => {
                self.gaps.answered(Instant::now());
                tracing::warn!(%rejection, "the cluster rejected a call");
                Step::Again(RETRY_AFTER_FAILURE)
            }
            Err(error) => again_after(&error),
        }
    }
}

fn again_after(error: &weir_client::Error) -> Step {
    tracing::warn!(%error, "an ask failed");
    Step::Again(RETRY_AFTER_FAILURE)
}

/// The call as the cluster knows it: one request, at least its prompt, at most its whole completion.
fn weir_call(target: &str, call: &mut Call<Place>) -> weir_client::Call {
    call.memory.call.take().unwrap_or_else(|| {
        weir_client::Call::new(target, call.tenant, call.priority)
            .id(call.id.as_str())
            .cost("requests", 1)
            .cost("tokens", call.prompt_tokens)
            .cost_max("tokens", call.prompt_tokens + call.max_tokens)
    })
}
