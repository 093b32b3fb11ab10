//! Measures groups on this machine: throughput and processor time at four entries in flight, idle cost,
//! and how long a shard is without an answer when its leader dies.
//!
//! `cargo run --release -p weir-raft --example measure`

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::transport::server::TcpIncoming;
use weir_admission::{DeletePolicy, Operation, ShardId, TargetName};
use weir_raft::{Config, Group, Groups, MonotonicClock, NodeId, Retention, Timing, peer_server};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Leaders killed for one line of the failover table.
const KILLS: usize = 15;
/// Length of each throughput measurement.
const RUN: Duration = Duration::from_secs(5);

struct Node {
    groups: Groups,
    kill: Option<oneshot::Sender<()>>,
    thread: std::thread::JoinHandle<()>,
}

struct Cluster {
    config: Config,
    dir: tempfile::TempDir,
    nodes: BTreeMap<NodeId, Node>,
}

impl Cluster {
    async fn new(shards: u32, timing: Timing) -> Result<Cluster> {
        let mut members = BTreeMap::new();
        let mut listeners = Vec::new();
        for node in (1..=3).map(NodeId) {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            members.insert(node, listener.local_addr()?.to_string());
            listeners.push(listener);
        }
        drop(listeners);
        let config = Config {
            data_dir: std::path::PathBuf::new(),
            cluster: "measure".to_owned(),
            node: NodeId(1),
            members,
            shards,
            timing,
            retention: Retention::default(),
        };
        let mut cluster = Cluster {
            config,
            dir: tempfile::tempdir()?,
            nodes: BTreeMap::new(),
        };
        for node in (1..=3).map(NodeId) {
            cluster.start(node).await?;
        }
        Ok(cluster)
    }

    async fn start(&mut self, node: NodeId) -> Result<()> {
        let data_dir = self.dir.path().join(node.to_string());
        let config = Config {
            data_dir,
            node,
            ..self.config.clone()
        };
        let address: SocketAddr = self.config.members[&node].parse()?;
        let (started, starting) = oneshot::channel();
        let (kill, killed) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(format!("node-{node}"))
            .spawn(move || {
                if let Err(error) = run(config, address, started, killed) {
                    eprintln!("node {node}: {error}");
                }
            })?;
        let groups = starting.await?;
        self.nodes.insert(
            node,
            Node {
                groups,
                kill: Some(kill),
                thread,
            },
        );
        Ok(())
    }

    async fn kill(&mut self, node: NodeId) -> Result<()> {
        if let Some(Node {
            groups,
            mut kill,
            thread,
        }) = self.nodes.remove(&node)
        {
            drop(groups);
            drop(kill.take());
            tokio::task::spawn_blocking(move || thread.join())
                .await?
                .map_err(|_| "a node panicked")?;
        }
        Ok(())
    }

    /// The group of a shard on whichever node commits something through it.
    async fn leader(&self, shard: u32) -> Group {
        loop {
            for node in self.nodes.values() {
                if let Some(group) = node.groups.group(ShardId(shard))
                    && commit(group).await.is_some()
                {
                    return group.clone();
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn run(
    config: Config,
    address: SocketAddr,
    started: oneshot::Sender<Groups>,
    killed: oneshot::Receiver<()>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let connector = Arc::new(|endpoint: tonic::transport::Endpoint| endpoint.connect_lazy());
        let groups = Groups::start(config, connector, Arc::new(MonotonicClock::new())).await?;
        let incoming = TcpIncoming::bind(address)?.with_nodelay(Some(true));
        let serving = peer_server()
            .add_routes(groups.peer_service())
            .serve_with_incoming(incoming);
        drop(started.send(groups));
        tokio::select! {
            served = serving => served?,
            _ = killed => {}
        }
        Ok::<(), Box<dyn std::error::Error>>(())
    })?;
    runtime.shutdown_background();
    Ok(())
}

/// A batch of so many of the cheapest operation there is.
fn batch(operations: usize) -> Vec<Operation> {
    let target = TargetName::new("nobody/has-this").ok();
    let delete = target.map(|target| {
        Operation::DeletePolicy(DeletePolicy {
            target,
            expected_version: Some(7),
        })
    });
    delete.into_iter().cycle().take(operations).collect()
}

async fn commit(group: &Group) -> Option<u64> {
    let pending = group.submit(batch(1)).await.ok()?;
    Some(pending.await.ok()?.index)
}

/// Processor time of this process's threads by name, in microseconds.
fn processor_time() -> Result<BTreeMap<String, u64>> {
    let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        let name = std::fs::read_to_string(path.join("comm"))?
            .trim()
            .to_owned();
        let times = std::fs::read_to_string(path.join("schedstat"))?;
        let ns: u64 = times.split(' ').next().unwrap_or("0").parse()?;
        *by_name.entry(name).or_default() += ns / 1000;
    }
    Ok(by_name)
}

async fn throughput(in_flight: usize, operations: usize) -> Result<()> {
    let cluster = Cluster::new(1, Timing::default()).await?;
    let group = cluster.leader(0).await;
    let before = processor_time()?;
    let begun = Instant::now();
    let workers = (0..in_flight).map(|_| async {
        let mut waits = Vec::new();
        while begun.elapsed() < RUN {
            let asked = Instant::now();
            let done = match group.submit(batch(operations)).await {
                Ok(pending) => pending.await.is_ok(),
                Err(_) => false,
            };
            if done {
                waits.push(asked.elapsed());
            }
        }
        waits
    });
    let mut waits: Vec<Duration> = futures::future::join_all(workers).await.concat();
    let (took, after) = (begun.elapsed(), processor_time()?);
    waits.sort_unstable();
    let entries = waits.len().max(1);
    let us: BTreeMap<&str, u64> = after
        .iter()
        .map(|(name, us)| {
            (
                name.as_str(),
                (us - before.get(name).unwrap_or(&0)) / entries as u64,
            )
        })
        .filter(|(_, us)| *us > 0)
        .collect();
    println!(
        "{in_flight} in flight, {operations} operations: {:.0} entries/s, p50 {:?}, p99 {:?}; us of processor per entry: {us:?}",
        entries as f64 / took.as_secs_f64(),
        waits[entries / 2],
        waits[entries * 99 / 100],
    );
    Ok(())
}

async fn idle(shards: u32) -> Result<()> {
    let cluster = Cluster::new(shards, Timing::default()).await?;
    for shard in 0..shards {
        cluster.leader(shard).await;
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    let before = processor_time()?;
    tokio::time::sleep(RUN).await;
    let after = processor_time()?;
    for (name, us) in after {
        let used = us - before.get(&name).unwrap_or(&0);
        let percent = used as f64 / RUN.as_micros() as f64 * 100.0;
        if percent >= 0.1 {
            println!("idle with {shards} shards: {name} {percent:.1} % of a core");
        }
    }
    drop(cluster);
    Ok(())
}

async fn failover(timing: Timing) -> Result<()> {
    let mut cluster = Cluster::new(1, timing).await?;
    let mut gaps = Vec::new();
    for _ in 0..KILLS {
        let group = cluster.leader(0).await;
        let leader = group.status().leader.ok_or("a leader knows itself")?;
        drop(group);
        let killed = Instant::now();
        cluster.kill(leader).await?;
        drop(cluster.leader(0).await);
        gaps.push(killed.elapsed());
        cluster.start(leader).await?;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    gaps.sort_unstable();
    println!(
        "leader killed {KILLS} times, {timing:?}: next answer after min {:?}, median {:?}, max {:?}",
        gaps[0],
        gaps[KILLS / 2],
        gaps[KILLS - 1],
    );
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    for (in_flight, operations) in [(1, 1), (4, 1), (4, 64), (4, 256)] {
        throughput(in_flight, operations).await?;
    }
    idle(16).await?;
    for (heartbeat_ms, election_min_ms, election_max_ms) in [(100, 400, 800), (100, 300, 600)] {
        failover(Timing {
            heartbeat_ms,
            election_min_ms,
            election_max_ms,
        })
        .await?;
    }
    Ok(())
}
