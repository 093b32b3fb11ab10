//! Ten times what three nodes can do, for two minutes: what is still done, how long who asks for little waits, and
//! what it costs in memory.
//!
//! `cargo bench -p weir-chaos --bench overload -- --seconds 120 --times 10` loads `target/release/weir`, or
//! `$WEIR_BIN`, on loopback. Callers and nodes share the machine, so that a figure of the overload is a lower
//! bound of what nodes on machines of their own do.
#![allow(
    clippy::print_stdout,
    reason = "a program that prints what it measured"
)]

use anyhow::Context;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use weir_chaos::cluster::release_program;
use weir_chaos::overload::{Load, Loaded, Pace, Seen, quantile_us};

const PEAK_SECONDS: u64 = 10;
/// The load is given up on if not all is as before after this.
const NORMAL_WITHIN: Duration = Duration::from_secs(60);
/// How often memory is looked at while the overload lasts.
const LOOKS: u64 = 8;

struct Plan {
    seconds: u64,
    times: u64,
}

fn plan() -> anyhow::Result<Plan> {
    let mut plan = Plan {
        seconds: 120,
        times: 10,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || -> anyhow::Result<u64> {
            let value = args.next().context("a value is missing")?;
            value.parse().with_context(|| format!("{arg} {value}"))
        };
        match arg.as_str() {
            "--seconds" => plan.seconds = number()?.max(LOOKS),
            "--times" => plan.times = number()?,
            // What cargo passes to every bench.
            "--bench" => {}
            other => anyhow::bail!("unknown argument {other}"),
        }
    }
    Ok(plan)
}

fn apart(load: Load) -> JoinHandle<anyhow::Result<Seen>> {
    tokio::spawn(load.run_apart())
}

/// What all nodes together used of the machine, and for each ask and its release.
fn spent(cpu: Duration, seconds: u64, decided: u64) -> String {
    let processors = cpu.as_secs_f64() / seconds as f64;
    let each = cpu.as_secs_f64() * 1e6 / decided.max(1) as f64;
    format!("{processors:.2} processors, {each:.1} us for each that was decided and released")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let plan = plan()?;
    let loaded = Loaded::start(&release_program()).await?;
    let load = |name, sessions, pace, seconds| loaded.load(name, sessions, pace, seconds);
    let closed = |outstanding| Pace::Closed { outstanding };
    let mebibytes = || anyhow::Ok(loaded.resident_bytes()? / (1024 * 1024));

    apart(load("warm", 4, closed(512), 3)).await??;
    let alone = apart(load("alone", 1, closed(16), PEAK_SECONDS)).await??;
    println!("little alone: {}", alone.told(PEAK_SECONDS));
    let begun = loaded.cpu_time()?;
    let peak = apart(load("peak", 4, closed(512), PEAK_SECONDS)).await??;
    let peak_cpu = loaded.cpu_time()?.saturating_sub(begun);
    println!("peak: {}", peak.told(PEAK_SECONDS));
    let at_peak = mebibytes()?;

    let per_second = peak.decided / PEAK_SECONDS * plan.times;
    let begun = loaded.cpu_time()?;
    let over = apart(load("over", 24, Pace::Open { per_second }, plan.seconds));
    let little = apart(load("little", 1, closed(16), plan.seconds));
    let mut memory = Vec::new();
    for _ in 0..LOOKS {
        tokio::time::sleep(Duration::from_secs(plan.seconds / LOOKS)).await;
        memory.push(mebibytes()?);
    }
    let (over, little) = (over.await??, little.await??);
    let over_cpu = loaded.cpu_time()?.saturating_sub(begun);
    println!("over, {per_second} offered/s: {}", over.told(plan.seconds));
    println!("little among them: {}", little.told(plan.seconds));
    let goodput = over.decided * PEAK_SECONDS * 100 / (peak.decided * plan.seconds).max(1);
    println!("goodput: {goodput} % of peak");
    let both = over.decided + little.decided;
    println!(
        "nodes at peak: {}",
        spent(peak_cpu, PEAK_SECONDS, peak.decided)
    );
    println!("nodes then: {}", spent(over_cpu, plan.seconds, both));
    println!("memory of the leader: {at_peak} MiB at peak, then {memory:?} MiB");
    println!(
        "releases refused: {}",
        over.releases_overloaded + little.releases_overloaded
    );

    let (begun, usual) = (Instant::now(), quantile_us(&alone.decision_us, 950));
    loop {
        let after = apart(load("after", 1, closed(16), 1)).await??;
        if after.overloaded + after.unanswered == 0
            && quantile_us(&after.decision_us, 950) <= usual * 2
        {
            break;
        }
        anyhow::ensure!(
            begun.elapsed() < NORMAL_WITHIN,
            "not as before in {NORMAL_WITHIN:?}"
        );
    }
    println!(
        "as before, within a factor of 2, after {:.1?}",
        begun.elapsed()
    );
    Ok(())
}
