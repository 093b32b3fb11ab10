//! The door of workers: ask, release, cancel, extend, report.

use super::deadline::deadline_of;
use super::{principal_of, wire_error};
use crate::metrics::Metrics;
use crate::road;
use crate::shards::Shards;
use crate::traceparent::TraceParent;
use crate::wakes::{Wakes, name_of};
use tokio::time::Instant;
use tonic::{Request, Response, Status};
use tracing::{Instrument, Span};
use weir_admission::{CallOutcome, Operation, Outcome, Principal, TargetName};
use weir_proto::convert::{self, Caller};
use weir_proto::error::{Reason, WireError};
use weir_proto::v1 as wire;
use weir_proto::v1::admission_service_server::AdmissionService;

/// Decides through the shards of this node.
pub struct Admission {
    shards: Shards,
    metrics: Metrics,
    wakes: Wakes,
}

/// A decoded request.
struct Call<T> {
    message: T,
    principal: Principal,
    deadline: Option<Instant>,
}

impl Admission {
    /// Answers for `shards`, counts in `metrics`, and takes places over from those who wait in `wakes`.
    pub fn new(shards: Shards, metrics: Metrics, wakes: Wakes) -> Admission {
        Admission {
            shards,
            metrics,
            wakes,
        }
    }

    /// Puts one operation into the log of the target's shard.
    async fn submit(
        &self,
        target: &TargetName,
        operation: Operation,
        deadline: Option<Instant>,
    ) -> Result<Outcome, WireError> {
        let outcomes = self.submit_all(target, vec![operation], deadline).await?;
        let [outcome] = <[Outcome; 1]>::try_from(outcomes)
            .map_err(|_| WireError::new(Reason::Internal, "one operation, not one outcome"))?;
        Ok(outcome)
    }

    async fn submit_all(
        &self,
        target: &TargetName,
        operations: Vec<Operation>,
        deadline: Option<Instant>,
    ) -> Result<Vec<Outcome>, WireError> {
        let shard = self.shards.shard_of(target);
        road::about(target, shard);
        self.shards
            .submit(shard, operations, deadline)
            .await
            .map_err(|error| wire_error(error, &self.shards))
    }

    fn caller<'a>(&self, principal: &'a Principal) -> Caller<'a> {
        Caller {
            principal,
            shards: self.shards.identity().shards,
            wakes: false,
        }
    }

    /// Counts a failed call and makes its status.
    fn status(&self, error: WireError) -> Status {
        self.metrics.refused(error.reason.as_str());
        error.into()
    }

    async fn decide(
        &self,
        call: Call<wire::AdmitRequest>,
    ) -> Result<wire::AdmitResponse, WireError> {
        let arrived = Instant::now();
        let admit = convert::admit::read(call.message, self.caller(&call.principal))?;
        let (target, priority) = (admit.target.clone(), admit.priority.clone());
        let name = (self.wakes.anybody() && !admit.dry_run).then(|| name_of(&admit));
        let operation = Operation::Admit(Box::new(admit));
        let outcome = self.submit(&target, operation, call.deadline).await?;
        if let Some(name) = name {
            self.wakes.decided(&name, &outcome);
        }
        let _answer = road::answer(&Span::current()).entered();
        if let Outcome::Admit(decided) = &outcome {
            self.metrics
                .decided(&target, &priority, decided, arrived.elapsed());
        }
        convert::admit::answer(outcome, &target, self.shards.shard_of(&target))
    }

    async fn settle(
        &self,
        call: Call<wire::ReleaseRequest>,
    ) -> Result<wire::ReleaseResponse, WireError> {
        let dimension = convert::release::throttled_dimension(&call.message);
        let release = convert::release::read(call.message, self.caller(&call.principal))?;
        let (target, ended) = (release.target.clone(), release.outcome);
        let operation = Operation::Release(Box::new(release));
        let outcome = self.submit(&target, operation, call.deadline).await?;
        let _answer = road::answer(&Span::current()).entered();
        let answer = convert::release::answer(outcome, &target)?;
        if matches!(ended, CallOutcome::Throttled { .. })
            && answer.status() == wire::ReleaseStatus::Applied
        {
            let dimensions = || self.shards.dimensions(&target);
            self.metrics
                .throttled(&target, dimension.as_ref(), dimensions);
        }
        Ok(answer)
    }

    async fn give_up(
        &self,
        call: Call<wire::CancelRequest>,
    ) -> Result<wire::CancelResponse, WireError> {
        let cancel = convert::cancel::read(call.message, self.caller(&call.principal))?;
        let (target, name) = (cancel.target.clone(), cancel.clone());
        let operation = Operation::Cancel(Box::new(cancel));
        let outcome = self.submit(&target, operation, call.deadline).await?;
        self.wakes.decided(&name, &outcome);
        let _answer = road::answer(&Span::current()).entered();
        convert::cancel::answer(outcome, &target)
    }

    async fn keep_alive(
        &self,
        call: Call<wire::ExtendRequest>,
    ) -> Result<wire::ExtendResponse, WireError> {
        let extend = convert::extend::read(&call.message, self.caller(&call.principal))?;
        let target = extend.target.clone();
        let operation = Operation::Extend(extend);
        let outcome = self.submit(&target, operation, call.deadline).await?;
        let _answer = road::answer(&Span::current()).entered();
        convert::extend::answer(outcome, &target)
    }

    async fn charge(
        &self,
        call: Call<wire::ReportRequest>,
    ) -> Result<wire::ReportResponse, WireError> {
        let reports = convert::report::read(call.message, self.caller(&call.principal))?;
        let targets: Vec<TargetName> = reports.iter().map(|report| report.target.clone()).collect();
        let Some(first) = targets.first() else {
            return Ok(wire::ReportResponse::default());
        };
        let operations = reports
            .into_iter()
            .map(|report| Operation::Report(Box::new(report)))
            .collect();
        let outcomes = self.submit_all(first, operations, call.deadline).await?;
        let _answer = road::answer(&Span::current()).entered();
        let statuses = outcomes
            .into_iter()
            .zip(&targets)
            .map(|(outcome, target)| convert::report::answer(outcome, target).map(i32::from));
        Ok(wire::ReportResponse {
            statuses: statuses.collect::<Result<_, _>>()?,
        })
    }
}

fn open<T>(request: Request<T>) -> Result<Call<T>, Status> {
    let principal = principal_of(&request)?;
    let deadline = deadline_of(request.metadata());
    Ok(Call {
        message: request.into_inner(),
        principal,
        deadline,
    })
}

#[tonic::async_trait]
impl AdmissionService for Admission {
    async fn admit(
        &self,
        request: Request<wire::AdmitRequest>,
    ) -> Result<Response<wire::AdmitResponse>, Status> {
        let span = road::call("admit", TraceParent::of(request.metadata()));
        let answer = self.decide(open(request)?).instrument(span).await;
        answer
            .map(Response::new)
            .map_err(|error| self.status(error))
    }

    async fn release(
        &self,
        request: Request<wire::ReleaseRequest>,
    ) -> Result<Response<wire::ReleaseResponse>, Status> {
        let span = road::call("release", TraceParent::of(request.metadata()));
        let answer = self.settle(open(request)?).instrument(span).await;
        answer
            .map(Response::new)
            .map_err(|error| self.status(error))
    }

    async fn cancel(
        &self,
        request: Request<wire::CancelRequest>,
    ) -> Result<Response<wire::CancelResponse>, Status> {
        let span = road::call("cancel", TraceParent::of(request.metadata()));
        let answer = self.give_up(open(request)?).instrument(span).await;
        answer
            .map(Response::new)
            .map_err(|error| self.status(error))
    }

    async fn extend(
        &self,
        request: Request<wire::ExtendRequest>,
    ) -> Result<Response<wire::ExtendResponse>, Status> {
        let span = road::call("extend", TraceParent::of(request.metadata()));
        let answer = self.keep_alive(open(request)?).instrument(span).await;
        answer
            .map(Response::new)
            .map_err(|error| self.status(error))
    }

    async fn report(
        &self,
        request: Request<wire::ReportRequest>,
    ) -> Result<Response<wire::ReportResponse>, Status> {
        let span = road::call("report", TraceParent::of(request.metadata()));
        let answer = self.charge(open(request)?).instrument(span).await;
        answer
            .map(Response::new)
            .map_err(|error| self.status(error))
    }
}
