//! Three real nodes on loopback, each with its own directory.

use crate::process::{Process, tail};
use anyhow::{Context, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use weir_admission::{TargetName, shard_of};
use weir_client::wire::{GroupRole, GroupStatus, StatusResponse};
use weir_client::{Client, Mode, Options};

/// Nodes of a cluster.
const NODES: u64 = 3;
/// Pause between two looks at something that takes its time.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Entries by which a node may be behind and count as caught up: what comes in while it is asked.
const BEHIND_MAX: u64 = 16;
/// Lines of each node's log that are shown when a test fails.
const LINES_SHOWN: usize = 40;
/// How long a cluster may take to start, elect and agree; generous, because a busy machine is slow.
const SETTLE_MAX: Duration = Duration::from_secs(30);

/// What a node listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Calls of clients.
    Client,
    /// Other nodes.
    Peer,
    /// Metrics and probes.
    Admin,
}

/// A cluster of [`Process`]es. Dropping it kills them and removes their directories.
#[derive(Debug)]
pub struct Cluster {
    root: TempDir,
    program: PathBuf,
    name: String,
    shards: u32,
    network: (u8, u8),
    files_max: Option<u32>,
    running: BTreeMap<u64, Process>,
}

/// The server that benches load: the release build, or `$WEIR_BIN`.
pub fn release_program() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/weir");
    std::env::var_os("WEIR_BIN").map_or(built, PathBuf::from)
}

impl Cluster {
    /// Three nodes that have not been started, with `shards` shards.
    pub fn new(program: &Path, shards: u32) -> anyhow::Result<Cluster> {
        let network = network();
        let cluster = Cluster {
            root: tempfile::Builder::new().prefix("weir-chaos-").tempdir()?,
            program: program.to_owned(),
            name: format!("chaos-{}-{}", network.0, network.1),
            shards,
            network,
            files_max: None,
            running: BTreeMap::new(),
        };
        for id in cluster.ids() {
            cluster.configure(id)?;
        }
        Ok(cluster)
    }

    /// Nodes that are started from now on get at most so many file descriptors.
    pub fn limit_files(&mut self, files: u32) {
        self.files_max = Some(files);
    }

    /// Starts the nodes that do not run and waits until the cluster is whole.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        for id in self.ids() {
            if !self.running.contains_key(&id) {
                self.start_node(id)?;
            }
        }
        self.wait_until_whole().await
    }

    /// Starts one node.
    pub fn start_node(&mut self, id: u64) -> anyhow::Result<()> {
        let (program, config, log) = (&self.program, self.config(id), self.log(id));
        let process = match self.files_max {
            Some(files) => Process::start_limited(program, &config, &log, files)?,
            None => Process::start(program, &config, &log)?,
        };
        self.running.insert(id, process);
        Ok(())
    }

    /// The numbers of all nodes, running or not.
    pub fn ids(&self) -> Vec<u64> {
        (1..=NODES).collect()
    }

    /// A running node.
    pub fn node(&self, id: u64) -> anyhow::Result<&Process> {
        self.running
            .get(&id)
            .with_context(|| format!("node {id} does not run"))
    }

    /// Takes a running node out, to kill or end it.
    pub fn take(&mut self, id: u64) -> anyhow::Result<Process> {
        self.running
            .remove(&id)
            .with_context(|| format!("node {id} does not run"))
    }

    /// The client address of a node.
    pub fn address(&self, id: u64) -> String {
        self.address_of(id, Port::Client)
    }

    /// The address of one of a node's ports.
    pub fn address_of(&self, id: u64, port: Port) -> String {
        let (a, b) = self.network;
        let port = match port {
            Port::Client => 7400,
            Port::Peer => 7401,
            Port::Admin => 7402,
        };
        format!("127.{a}.{b}.{id}:{port}")
    }

    /// The client addresses of all nodes.
    pub fn addresses(&self) -> Vec<String> {
        self.ids().iter().map(|id| self.address(*id)).collect()
    }

    /// The data directory of a node.
    pub fn data(&self, id: u64) -> PathBuf {
        self.root.path().join(format!("node{id}"))
    }

    /// The configuration file of a node.
    pub fn config(&self, id: u64) -> PathBuf {
        self.root.path().join(format!("node{id}.toml"))
    }

    /// What a node wrote, over all its starts.
    pub fn log(&self, id: u64) -> PathBuf {
        self.root.path().join(format!("node{id}.log"))
    }

    /// A client that lets no call through without a decision, however long an outage lasts.
    pub fn client(&self) -> anyhow::Result<Client> {
        let options = Options::new(self.addresses())
            .mode(Mode::Closed)
            .ungated_after(Duration::from_secs(120));
        Ok(Client::new(options)?)
    }

    /// The node that leads a target's shard.
    pub async fn leader(&self, target: &str) -> anyhow::Result<u64> {
        let shard = shard_of(&TargetName::new(target)?, self.shards).0;
        let status = self.client()?.status().await?;
        let leads = |group: &GroupStatus| group.shard == shard && group.role() == GroupRole::Leader;
        let mut leaders = status
            .nodes
            .iter()
            .filter(|node| node.groups.iter().any(leads));
        match (leaders.next(), leaders.next()) {
            (Some(leader), None) => Ok(leader.node_id),
            (None, _) => bail!("shard {shard} has no leader"),
            (Some(_), Some(_)) => bail!("shard {shard} has two leaders"),
        }
    }

    /// Waits until all nodes answer, agree on a leader for every shard, and have caught up: only then does
    /// the cluster survive the loss of one more.
    pub async fn wait_until_whole(&mut self) -> anyhow::Result<()> {
        let shards = self.shards;
        self.wait("whole", |status| is_whole(status, shards)).await
    }

    /// Waits until all nodes have applied the same entries in every shard; their states must be equal
    /// then. The cluster must be at rest.
    pub async fn wait_until_equal(&mut self) -> anyhow::Result<()> {
        self.wait("equal", is_level).await?;
        let status = self.client()?.status().await?;
        let mut digests: BTreeMap<(u32, u64), BTreeSet<&str>> = BTreeMap::new();
        for group in status.nodes.iter().flat_map(|node| &node.groups) {
            let at = (group.shard, group.applied_index);
            digests.entry(at).or_default().insert(&group.digest);
        }
        let differ: Vec<_> = digests
            .iter()
            .filter(|(_, digests)| digests.len() > 1)
            .collect();
        ensure!(
            differ.is_empty(),
            "states differ at (shard, index): {differ:?}"
        );
        Ok(())
    }

    async fn wait(
        &mut self,
        what: &str,
        holds: impl Fn(&StatusResponse) -> bool,
    ) -> anyhow::Result<()> {
        let client = self.client()?;
        let until = Instant::now() + SETTLE_MAX;
        let mut last = String::from("no answer yet");
        while Instant::now() < until {
            for (id, process) in &mut self.running {
                process.check_runs().with_context(|| format!("node {id}"))?;
            }
            match client.status().await {
                Ok(status) if holds(&status) => return Ok(()),
                Ok(status) => last = format!("{status:#?}"),
                Err(error) => last = error.to_string(),
            }
            sleep(LOOK_EVERY).await;
        }
        let logs = self
            .ids()
            .into_iter()
            .map(|id| tail(&self.log(id), 20))
            .collect::<String>();
        bail!("the cluster did not become {what} in {SETTLE_MAX:?}\n{last}\n{logs}")
    }

    fn configure(&self, id: u64) -> anyhow::Result<()> {
        let mut text = format!(
            "[node]\nid = {id}\ndata_dir = {:?}\n\n[cluster]\nname = {:?}\nshards = {}\n",
            self.data(id),
            self.name,
            self.shards,
        );
        for id in self.ids() {
            text.push_str(&format!("\n[[cluster.member]]\nid = {id}\n"));
            for (kind, port) in [
                ("client", Port::Client),
                ("peer", Port::Peer),
                ("admin", Port::Admin),
            ] {
                let address = self.address_of(id, port);
                text.push_str(&format!("{kind} = \"{address}\"\n"));
            }
        }
        text.push_str("\n[log]\nformat = \"text\"\nfilter = \"info,openraft=error\"\n");
        Ok(std::fs::write(self.config(id), text)?)
    }
}

impl Drop for Cluster {
    /// A test that fails takes its directory along: what the nodes wrote last is all that is left.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for id in self.ids() {
                eprintln!(
                    "--- node {id} wrote last:\n{}",
                    tail(&self.log(id), LINES_SHOWN)
                );
            }
        }
    }
}

/// A part of 127.0.0.0/8 that no other cluster of this machine uses now: made of the process id and a
/// counter, so that fixed ports never meet.
fn network() -> (u8, u8) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mixed = std::process::id()
        .wrapping_mul(16)
        .wrapping_add(count)
        .wrapping_mul(0x9e37_79b1);
    let [a, b, ..] = mixed.to_be_bytes();
    (a.clamp(1, 254), b)
}

fn is_whole(status: &StatusResponse, shards: u32) -> bool {
    let nodes = &status.nodes;
    let led = |shard: u32| {
        let views: Vec<_> = nodes
            .iter()
            .flat_map(|node| &node.groups)
            .filter(|group| group.shard == shard)
            .collect();
        let agreed: BTreeSet<_> = views
            .iter()
            .map(|group| (group.term, group.leader))
            .collect();
        let leads = |group: &&&GroupStatus| group.role() == GroupRole::Leader;
        let applied = || views.iter().map(|group| group.applied_index);
        let behind = applied().max().unwrap_or(0) - applied().min().unwrap_or(0);
        agreed.len() == 1
            && behind <= BEHIND_MAX
            && agreed.iter().all(|(_, leader)| *leader != 0)
            && views.iter().filter(leads).count() == 1
            && views.len() == nodes.len()
    };
    u64::try_from(nodes.len()) == Ok(NODES)
        && nodes.iter().all(|node| node.reachable)
        && (0..shards).all(led)
}

fn is_level(status: &StatusResponse) -> bool {
    let mut applied: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for group in status.nodes.iter().flat_map(|node| &node.groups) {
        applied
            .entry(group.shard)
            .or_default()
            .insert(group.applied_index);
    }
    status.nodes.iter().all(|node| node.reachable)
        && applied.values().all(|indices| indices.len() == 1)
}
