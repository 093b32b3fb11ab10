//! `apply`: the targets of a policy file, one after the other.

use super::policy_file::{self, FileTarget};
use super::{CtlError, Form, show};
use crate::exit::Exit;
use std::path::Path;
use weir_client::Client;

/// What became of one target of a file.
pub(super) struct Applied {
    pub(super) target: String,
    pub(super) result: Result<Version, String>,
}

/// Which version of a policy is in force now.
pub(super) enum Version {
    /// A new one.
    New(u64),
    /// The same policy was in force.
    Same(u64),
}

pub(super) async fn run(
    client: &Client,
    file: &Path,
    check: bool,
    form: Form,
) -> Result<(String, Exit), CtlError> {
    let targets = read(file)?;
    if check {
        let text = format!(
            "{}: {} targets, no mistake found",
            file.display(),
            targets.len()
        );
        return Ok((show::done(form, &text), Exit::Success));
    }
    let mut applied = Vec::new();
    let mut exit = Exit::Success;
    for target in targets {
        let answer = client.put_target(&target.name, target.policy, None).await;
        let result = match answer {
            Ok(put) if put.changed => Ok(Version::New(put.version)),
            Ok(put) => Ok(Version::Same(put.version)),
            Err(error) => {
                let error = CtlError::from(error);
                exit = error.exit();
                Err(error.to_string())
            }
        };
        applied.push(Applied {
            target: target.name,
            result,
        });
    }
    Ok((show::applied(&applied, form), exit))
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
            let (target, field) = (&target.name, &violation.field);
            mistakes.push(format!(
                "{name}:{line}: target {target:?}: {field}: {}",
                violation.description
            ));
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
