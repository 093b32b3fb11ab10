//! `weir dev`.

use super::{Cluster, ClusterError, ClusterOptions};
use crate::ctl::policy_file;
use crate::exit::Exit;
use crate::listen::BindError;
use crate::signals;
use crate::words::counted;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_client::{Client, Options};

/// The target that newcomers try things on.
const SAMPLE: &str = include_str!("sample.toml");
/// Client port of the first node, the default of `weir ctl`.
const BASE_PORT: u16 = 7400;
/// Longest wait for the first leaders.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Arguments of `weir dev`.
#[derive(Clone, Debug, clap::Args)]
pub struct DevArgs {
    /// Number of nodes: 1, 3 or 5.
    #[arg(long, default_value_t = 3, value_parser = parse_nodes)]
    pub nodes: usize,
    /// Where to keep data; without it a temporary directory is used and removed at the end.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Client port of the first node. Its peer and admin ports follow; the next node's are ten higher.
    #[arg(long, value_name = "BASE", default_value_t = BASE_PORT)]
    pub port: u16,
}

fn parse_nodes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(nodes @ (1 | 3 | 5)) => Ok(nodes),
        Ok(_) | Err(_) => Err("must be 1, 3 or 5".into()),
    }
}

/// Runs a cluster until it is interrupted.
pub async fn run(args: DevArgs) -> anyhow::Result<Exit> {
    let stop = signals::stop();
    let options = ClusterOptions {
        nodes: args.nodes,
        data_dir: args.data.clone(),
        base_port: Some(args.port),
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(options)
        .await
        .map_err(|error| explain(error, &args))?;
    let ended = tokio::select! {
        biased;
        () = stop => Ok(Exit::Success),
        ended = serve(&cluster, &args) => ended,
    };
    cluster.shutdown().await;
    ended
}

/// Serves until a node cannot go on.
async fn serve(cluster: &Cluster, args: &DevArgs) -> anyhow::Result<Exit> {
    cluster.ready(READY_WITHIN).await?;
    put_sample(cluster).await?;
    println!("{}", greeting(cluster, args, &command_name()));
    let (node, failure) = cluster.failed().await;
    tracing::error!(node = node.0, %failure, "a node cannot go on");
    Ok(Exit::NodeFailed)
}

/// Puts the sample policy, unless it is there.
async fn put_sample(cluster: &Cluster) -> anyhow::Result<()> {
    let client = Client::new(Options::new(cluster.client_addresses()))?;
    for target in policy_file::parse(SAMPLE).map_err(anyhow::Error::msg)? {
        match client
            .put_target(&target.name, target.policy, Some(0))
            .await
        {
            Ok(_) | Err(weir_client::Error::Conflict { .. }) => {}
            Err(error) => return Err(error).context("the sample policy"),
        }
    }
    Ok(())
}

/// A port that is taken is the mistake that newcomers meet first.
fn explain(error: ClusterError, args: &DevArgs) -> anyhow::Error {
    let in_use = match &error {
        ClusterError::Bind(BindError::Bind { error, .. }) => {
            error.kind() == std::io::ErrorKind::AddrInUse
        }
        ClusterError::Bind(BindError::Resolve { .. } | BindError::Exposed { .. })
        | ClusterError::DataDir(_)
        | ClusterError::Start { .. }
        | ClusterError::Thread { .. }
        | ClusterError::NoNode(_)
        | ClusterError::NoLeader { .. } => false,
    };
    let error = anyhow::Error::new(error);
    if in_use {
        let other = if args.port == BASE_PORT {
            BASE_PORT + 1000
        } else {
            BASE_PORT
        };
        error.context(format!(
            "a port is taken; choose others, for example with --port {other}"
        ))
    } else {
        error
    }
}

/// How this program is called from a shell: by name if that finds it, otherwise by path.
fn command_name() -> String {
    let Ok(own) = std::env::current_exe() else {
        return "weir".into();
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join("weir"))
        .find(|p| p.is_file());
    if found.and_then(|found| found.canonicalize().ok()) == own.canonicalize().ok() {
        return "weir".into();
    }
    let near = std::env::current_dir().ok().and_then(|dir| {
        let rest = own.strip_prefix(&dir).ok()?;
        Some(Path::new(".").join(rest))
    });
    near.unwrap_or(own).display().to_string()
}

/// What a newcomer sees.
fn greeting(cluster: &Cluster, args: &DevArgs, weir: &str) -> String {
    let mut text = format!(
        "\nWeir serves: {} in this process, 3 shards.\n",
        counted(args.nodes, "node")
    );
    match (&args.data, cluster.temporary_dir()) {
        (Some(dir), _) => text += &format!("Data in {}, kept.\n", dir.display()),
        (None, Some(dir)) => text += &format!("Data in {}, removed at the end.\n", dir.display()),
        (None, None) => {}
    }
    text.push('\n');
    for (node, config) in cluster.nodes() {
        let listen = &config.listen;
        text += &format!(
            "  node {node}   clients {}   metrics http://{}/metrics\n",
            listen.client, listen.admin
        );
    }
    let ctl = if args.port == BASE_PORT {
        format!("{weir} ctl")
    } else {
        format!("{weir} ctl --server 127.0.0.1:{}", args.port)
    };
    text += &format!(
        r#"
Target demo/chat allows 60 requests and 30 000 tokens in any 10 s. Try in another terminal:

  {ctl} status
  {ctl} admit demo/chat --priority interactive --cost requests=1,tokens=500
  {ctl} release demo/chat "$({ctl} admit demo/chat --quiet)"
  {ctl} target demo/chat

Stop with Ctrl-C."#
    );
    text
}
