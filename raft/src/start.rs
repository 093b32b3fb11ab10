//! How a node's groups come up.

use crate::disk::Disk;
use crate::duty::Duty;
use crate::founding::{self, founding_rank, preferred_leader};
use crate::group::Group;
use crate::groups::{Connector, Groups, Inner};
use crate::identity::{DataDir, Directory, Identity, IdentityError};
use crate::keeper::Keeper;
use crate::limits::{
    ANSWER_LEASES, APPEND_ENTRIES, PEER_SNAPSHOT_WITHIN, PURGE_ENTRIES, SILENCE_LEASES,
    SNAPSHOT_GROUP_BYTES_MAX, SNAPSHOT_GROUP_BYTES_MIN,
};
use crate::log::{GroupLog, LogOptions, LogStore, OpenError, Worker};
use crate::machine::Machine;
use crate::met::{self, Met};
use crate::peer::{Cut, Links, PeerAsk, PeerFactory, PeerGroup, PeerHandler, PeerIdentity};
use crate::replica::Replica;
use crate::snapshot::{Loaded, SnapshotError, SnapshotStore};
use crate::types::Raft;
use crate::{Clock, Config, Failure, Leadership, NodeId};
use openraft::{BasicNode, SnapshotPolicy};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use weir_admission::ShardId;

/// Why a node's groups did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error("configuration: {0}")]
    Config(String),
    /// A peer's address is none.
    #[error("address of a peer: {0}")]
    Address(#[from] tonic::transport::Error),
    /// The data directory is not this node's. The cluster's id follows from its name, its number of
    /// shards and its members with their addresses: if any of them changed, it is another cluster.
    #[error("data directory: {0}")]
    Identity(#[from] IdentityError),
    /// The log cannot be opened.
    #[error("log: {0}")]
    Log(#[from] OpenError),
    /// A snapshot cannot be used, and neither can the log without it.
    #[error("snapshot: {0}")]
    Snapshot(#[from] SnapshotError),
    /// A snapshot is whole, but what it holds cannot be read.
    #[error("state: {0}")]
    State(#[from] std::io::Error),
    /// A group's core did not start.
    #[error("group of shard {shard}: {why}")]
    Group {
        /// The shard.
        shard: u32,
        /// What openraft said.
        why: String,
    },
}

/// Starts every group, or none.
pub(crate) async fn start(
    config: Config,
    connector: &Connector,
    clock: Arc<dyn Clock>,
    disk: Arc<dyn Disk>,
    worker: Worker,
) -> Result<Groups, StartError> {
    founding::check(&config).map_err(StartError::Config)?;
    let identity = Identity {
        cluster_id: founding::cluster_id(&config),
        node: config.node,
        shards: config.shards,
    };
    let starter = Starter::new(config, identity, connector, clock, disk, worker)?;
    let mut groups = Vec::new();
    let mut reachable = BTreeMap::new();
    for shard in (0..starter.identity.shards).map(ShardId) {
        match starter.start(shard).await {
            Ok((group, peer)) => {
                groups.push(group);
                reachable.insert(group_of(shard), peer);
            }
            Err(error) => {
                starter.abandon(groups).await;
                return Err(error);
            }
        }
    }
    Ok(starter.finish(groups, reachable))
}

/// The Raft group of a shard; 0 is kept for what concerns the whole cluster.
fn group_of(shard: ShardId) -> u32 {
    shard.0.saturating_add(1)
}

/// What groups share while they are started.
struct Starter {
    config: Config,
    raft_config: Arc<openraft::Config>,
    identity: Identity,
    me: PeerIdentity,
    links: Links,
    clock: Arc<dyn Clock>,
    disk: Arc<dyn Disk>,
    data_dir: DataDir,
    log: LogStore,
    duty: Duty,
    failure: watch::Sender<Option<Failure>>,
    /// Bytes of batches after which a group takes a snapshot.
    snapshot_bytes: u64,
}

impl Starter {
    fn new(
        config: Config,
        identity: Identity,
        connector: &Connector,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
        worker: Worker,
    ) -> Result<Self, StartError> {
        let mut peers = config.members.clone();
        peers.remove(&config.node);
        // Before anything is written: a wrong address leaves no directory behind.
        Links::check(&peers)?;
        let raft_config = Arc::new(raft_config(&config)?);
        let shards = u64::from(identity.shards);
        let share = config
            .retention
            .snapshot_bytes
            .checked_div(shards)
            .unwrap_or(0);
        let new = Directory::draw();
        let data_dir = DataDir::open(&*disk, &config.data_dir, &identity, new)?;
        let me = PeerIdentity {
            cluster_id: identity.cluster_id.as_str().into(),
            node: config.node,
            met: Arc::new(Met::open(Arc::clone(&disk), data_dir.path())?),
        };
        let links = Links::new(&me, &peers, connector)?;
        let log = LogStore::open(&LogOptions {
            disk: Arc::clone(&disk),
            worker,
            ..LogOptions::new(data_dir.path(), identity.shards)
        })?;
        Ok(Self {
            raft_config,
            config,
            identity,
            me,
            links,
            clock,
            disk,
            data_dir,
            log,
            duty: Duty::default(),
            failure: watch::Sender::new(None),
            snapshot_bytes: share.clamp(SNAPSHOT_GROUP_BYTES_MIN, SNAPSHOT_GROUP_BYTES_MAX),
        })
    }

    async fn start(&self, shard: ShardId) -> Result<(Group, PeerGroup), StartError> {
        let log = self.log.group(shard).ok_or_else(|| StartError::Group {
            shard: shard.0,
            why: "it has no log".to_owned(),
        })?;
        let disk = Arc::clone(&self.disk);
        let snapshots = Arc::new(SnapshotStore::open(disk, self.data_dir.path(), shard)?);
        let replica = Arc::new(self.load(shard, &snapshots, &log)?);
        let machine = Machine::new(Arc::clone(&replica), snapshots, log.clone());
        let cut = Cut::default();
        let raft = self.core(shard, log.clone(), machine, cut.clone()).await?;
        let (told, leadership) = watch::channel(Leadership::default());
        let peers = PeerAsk::new(self.links.clone(), group_of(shard));
        let group = Group::new(replica, raft.clone(), self.config.timing, peers, leadership);
        let given = Arc::new(AtomicBool::new(false));
        let keeper = Keeper {
            group: group.clone(),
            leadership: told,
            failure: self.failure.clone(),
            duty: self.duty.clone(),
            given: Arc::clone(&given),
            preferred: preferred_leader(shard, &self.config.members),
            me: self.config.node,
            log,
            cut,
            silence_max: SILENCE_LEASES * Duration::from_millis(self.config.timing.election_max_ms),
        };
        tokio::spawn(keeper.run());
        self.found(shard, &raft).await?;
        Ok((group, PeerGroup { raft, given }))
    }

    /// The replica as its newest snapshot has it; the log is applied on top when the core runs.
    fn load(
        &self,
        shard: ShardId,
        snapshots: &SnapshotStore,
        log: &GroupLog,
    ) -> Result<Replica, StartError> {
        let newest = snapshots.newest(log.range().start)?;
        let newest = newest
            .as_ref()
            .map(|Loaded { meta, state }| (meta, &state[..]));
        Ok(Replica::new(
            shard,
            Arc::clone(&self.clock),
            self.snapshot_bytes,
            newest,
        )?)
    }

    async fn core(
        &self,
        shard: ShardId,
        log: GroupLog,
        machine: Machine,
        cut: Cut,
    ) -> Result<Raft, StartError> {
        let lease = Duration::from_millis(self.config.timing.election_max_ms);
        let answer_within = ANSWER_LEASES * lease;
        let network = PeerFactory::new(self.links.clone(), group_of(shard), answer_within, cut);
        let config = Arc::clone(&self.raft_config);
        let raft = Raft::new(self.config.node.0, config, network, log, machine).await;
        raft.map_err(|error| not_started(shard, &error))
    }

    /// Founds a group that has no log yet. Every node does, with the same members, which Raft makes
    /// harmless; the preferred leader goes first so that it usually wins the first election.
    async fn found(&self, shard: ShardId, raft: &Raft) -> Result<(), StartError> {
        let founded = raft.is_initialized().await;
        if founded.map_err(|error| not_started(shard, &error))? {
            return Ok(());
        }
        let members = self.config.members.iter();
        let members: BTreeMap<u64, BasicNode> = members
            .map(|(node, address)| (node.0, BasicNode::new(address)))
            .collect();
        let rank = founding_rank(shard, self.config.node, &self.config.members);
        let wait = Duration::from_millis(2 * self.config.timing.election_max_ms) * rank;
        let raft = raft.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            // By then the group may have been founded by another node, which is just as well.
            if let Err(error) = raft.initialize(members).await {
                tracing::debug!(shard = shard.0, %error, "group was founded by another node");
            }
        });
        Ok(())
    }

    /// Stops what was started.
    async fn abandon(self, groups: Vec<Group>) {
        self.duty.stop();
        for group in groups {
            // It ends either way.
            drop(group.raft().shutdown().await);
        }
        drop(self.log.close().await);
    }

    fn finish(self, groups: Vec<Group>, reachable: BTreeMap<u32, PeerGroup>) -> Groups {
        let Self {
            config,
            identity,
            me,
            links,
            data_dir,
            log,
            duty,
            failure,
            ..
        } = self;
        tokio::spawn(forward(log.failure(), failure.clone()));
        let peers: BTreeSet<NodeId> = config
            .members
            .into_keys()
            .filter(|node| *node != config.node)
            .collect();
        let ask = PeerAsk::new(links.clone(), group_of(ShardId(0)));
        let mut meeting = JoinSet::new();
        meeting.spawn(met::meet(
            Arc::clone(&me.met),
            peers.iter().copied().collect(),
            ask,
        ));
        let peers = PeerHandler::new(me, peers, reachable, duty.clone());
        let inner = Inner {
            identity,
            groups,
            peers,
            duty,
            links,
            failure,
            log: Mutex::new(Some(log)),
            _data_dir: data_dir,
            _meeting: meeting,
        };
        Groups {
            inner: Arc::new(inner),
        }
    }
}

/// Tells of the log's failure, which comes before that of the groups it takes along.
async fn forward(mut from: watch::Receiver<Option<Failure>>, to: watch::Sender<Option<Failure>>) {
    if let Ok(failure) = from.wait_for(Option::is_some).await {
        to.send_replace(failure.clone());
    }
}

fn not_started(shard: ShardId, error: &dyn std::fmt::Display) -> StartError {
    StartError::Group {
        shard: shard.0,
        why: error.to_string(),
    }
}

fn raft_config(config: &Config) -> Result<openraft::Config, StartError> {
    let Config {
        timing, retention, ..
    } = config;
    let raft = openraft::Config {
        cluster_name: config.cluster.clone(),
        heartbeat_interval: timing.heartbeat_ms,
        election_timeout_min: timing.election_min_ms,
        election_timeout_max: timing.election_max_ms,
        // A group at work proves its leader alive by its entries.
        heartbeat_min_interval: Some(timing.heartbeat_ms),
        // A node that comes back must not disturb a leader that works.
        enable_pre_vote: Some(true),
        // A leader that only some can hear falls silent, so that the others may elect one that hears.
        quorum_loss_probe_interval: Some(2 * timing.election_max_ms),
        // A peer that lost its directory before anybody met it is filled again and ends no leader.
        allow_log_reversion: Some(true),
        // A leader that restarted within its term would count time from the term's beginning again.
        enable_leader_restore: Some(false),
        install_snapshot_timeout: PEER_SNAPSHOT_WITHIN.as_millis() as u64,
        max_payload_entries: APPEND_ENTRIES,
        max_append_entries: Some(APPEND_ENTRIES),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(retention.snapshot_entries),
        max_in_snapshot_log_to_keep: retention.tail_entries,
        purge_batch_size: PURGE_ENTRIES,
        broadcast_submitted_on_append: Some(true),
        ..openraft::Config::default()
    };
    raft.validate()
        .map_err(|error| StartError::Config(error.to_string()))
}
