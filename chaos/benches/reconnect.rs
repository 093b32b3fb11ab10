//! Thousands of clients, each with its own connections, whose leader dies while all have a call to make: how long
//! until each is served, and what it costs the next leader.
//!
//! `cargo bench -p weir-chaos --bench reconnect -- --clients 10000` uses `target/release/weir`, or `$WEIR_BIN`, on
//! loopback; `--files 256` gives the nodes few file descriptors. Clients and nodes share the machine.
#![allow(
    clippy::print_stdout,
    reason = "a program that prints what it measured"
)]

use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::Instant;
use weir_chaos::cluster::{Cluster, Port, release_program};
use weir_chaos::guests::{Guests, quantile};
use weir_chaos::overload::{TARGET, policy};

/// Clients of one process: each may have three connections.
const CLIENTS_PER_PROCESS: usize = 5_000;
/// The first calls of all clients are spread over this for every thousand of them.
const COME_PER_THOUSAND: Duration = Duration::from_secs(1);

struct Plan {
    clients: usize,
    seconds: u64,
    files: Option<u32>,
    /// For a process of clients: its number, and where the cluster is.
    part: Option<(usize, Vec<String>)>,
}

fn plan() -> anyhow::Result<Plan> {
    let mut plan = Plan {
        clients: 10_000,
        seconds: 60,
        files: None,
        part: None,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().context("a value is missing");
        match arg.as_str() {
            "--clients" => plan.clients = value()?.parse()?,
            "--seconds" => plan.seconds = value()?.parse()?,
            "--files" => plan.files = Some(value()?.parse()?),
            "--part" => {
                let number = value()?.parse()?;
                plan.part = Some((number, value()?.split(',').map(str::to_owned).collect()));
            }
            // What cargo passes to every bench.
            "--bench" => {}
            other => anyhow::bail!("unknown argument {other}"),
        }
    }
    Ok(plan)
}

/// One process of clients: calls once, says so, waits for a word, calls again at once, and tells.
async fn part(number: usize, addresses: &[String], plan: &Plan) -> anyhow::Result<()> {
    let guests = Guests::new(addresses, plan.clients)?;
    let come = COME_PER_THOUSAND * u32::try_from(plan.clients)? / 1_000;
    let within = Duration::from_secs(plan.seconds);
    let first = guests
        .call(TARGET, &format!("first.{number}"), come, come + within)
        .await;
    println!("{} unserved", first.unserved);
    word().await?;
    let (begun, before) = (Instant::now(), guests.counted());
    let second = guests
        .call(TARGET, &format!("second.{number}"), Duration::ZERO, within)
        .await;
    let after = guests.counted();
    println!("{}", micros(&second.after));
    println!("{}", micros(&guests.knocks_since(begun)));
    let counted = after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before);
    println!("{:?}", counted.collect::<Vec<_>>());
    // The connections stay until everybody has looked at them.
    word().await?;
    Ok(())
}

/// Waits for a word from whoever started this process.
async fn word() -> anyhow::Result<()> {
    let heard = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    heard.await??;
    Ok(())
}

fn micros(durations: &[Duration]) -> String {
    let all: Vec<String> = durations
        .iter()
        .map(|it| it.as_micros().to_string())
        .collect();
    all.join(" ")
}

/// A process of clients, seen from outside.
struct Part {
    child: Child,
    words: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Part {
    fn start(
        number: usize,
        clients: usize,
        cluster: &Cluster,
        plan: &Plan,
    ) -> anyhow::Result<Part> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--clients", &clients.to_string()])
            .args(["--seconds", &plan.seconds.to_string()])
            .args([
                "--part",
                &number.to_string(),
                &cluster.addresses().join(","),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let words = child.stdin.take().context("no way in")?;
        let said = BufReader::new(child.stdout.take().context("no way out")?).lines();
        Ok(Part { child, words, said })
    }

    async fn hear(&mut self) -> anyhow::Result<String> {
        self.said
            .next_line()
            .await?
            .context("a process of clients ended")
    }

    async fn durations(&mut self) -> anyhow::Result<Vec<Duration>> {
        let line = self.hear().await?;
        let micros = line.split_ascii_whitespace().map(str::parse::<u64>);
        micros.map(|it| Ok(Duration::from_micros(it?))).collect()
    }
}

/// The sum of one metric's samples whose labels hold `with`.
async fn metric(address: &str, name: &str, with: &str) -> anyhow::Result<u64> {
    let mut stream = TcpStream::connect(address).await?;
    let ask = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(ask).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let samples = text
        .lines()
        .filter(|line| line.starts_with(name) && line.contains(with));
    let values = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    Ok(values.sum())
}

/// What a node has and has used.
#[derive(Clone, Copy, Debug)]
struct Look {
    cpu: Duration,
    mebibytes: u64,
    files: usize,
    open: u64,
    refused: u64,
}

async fn look(cluster: &Cluster, id: u64) -> anyhow::Result<Look> {
    let (node, admin) = (cluster.node(id)?, cluster.address_of(id, Port::Admin));
    let closed = "weir_closed_connections_total";
    Ok(Look {
        cpu: node.cpu_time()?,
        mebibytes: node.resident_bytes()? / (1024 * 1024),
        files: node.open_files()?,
        open: metric(&admin, "weir_connections", "port=\"client\"").await?,
        refused: metric(&admin, closed, "port=\"client\"").await?,
    })
}

async fn look_at_all(cluster: &Cluster, ids: &[u64]) -> anyhow::Result<BTreeMap<u64, Look>> {
    let mut looks = BTreeMap::new();
    for id in ids {
        looks.insert(*id, look(cluster, *id).await?);
    }
    Ok(looks)
}

fn tell(name: &str, of: usize, sorted: &[Duration]) {
    let [p50, p99, last] = [500, 990, 1_000].map(|rank| quantile(sorted, rank));
    println!(
        "{name}: {} of {of}; p50 {p50:.2?}, p99 {p99:.2?}, last {last:.2?}",
        sorted.len()
    );
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let plan = plan()?;
    if let Some((number, addresses)) = &plan.part {
        return part(*number, addresses, &plan).await;
    }
    // One shard, so that one node has them all.
    let mut cluster = Cluster::new(&release_program(), 1)?;
    if let Some(files) = plan.files {
        cluster.limit_files(files);
    }
    cluster.start().await?;
    cluster.client()?.put_target(TARGET, policy(), None).await?;
    let leader = cluster.leader(TARGET).await?;
    let mut parts = Vec::new();
    let mut left = plan.clients;
    while left > 0 {
        let clients = left.min(CLIENTS_PER_PROCESS);
        parts.push(Part::start(parts.len(), clients, &cluster, &plan)?);
        left -= clients;
    }
    for part in &mut parts {
        println!("clients are there: {}", part.hear().await?);
    }
    for (id, look) in look_at_all(&cluster, &cluster.ids()).await? {
        let role = if id == leader { "leads" } else { "follows" };
        println!("node {id} {role}: {look:?}");
    }
    let others: Vec<u64> = cluster
        .ids()
        .into_iter()
        .filter(|id| *id != leader)
        .collect();
    let before = look_at_all(&cluster, &others).await?;
    cluster.take(leader)?.kill().await?;
    for part in &mut parts {
        part.words.write_all(b"go\n").await?;
    }
    let (mut served, mut knocks, mut asks) = (Vec::new(), Vec::new(), Vec::new());
    for part in &mut parts {
        served.append(&mut part.durations().await?);
        knocks.append(&mut part.durations().await?);
        asks.push(part.hear().await?);
    }
    served.sort_unstable();
    knocks.sort_unstable();
    tell("served", plan.clients, &served);
    tell("connection tries", plan.clients, &knocks);
    println!("asks, repeats, repeats withheld, late answers, own deferrals: {asks:?}");
    for (id, now) in look_at_all(&cluster, &others).await? {
        let was = before.get(&id).context("a node that was not there")?;
        println!(
            "node {id}: {:.2?} of processor time, {} -> {} MiB, {} -> {} files, {} -> {} connections, {} closed",
            now.cpu.saturating_sub(was.cpu),
            was.mebibytes,
            now.mebibytes,
            was.files,
            now.files,
            was.open,
            now.open,
            now.refused - was.refused
        );
    }
    for part in &mut parts {
        part.words.write_all(b"end\n").await?;
        ensure!(
            part.child.wait().await?.success(),
            "a process of clients failed"
        );
    }
    // Everybody is as before.
    cluster.start().await
}
