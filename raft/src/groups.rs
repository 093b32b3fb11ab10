//! All groups of a node: start, stop, and what they share.

use crate::disk::{Disk, RealDisk};
use crate::duty::Duty;
use crate::group::Group;
use crate::identity::DataDir;
use crate::log::{LogStore, Worker};
use crate::peer::{Links, PeerHandler};
use crate::start::{self, StartError};
use crate::{Clock, Config, Failure, Identity, NodeId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use weir_admission::ShardId;

/// Makes the channel to a peer from its endpoint: `connect_lazy` in production, a simulated network in
/// tests.
pub type Connector =
    Arc<dyn Fn(tonic::transport::Endpoint) -> tonic::transport::Channel + Send + Sync>;

/// Every group of this node. Cheap to clone.
#[derive(Clone)]
pub struct Groups {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) identity: Identity,
    pub(crate) groups: Vec<Group>,
    pub(crate) peers: PeerHandler,
    pub(crate) duty: Duty,
    pub(crate) links: Links,
    pub(crate) failure: watch::Sender<Option<Failure>>,
    /// Taken when the log is closed.
    pub(crate) log: Mutex<Option<LogStore>>,
    /// Held so that no other process opens the directory.
    pub(crate) _data_dir: DataDir,
    /// Looks for peers that were not met yet, as long as this lives.
    pub(crate) _meeting: JoinSet<()>,
}

impl Groups {
    /// Opens the data directory, founds the cluster if it is empty, and starts every group. Returns
    /// before leaders are elected.
    ///
    /// # Errors
    /// See [`StartError`]; nothing runs then.
    pub async fn start(
        config: Config,
        connector: Connector,
        clock: Arc<dyn Clock>,
    ) -> Result<Groups, StartError> {
        Self::start_on(config, connector, clock, Arc::new(RealDisk), Worker::Thread).await
    }

    /// The same on another disk, with another way of writing the log: for simulation.
    ///
    /// # Errors
    /// See [`StartError`]; nothing runs then.
    pub async fn start_on(
        config: Config,
        connector: Connector,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
        worker: Worker,
    ) -> Result<Groups, StartError> {
        start::start(config, &connector, clock, disk, worker).await
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

    /// The service that peers talk to: mount it on the peer port with
    /// [`peer_server`](crate::peer_server)`().add_routes(..)`.
    pub fn peer_service(&self) -> tonic::service::Routes {
        tonic::service::Routes::new(self.inner.peers.clone().into_service())
    }

    /// Resolves when a group's core died or the log can no longer be written. The process must end then.
    pub async fn failed(&self) -> Failure {
        let mut failure = self.inner.failure.subscribe();
        let told = failure.wait_for(Option::is_some).await;
        match told.ok().and_then(|told| told.clone()) {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }

    /// Gives every lead of this node to another, for a graceful stop, and takes none any more. Gives up
    /// after `within`: others then elect leaders on their own.
    pub async fn hand_over(&self, within: Duration) {
        self.inner.duty.stop();
        self.campaign(false);
        // A node that is alone has nobody to hand over to: that is no failure.
        let alone = self.inner.links.is_empty();
        if !alone && !self.give_leads_away(within).await {
            tracing::warn!("not every lead was handed over in time");
        }
    }

    /// Gives every lead of this node to another and takes none any more, until [`Groups::undrain`] or a
    /// restart. The node goes on voting and keeping the log. Until then no other node may fail whose
    /// place this one would have to take: it does not campaign.
    ///
    /// # Errors
    /// The shards that nobody else took within `within`. The node is not drained then.
    pub async fn drain(&self, within: Duration) -> Result<(), Vec<ShardId>> {
        self.inner.duty.set_drained(true);
        self.campaign(false);
        if self.give_leads_away(within).await {
            return Ok(());
        }
        let kept = self.all().filter(|group| group.leads());
        let kept: Vec<ShardId> = kept.map(Group::shard).collect();
        if kept.is_empty() {
            return Ok(());
        }
        self.undrain();
        Err(kept)
    }

    /// Lets a drained node lead again. Leaders come back by themselves.
    pub fn undrain(&self) {
        self.inner.duty.set_drained(false);
        self.campaign(!self.inner.duty.is_stopping());
    }

    /// Peers that do not let this node in, because it (or they) came back without its data directory or was told
    /// another cluster; as it changes.
    pub fn refused_by(&self) -> watch::Receiver<BTreeSet<NodeId>> {
        self.inner.links.refusing()
    }

    /// True while this node is drained.
    pub fn is_drained(&self) -> bool {
        self.inner.duty.is_drained()
    }

    fn campaign(&self, campaign: bool) {
        for group in self.all() {
            group.raft().runtime_config().elect(campaign);
        }
    }

    /// True if this node leads nothing any more.
    async fn give_leads_away(&self, within: Duration) -> bool {
        let moves = self
            .all()
            .filter(|group| group.leads())
            .map(Group::hand_over);
        let all = futures::future::join_all(moves);
        let in_time = tokio::time::timeout(within, all).await.is_ok();
        in_time && !self.all().any(Group::leads)
    }

    /// Stops every group and closes the log. Nothing is answered afterwards.
    pub async fn shutdown(&self) {
        self.inner.duty.stop();
        let stops = self.all().map(|group| group.raft().shutdown());
        for stopped in futures::future::join_all(stops).await {
            if let Err(error) = stopped {
                tracing::warn!(%error, "a group did not stop cleanly");
            }
        }
        let log = self
            .inner
            .log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(log) = log
            && let Err(failure) = log.close().await
        {
            tracing::warn!(%failure, "the log did not close cleanly");
        }
    }
}
