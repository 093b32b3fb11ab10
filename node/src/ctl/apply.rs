//! `apply` and `rollback`: policies put after their changes were shown, and only in place of the version
//! that the changes were shown against.

use super::diff::{Change, changes};
use super::policy_file::{self, FileTarget};
use super::policy_keys::in_words_of_file;
use super::progress::Progress;
use super::{CtlError, Form, confirm, show};
use crate::exit::Exit;
use crate::words::counted;
use clap::Args;
use std::path::{Path, PathBuf};
use weir_client::{Client, Error};
use weir_proto::v1 as wire;

#[derive(Clone, Debug, Args)]
pub(super) struct ApplyArgs {
    /// The file, TOML with one or more [[target]].
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Only check the file; no cluster is asked.
    #[arg(long, conflicts_with = "ChangeArgs")]
    check: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Clone, Debug, Args)]
pub(super) struct RollbackArgs {
    /// The target.
    target: String,
    /// The version whose policy is put again, as a new version.
    version: u64,
    #[command(flatten)]
    change: ChangeArgs,
}

/// How a change is made.
#[derive(Clone, Debug, Args)]
struct ChangeArgs {
    /// Show what would change, and change nothing.
    #[arg(long, visible_alias = "diff")]
    dry_run: bool,
    /// Show the keys of new targets and limits too that keep their defaults. JSON has them always.
    #[arg(long)]
    defaults: bool,
    /// Replace only this version, 0 only creates. Without it: the version that the changes are shown
    /// against.
    #[arg(long, value_name = "N")]
    expect_version: Option<u64>,
    /// Do not ask whether to go on. A question is only asked on a terminal.
    #[arg(short, long)]
    yes: bool,
}

/// What is going to become of one target.
pub(super) struct Planned {
    pub(super) target: String,
    /// The version in force, 0 if none.
    pub(super) in_force: u64,
    pub(super) changes: Vec<Change>,
    pub(super) policy: wire::Policy,
}

/// What became of it.
pub(super) struct Applied {
    pub(super) planned: Planned,
    pub(super) result: Result<Version, String>,
}

/// Which version of a policy is in force now.
pub(super) enum Version {
    /// A new one.
    New(u64),
    /// The same policy was in force.
    Same(u64),
}

pub(super) async fn apply(
    client: &Client,
    args: ApplyArgs,
    form: Form,
) -> Result<(String, Exit), CtlError> {
    let targets = read(&args.file)?;
    if args.check {
        let text = format!(
            "{}: {}, no mistake found",
            args.file.display(),
            counted(targets.len(), "target")
        );
        return Ok((show::done(form, &text), Exit::Success));
    }
    if args.change.expect_version.is_some() && targets.len() != 1 {
        return Err(CtlError::usage(
            "--expect-version is for a file with one target",
        ));
    }
    let mut planned = Vec::new();
    {
        let _progress = Progress::start("the policies in force");
        for target in targets {
            let in_force = match client.get_target(&target.name).await {
                Ok(in_force) => Some(in_force),
                Err(Error::TargetUnknown { .. }) => None,
                Err(error) => return Err(error.into()),
            };
            let policy = target.spelt_out().unwrap_or(target.policy);
            let old = in_force.as_ref().and_then(|old| old.policy.as_ref());
            planned.push(Planned {
                in_force: in_force.as_ref().map_or(0, |old| old.version),
                changes: changes(old, &policy),
                target: target.name,
                policy,
            });
        }
    }
    carry_out(client, planned, &args.change, form).await
}

pub(super) async fn rollback(
    client: &Client,
    args: RollbackArgs,
    form: Form,
) -> Result<(String, Exit), CtlError> {
    let versions = {
        let _progress = Progress::start("the versions");
        client.list_versions(&args.target).await?
    };
    let (Some(in_force), Some(wanted)) = (
        versions.first(),
        versions.iter().find(|one| one.version == args.version),
    ) else {
        let told: Vec<String> = versions.iter().map(|one| one.version.to_string()).collect();
        return Err(CtlError::Refused(format!(
            "version {} of target {:?} is not remembered; these are: {}",
            args.version,
            args.target,
            told.join(", ")
        )));
    };
    let policy = wanted.policy.clone().unwrap_or_default();
    let planned = Planned {
        in_force: in_force.version,
        changes: changes(in_force.policy.as_ref(), &policy),
        target: args.target,
        policy,
    };
    carry_out(client, vec![planned], &args.change, form).await
}

/// Shows the plan, asks, and puts what changes.
async fn carry_out(
    client: &Client,
    planned: Vec<Planned>,
    args: &ChangeArgs,
    form: Form,
) -> Result<(String, Exit), CtlError> {
    if args.dry_run {
        return Ok((show::planned(&planned, args.defaults, form), Exit::Success));
    }
    let changed = planned.iter().filter(|one| !one.changes.is_empty()).count();
    if form == Form::Table && changed > 0 {
        eprint!("{}", show::planned(&planned, args.defaults, form));
    }
    let question = format!("change {}?", counted(changed, "target"));
    if changed > 0 && !args.yes && !confirm::on_terminal(&question) {
        return Err(CtlError::Refused("nothing was changed".into()));
    }
    let _progress = Progress::start("the cluster to take the policies");
    let mut applied = Vec::new();
    let mut exit = Exit::Success;
    for planned in planned {
        let expected = args.expect_version.unwrap_or(planned.in_force);
        let result = put(client, &planned, expected).await.map_err(|error| {
            exit = error.exit();
            error.to_string()
        });
        applied.push(Applied { planned, result });
    }
    Ok((show::applied(&applied, form), exit))
}

async fn put(client: &Client, planned: &Planned, expected: u64) -> Result<Version, CtlError> {
    let policy = planned.policy.clone();
    let answer = client
        .put_target(&planned.target, policy, Some(expected))
        .await;
    match answer {
        Ok(put) if put.changed => Ok(Version::New(put.version)),
        Ok(put) => Ok(Version::Same(put.version)),
        Err(conflict @ Error::Conflict { .. }) => {
            // A put whose first answer was lost meets its own effect.
            let now = client.get_target(&planned.target).await?;
            let own = now.version == expected.saturating_add(1)
                && now.policy.as_ref() == Some(&planned.policy);
            if own {
                Ok(Version::New(now.version))
            } else {
                Err(conflict.into())
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads a file and lists everything that is wrong in it, by line.
fn read(file: &Path) -> Result<Vec<FileTarget>, CtlError> {
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| CtlError::Usage(format!("{name}: {error}")))?;
    let targets = policy_file::parse(&text)
        .map_err(|message| CtlError::Usage(format!("{name}: {message}")))?;
    let mut mistakes: Vec<String> = Vec::new();
    for target in &targets {
        for violation in target.violations() {
            let line = target.line_of(&violation.field);
            let said = in_words_of_file(&violation);
            let target = &target.name;
            mistakes.push(format!("{name}:{line}: target {target:?}: {said}"));
        }
    }
    if targets.is_empty() {
        mistakes.push(format!("{name}: has no [[target]]"));
    }
    if mistakes.is_empty() {
        Ok(targets)
    } else {
        Err(CtlError::Usage(mistakes.join("\n")))
    }
}
