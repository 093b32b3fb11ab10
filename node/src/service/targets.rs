//! The door of operators: policies of targets and their use.

use super::deadline::deadline_of;
use super::{principal_of, wire_error};
use crate::batch::SubmitError;
use crate::shards::Shards;
use tokio::time::Instant;
use tonic::{Request, Response, Status};
use weir_admission::{Operation, Outcome, Principal, TargetName};
use weir_proto::convert::{self, Caller};
use weir_proto::error::{Reason, WireError};
use weir_proto::v1 as wire;
use weir_proto::v1::targets_service_server::TargetsService;
use weir_raft::Role;

/// Reads and changes targets through the shards of this node.
pub struct Targets {
    shards: Shards,
}

impl Targets {
    /// Methods that tell whole policies, or all of them.
    pub const LARGE: &'static [&'static str] = &["GetTarget", "ListTargets", "ListVersions"];

    /// Answers for `shards`.
    pub fn new(shards: Shards) -> Targets {
        Targets { shards }
    }

    fn caller<'a>(&self, principal: &'a Principal) -> Caller<'a> {
        Caller {
            principal,
            shards: self.shards.identity().shards,
            wakes: false,
        }
    }

    async fn change(
        &self,
        target: &TargetName,
        operation: Operation,
        deadline: Option<Instant>,
    ) -> Result<Outcome, WireError> {
        let outcomes = self
            .shards
            .submit(self.shards.shard_of(target), vec![operation], deadline)
            .await
            .map_err(|error| wire_error(error, &self.shards))?;
        let [outcome] = <[Outcome; 1]>::try_from(outcomes)
            .map_err(|_| WireError::new(Reason::Internal, "one operation, not one outcome"))?;
        Ok(outcome)
    }
}

#[tonic::async_trait]
impl TargetsService for Targets {
    async fn put_target(
        &self,
        request: Request<wire::PutTargetRequest>,
    ) -> Result<Response<wire::PutTargetResponse>, Status> {
        let principal = principal_of(&request)?;
        let deadline = deadline_of(request.metadata());
        let caller = self.caller(&principal);
        let put = convert::target::read_put(request.get_ref(), caller).map_err(WireError::from)?;
        let target = put.target.clone();
        let outcome = self
            .change(&target, Operation::PutPolicy(Box::new(put)), deadline)
            .await?;
        let answer = convert::target::answer_put(outcome, &target)?;
        if answer.changed {
            tracing::info!(%target, version = answer.version, %principal, "a policy was put");
        }
        Ok(Response::new(answer))
    }

    async fn get_target(
        &self,
        request: Request<wire::GetTargetRequest>,
    ) -> Result<Response<wire::GetTargetResponse>, Status> {
        principal_of(&request)?;
        let target = convert::target::read_get(request.get_ref()).map_err(WireError::from)?;
        let shard = self.shards.shard_of(&target);
        let view = self
            .shards
            .read(shard, |state| state.view(&target))
            .await
            .map_err(|error| wire_error(error, &self.shards))?
            .ok_or_else(|| WireError::target_unknown(target.as_str()))?;
        let target = Some(convert::target::write(&view, shard));
        Ok(Response::new(wire::GetTargetResponse { target }))
    }

    async fn list_targets(
        &self,
        request: Request<wire::ListTargetsRequest>,
    ) -> Result<Response<wire::ListTargetsResponse>, Status> {
        principal_of(&request)?;
        let mut answer = wire::ListTargetsResponse::default();
        for group in self.shards.groups().all() {
            let shard = group.shard();
            if group.positions().role != Role::Leader {
                continue;
            }
            let read = self.shards.read(shard, |state| {
                let views = state.target_names().filter_map(|name| state.view(name));
                views
                    .map(|view| convert::target::write(&view, shard))
                    .collect::<Vec<_>>()
            });
            match read.await {
                Ok(targets) => {
                    answer.targets.extend(targets);
                    answer.shards.push(shard.0);
                }
                // Not the leader after all: the caller sees that the shard is missing.
                Err(SubmitError::NotLeader { .. } | SubmitError::NoQuorum) => {}
                Err(error) => return Err(wire_error(error, &self.shards).into()),
            }
        }
        Ok(Response::new(answer))
    }

    async fn delete_target(
        &self,
        request: Request<wire::DeleteTargetRequest>,
    ) -> Result<Response<wire::DeleteTargetResponse>, Status> {
        let principal = principal_of(&request)?;
        let deadline = deadline_of(request.metadata());
        let delete = convert::target::read_delete(request.get_ref()).map_err(WireError::from)?;
        let target = delete.target.clone();
        let outcome = self
            .change(&target, Operation::DeletePolicy(delete), deadline)
            .await?;
        let answer = convert::target::answer_delete(outcome, &target)?;
        tracing::info!(%target, %principal, "a target was removed");
        Ok(Response::new(answer))
    }

    async fn list_versions(
        &self,
        request: Request<wire::ListVersionsRequest>,
    ) -> Result<Response<wire::ListVersionsResponse>, Status> {
        principal_of(&request)?;
        let target = convert::target::read_versions(request.get_ref()).map_err(WireError::from)?;
        let versions = self
            .shards
            .read(self.shards.shard_of(&target), |state| {
                state.versions(&target)
            })
            .await
            .map_err(|error| wire_error(error, &self.shards))?
            .ok_or_else(|| WireError::target_unknown(target.as_str()))?;
        Ok(Response::new(convert::target::write_versions(&versions)))
    }

    async fn explain(
        &self,
        request: Request<wire::ExplainRequest>,
    ) -> Result<Response<wire::ExplainResponse>, Status> {
        let principal = principal_of(&request)?;
        let deadline = deadline_of(request.metadata());
        let new_id = || format!("explain-{:032x}", rand::random::<u128>());
        let ask = convert::explain::read(request.into_inner(), new_id, self.caller(&principal))
            .map_err(WireError::from)?;
        let (target, shard) = (ask.target.clone(), self.shards.shard_of(&ask.target));
        // A dry run first: it brings the target to the present, and refuses what cannot be explained.
        let dry_run = Operation::Admit(Box::new(ask.clone()));
        convert::admit::answer(
            self.change(&target, dry_run, deadline).await?,
            &target,
            shard,
        )?;
        let explanation = self
            .shards
            .read(shard, |state| state.explain(&ask))
            .await
            .map_err(|error| wire_error(error, &self.shards))?
            .map_err(|refusal| convert::explain::refused(refusal, &target))?;
        Ok(Response::new(convert::explain::answer(
            explanation,
            &target,
            shard,
        )?))
    }
}
