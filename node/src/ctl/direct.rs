//! `admit`, `release`, `cancel` and `explain`: one question and one answer, shown as they are, without what
//! a worker's client adds.

use super::args::{AdmitArgs, CallArgs, CancelArgs, ExplainArgs, ReleaseArgs};
use super::{CtlError, Form, show};
use crate::exit::Exit;
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};
use weir_admission::{TargetName, shard_of};
use weir_client::Client;
use weir_proto::error::{Reason, WireError};
use weir_proto::v1 as wire;
use weir_proto::v1::admission_service_client::AdmissionServiceClient;
use weir_proto::v1::admit_response::Decision;

/// Longest wait for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How often another leader is tried, and the pause before each further try: enough for an election on a busy
/// machine.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(300);

pub(super) async fn admit(
    client: &Client,
    args: AdmitArgs,
    form: Form,
) -> Result<(String, Exit), CtlError> {
    let priority = priority_of(client, &args.call).await?;
    let request = wire::AdmitRequest {
        target: args.call.target,
        tenant: args.call.tenant,
        priority,
        admission_id: args
            .id
            .unwrap_or_else(|| format!("ctl-{:016x}", rand::random::<u64>())),
        attempt: args.attempt.unwrap_or_else(rand::random),
        ask: args.ask,
        cost: (*args.call.cost).clone(),
        cost_max: (*args.call.cost_max).clone(),
        labels: Default::default(),
        deadline_us: args.deadline.map_or(0, micros),
        dry_run: args.dry_run,
        wake: false,
    };
    let answer = at_leader(client, &request.target, |mut leader| {
        let request = request.clone();
        async move { leader.admit(request).await }
    })
    .await
    .map_err(|error| ask_again(error, &request))?;
    let exit = match answer.decision {
        Some(Decision::Admitted(_)) => Exit::Success,
        Some(Decision::Deferred(_)) if !args.quiet => Exit::Success,
        Some(Decision::Deferred(_) | Decision::Rejected(_)) | None => Exit::Failed,
    };
    let text = if args.quiet {
        show::grant_only(&answer)
    } else {
        show::decision(&request, &answer, form)
    };
    Ok((text, exit))
}

/// Names the call of which nobody knows what became of it, so that it can be asked about.
fn ask_again(error: CtlError, request: &wire::AdmitRequest) -> CtlError {
    match error {
        CtlError::Wire(wire) if wire.reason == Reason::OutcomeUnknown => {
            let again = format!(
                "{}; ask again with --id {} --attempt {} --ask {}",
                wire.message,
                request.admission_id,
                request.attempt,
                request.ask.saturating_add(1)
            );
            CtlError::Wire(WireError {
                message: again,
                ..wire
            })
        }
        CtlError::Wire(_)
        | CtlError::Call(_)
        | CtlError::Client(_)
        | CtlError::Usage(_)
        | CtlError::Refused(_) => error,
    }
}

pub(super) async fn release(
    client: &Client,
    args: ReleaseArgs,
    form: Form,
) -> Result<(String, Exit), CtlError> {
    let request = wire::ReleaseRequest {
        target: args.target,
        grant: Some(args.grant),
        actual: (*args.actual).clone(),
        outcome: wire::CallOutcome::from(args.outcome).into(),
        retry_after_us: micros(args.retry_after),
        throttled_dimension: args.dimension,
    };
    let answer = at_leader(client, &request.target, |mut leader| {
        let request = request.clone();
        async move { leader.release(request).await }
    })
    .await?;
    let exit = match answer.status() {
        wire::ReleaseStatus::Applied | wire::ReleaseStatus::Already => Exit::Success,
        wire::ReleaseStatus::Expired
        | wire::ReleaseStatus::Unknown
        | wire::ReleaseStatus::Unspecified => Exit::Failed,
    };
    Ok((show::released(&answer, form), exit))
}

pub(super) async fn cancel(
    client: &Client,
    args: CancelArgs,
    form: Form,
) -> Result<(String, Exit), CtlError> {
    let (attempt, ask) = match args.attempt {
        Some(attempt) => (attempt, args.ask),
        None => newest_ask(client, &args).await?,
    };
    let request = wire::CancelRequest {
        target: args.target,
        tenant: args.tenant,
        admission_id: args.id,
        attempt,
        ask,
    };
    let answer = at_leader(client, &request.target, |mut leader| {
        let request = request.clone();
        async move { leader.cancel(request).await }
    })
    .await?;
    let exit = match answer.status() {
        wire::CancelStatus::PlaceDropped
        | wire::CancelStatus::GrantRefunded
        | wire::CancelStatus::Nothing => Exit::Success,
        wire::CancelStatus::Stale | wire::CancelStatus::Unspecified => Exit::Failed,
    };
    Ok((show::cancelled(&answer, form), exit))
}

pub(super) async fn explain(
    client: &Client,
    args: ExplainArgs,
    form: Form,
) -> Result<String, CtlError> {
    let priority = priority_of(client, &args.call).await?;
    let request = wire::ExplainRequest {
        target: args.call.target,
        tenant: args.call.tenant,
        priority,
        cost: (*args.call.cost).clone(),
        cost_max: (*args.call.cost_max).clone(),
        admission_id: args.id,
    };
    let answer = client.explain(request.clone()).await?;
    Ok(show::explained(&request, &answer, form))
}

/// The newest attempt of a call and its last ask. Whoever cancels with them undoes no more than what was seen:
/// a newer ask or attempt makes them stale.
async fn newest_ask(client: &Client, args: &CancelArgs) -> Result<(u64, u32), CtlError> {
    let target = client.get_target(&args.target).await?;
    let policy = target.policy.unwrap_or_default();
    let (Some(limit), Some(priority)) = (policy.limits.first(), policy.priorities.last()) else {
        return Err(CtlError::usage("--attempt is missing"));
    };
    // What the call costs does not matter: only what is remembered of it is asked for.
    let request = wire::ExplainRequest {
        target: args.target.clone(),
        tenant: args.tenant.clone(),
        priority: priority.name.clone(),
        cost: [(limit.dimension.clone(), 1)].into(),
        admission_id: args.id.clone(),
        ..wire::ExplainRequest::default()
    };
    let known = client.explain(request).await?.known;
    let known = known.map(|known| (known.attempt, known.ask));
    known.ok_or_else(|| {
        let (id, tenant, target) = (&args.id, &args.tenant, &args.target);
        let unknown = format!("no call {id:?} of tenant {tenant:?} is remembered at {target:?}");
        CtlError::Refused(unknown)
    })
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The priority asked for, or the lowest one of the policy.
async fn priority_of(client: &Client, call: &CallArgs) -> Result<String, CtlError> {
    if let Some(priority) = &call.priority {
        return Ok(priority.clone());
    }
    let target = client.get_target(&call.target).await?;
    let policy = target.policy.unwrap_or_default();
    let lowest = policy.priorities.into_iter().next_back();
    lowest
        .map(|priority| priority.name)
        .ok_or_else(|| CtlError::usage("--priority is missing"))
}

/// Calls the leader of the target's shard. A call that may have happened is not repeated.
async fn at_leader<R, F>(
    client: &Client,
    target: &str,
    call: impl Fn(AdmissionServiceClient<Channel>) -> F,
) -> Result<R, CtlError>
where
    F: Future<Output = Result<Response<R>, Status>>,
{
    let name = TargetName::new(target)
        .map_err(|error| CtlError::Usage(format!("target {target:?} {error}")))?;
    let mut hint = None;
    let mut tries = 1;
    loop {
        let address = match hint.take() {
            Some(address) => Some(address),
            None => leader_address(client, &name).await?,
        };
        let error = match address {
            Some(address) => match connect(&address).await {
                Ok(leader) => match call(leader).await {
                    Ok(response) => return Ok(response.into_inner()),
                    Err(status) => judged(status, &address),
                },
                Err(error) => error,
            },
            None => CtlError::Wire(WireError::not_leader(None)),
        };
        match &error {
            CtlError::Wire(wire) if tries < TRIES && moves_on(wire.reason) => {
                hint = wire.leader.as_ref().map(|leader| leader.address.clone());
            }
            CtlError::Wire(_)
            | CtlError::Call(_)
            | CtlError::Client(_)
            | CtlError::Usage(_)
            | CtlError::Refused(_) => {
                return Err(error);
            }
        }
        if hint.is_none() {
            tokio::time::sleep(PAUSE).await;
        }
        tries += 1;
    }
}

/// True if another node, or the same one a little later, may answer, and nothing happened so far.
fn moves_on(reason: Reason) -> bool {
    match reason {
        Reason::NotLeader | Reason::Stopping | Reason::NoQuorum => true,
        Reason::Malformed
        | Reason::TargetUnknown
        | Reason::PriorityUnknown
        | Reason::DimensionUnknown
        | Reason::Unauthenticated
        | Reason::Forbidden
        | Reason::NotOwner
        | Reason::VersionConflict
        | Reason::Full
        | Reason::WrongCluster
        | Reason::DeadlineExceeded
        | Reason::Overloaded
        | Reason::OutcomeUnknown
        | Reason::Internal => false,
    }
}

async fn leader_address(client: &Client, target: &TargetName) -> Result<Option<String>, CtlError> {
    let routes = client.routes().await?;
    let shard = shard_of(target, routes.shards);
    let leader = routes
        .routes
        .iter()
        .find(|route| route.shard == shard.0)
        .map(|r| r.leader);
    let node = routes
        .nodes
        .into_iter()
        .find(|node| Some(node.node_id) == leader);
    Ok(node.map(|node| node.address))
}

/// An error means that nobody is there: nothing was said to it.
async fn connect(address: &str) -> Result<AdmissionServiceClient<Channel>, CtlError> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(CtlError::usage)?
        .connect_timeout(ANSWER_WITHIN)
        .timeout(ANSWER_WITHIN);
    match endpoint.connect().await {
        Ok(channel) => Ok(AdmissionServiceClient::new(channel)),
        Err(_) => Err(not_there(address).await),
    }
}

/// The members' names need not mean anything on the operator's machine, which no failover mends.
async fn not_there(address: &str) -> CtlError {
    let resolved = timeout(ANSWER_WITHIN, lookup_host(address)).await;
    let message = match resolved {
        Ok(Err(error)) => {
            format!("the leader's address {address} cannot be resolved on this machine: {error}")
        }
        Ok(Ok(_)) | Err(_) => format!("the leader at {address} cannot be reached"),
    };
    CtlError::Wire(WireError::new(Reason::NoQuorum, message))
}

/// What a failed call says. Without a word of the node it may have happened.
fn judged(status: Status, address: &str) -> CtlError {
    let silent = matches!(
        status.code(),
        Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Unknown
    );
    if !silent || WireError::from_status(&status).is_some() {
        return CtlError::from(status);
    }
    let message = format!(
        "no answer from {address}; it may have happened ({})",
        status.message()
    );
    CtlError::Wire(WireError::new(Reason::OutcomeUnknown, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of an address where nobody answers.
    async fn said(address: &str) -> String {
        let error = connect(address).await.err().unwrap();
        let CtlError::Wire(wire) = &error else {
            panic!("{error:?}")
        };
        assert!(moves_on(wire.reason), "it may come back: {wire:?}");
        wire.message.clone()
    }

    #[tokio::test]
    async fn a_name_that_means_nothing_is_no_node_that_is_down() {
        // Too long for a name, so that no name server is asked.
        let unknown = said(&format!("{}:7400", "n".repeat(64))).await;
        assert!(unknown.contains("cannot be resolved"), "{unknown}");
        // Nobody listens there.
        let down = said("127.0.0.1:1").await;
        assert!(down.contains("cannot be reached"), "{down}");
    }
}
