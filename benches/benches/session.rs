//! What a session saves: three real nodes on loopback, each syncing its log, and one client whose calls
//! all go over one session or are calls of their own.
//!
//! `cargo bench -p weir-benches --bench session` measures `target/release/weir`, or `$WEIR_BIN`. Runs of
//! both transports alternate; each figure is the median of them. CPU time is that of whole processes, out
//! of `/proc`: everything that an operation costs on its side is in it.
#![allow(
    clippy::print_stdout,
    reason = "a program that prints what it measured"
)]

use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use weir_client::wire::{EnforcedBy, InitialUse, Limit, LimitKind, Policy, Priority};
use weir_client::{Answer, Call, Client, Mode, Options, Outcome, Transport};

const TARGET: &str = "bench/call";
const TENANTS: usize = 6;
const NODES: u64 = 3;
const WARM_UP: Duration = Duration::from_millis(500);

/// What is measured, by the command line: `--seconds 3 --runs 5 --outstanding 64,256 --only session`.
struct Plan {
    seconds: u64,
    runs: usize,
    outstanding: Vec<usize>,
    transports: Vec<Transport>,
}

/// What every caller does, over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Asks, and leaves the grant.
    Ask,
    /// Asks, and settles: two operations.
    AskAndSettle,
}

impl Work {
    fn operations(self) -> u64 {
        match self {
            Work::Ask => 1,
            Work::AskAndSettle => 2,
        }
    }
}

/// One run, per operation.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    per_second: f64,
    leader_us: f64,
    follower_us: f64,
    client_us: f64,
    p50_us: f64,
    p99_us: f64,
}

fn main() -> anyhow::Result<()> {
    let plan = plan()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure(&plan))
}

fn plan() -> anyhow::Result<Plan> {
    let mut plan = Plan {
        seconds: 3,
        runs: 5,
        outstanding: vec![64],
        transports: vec![Transport::Session, Transport::Unary],
    };
    let mut arguments = std::env::args().skip(1).filter(|it| it != "--bench");
    while let Some(name) = arguments.next() {
        let value = arguments
            .next()
            .with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--seconds" => plan.seconds = value.parse()?,
            "--runs" => plan.runs = value.parse()?,
            "--outstanding" => {
                let list = value.split(',').map(str::parse);
                plan.outstanding = list.collect::<Result<_, _>>()?;
            }
            "--only" if value == "session" => plan.transports = vec![Transport::Session],
            "--only" if value == "unary" => plan.transports = vec![Transport::Unary],
            _ => anyhow::bail!("unknown argument {name} {value}"),
        }
    }
    Ok(plan)
}

async fn measure(plan: &Plan) -> anyhow::Result<()> {
    let program = std::env::var_os("WEIR_BIN").map_or_else(
        || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../target/release/weir"
            ))
        },
        PathBuf::from,
    );
    // One shard: one leader, whose cost is not mixed with that of a follower.
    let cluster = Cluster::start(&program)?;
    let admin = Client::new(Options::new(cluster.addresses()))?;
    admin.put_target(TARGET, policy(), None).await?;
    let leader = leader(&admin).await?;
    println!(
        "| outstanding | work | transport | operations/s | p50 / p99 of an ask, ms | us per operation: leader, follower, client |"
    );
    println!("|---|---|---|---|---|---|");
    for outstanding in &plan.outstanding {
        for work in [Work::Ask, Work::AskAndSettle] {
            let mut runs = vec![Vec::new(); plan.transports.len()];
            for _ in 0..plan.runs {
                for (transport, runs) in plan.transports.iter().zip(&mut runs) {
                    let load = Load {
                        transport: *transport,
                        work,
                        outstanding: *outstanding,
                        last: Duration::from_secs(plan.seconds),
                    };
                    runs.push(load.run(&cluster, leader).await?);
                }
            }
            for (transport, runs) in plan.transports.iter().zip(&runs) {
                println!("{}", row(*outstanding, work, *transport, runs));
            }
        }
    }
    Ok(())
}

/// A policy that holds nobody back.
fn policy() -> Policy {
    let limit = |dimension: &str| Limit {
        name: dimension.into(),
        dimension: dimension.into(),
        cap: 1 << 40,
        per_us: 60_000_000,
        kind: LimitKind::Sliding.into(),
        enforced_by: EnforcedBy::Provider.into(),
        burst_us: Some(60_000_000),
        initial_use: InitialUse::Empty.into(),
    };
    Policy {
        limits: vec![limit("requests"), limit("tokens")],
        priorities: vec![Priority {
            name: "p1".into(),
            weight: 1,
        }],
        reply_window_us: Some(5_000_000),
        ..Policy::default()
    }
}

struct Load {
    transport: Transport,
    work: Work,
    outstanding: usize,
    last: Duration,
}

impl Load {
    async fn run(&self, cluster: &Cluster, leader: u64) -> anyhow::Result<Figures> {
        let options = Options::new(cluster.addresses())
            .mode(Mode::Closed)
            .transport(self.transport);
        let client = Client::new(options)?;
        let begun = Instant::now();
        let (from, until) = (begun + WARM_UP, begun + WARM_UP + self.last);
        let mut callers = JoinSet::new();
        for caller in 0..self.outstanding {
            callers.spawn(call(client.clone(), self.work, caller, from, until));
        }
        tokio::time::sleep_until(from.into()).await;
        let before = cpu_of_all(cluster)?;
        tokio::time::sleep_until(until.into()).await;
        let (after, took) = (cpu_of_all(cluster)?, from.elapsed());
        let mut asks_us = Vec::new();
        for waits in callers.join_all().await {
            asks_us.extend(waits?);
        }
        anyhow::ensure!(client.stats().ungated_open == 0, "{:?}", client.stats());
        let operations = (asks_us.len() as u64 * self.work.operations()) as f64;
        let spent = |of: &dyn Fn(&Cpu) -> Duration| {
            (of(&after) - of(&before)).as_secs_f64() * 1e6 / operations
        };
        let followers = |cpu: &Cpu| {
            let others = cpu.nodes.iter().filter(|(id, _)| *id != leader);
            others.map(|(_, spent)| *spent).sum::<Duration>() / 2
        };
        let leads = |cpu: &Cpu| {
            let mut nodes = cpu.nodes.iter();
            nodes
                .find(|(id, _)| *id == leader)
                .map_or(Duration::ZERO, |(_, spent)| *spent)
        };
        asks_us.sort_unstable();
        let at = |share: usize| {
            asks_us
                .get(asks_us.len() * share / 100)
                .copied()
                .unwrap_or(0) as f64
        };
        Ok(Figures {
            per_second: operations / took.as_secs_f64(),
            leader_us: spent(&leads),
            follower_us: spent(&followers),
            client_us: spent(&|cpu: &Cpu| cpu.own),
            p50_us: at(50),
            p99_us: at(99),
        })
    }
}

/// Calls without a pause; answers how long each ask took, in microseconds.
async fn call(
    client: Client,
    work: Work,
    caller: usize,
    from: Instant,
    until: Instant,
) -> anyhow::Result<Vec<u64>> {
    let tenant = format!("tenant-{}", caller % TENANTS);
    let mut asks_us = Vec::new();
    while Instant::now() < until {
        let call = Call::new(TARGET, tenant.as_str(), "p1")
            .cost("requests", 1)
            .cost("tokens", 800);
        let asked_at = Instant::now();
        let guard = match client.try_admit(&call, None).await? {
            Answer::Admitted(guard) => guard,
            other @ (Answer::Deferred(_) | Answer::Rejected(_)) => {
                anyhow::bail!("not admitted: {other:?}")
            }
        };
        let took = asked_at.elapsed();
        match work {
            Work::Ask => drop(guard.detach()),
            Work::AskAndSettle => {
                guard.settle(Outcome::Ok, [("tokens", 700)]).await?;
            }
        }
        if asked_at >= from {
            asks_us.push(u64::try_from(took.as_micros())?);
        }
    }
    Ok(asks_us)
}

/// CPU time spent so far.
struct Cpu {
    nodes: Vec<(u64, Duration)>,
    own: Duration,
}

fn cpu_of_all(cluster: &Cluster) -> anyhow::Result<Cpu> {
    let nodes = (1..).zip(&cluster.nodes);
    let nodes = nodes.map(|(id, node)| Ok((id, cpu_of(node.id())?)));
    Ok(Cpu {
        nodes: nodes.collect::<anyhow::Result<_>>()?,
        own: cpu_of(std::process::id())?,
    })
}

/// Of all threads of a process, those included that have ended.
fn cpu_of(pid: u32) -> anyhow::Result<Duration> {
    /// Linux counts in hundredths of a second, whatever it schedules by.
    const TICK: Duration = Duration::from_millis(10);
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, which may hold anything, stands in brackets; user and system time are the 12th and 13th behind.
    let (_, behind) = text.rsplit_once(')').context("no name")?;
    let times = behind.split_whitespace().skip(11).take(2);
    let ticks = times.map(str::parse::<u32>).sum::<Result<u32, _>>()?;
    Ok(TICK * ticks)
}

fn row(outstanding: usize, work: Work, transport: Transport, runs: &[Figures]) -> String {
    let median = |of: fn(&Figures) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
    };
    format!(
        "| {outstanding} | {work:?} | {transport:?} | {:.0} | {:.2} / {:.2} | {:.1}, {:.1}, {:.1} |",
        median(|it| it.per_second),
        median(|it| it.p50_us) / 1e3,
        median(|it| it.p99_us) / 1e3,
        median(|it| it.leader_us),
        median(|it| it.follower_us),
        median(|it| it.client_us),
    )
}

/// Three nodes on loopback. Dropping it kills them and removes their directories.
struct Cluster {
    nodes: Vec<Child>,
    _root: tempfile::TempDir,
}

fn address(node: u64, port: u16) -> String {
    format!("127.0.97.{node}:{port}")
}

impl Cluster {
    fn start(program: &Path) -> anyhow::Result<Cluster> {
        let root = tempfile::tempdir()?;
        let mut nodes = Vec::new();
        for id in 1..=NODES {
            let config = root.path().join(format!("{id}.toml"));
            let mut text = format!(
                "[node]\nid = {id}\ndata_dir = {:?}\n[cluster]\nname = \"bench\"\nshards = 1\n",
                root.path().join(format!("data-{id}"))
            );
            for member in 1..=NODES {
                text += &format!(
                    "[[cluster.member]]\nid = {member}\nclient = {:?}\npeer = {:?}\nadmin = {:?}\n",
                    address(member, 7400),
                    address(member, 7401),
                    address(member, 7402)
                );
            }
            std::fs::write(&config, text)?;
            let node = Command::new(program)
                .args(["server", "--config"])
                .arg(&config)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            nodes.push(node.with_context(|| format!("starting {}", program.display()))?);
        }
        Ok(Cluster { nodes, _root: root })
    }

    fn addresses(&self) -> Vec<String> {
        (1..=NODES).map(|node| address(node, 7400)).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // A node that has ended already leaves nothing to do.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

/// Who leads the one shard.
async fn leader(client: &Client) -> anyhow::Result<u64> {
    let routes = client.routes().await?;
    let route = routes.routes.first().context("no route")?;
    Ok(route.leader)
}
