//! Outcomes that are not the answer hoped for.

use crate::error::{Reason, WireError};
use weir_admission::{Outcome, TargetName};

/// The error of an outcome that is no answer to the operation: a refusal, or an answer to another kind.
/// `amounts` is the field of the request in which its dimensions stand.
pub(super) fn error(outcome: Outcome, target: &TargetName, amounts: &str) -> WireError {
    let kind = match outcome {
        Outcome::Refused(refusal) => return WireError::from_refusal(refusal, target, amounts),
        Outcome::Admit(_) => "an ask",
        Outcome::Release(_) => "a release",
        Outcome::Cancel(_) => "a cancel",
        Outcome::Extend(_) => "an extension",
        Outcome::Report(_) => "a report",
        Outcome::Policy(_) => "a change of policy",
        Outcome::Unwoken => "a wake taken back",
        Outcome::Seeded => "a seed",
    };
    WireError::new(
        Reason::Internal,
        format!("the outcome is one of {kind}, which was not asked"),
    )
}
