//! Extensions of grants.

use super::fields::Fields;
use super::{Caller, Violations, grant, outcome};
use crate::error::WireError;
use crate::v1;
use weir_admission::{Extend, ExtendOutcome, Outcome, TargetName};

/// Reads an extension.
///
/// # Errors
/// Every field that breaks a rule.
pub fn read(request: &v1::ExtendRequest, caller: Caller<'_>) -> Result<Extend, Violations> {
    let mut fields = Fields::new();
    let target = fields.name("target", &request.target);
    let grant = grant::read(&mut fields, request.grant, target.as_ref(), caller.shards);
    let extend = || {
        Some(Extend {
            target: target?,
            principal: caller.principal.clone(),
            grant: grant?,
        })
    };
    fields.finish(extend())
}

/// The response to an extension at `target`.
///
/// # Errors
/// The refusal, if the rules refused the operation.
pub fn answer(outcome: Outcome, target: &TargetName) -> Result<v1::ExtendResponse, WireError> {
    let Outcome::Extend(extended) = outcome else {
        return Err(outcome::error(outcome, target, ""));
    };
    let (status, expires_in_us) = match extended {
        ExtendOutcome::Extended { expires_in } => (v1::ExtendStatus::Extended, expires_in),
        ExtendOutcome::Ended => (v1::ExtendStatus::Ended, 0),
        ExtendOutcome::Unknown => (v1::ExtendStatus::Unknown, 0),
    };
    Ok(v1::ExtendResponse {
        status: status.into(),
        expires_in_us,
    })
}
