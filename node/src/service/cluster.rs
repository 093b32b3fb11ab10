//! What operators and clients ask about the cluster itself.

use super::error::hint;
use super::principal_of;
use crate::limits::{DRAIN_LEADS_WITHIN, STATUS_WAIT};
use crate::shards::Shards;
use crate::words::named;
use futures::future::join_all;
use tokio::time::Instant;
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status};
use weir_admission::ShardId;
use weir_proto::error::{Reason, WireError};
use weir_proto::v1 as wire;
use weir_proto::v1::cluster_service_client::ClusterServiceClient;
use weir_proto::v1::cluster_service_server::ClusterService;
use weir_raft::{Connector, GroupStatus, NodeId, Role, TransferError};

/// The cluster as this node sees it.
pub struct ClusterApi {
    shards: Shards,
    connector: Connector,
    started: Instant,
}

impl ClusterApi {
    /// Answers for `shards` and asks other nodes through `connector`.
    pub fn new(shards: Shards, connector: Connector) -> ClusterApi {
        ClusterApi {
            shards,
            connector,
            started: Instant::now(),
        }
    }

    fn own_status(&self) -> wire::NodeStatus {
        let own = self.shards.identity().node;
        wire::NodeStatus {
            reachable: true,
            drained: self.shards.groups().is_drained(),
            refused_by: self
                .shards
                .groups()
                .refused_by()
                .borrow()
                .iter()
                .map(|node| node.0)
                .collect(),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_us: u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX),
            groups: self
                .shards
                .groups()
                .all()
                .map(|group| group_status(group.status()))
                .collect(),
            ..self.silent_status(own)
        }
    }

    /// What is known of a node that says nothing.
    fn silent_status(&self, node: NodeId) -> wire::NodeStatus {
        let member = self.shards.members().get(&node);
        wire::NodeStatus {
            node_id: node.0,
            address: member
                .map(|member| member.client.clone())
                .unwrap_or_default(),
            peer_address: member.map(|member| member.peer.clone()).unwrap_or_default(),
            reachable: false,
            drained: false,
            refused_by: Vec::new(),
            version: String::new(),
            uptime_us: 0,
            groups: Vec::new(),
        }
    }

    /// Asks another node for its own status; `None` if it does not answer in time, or as another node.
    async fn ask(&self, node: NodeId) -> Option<wire::NodeStatus> {
        let address = self.shards.client_address(node)?;
        let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
        let mut client = ClusterServiceClient::new((self.connector)(endpoint));
        let request = wire::StatusRequest { local: true };
        let answer = tokio::time::timeout(STATUS_WAIT, client.status(request))
            .await
            .ok()?
            .ok()?;
        let answer = answer.into_inner();
        let same_cluster = answer.cluster_id == self.shards.identity().cluster_id;
        answer
            .nodes
            .into_iter()
            .find(|status| same_cluster && status.node_id == node.0)
    }

    async fn status_of(&self, node: NodeId) -> wire::NodeStatus {
        if node == self.shards.identity().node {
            return self.own_status();
        }
        self.ask(node)
            .await
            .unwrap_or_else(|| self.silent_status(node))
    }
}

#[tonic::async_trait]
impl ClusterService for ClusterApi {
    async fn routes(
        &self,
        _request: Request<wire::RoutesRequest>,
    ) -> Result<Response<wire::RoutesResponse>, Status> {
        let identity = self.shards.identity();
        let nodes = self
            .shards
            .members()
            .iter()
            .map(|(id, member)| wire::NodeAddress {
                node_id: id.0,
                address: member.client.clone(),
            });
        let routes = self.shards.groups().all().map(|group| {
            let leadership = *group.leadership().borrow();
            wire::ShardRoute {
                shard: group.shard().0,
                leader: leadership.leader.map_or(0, |leader| leader.0),
                term: leadership.term,
            }
        });
        Ok(Response::new(wire::RoutesResponse {
            cluster_id: identity.cluster_id.clone(),
            shards: identity.shards,
            nodes: nodes.collect(),
            routes: routes.collect(),
        }))
    }

    async fn status(
        &self,
        request: Request<wire::StatusRequest>,
    ) -> Result<Response<wire::StatusResponse>, Status> {
        let identity = self.shards.identity();
        let nodes = if request.into_inner().local {
            vec![self.own_status()]
        } else {
            join_all(
                self.shards
                    .members()
                    .keys()
                    .map(|node| self.status_of(*node)),
            )
            .await
        };
        Ok(Response::new(wire::StatusResponse {
            cluster_id: identity.cluster_id.clone(),
            shards: identity.shards,
            nodes,
        }))
    }

    async fn transfer(
        &self,
        request: Request<wire::TransferRequest>,
    ) -> Result<Response<wire::TransferResponse>, Status> {
        let request = request.into_inner();
        let group = self
            .shards
            .groups()
            .group(ShardId(request.shard))
            .ok_or_else(|| {
                let shards = self.shards.identity().shards;
                malformed(
                    "shard",
                    format!("must be below {shards}, the number of shards"),
                )
            })?;
        group
            .transfer(NodeId(request.to))
            .await
            .map_err(|error| self.transfer_error(error))?;
        tracing::info!(
            shard = request.shard,
            to = request.to,
            "leadership was transferred"
        );
        Ok(Response::new(wire::TransferResponse {}))
    }

    async fn drain(
        &self,
        request: Request<wire::DrainRequest>,
    ) -> Result<Response<wire::DrainResponse>, Status> {
        let principal = principal_of(&request)?;
        self.check_self(request.get_ref().node_id)?;
        match self.shards.groups().drain(DRAIN_LEADS_WITHIN).await {
            Ok(()) => {
                tracing::info!(%principal, "this node is drained: it leads nothing");
                Ok(Response::new(wire::DrainResponse {}))
            }
            Err(kept) => {
                let kept: Vec<u32> = kept.iter().map(|shard| shard.0).collect();
                let kept = named("shard", &kept);
                let message = format!("no other node took over {kept}; the node is not drained");
                Err(WireError::new(Reason::NoQuorum, message).into())
            }
        }
    }

    async fn undrain(
        &self,
        request: Request<wire::UndrainRequest>,
    ) -> Result<Response<wire::UndrainResponse>, Status> {
        let principal = principal_of(&request)?;
        self.check_self(request.get_ref().node_id)?;
        self.shards.groups().undrain();
        tracing::info!(%principal, "this node leads again");
        Ok(Response::new(wire::UndrainResponse {}))
    }
}

impl ClusterApi {
    /// Refuses what is meant for another node: addresses may change hands.
    fn check_self(&self, node: u64) -> Result<(), WireError> {
        let own = self.shards.identity().node;
        if node == own.0 {
            Ok(())
        } else {
            Err(malformed("node_id", format!("must be {own}, this node")))
        }
    }

    fn transfer_error(&self, error: TransferError) -> WireError {
        match error {
            TransferError::NotLeader { leader } => {
                WireError::not_leader(hint(leader, &self.shards))
            }
            TransferError::NotVoter(node) => malformed(
                "to",
                format!("must be a voter of the shard, node {node} is not"),
            ),
            TransferError::NotReady(node) => WireError::new(
                Reason::NoQuorum,
                format!("node {node} does not answer or is too far behind; nothing happened"),
            ),
            TransferError::Declined(node) => malformed(
                "to",
                format!("must be a node that takes leads, node {node} is drained or stops"),
            ),
            TransferError::Timeout(node) => WireError::new(
                Reason::OutcomeUnknown,
                format!("node {node} did not take over in time; ask for the status"),
            ),
            TransferError::Stopped => WireError::new(Reason::Stopping, "the node stops"),
        }
    }
}

fn malformed(field: &str, description: String) -> WireError {
    let violation = weir_admission::Violation {
        field: field.into(),
        description: description.clone(),
    };
    WireError {
        violations: vec![violation],
        ..WireError::new(Reason::Malformed, format!("{field} {description}"))
    }
}

fn group_status(group: GroupStatus) -> wire::GroupStatus {
    wire::GroupStatus {
        shard: group.shard.0,
        role: match group.role {
            Role::Leader => wire::GroupRole::Leader,
            Role::Follower => wire::GroupRole::Follower,
            Role::Candidate => wire::GroupRole::Candidate,
            Role::Learner => wire::GroupRole::Learner,
        }
        .into(),
        leader: group.leader.map_or(0, |leader| leader.0),
        term: group.term,
        last_log_index: group.last_log_index,
        applied_index: group.applied_index,
        snapshot_index: group.snapshot_index,
        purged_index: group.purged_index,
        voters: group.voters.iter().map(|voter| voter.0).collect(),
        digest: format!("{:032x}", group.digest),
        targets: group.targets,
    }
}
