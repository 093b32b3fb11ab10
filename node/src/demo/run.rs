//! The road of the demo: one run without a gate, one through the cluster, the report.

use super::chat::Chat;
use super::cluster::Cluster;
use super::fleet::{Activity, Fleet};
use super::gap::GapWatch;
use super::gated::Gated;
use super::limits::DRAIN_MAX;
use super::plan::{DemoArgs, Plan};
use super::policy::TARGET;
use super::progress::tell_until_end;
use super::provider::Provider;
use super::report::{Failover, Measured, Report, wrapped};
use super::ungated::Ungated;
use crate::exit::Exit;
use crate::signals;
use anyhow::Context as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Runs both fleets and prints the report on stdout; progress goes to stderr.
pub async fn run(args: DemoArgs) -> anyhow::Result<Exit> {
    let plan = Plan::new(&args);
    eprintln!("{}\n", wrapped(&plan.words()));
    let report = tokio::select! {
        biased;
        () = signals::stop() => anyhow::bail!("interrupted"),
        report = run_both(&args, &plan) => report?,
    };
    let overruns = report.weir.counts.overruns + report.ungated.counts.overruns;
    anyhow::ensure!(
        overruns == 0,
        "the provider's books overflowed: the run proves nothing"
    );
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report.summary())?);
    } else {
        println!("\n{}\n", report.tables());
        println!(
            "{}\n\n{}",
            wrapped(&report.words()),
            wrapped(&report.notes())
        );
    }
    Ok(Exit::Success)
}

async fn run_both(args: &DemoArgs, plan: &Plan) -> anyhow::Result<Report> {
    let ungated = run_ungated(plan).await?;
    let cluster = Cluster::start(args.nodes, plan).await?;
    run_gated(plan, cluster, ungated).await
}

/// Runs the fleet without a gate.
pub async fn run_ungated(plan: &Plan) -> anyhow::Result<Measured> {
    let provider = Provider::start(plan.provider.clone()).context("the mock provider")?;
    let activity = Arc::new(Ungated::new(Chat::new(provider.address())?));
    let fleet = start(plan, &provider, &activity)?;
    tell_until_end("ungated", plan, &provider).await;
    let (counts, asks) = (provider.counts(), activity.sends());
    let figures = fleet.stop(DRAIN_MAX).await;
    Ok(Measured {
        counts,
        figures,
        asks,
        span: plan.span(),
        failover: None,
    })
}

fn start<A: Activity>(
    plan: &Plan,
    provider: &Provider,
    activity: &Arc<A>,
) -> anyhow::Result<Fleet<A>> {
    let warm = provider.epoch() + Duration::from_secs(plan.warm_seconds);
    Ok(Fleet::start(
        plan.workload.clone(),
        Arc::clone(activity),
        warm,
    )?)
}

/// Runs the same fleet through a cluster and puts both runs into a report.
pub async fn run_gated(
    plan: &Plan,
    mut cluster: Cluster,
    ungated: Measured,
) -> anyhow::Result<Report> {
    let provider = Provider::start(plan.provider.clone()).context("the mock provider")?;
    let gaps = Arc::new(GapWatch::new(Instant::now()));
    let clients = cluster.clients(plan.workload.workers)?;
    let chat = Chat::new(provider.address())?;
    let activity = Arc::new(Gated::new(TARGET, chat, clients, Arc::clone(&gaps)));
    let fleet = start(plan, &provider, &activity)?;
    let kill = async {
        if plan.kill_leader {
            tokio::time::sleep_until(plan.half_way(provider.epoch())).await;
            gaps.killed(Instant::now());
            let leader = cluster.kill_leader().await?;
            eprintln!("killed node {leader}, which led the target's shard");
        }
        anyhow::Ok(())
    };
    let (killed, ()) = tokio::join!(kill, tell_until_end("weir", plan, &provider));
    killed.context("killing the leader")?;
    let gap = gaps.longest(Instant::now());
    let (counts, asks) = (provider.counts(), activity.asks());
    let figures = fleet.stop(DRAIN_MAX).await;
    activity.log_stats();
    let seconds =
        |at: Instant| usize::try_from((at - provider.epoch()).as_secs()).unwrap_or(usize::MAX);
    let failover = gaps
        .killed_at()
        .zip(gap)
        .map(|(killed, gap)| seconds(killed)..seconds(gap.to).saturating_add(1));
    Ok(Report {
        workload: plan.workload.clone(),
        window: plan.provider.window,
        weir: Measured {
            counts,
            figures,
            asks,
            span: plan.span(),
            failover,
        },
        ungated,
        failover: gap.map(|gap| Failover { gap: gap.length() }),
        ungated_calls: activity.ungated(),
    })
}
