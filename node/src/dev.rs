//! A whole cluster in one process, on loopback: for newcomers, demonstrations and tests. Each node has a
//! thread of its own.

mod command;
mod node;

pub use self::command::{DevArgs, run};

use self::node::{NodeError, Running, Sockets};
use crate::config::{Config, HistoryConfig, LogConfig, LogFormat, Member, TraceConfig};
use crate::limits::STOP_WITHIN;
use crate::listen::BindError;
use crate::server::Ended;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use weir_admission::{ShardId, TargetName, shard_of};
use weir_raft::{NodeId, StartError, Timing};

/// Ports between those of one node and those of the next.
const PORTS_PER_NODE: u16 = 10;

/// What kind of cluster is wanted.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Number of nodes: 1, 3 or 5.
    pub nodes: usize,
    /// Number of shards.
    pub shards: u32,
    /// Where the nodes keep their data, one directory each; `None`: a temporary directory, removed at the
    /// end.
    pub data_dir: Option<PathBuf>,
    /// Client port of the first node; peer and admin port follow it, the next node's are ten higher.
    /// `None`: any free ports.
    pub base_port: Option<u16>,
    /// Timing of elections.
    pub timing: Timing,
}

impl Default for ClusterOptions {
    /// Three nodes, three shards, temporary data, any free ports.
    fn default() -> ClusterOptions {
        ClusterOptions {
            nodes: 3,
            shards: 3,
            data_dir: None,
            base_port: None,
            timing: Timing::default(),
        }
    }
}

/// Why a cluster did not start.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is no place for its data.
    #[error("data directory: {0}")]
    DataDir(#[from] std::io::Error),
    /// A port cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A node refuses to start.
    #[error("node {node}: {error}")]
    Start {
        /// The node.
        node: NodeId,
        /// Why.
        error: StartError,
    },
    /// A node gets no thread.
    #[error("a thread for node {node}: {error}")]
    Thread {
        /// The node.
        node: NodeId,
        /// Why.
        error: std::io::Error,
    },
    /// There is no such node.
    #[error("there is no node {0}")]
    NoNode(NodeId),
    /// No leaders in time.
    #[error("shard {} has no leader that every node knows after {within:?}", shard.0)]
    NoLeader {
        /// One such shard.
        shard: ShardId,
        /// How long was waited.
        within: Duration,
    },
}

/// A running cluster. Dropping it ends every node at once, as a crash would.
pub struct Cluster {
    configs: BTreeMap<NodeId, Config>,
    running: BTreeMap<NodeId, Running>,
    /// Removed when dropped.
    temporary: Option<TempDir>,
}

/// The addresses a node asks for: fixed ones, or any.
fn wanted(base_port: Option<u16>, number: u16) -> Member {
    let port = |offset: u16| {
        base_port.map_or(0, |base| {
            base.saturating_add(number.saturating_mul(PORTS_PER_NODE))
                .saturating_add(offset)
        })
    };
    let address = |offset| format!("127.0.0.1:{}", port(offset));
    Member {
        client: address(0),
        peer: address(1),
        admin: address(2),
    }
}

impl Cluster {
    /// Starts every node. Returns before leaders are elected, see [`Cluster::ready`].
    pub async fn start(options: ClusterOptions) -> Result<Cluster, ClusterError> {
        let temporary = match options.data_dir {
            Some(_) => None,
            None => Some(tempfile::Builder::new().prefix("weir-").tempdir()?),
        };
        let data = options
            .data_dir
            .or_else(|| temporary.as_ref().map(|dir| dir.path().to_owned()))
            .unwrap_or_default();
        let mut sockets = BTreeMap::new();
        let mut members = BTreeMap::new();
        for (number, id) in (0..options.nodes).zip(1..) {
            let wanted = wanted(options.base_port, u16::try_from(number).unwrap_or(u16::MAX));
            let bound = Sockets::bind(&wanted).await?;
            members.insert(NodeId(id), bound.addresses()?);
            sockets.insert(NodeId(id), bound);
        }
        let configs = members
            .iter()
            .map(|(node, listen)| {
                let config = Config {
                    node: *node,
                    data_dir: data.join(format!("node-{node}")),
                    cluster: "weir-dev".into(),
                    shards: options.shards,
                    members: members.clone(),
                    listen: listen.clone(),
                    heartbeat_ms: options.timing.heartbeat_ms,
                    election_min_ms: options.timing.election_min_ms,
                    election_max_ms: options.timing.election_max_ms,
                    history: HistoryConfig::default(),
                    log: LogConfig {
                        format: LogFormat::Auto,
                        filter: "info".into(),
                    },
                    trace: TraceConfig::default(),
                };
                (*node, config)
            })
            .collect();
        let mut cluster = Cluster {
            configs,
            running: BTreeMap::new(),
            temporary,
        };
        for (node, sockets) in sockets {
            cluster.start_on(node, sockets).await?;
        }
        Ok(cluster)
    }

    async fn start_on(
        &mut self,
        node: NodeId,
        sockets: Sockets<TcpListener>,
    ) -> Result<(), ClusterError> {
        let config = self.configs.get(&node).ok_or(ClusterError::NoNode(node))?;
        let running = Running::start(node, config.clone(), sockets)
            .await
            .map_err(|error| match error {
                NodeError::Thread(error) => ClusterError::Thread { node, error },
                NodeError::Start(error) => ClusterError::Start { node, error },
            })?;
        self.running.insert(node, running);
        Ok(())
    }

    /// Waits until every running node knows the leader of every shard, and agrees.
    pub async fn ready(&self, within: Duration) -> Result<(), ClusterError> {
        let deadline = Instant::now() + within;
        let shards = self
            .configs
            .values()
            .next()
            .map_or(0, |config| config.shards);
        for shard in (0..shards).map(ShardId) {
            while self.leader_of(shard).is_none() {
                if Instant::now() >= deadline {
                    return Err(ClusterError::NoLeader { shard, within });
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        Ok(())
    }

    /// Who leads a shard, if every running node agrees on it.
    pub fn leader_of(&self, shard: ShardId) -> Option<NodeId> {
        let mut leaders = self.running.values().map(|node| {
            let group = node.shards().groups().group(shard)?;
            group.leadership().borrow().leader
        });
        let first = leaders.next()??;
        let agreed = self.running.contains_key(&first) && leaders.all(|told| told == Some(first));
        agreed.then_some(first)
    }

    /// Who leads the shard of a target, see [`Cluster::leader_of`].
    pub fn leader_of_target(&self, target: &TargetName) -> Option<NodeId> {
        let config = self.configs.values().next()?;
        self.leader_of(shard_of(target, config.shards))
    }

    /// Every node with what it was told, running or not.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Config)> {
        self.configs.iter().map(|(node, config)| (*node, config))
    }

    /// Client addresses of every node, running or not.
    pub fn client_addresses(&self) -> Vec<String> {
        self.configs
            .values()
            .map(|config| config.listen.client.clone())
            .collect()
    }

    /// The shards of a running node.
    pub fn shards(&self, node: NodeId) -> Option<&crate::shards::Shards> {
        self.running.get(&node).map(Running::shards)
    }

    /// Where the nodes keep their data, if it is removed at the end.
    pub fn temporary_dir(&self) -> Option<&Path> {
        self.temporary.as_ref().map(TempDir::path)
    }

    /// Ends a node at once, as if its process had been killed: nothing is handed over, connections break.
    /// What it had not yet written is lost.
    pub async fn kill(&mut self, node: NodeId) -> Result<(), ClusterError> {
        let running = self
            .running
            .remove(&node)
            .ok_or(ClusterError::NoNode(node))?;
        running.kill().await;
        Ok(())
    }

    /// Stops a node as SIGTERM does, and says how it ended.
    pub async fn stop(&mut self, node: NodeId) -> Result<Ended, ClusterError> {
        let running = self
            .running
            .remove(&node)
            .ok_or(ClusterError::NoNode(node))?;
        Ok(running.stop().await)
    }

    /// Starts a node again that was killed or stopped, at the same addresses.
    pub async fn restart(&mut self, node: NodeId) -> Result<(), ClusterError> {
        let config = self.configs.get(&node).ok_or(ClusterError::NoNode(node))?;
        let sockets = Sockets::bind(&config.listen).await?;
        self.start_on(node, sockets).await
    }

    /// Resolves when a node could not go on, with its number.
    pub async fn failed(&self) -> (NodeId, weir_raft::Failure) {
        let failures = self.running.iter().map(|(node, running)| {
            Box::pin(async { (*node, running.shards().groups().failed().await) })
        });
        let failures: Vec<_> = failures.collect();
        if failures.is_empty() {
            return std::future::pending().await;
        }
        futures::future::select_all(failures).await.0
    }

    /// Stops every node as SIGTERM does, all at once, and removes temporary data.
    pub async fn shutdown(mut self) {
        let nodes = std::mem::take(&mut self.running)
            .into_values()
            .map(Running::stop);
        let _ = timeout(STOP_WITHIN, futures::future::join_all(nodes)).await;
    }
}
