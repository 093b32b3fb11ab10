//! What operators ask. Answers are as on the wire ([`crate::wire`]).

use crate::failure::Failure;
use crate::limits::{ADMIN_FIRST_TIMEOUTS, ADMIN_TIMEOUT, PROBE_MIN, RETRY_MAX};
use crate::rpc::Rpc;
use crate::shared::Aim;
use crate::{Client, Error, wire};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;
use weir_admission::{ShardId, TargetName};

/// The targets of a cluster, and what is missing from the list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetList {
    /// In order of name.
    pub targets: Vec<wire::Target>,
    /// Shards whose leader did not answer: their targets are not in the list.
    pub missing_shards: Vec<u32>,
}

impl Client {
    /// Creates or replaces a target's policy. `expected_version`: `None` puts whatever is there, 0 only
    /// creates, n replaces only version n.
    ///
    /// Repeated for up to ten seconds. A put that expects a version and whose first try went unanswered
    /// may meet its own effect and report [`Error::Conflict`]: read the target, then decide.
    pub async fn put_target(
        &self,
        target: &str,
        policy: wire::Policy,
        expected_version: Option<u64>,
    ) -> Result<wire::PutTargetResponse, Error> {
        let request = wire::PutTargetRequest {
            target: target.to_owned(),
            policy: Some(policy),
            expected_version,
        };
        self.ask_leader(target, request).await
    }

    /// Policy and current use of a target.
    pub async fn get_target(&self, target: &str) -> Result<wire::Target, Error> {
        let request = wire::GetTargetRequest {
            target: target.to_owned(),
        };
        let answer = self.ask_leader(target, request).await?;
        answer.target.ok_or_else(|| Error::Internal {
            message: "an answer without a target".into(),
        })
    }

    /// Asks every leader for its targets and says which shards did not answer.
    pub async fn list_targets(&self) -> Result<TargetList, Error> {
        let shared = &self.owner.shared;
        let shards = self.learn_routes().await?.shards;
        let mut missing: BTreeSet<u32> = (0..shards).collect();
        let mut targets: BTreeMap<String, wire::Target> = BTreeMap::new();
        let rounds = ADMIN_FIRST_TIMEOUTS.into_iter().chain([ADMIN_TIMEOUT]);
        for (round, patience) in rounds.enumerate() {
            if round > 0 {
                tokio::time::sleep(PROBE_MIN).await;
                self.learn_routes().await?;
            }
            let leaders: BTreeSet<_> = missing
                .iter()
                .map(|shard| shared.node_for(Some(ShardId(*shard))))
                .collect();
            for leader in leaders {
                let request = wire::ListTargetsRequest {};
                match shared.send(None, &leader, request, patience).await {
                    Ok(list) => {
                        missing.retain(|shard| !list.shards.contains(shard));
                        let named = list.targets.into_iter();
                        targets.extend(named.map(|target| (target.name.clone(), target)));
                    }
                    Err(Failure::Fault(error)) => return Err(error),
                    Err(failure) => tracing::debug!(node = %leader, ?failure, "no list of targets"),
                }
            }
            if missing.is_empty() {
                break;
            }
        }
        Ok(TargetList {
            targets: targets.into_values().collect(),
            missing_shards: missing.into_iter().collect(),
        })
    }

    /// The policy in force of a target and the former ones that are remembered, newest first.
    pub async fn list_versions(&self, target: &str) -> Result<Vec<wire::PolicyVersion>, Error> {
        let request = wire::ListVersionsRequest {
            target: target.to_owned(),
        };
        Ok(self.ask_leader(target, request).await?.versions)
    }

    /// What an ask would be answered, and what stands before it. Changes nothing.
    pub async fn explain(
        &self,
        request: wire::ExplainRequest,
    ) -> Result<wire::ExplainResponse, Error> {
        let target = request.target.clone();
        self.ask_leader(&target, request).await
    }

    /// Removes a target. Its use is remembered for as long as a limit could need it.
    pub async fn delete_target(
        &self,
        target: &str,
        expected_version: Option<u64>,
    ) -> Result<(), Error> {
        let request = wire::DeleteTargetRequest {
            target: target.to_owned(),
            expected_version,
        };
        self.ask_leader(target, request).await.map(|_| ())
    }

    /// Nodes, groups, leaders, terms and applied positions, gathered by the first node that answers.
    pub async fn status(&self) -> Result<wire::StatusResponse, Error> {
        self.ask_anybody(wire::StatusRequest { local: false }).await
    }

    /// The routes, as the first node that answers knows them.
    pub async fn routes(&self) -> Result<wire::RoutesResponse, Error> {
        self.ask_anybody(wire::RoutesRequest {}).await
    }

    /// Hands a shard's leadership to another node.
    pub async fn transfer(&self, shard: u32, to: u64) -> Result<(), Error> {
        let shards = self.learn_routes().await?.shards;
        if shard >= shards {
            let message = format!("shard must be below {shards}, is {shard}");
            return Err(Error::Invalid { message });
        }
        let aim = Aim::Shard(ShardId(shard));
        self.deliver(&aim, wire::TransferRequest { shard, to })
            .await
            .map(|_| ())
    }

    async fn ask_leader<R: Rpc>(&self, target: &str, request: R) -> Result<R::Answer, Error> {
        let name = TargetName::new(target).map_err(|error| Error::Invalid {
            message: format!("target {error}"),
        })?;
        self.deliver(&Aim::Target(name), request).await
    }

    async fn ask_anybody<R: Rpc>(&self, request: R) -> Result<R::Answer, Error> {
        self.deliver(&Aim::Any, request).await
    }

    async fn learn_routes(&self) -> Result<wire::RoutesResponse, Error> {
        let routes = self.routes().await?;
        self.owner
            .shared
            .learn(&routes)
            .map_err(|error| Error::Internal {
                message: error.to_string(),
            })?;
        Ok(routes)
    }

    async fn deliver<R: Rpc>(&self, aim: &Aim, request: R) -> Result<R::Answer, Error> {
        let shared = &self.owner.shared;
        let begun = Instant::now();
        let until = begun + RETRY_MAX;
        let mut again = false;
        for patience in ADMIN_FIRST_TIMEOUTS {
            let next = Instant::now() + patience;
            let message = request.clone();
            let delivered = shared.deliver_on(aim, message, patience, next, again).await;
            match delivered {
                Ok(answer) => return Ok(answer),
                // Nobody answered so far: with more patience somebody may.
                Err(undelivered) if undelivered.unanswered => {
                    again |= may_have_happened(&undelivered.error);
                }
                Err(undelivered) => return Err(undelivered.error),
            }
        }
        let delivered = shared.deliver_on(aim, request, ADMIN_TIMEOUT, until, again);
        delivered.await.map_err(|undelivered| {
            let mut error = undelivered.error;
            if let Error::Unavailable { message, .. } = &mut error {
                // The last try is not all that was done.
                let tried_for = begun.elapsed().as_secs_f64();
                *message += &format!("; tried for {tried_for:.1} s");
            }
            error
        })
    }
}

fn may_have_happened(error: &Error) -> bool {
    matches!(
        error,
        Error::Unavailable {
            may_have_happened: true,
            ..
        }
    )
}
