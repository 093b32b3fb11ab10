//! A caller that says everything twice, as proxies and impatient retries do.
//!
//! It speaks the wire protocol itself and follows the client rule in its own words: every ask goes out
//! as two equal messages to two nodes at once, every lost answer is asked for again under the next
//! number, every release is sent until two answers came. Whatever it does, one call is charged once.

use crate::history::{Costs, End, GrantName, Pass};
use crate::recorder::{Entry, Recorder};
use anyhow::{Context, bail, ensure};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use weir_proto::v1::admission_service_client::AdmissionServiceClient;
use weir_proto::v1::admit_response::Decision;
use weir_proto::v1::{
    AdmitRequest, AdmitResponse, Admitted, CallOutcome, ReleaseRequest, ReleaseStatus,
};

/// How long one message waits for its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(400);
/// Pause after an ask that nobody answered.
const PAUSE: Duration = Duration::from_millis(25);

/// Speaks for one tenant to every node.
#[derive(Clone, Debug)]
pub struct Repeater {
    nodes: Vec<AdmissionServiceClient<Channel>>,
    recorder: Recorder,
    target: String,
    tenant: String,
    priority: String,
    costs: Costs,
    /// How late after its start a call may still go out.
    lateness: Duration,
}

/// What the two answers to one ask came to.
enum Heard {
    Nothing,
    Deferred { retry_in: Duration },
    Admitted(Admitted),
}

impl Repeater {
    /// A caller of `target` that knows the client addresses of all nodes.
    pub fn new(
        addresses: &[String],
        recorder: &Recorder,
        target: &str,
        (tenant, priority): (&str, &str),
        costs: &Costs,
    ) -> anyhow::Result<Repeater> {
        let mut nodes = Vec::new();
        for address in addresses {
            let endpoint =
                Endpoint::from_shared(format!("http://{address}"))?.connect_timeout(ANSWER_TIMEOUT);
            nodes.push(AdmissionServiceClient::new(endpoint.connect_lazy()));
        }
        Ok(Repeater {
            nodes,
            recorder: recorder.clone(),
            target: target.to_owned(),
            tenant: tenant.to_owned(),
            priority: priority.to_owned(),
            costs: costs.clone(),
            lateness: Duration::from_millis(50),
        })
    }

    /// Asks for one call until it is served, then releases it. Each id is one call.
    pub async fn call(&self, admission: &str, attempt: u64) -> anyhow::Result<()> {
        let entry = self.recorder.asks(admission);
        let grant = self
            .ask_and_send(admission, attempt, entry)
            .await
            .with_context(|| format!("call {admission}"))?;
        self.release(grant).await?;
        self.recorder.ends(entry, End::Served);
        Ok(())
    }

    async fn ask_and_send(
        &self,
        admission: &str,
        attempt: u64,
        entry: Entry,
    ) -> anyhow::Result<Admitted> {
        let mut request = AdmitRequest {
            target: self.target.clone(),
            tenant: self.tenant.clone(),
            priority: self.priority.clone(),
            admission_id: admission.to_owned(),
            attempt,
            cost: self.costs.clone(),
            ..AdmitRequest::default()
        };
        loop {
            request.ask += 1;
            let asked = Instant::now();
            match self.ask_twice(&request).await? {
                Heard::Nothing => sleep(PAUSE).await,
                Heard::Deferred { retry_in } => sleep(retry_in).await,
                Heard::Admitted(admitted) => {
                    if !self.is_in_time(&admitted, asked).await {
                        continue;
                    }
                    let grant = name_of(&admitted)?;
                    self.recorder
                        .arrives(entry, attempt, Pass::Grant(grant), &self.costs);
                    return Ok(admitted);
                }
            }
        }
    }

    /// The client rule: an answer older than its window is not used, nor is a start that was missed.
    async fn is_in_time(&self, admitted: &Admitted, asked: Instant) -> bool {
        let answered = Instant::now();
        if answered - asked > Duration::from_micros(admitted.reply_window_us) {
            return false;
        }
        let start = answered + Duration::from_micros(admitted.start_in_us);
        tokio::time::sleep_until(start).await;
        Instant::now() - start <= self.lateness
    }

    /// Sends one ask as two messages: to two nodes, each in turn being the first.
    async fn ask_twice(&self, request: &AdmitRequest) -> anyhow::Result<Heard> {
        let (mut first, mut second) = self.two_nodes(request.ask)?;
        let (one, two) = tokio::join!(
            timeout(ANSWER_TIMEOUT, first.admit(request.clone())),
            timeout(ANSWER_TIMEOUT, second.admit(request.clone())),
        );
        let mut heard = Heard::Nothing;
        for answer in [one, two].into_iter().flatten() {
            heard = self.combine(heard, self.understand(answer)?)?;
        }
        Ok(heard)
    }

    /// Both messages go to the same node every other time: then its own batches must tell them apart.
    fn two_nodes(
        &self,
        ask: u32,
    ) -> anyhow::Result<(
        AdmissionServiceClient<Channel>,
        AdmissionServiceClient<Channel>,
    )> {
        let ask = usize::try_from(ask)?;
        let count = self.nodes.len();
        ensure!(count > 0, "no node to ask");
        let first = (ask / 2) % count;
        let second = if ask.is_multiple_of(2) {
            first
        } else {
            (first + 1) % count
        };
        match (self.nodes.get(first), self.nodes.get(second)) {
            (Some(one), Some(two)) => Ok((one.clone(), two.clone())),
            (None, _) | (_, None) => bail!("no such node"),
        }
    }

    fn understand(
        &self,
        answer: Result<tonic::Response<AdmitResponse>, Status>,
    ) -> anyhow::Result<Heard> {
        let decision = match answer {
            Ok(response) => response.into_inner().decision,
            Err(status) if is_not_now(&status) => return Ok(Heard::Nothing),
            Err(status) => return Err(status.into()),
        };
        self.recorder.answered();
        match decision {
            Some(Decision::Admitted(admitted)) => Ok(Heard::Admitted(admitted)),
            Some(Decision::Deferred(deferred)) => Ok(Heard::Deferred {
                retry_in: Duration::from_micros(deferred.retry_in_us),
            }),
            // Stale: the twin of this message, or the ask after it, was heard first.
            Some(Decision::Rejected(rejected)) if is_stale(&rejected) => Ok(Heard::Nothing),
            Some(Decision::Rejected(rejected)) => bail!("rejected: {rejected:?}"),
            None => bail!("an answer without a decision"),
        }
    }

    /// Two answers to the same ask may differ in what is left of the wait, never in the grant.
    fn combine(&self, one: Heard, two: Heard) -> anyhow::Result<Heard> {
        match (one, two) {
            (Heard::Admitted(one), Heard::Admitted(two)) => {
                let (first, second) = (name_of(&one)?, name_of(&two)?);
                ensure!(
                    first == second,
                    "one ask got two grants: {first:?} and {second:?}"
                );
                Ok(Heard::Admitted(one))
            }
            (Heard::Admitted(admitted), Heard::Deferred { .. } | Heard::Nothing)
            | (Heard::Deferred { .. } | Heard::Nothing, Heard::Admitted(admitted)) => {
                Ok(Heard::Admitted(admitted))
            }
            (deferred @ Heard::Deferred { .. }, Heard::Deferred { .. } | Heard::Nothing)
            | (Heard::Nothing, deferred @ Heard::Deferred { .. }) => Ok(deferred),
            (Heard::Nothing, Heard::Nothing) => Ok(Heard::Nothing),
        }
    }

    /// Releases until two answers came: the first settles, the second must change nothing.
    async fn release(&self, admitted: Admitted) -> anyhow::Result<()> {
        let request = ReleaseRequest {
            target: self.target.clone(),
            grant: admitted.grant,
            actual: self.costs.clone(),
            outcome: CallOutcome::Ok.into(),
            retry_after_us: 0,
            throttled_dimension: String::new(),
        };
        let mut applied = 0_u32;
        let mut answers = 0_u32;
        let mut turn = 0_usize;
        while answers < 2 {
            let Some(node) = self.nodes.get(turn % self.nodes.len().max(1)) else {
                bail!("no node to ask");
            };
            turn += 1;
            let answer = timeout(ANSWER_TIMEOUT, node.clone().release(request.clone())).await;
            match answer {
                Ok(Ok(response)) => match response.into_inner().status() {
                    ReleaseStatus::Applied => {
                        answers += 1;
                        applied += 1;
                    }
                    ReleaseStatus::Already => answers += 1,
                    other @ (ReleaseStatus::Unspecified
                    | ReleaseStatus::Expired
                    | ReleaseStatus::Unknown) => {
                        bail!("released {:?}: {other:?}", request.grant);
                    }
                },
                Ok(Err(status)) if is_not_now(&status) => sleep(PAUSE).await,
                Ok(Err(status)) => return Err(status.into()),
                Err(_elapsed) => {}
            }
        }
        ensure!(applied <= 1, "grant {:?} was settled twice", request.grant);
        Ok(())
    }
}

fn name_of(admitted: &Admitted) -> anyhow::Result<GrantName> {
    let grant = admitted
        .grant
        .as_ref()
        .context("an admission without a grant")?;
    Ok((grant.shard, grant.index, grant.offset))
}

fn is_stale(rejected: &weir_proto::v1::Rejected) -> bool {
    rejected.reason() == weir_proto::v1::RejectReason::Stale
}

/// True if another try, or another node, may answer. `Unknown` is what a broken connection looks like: no
/// node sends it.
fn is_not_now(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::ResourceExhausted
            | Code::Unknown
    )
}
