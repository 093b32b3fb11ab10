//! `weir ctl`: what operators say to a cluster.
//!
//! Answers go to stdout, as tables or JSON; everything else to stderr. Exit codes are [`Exit`]'s.

mod apply;
mod args;
mod columns;
mod confirm;
mod diff;
mod direct;
mod drain;
mod error;
mod history;
pub mod policy_file;
mod policy_keys;
mod progress;
mod show;
mod watch;
mod when;

pub use self::error::CtlError;

use self::apply::{ApplyArgs, RollbackArgs};
use self::args::{AdmitArgs, CancelArgs, ExplainArgs, ReleaseArgs};
use self::drain::DrainArgs;
use self::history::HistoryArgs;
use self::progress::Progress;
use self::watch::WatchArgs;
use crate::exit::{EXIT_CODES, Exit};
use crate::output;
use clap::{Args, Subcommand, ValueEnum};
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::time::timeout;
use weir_client::{Client, Options};

/// Arguments of `weir ctl`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXIT_CODES)]
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
    /// Create or replace the targets of a policy file, after showing what changes.
    Apply(ApplyArgs),
    /// List the keys of policy files: what they may be, their defaults, what they do. Asks no cluster.
    PolicyKeys,
    /// List the versions of a target's policy that are remembered: the one in force and up to 15 former ones.
    #[command(after_long_help = columns::VERSIONS)]
    Versions {
        /// The target.
        target: String,
    },
    /// Put the policy of a former version again, as a new version.
    Rollback(RollbackArgs),
    /// List the targets of all shards.
    #[command(after_long_help = columns::TARGETS)]
    Targets,
    /// Show one target: policy, use, lines.
    #[command(after_long_help = columns::TARGET)]
    Target {
        /// Its name.
        name: String,
    },
    /// Show the targets at work, again and again: rates, lines, use of every cap.
    #[command(visible_alias = "top", after_long_help = columns::WATCH)]
    Watch(WatchArgs),
    /// Show use of a target in the past: what was admitted, deferred and used, step by step.
    #[command(after_long_help = columns::HISTORY)]
    History(HistoryArgs),
    /// Remove a target, after asking on a terminal. Its use is remembered for as long as a limit could need it.
    Delete {
        /// Its name.
        name: String,
        /// Do not ask.
        #[arg(short, long)]
        yes: bool,
    },
    /// Show nodes, shards, leaders, terms and positions.
    #[command(after_long_help = columns::STATUS)]
    Status,
    /// Ask once whether a call may start, as a worker does.
    Admit(AdmitArgs),
    /// Tell what a call would be answered, which limit binds and who is ahead. Changes nothing.
    #[command(after_long_help = columns::EXPLAIN)]
    Explain(ExplainArgs),
    /// End a grant with what was used.
    Release(ReleaseArgs),
    /// Give up the place of a call that waits, or a grant that was not used.
    Cancel(CancelArgs),
    /// Hand a shard's leadership to another node.
    Transfer {
        /// The shard.
        shard: u32,
        /// The node that shall lead it.
        node: u64,
    },
    /// Move all leaderships off a node and keep them off, for work on it.
    Drain(DrainArgs),
    /// Let a drained node lead again.
    Undrain {
        /// The node.
        node: u64,
    },
}

/// Carries a command out and prints its answer.
pub async fn run(args: CtlArgs) -> Exit {
    let servers = args.server.clone();
    match answer(args).await {
        Ok((text, exit)) => match output::print(text) {
            Ok(()) => exit,
            Err(error) => {
                eprintln!("error: stdout: {error}");
                Exit::Failed
            }
        },
        Err(error) => {
            eprintln!("error: {error}");
            if error.exit() == Exit::Unavailable {
                eprint!("{}", unresolved(&servers).await);
            }
            error.exit()
        }
    }
}

/// Longest wait for what a name means.
const RESOLVED_WITHIN: Duration = Duration::from_secs(2);

/// What stands in `--server` and means nothing on this machine, one line each: no node is down for that.
async fn unresolved(servers: &[String]) -> String {
    let mut lines = String::new();
    for server in servers {
        let looked_up = timeout(RESOLVED_WITHIN, lookup_host(server.as_str())).await;
        if let Ok(Err(error)) = looked_up {
            lines += &format!("--server {server} cannot be resolved on this machine: {error}\n");
        }
    }
    lines
}

/// The answer's text, and how the program ends: a rejected ask is an answer, but not a success.
async fn answer(args: CtlArgs) -> Result<(String, Exit), CtlError> {
    let form = args.output;
    let client = Client::new(Options::new(args.server)).map_err(CtlError::usage)?;
    if let Command::Delete { name, yes: false } = &args.command
        && !confirm::on_terminal(&format!("remove target {name:?}?"))
    {
        return Err(CtlError::Refused("nothing was removed".to_owned()));
    }
    let progress = Progress::start("the cluster");
    let text = match args.command {
        Command::Apply(args) => {
            drop(progress);
            return apply::apply(&client, args, form).await;
        }
        Command::Rollback(args) => {
            drop(progress);
            return apply::rollback(&client, args, form).await;
        }
        Command::Watch(args) => {
            drop(progress);
            return watch::run(&client, args, form).await;
        }
        Command::PolicyKeys => show::keys(form),
        Command::Versions { target } => {
            show::versions(&target, &client.list_versions(&target).await?, form)
        }
        Command::Targets => {
            let list = client.list_targets().await?;
            let exit = show::list_exit(&list);
            return Ok((show::targets(&list, form), exit));
        }
        Command::Target { name } => show::target(&client.get_target(&name).await?, form),
        Command::Delete { name, .. } => {
            client.delete_target(&name, None).await?;
            show::done(form, &format!("target {name:?} is removed"))
        }
        Command::Status => show::status(&client.status().await?, form),
        Command::History(args) => return history::history(&client, args, form).await,
        Command::Admit(args) => return direct::admit(&client, args, form).await,
        Command::Explain(args) => direct::explain(&client, args, form).await?,
        Command::Release(args) => return direct::release(&client, args, form).await,
        Command::Cancel(args) => return direct::cancel(&client, args, form).await,
        Command::Transfer { shard, node } => {
            client.transfer(shard, node).await?;
            show::done(form, &format!("node {node} leads shard {shard}"))
        }
        Command::Drain(args) => drain::drain(&client, args, form).await?,
        Command::Undrain { node } => drain::undrain(&client, node, form).await?,
    };
    Ok((text, Exit::Success))
}
