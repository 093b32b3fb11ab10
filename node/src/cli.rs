//! What was typed, and what it sets off.

use crate::config::{
    Config, ConfigError, DEFAULT_CONFIG, LogConfig, LogFormat, Overlay, env_overlay, file_overlay,
};
use crate::exit::{EXIT_CODES, Exit};
use crate::files::{TooFewFiles, connections_max, raise_limit};
use crate::history::wall;
use crate::listen::{BindError, bind, tcp};
use crate::metrics::SpanMetrics;
use crate::otlp::{Exporter, OtlpError};
use crate::server::{Ended, Parts, Server};
use crate::{ctl, demo, dev, manual, signals, trace};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use weir_raft::log::OpenError;
use weir_raft::{IdentityError, MonotonicClock, StartError};

/// Distributed admission for fleets of workers that call rate-limited APIs.
#[derive(Debug, Parser)]
#[command(name = "weir", version, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole cluster in this process, on loopback, to try things.
    Dev(dev::DevArgs),
    /// Run a fleet of workers against a rate-limited mock API: first on its own, then through a cluster
    /// whose leader is killed half way.
    Demo(demo::DemoArgs),
    /// Run one node.
    Server(ServerArgs),
    /// Talk to a cluster.
    Ctl(ctl::CtlArgs),
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: manual::Shell,
    },
    /// Print the manual page, or write those of all commands.
    Man {
        /// Where to write one page for each command; without it weir(1) is printed.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

#[derive(Clone, Debug, clap::Args)]
struct ServerArgs {
    /// Configuration file. Environment variables WEIR__SECTION__KEY win over it, flags over both.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Number of this node (node.id).
    #[arg(long, value_name = "ID")]
    node_id: Option<u64>,
    /// Directory of log, snapshots and identity (node.data_dir).
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Form of the log (log.format).
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
    /// Where spans go: an OTLP collector that speaks gRPC, as http://host:port (trace.otlp_endpoint).
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Serve in plain text beyond this machine: the network must be trusted.
    #[arg(long)]
    insecure: bool,
    /// Print a documented example with every default, and end.
    #[arg(long)]
    print_default_config: bool,
}

/// The program: reads what was typed and carries it out.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // One thread for raft, peers and clients: measured faster than several on two cores, and the log has
    // a writer thread of its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(cli.run()).into(),
        Err(error) => {
            eprintln!("error: the async runtime does not start: {error}");
            Exit::Failed.into()
        }
    }
}

impl Cli {
    /// Carries the command out.
    pub async fn run(self) -> Exit {
        match self.command {
            Command::Dev(args) => {
                // What replication says when nodes come and go is no news: all of them do, at once.
                init_trace(
                    "warn,openraft=error,openraft::raft=off,openraft::core::heartbeat=off,weir_raft=error",
                );
                told(dev::run(args).await)
            }
            Command::Demo(args) => {
                // A killed leader is part of the plan: its peers' warnings are not news.
                init_trace("error");
                told(demo::run(args).await)
            }
            Command::Server(args) if args.print_default_config => {
                told(manual::print(DEFAULT_CONFIG.as_bytes()))
            }
            Command::Server(args) => serve(args).await,
            Command::Ctl(args) => ctl::run(args).await,
            Command::Completions { shell } => told(manual::completions(shell)),
            Command::Man { dir } => told(manual::pages(dir.as_deref())),
        }
    }
}

/// The log of commands without a configuration: what RUST_LOG says, or this.
fn init_trace(default: &str) {
    let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| default.to_owned());
    let log = LogConfig {
        format: LogFormat::Text,
        filter,
    };
    trace::init(&log, None);
}

fn told(result: anyhow::Result<Exit>) -> Exit {
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        Exit::Failed
    })
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Files(#[from] TooFewFiles),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Otlp(#[from] OtlpError),
}

impl ServeError {
    /// Starting again helps only where something outside may change by itself.
    fn exit(&self) -> Exit {
        match self {
            ServeError::Config(_)
            | ServeError::Files(_)
            | ServeError::Bind(BindError::Exposed { .. })
            | ServeError::Start(StartError::Config(_) | StartError::Address(_))
            | ServeError::Otlp(OtlpError::Exporter(_)) => Exit::Usage,
            ServeError::Start(StartError::Identity(error)) => identity_exit(error),
            ServeError::Start(StartError::Log(error)) => log_exit(error),
            ServeError::Otlp(OtlpError::Thread(_))
            | ServeError::Bind(BindError::Resolve { .. } | BindError::Bind { .. })
            | ServeError::Start(
                StartError::Snapshot(_) | StartError::State(_) | StartError::Group { .. },
            ) => Exit::Failed,
        }
    }
}

/// The directory of another node, cluster or version is a wrong configuration, and so is a damaged one: it does
/// not heal by another start.
fn identity_exit(error: &IdentityError) -> Exit {
    match error {
        IdentityError::Missing { .. }
        | IdentityError::Format { .. }
        | IdentityError::Unreadable { .. }
        | IdentityError::Other { .. } => Exit::Usage,
        IdentityError::Io { .. } | IdentityError::Locked { .. } => Exit::Failed,
    }
}

/// See [`identity_exit`].
fn log_exit(error: &OpenError) -> Exit {
    match error {
        OpenError::Lost { .. }
        | OpenError::Damaged { .. }
        | OpenError::Group { .. }
        | OpenError::MarkMissing { .. }
        | OpenError::MarkUnreadable { .. }
        | OpenError::MarkFormat { .. } => Exit::Usage,
        OpenError::Io { .. } | OpenError::Engine { .. } => Exit::Failed,
    }
}

async fn serve(args: ServerArgs) -> Exit {
    match try_serve(args).await {
        Ok(Ended::Stopped) => Exit::Success,
        Ok(Ended::Failed(_)) => Exit::NodeFailed,
        Err(error) => {
            eprintln!("error: {error}");
            error.exit()
        }
    }
}

async fn try_serve(args: ServerArgs) -> Result<Ended, ServeError> {
    let mut overlays = Vec::new();
    if let Some(file) = &args.config {
        overlays.push(file_overlay(file)?);
    }
    overlays.push(env_overlay(std::env::vars())?);
    overlays.push(flags(&args));
    let config = Config::from_overlays(overlays)?;
    let spans = SpanMetrics::default();
    let exporter = match &config.trace.otlp_endpoint {
        Some(endpoint) => Some(Exporter::start(endpoint, &config, spans.clone()).await?),
        None => None,
    };
    trace::init(&config.log, exporter.as_ref());
    let connections_max = connections_max(raise_limit())?;
    // A signal that comes while the node starts stops it right after.
    let stop = signals::stop();
    let listen = &config.listen;
    let client = bind("listen.client", &listen.client, args.insecure).await?;
    let peer = bind("listen.peer", &listen.peer, args.insecure).await?;
    let admin = bind("listen.admin", &listen.admin, args.insecure).await?;
    tracing::info!(
        node = config.node.0,
        cluster = config.cluster,
        client = listen.client,
        peer = listen.peer,
        admin = listen.admin,
        data_dir = %config.data_dir.display(),
        version = env!("CARGO_PKG_VERSION"),
        connections_max,
        otlp_endpoint = config.trace.otlp_endpoint,
        "node starts"
    );
    let server = Server::start(Parts {
        config,
        client: tcp(client),
        connections_max,
        peer: tcp(peer),
        admin: Some(admin),
        connector: Arc::new(|endpoint| endpoint.connect_lazy()),
        clock: Arc::new(MonotonicClock::new()),
        wall: wall(),
        spans,
    })
    .await?;
    let ended = server.run(stop).await;
    if let Some(exporter) = exporter {
        exporter.close().await;
    }
    Ok(ended)
}

fn flags(args: &ServerArgs) -> Overlay {
    let mut overlay = Overlay::default();
    overlay.node.id = args.node_id;
    overlay.node.data_dir.clone_from(&args.data_dir);
    overlay.log.format = args.log_format;
    overlay.trace.otlp_endpoint.clone_from(&args.otlp_endpoint);
    let given = [
        ("--node-id", args.node_id.is_some()),
        ("--data-dir", args.data_dir.is_some()),
        ("--log-format", args.log_format.is_some()),
        ("--otlp-endpoint", args.otlp_endpoint.is_some()),
    ];
    overlay.sources = given
        .iter()
        .filter(|(_, given)| *given)
        .map(|(flag, _)| (*flag).to_owned())
        .collect();
    overlay
}
