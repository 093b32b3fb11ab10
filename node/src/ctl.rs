//! `weir ctl`: what operators say to a cluster.
//!
//! Answers go to stdout, as tables or JSON; everything else to stderr. Exit codes are [`Exit`]'s.

mod apply;
mod direct;
mod error;
pub mod policy_file;
mod show;

pub use self::error::CtlError;

use crate::exit::Exit;
use clap::{Args, Subcommand, ValueEnum};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use weir_client::{Client, Options};
use weir_proto::v1 as wire;

/// Arguments of `weir ctl`.
#[derive(Clone, Debug, Args)]
pub struct CtlArgs {
    /// Client address of any node, host:port; several separated by commas.
    #[arg(
        long,
        env = "WEIR_SERVER",
        default_value = "127.0.0.1:7400",
        value_delimiter = ',',
        global = true
    )]
    server: Vec<String>,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Form::Table, global = true)]
    output: Form,
    #[command(subcommand)]
    command: Command,
}

/// Form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people.
    Table,
    /// For programs.
    Json,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Create or replace the targets of a policy file.
    Apply {
        /// The file, TOML with one or more [[target]].
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
        /// Only check the file.
        #[arg(long)]
        check: bool,
    },
    /// List the targets of all shards.
    Targets,
    /// Show one target: policy, use, lines.
    Target {
        /// Its name.
        name: String,
    },
    /// Remove a target. Its use is remembered for as long as a limit could need it.
    Delete {
        /// Its name.
        name: String,
    },
    /// Show nodes, shards, leaders, terms and positions.
    Status,
    /// Ask once whether a call may start, as a worker does.
    Admit(AdmitArgs),
    /// End a grant with what was used.
    Release(ReleaseArgs),
    /// Hand a shard's leadership to another node.
    Transfer {
        /// The shard.
        shard: u32,
        /// The node that shall lead it.
        node: u64,
    },
}

#[derive(Clone, Debug, Args)]
struct AdmitArgs {
    /// What is called.
    target: String,
    /// Who the use is counted against.
    #[arg(long, default_value = "ctl")]
    tenant: String,
    /// A priority of the target's policy; without it the lowest one.
    #[arg(long)]
    priority: Option<String>,
    /// Units per dimension: requests=1,tokens=500.
    #[arg(long, value_parser = parse_units, default_value = "requests=1")]
    cost: Units,
    /// Upper bounds per dimension, for example tokens=4000.
    #[arg(long, value_parser = parse_units, default_value = "")]
    cost_max: Units,
    /// Name of this logical call; random if not given. Asking again with the same one keeps the place.
    #[arg(long)]
    id: Option<String>,
    /// The attempt, as an earlier answer told it; random if not given.
    #[arg(long, default_value_t = rand::random())]
    attempt: u64,
    /// Number of this ask in its attempt.
    #[arg(long, default_value_t = 1)]
    ask: u32,
    /// Refuse instead of deferring beyond this, for example 30s.
    #[arg(long, value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// Answer, change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print nothing but the grant.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Debug, Args)]
struct ReleaseArgs {
    /// What was called.
    target: String,
    /// The grant, SHARD:INDEX:OFFSET, as `admit` printed it.
    #[arg(value_parser = parse_grant)]
    grant: wire::Grant,
    /// Units really used per dimension; what is left out keeps its estimate.
    #[arg(long, value_parser = parse_units, default_value = "")]
    actual: Units,
    /// How the call ended.
    #[arg(long, value_enum, default_value_t = Outcome::Ok)]
    outcome: Outcome,
    /// The provider's Retry-After with the outcome `throttled`, for example 2s.
    #[arg(long, value_parser = parse_duration, default_value = "0s")]
    retry_after: Duration,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Outcome {
    /// The provider served it.
    Ok,
    /// The provider answered 429.
    Throttled,
    /// It was sent and failed otherwise.
    Failed,
    /// It was certainly not sent.
    NotSent,
}

impl From<Outcome> for wire::CallOutcome {
    fn from(outcome: Outcome) -> wire::CallOutcome {
        match outcome {
            Outcome::Ok => wire::CallOutcome::Ok,
            Outcome::Throttled => wire::CallOutcome::Throttled,
            Outcome::Failed => wire::CallOutcome::Failed,
            Outcome::NotSent => wire::CallOutcome::NotSent,
        }
    }
}

/// Units per dimension, as flags give them.
type Units = std::sync::Arc<BTreeMap<String, u64>>;

fn parse_units(text: &str) -> Result<Units, String> {
    let mut units = BTreeMap::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let wrong = || format!("{part:?} is not dimension=units");
        let (dimension, number) = part.split_once('=').ok_or_else(wrong)?;
        let number = number.parse().map_err(|_| wrong())?;
        if units.insert(dimension.to_owned(), number).is_some() {
            return Err(format!("dimension {dimension:?} is given twice"));
        }
    }
    Ok(units.into())
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    policy_file::parse_span(text).map(Duration::from_micros)
}

fn parse_grant(text: &str) -> Result<wire::Grant, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let read = || {
        let [shard, index, offset] = parts[..] else {
            return None;
        };
        Some(wire::Grant {
            shard: shard.parse().ok()?,
            index: index.parse().ok()?,
            offset: offset.parse().ok()?,
        })
    };
    read().ok_or_else(|| format!("{text:?} is not SHARD:INDEX:OFFSET"))
}

/// Carries a command out and prints its answer.
pub async fn run(args: CtlArgs) -> Exit {
    match answer(args).await {
        Ok((text, exit)) => {
            print!("{text}");
            exit
        }
        Err(error) => {
            eprintln!("error: {error}");
            error.exit()
        }
    }
}

/// The answer's text, and how the program ends: a rejected ask is an answer, but not a success.
async fn answer(args: CtlArgs) -> Result<(String, Exit), CtlError> {
    let form = args.output;
    let client = Client::new(Options::new(args.server)).map_err(CtlError::usage)?;
    let text = match args.command {
        Command::Apply { file, check } => {
            return apply::run(&client, &file, check, form).await;
        }
        Command::Targets => {
            let list = client.list_targets().await?;
            let exit = show::list_exit(&list);
            return Ok((show::targets(&list, form), exit));
        }
        Command::Target { name } => show::target(&client.get_target(&name).await?, form),
        Command::Delete { name } => {
            client.delete_target(&name, None).await?;
            show::done(form, &format!("target {name:?} is removed"))
        }
        Command::Status => show::status(&client.status().await?, form),
        Command::Admit(args) => return direct::admit(&client, args, form).await,
        Command::Release(args) => return direct::release(&client, args, form).await,
        Command::Transfer { shard, node } => {
            client.transfer(shard, node).await?;
            show::done(form, &format!("node {node} leads shard {shard}"))
        }
    };
    Ok((text, Exit::Success))
}
