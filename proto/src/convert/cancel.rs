//! Cancels.

use super::fields::Fields;
use super::{Caller, Violations, outcome};
use crate::error::WireError;
use crate::v1;
use weir_admission::{AskName, CancelOutcome, Outcome, TargetName};

/// Reads a cancel.
///
/// # Errors
/// Every field that breaks a rule.
pub fn read(request: v1::CancelRequest, caller: Caller<'_>) -> Result<AskName, Violations> {
    let mut fields = Fields::new();
    let target = fields.name("target", &request.target);
    let tenant = fields.name("tenant", &request.tenant);
    let admission_id = fields.admission_id(request.admission_id);
    let attempt = fields.attempt(request.attempt);
    let ask = fields.ask(request.ask);
    let cancel = || {
        Some(AskName {
            target: target?,
            tenant: tenant?,
            principal: caller.principal.clone(),
            admission_id: admission_id?,
            attempt,
            ask,
        })
    };
    fields.finish(cancel())
}

/// The response to a cancel at `target`.
///
/// # Errors
/// The refusal, if the rules refused the operation.
pub fn answer(outcome: Outcome, target: &TargetName) -> Result<v1::CancelResponse, WireError> {
    let Outcome::Cancel(cancelled) = outcome else {
        return Err(outcome::error(outcome, target, ""));
    };
    let status = match cancelled {
        CancelOutcome::PlaceDropped => v1::CancelStatus::PlaceDropped,
        CancelOutcome::GrantRefunded => v1::CancelStatus::GrantRefunded,
        CancelOutcome::Nothing => v1::CancelStatus::Nothing,
        CancelOutcome::Stale => v1::CancelStatus::Stale,
    };
    Ok(v1::CancelResponse {
        status: status.into(),
    })
}
