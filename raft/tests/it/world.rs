//! A cluster in one process: each node on a runtime and thread of its own, with real sockets and a real
//! directory, so that dropping the runtime ends it as abruptly as a process can end.

use crate::faulty::{Faults, FaultyDisk};
use crate::gate::Gate;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::transport::server::TcpIncoming;
use weir_admission::{
    Admit, Amounts, DimensionName, EnforcedBy, Estimate, Headroom, InitialUse, Kind, Limit,
    LimitName, Operation, Policy, Principal, Priority, PriorityName, PutPolicy, ShardId,
    TargetName, TenantName, limits,
};
use weir_raft::log::Worker;
use weir_raft::{
    Clock, Committed, Config, Group, Groups, MonotonicClock, NodeId, ProposeError, Retention,
    StartError, Timing, peer_server,
};

/// How long anything may take before a test fails. Far longer than it takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Some nodes, their network and their directories.
pub(crate) struct World {
    directory: TempDir,
    pub(crate) gate: Arc<Gate>,
    pub(crate) config: Config,
    pub(crate) clocks: BTreeMap<NodeId, Arc<dyn Clock>>,
    pub(crate) disks: BTreeMap<NodeId, Arc<Faults>>,
    nodes: BTreeMap<NodeId, Node>,
}

/// A node that runs.
struct Node {
    groups: Groups,
    kill: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl World {
    /// Starts `nodes` nodes with `shards` shards.
    pub(crate) async fn new(nodes: u64, shards: u32) -> World {
        let mut world = World::unstarted(nodes, shards).await;
        world.start_all().await;
        world
    }

    /// The same, without starting them.
    pub(crate) async fn unstarted(nodes: u64, shards: u32) -> World {
        let mut members = BTreeMap::new();
        // Held together, so that no two nodes get the same port.
        let mut listeners = Vec::new();
        for node in (1..=nodes).map(NodeId) {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            members.insert(node, listener.local_addr().unwrap().to_string());
            listeners.push(listener);
        }
        let clocks = members.keys().map(|node| {
            let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
            (*node, clock)
        });
        let disks = members.keys().map(|node| (*node, Arc::default())).collect();
        World {
            directory: tempfile::tempdir().unwrap(),
            gate: Arc::new(Gate::default()),
            clocks: clocks.collect(),
            config: Config {
                data_dir: std::path::PathBuf::new(),
                cluster: "test".to_owned(),
                node: NodeId(1),
                members,
                shards,
                timing: Timing::default(),
                retention: Retention::default(),
            },
            disks,
            nodes: BTreeMap::new(),
        }
    }

    pub(crate) fn members(&self) -> Vec<NodeId> {
        self.config.members.keys().copied().collect()
    }

    pub(crate) fn others(&self, node: NodeId) -> Vec<NodeId> {
        self.members()
            .into_iter()
            .filter(|other| *other != node)
            .collect()
    }

    pub(crate) async fn start_all(&mut self) {
        for node in self.members() {
            self.start(node).await;
        }
    }

    /// Starts a node. One that was killed may take a moment to let go of its directory.
    pub(crate) async fn start(&mut self, node: NodeId) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = self.try_start(node).await {
            assert!(
                Instant::now() < deadline,
                "node {node} does not start: {error}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts a node on its directory.
    pub(crate) async fn try_start(&mut self, node: NodeId) -> Result<(), StartError> {
        let config = Config {
            data_dir: self.directory.path().join(node.to_string()),
            node,
            ..self.config.clone()
        };
        let members = config.members.clone();
        let to_node = move |address: &str| {
            *members
                .iter()
                .find(|(_, a)| *a == address)
                .map(|(node, _)| node)
                .unwrap()
        };
        let connector = self.gate.connector(node, to_node);
        let address: SocketAddr = config.members[&node].parse().unwrap();
        let clock = Arc::clone(&self.clocks[&node]);
        let disk = Arc::new(FaultyDisk(Arc::clone(&self.disks[&node])));
        let (started, starting) = oneshot::channel();
        let (kill, killed) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                match Groups::start_on(config, connector, clock, disk, Worker::Thread).await {
                    Ok(groups) => {
                        let serving = serve(groups.clone(), address);
                        drop(started.send(Ok(groups)));
                        tokio::select! {
                            _ = killed => {}
                            () = serving => {}
                        }
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
            // Everything that the node was doing ends here, wherever it was.
            runtime.shutdown_background();
        });
        let groups = starting.await.unwrap();
        match groups {
            Ok(groups) => {
                let node_state = Node {
                    groups,
                    kill: Some(kill),
                    thread: Some(thread),
                };
                self.nodes.insert(node, node_state);
                Ok(())
            }
            Err(error) => {
                thread.join().unwrap();
                Err(error)
            }
        }
    }

    /// Ends a node abruptly.
    pub(crate) async fn kill(&mut self, node: NodeId) {
        let mut dead = self.nodes.remove(&node).expect("the node runs");
        let kill = dead.kill.take().unwrap();
        let _ = kill.send(());
        let thread = dead.thread.take().unwrap();
        drop(dead);
        tokio::task::spawn_blocking(move || thread.join().unwrap())
            .await
            .unwrap();
    }

    /// Removes all that a node has on disk.
    pub(crate) fn wipe(&self, node: NodeId) {
        std::fs::remove_dir_all(self.directory.path().join(node.to_string())).unwrap();
    }

    /// What a node has written down of the directories of all.
    fn met(&self, node: NodeId) -> String {
        let file = self.directory.path().join(node.to_string()).join("met");
        std::fs::read_to_string(file).unwrap()
    }

    /// True if every node knows every other.
    pub(crate) fn have_all_met(&self) -> bool {
        let members = self.members();
        let knows = |node: &NodeId| self.met(*node).matches("\npeer ").count();
        members.iter().all(|node| knows(node) == members.len() - 1)
    }

    /// The number of a node's data directory.
    pub(crate) fn directory_of(&self, node: NodeId) -> u64 {
        let text = self.met(node);
        let number = text
            .lines()
            .find_map(|line| line.strip_prefix("directory "));
        u64::from_str_radix(number.unwrap(), 16).unwrap()
    }

    pub(crate) fn running(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    pub(crate) fn groups(&self, node: NodeId) -> &Groups {
        &self.nodes[&node].groups
    }

    pub(crate) fn group(&self, node: NodeId, shard: u32) -> &Group {
        self.groups(node).group(ShardId(shard)).unwrap()
    }

    /// The node that leads a shard: all running nodes agree on it and it takes batches.
    pub(crate) async fn leader(&self, shard: u32) -> NodeId {
        self.leader_among(&self.running(), shard).await
    }

    pub(crate) async fn leader_among(&self, nodes: &[NodeId], shard: u32) -> NodeId {
        eventually("one leader", async || {
            let told: Vec<_> = nodes
                .iter()
                .map(|node| *self.group(*node, shard).leadership().borrow())
                .collect();
            let leader = told.first()?.leader?;
            let agreed = told.iter().all(|other| other == &told[0]) && nodes.contains(&leader);
            let answers = agreed && self.group(leader, shard).read(|_| ()).await.is_ok();
            answers.then_some(leader)
        })
        .await
    }

    /// Proposes through whoever leads until a batch is committed.
    pub(crate) async fn commit(&self, shard: u32, batch: Vec<Operation>) -> Committed {
        eventually("a committed batch", async || {
            let leader = self.leader(shard).await;
            propose(self.group(leader, shard), batch.clone()).await.ok()
        })
        .await
    }

    /// Proposes through one node until a batch is committed.
    pub(crate) async fn commit_through(
        &self,
        node: NodeId,
        shard: u32,
        batch: Vec<Operation>,
    ) -> Committed {
        eventually("a committed batch", async || {
            propose(self.group(node, shard), batch.clone()).await.ok()
        })
        .await
    }

    /// Commits so many entries of so many asks, many in flight at a time, through whichever of the nodes
    /// leads; gives the last.
    pub(crate) async fn fill(
        &self,
        nodes: &[NodeId],
        shard: u32,
        entries: u64,
        asks: u64,
    ) -> Committed {
        const AT_ONCE: usize = 32;
        let leader = self.leader_among(nodes, shard).await;
        let mut last = self
            .commit_through(leader, shard, vec![put("filler", 1)])
            .await;
        let mut sent = 0;
        while sent < entries {
            let leader = self.leader_among(nodes, shard).await;
            let group = self.group(leader, shard);
            let mut pending = Vec::new();
            while pending.len() < AT_ONCE && sent < entries {
                let ids = sent * asks..(sent + 1) * asks;
                let batch = ids.map(|id| admit("filler", id)).collect();
                let Ok(one) = group.submit(batch).await else {
                    break;
                };
                pending.push(one);
                sent += 1;
            }
            for one in pending {
                if let Ok(committed) = one.await {
                    last = committed;
                }
            }
        }
        last
    }

    /// Waits until every running node has a snapshot of what is applied, up to the last few entries.
    pub(crate) async fn snapshot_everywhere(&self, shard: u32) {
        eventually("snapshots", async || {
            let all = self.running().into_iter().all(|node| {
                let status = self.group(node, shard).status();
                status.snapshot_index + self.config.retention.snapshot_entries
                    > status.applied_index
                    && status.snapshot_index > 0
            });
            all.then_some(())
        })
        .await;
    }

    /// Waits until all running nodes have applied the same log to the same state; says which.
    pub(crate) async fn converge(&self, shard: u32) -> (u64, u128) {
        eventually("equal states", async || {
            let all: Vec<_> = self
                .running()
                .into_iter()
                .map(|node| self.group(node, shard).status())
                .collect();
            let first = all.first()?;
            let last = all.iter().map(|status| status.last_log_index).max()?;
            let equal = all
                .iter()
                .all(|status| status.applied_index == last && status.digest == first.digest);
            equal.then_some((first.applied_index, first.digest))
        })
        .await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for node in self.nodes.values_mut() {
            if let Some(kill) = node.kill.take() {
                let _ = kill.send(());
            }
        }
        for node in self.nodes.values_mut() {
            if let Some(thread) = node.thread.take() {
                drop(thread.join());
            }
        }
    }
}

async fn serve(groups: Groups, address: SocketAddr) {
    // The port was free a moment ago; a connection of the node's past life may still hold it.
    let listener = eventually("the peer port", async || {
        TcpListener::bind(address).await.ok()
    })
    .await;
    let server = peer_server().add_routes(groups.peer_service());
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    server.serve_with_incoming(incoming).await.unwrap();
}

/// Submits a batch and waits for its outcome.
pub(crate) async fn propose(
    group: &Group,
    batch: Vec<Operation>,
) -> Result<Committed, ProposeError> {
    group.submit(batch).await?.await
}

/// Looks again and again until something is there. Panics after [`PATIENCE`].
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn target(name: &str) -> TargetName {
    TargetName::new(name).unwrap()
}

fn requests() -> DimensionName {
    DimensionName::new("requests").unwrap()
}

/// Puts a policy of so many requests per minute.
pub(crate) fn put(name: &str, cap: u64) -> Operation {
    let limit = Limit {
        name: LimitName::new("rpm").unwrap(),
        dimension: requests(),
        cap,
        per: 60_000_000,
        kind: Kind::Sliding,
        enforced_by: EnforcedBy::Provider,
        burst: Some(60_000_000),
        initial_use: InitialUse::Empty,
    };
    let policy = Policy {
        limits: vec![limit],
        priorities: vec![Priority {
            name: PriorityName::new("p1").unwrap(),
            weight: 1,
        }],
        tenant_weights: BTreeMap::new(),
        default_tenant_weight: limits::TENANT_WEIGHT_DEFAULT,
        reply_window: None,
        send_spread: None,
        horizon: limits::HORIZON_DEFAULT,
        headroom: Headroom::Auto,
        estimate: Estimate::Learned,
        rejected_counts: true,
        estimate_sigmas_milli: limits::SIGMAS_MILLI_DEFAULT,
    };
    let put = PutPolicy {
        target: target(name),
        principal: Principal::new("anonymous").unwrap(),
        policy,
        expected_version: None,
    };
    Operation::PutPolicy(Box::new(put))
}

/// Asks for one request.
pub(crate) fn admit(name: &str, id: u64) -> Operation {
    Operation::Admit(Box::new(Admit {
        target: target(name),
        tenant: TenantName::new("acme").unwrap(),
        principal: Principal::new("tester").unwrap(),
        priority: PriorityName::new("p1").unwrap(),
        // Of full length, so that entries are large.
        admission_id: id
            .to_le_bytes()
            .repeat(limits::ADMISSION_ID_BYTES_MAX / 8)
            .into(),
        attempt: id,
        ask: 1,
        cost: Amounts::new(vec![(requests(), 1)]).unwrap(),
        cost_max: Amounts::default(),
        labels_digest: 0,
        deadline: None,
        dry_run: false,
        wake: false,
    }))
}
