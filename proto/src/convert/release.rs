//! Releases.

use super::fields::Fields;
use super::{Caller, Violations, amounts, grant, outcome};
use crate::error::WireError;
use crate::v1;
use weir_admission::{CallOutcome, DimensionName, Outcome, Release, ReleaseOutcome, TargetName};

/// Reads a release.
///
/// # Errors
/// Every field that breaks a rule.
pub fn read(request: v1::ReleaseRequest, caller: Caller<'_>) -> Result<Release, Violations> {
    let mut fields = Fields::new();
    let target = fields.name("target", &request.target);
    let grant = grant::read(&mut fields, request.grant, target.as_ref(), caller.shards);
    let actual = amounts::read(&mut fields, "actual", &request.actual);
    let outcome = read_outcome(&mut fields, request.outcome, request.retry_after_us);
    if !request.throttled_dimension.is_empty() {
        let field = "throttled_dimension";
        // Its name is all that is asked of it: it decides nothing.
        let _name: Option<DimensionName> = fields.name(field, &request.throttled_dimension);
        if !matches!(outcome, None | Some(CallOutcome::Throttled { .. })) {
            fields.refuse(
                field,
                "must be empty unless outcome is CALL_OUTCOME_THROTTLED",
            );
        }
    }
    let release = || {
        Some(Release {
            target: target?,
            principal: caller.principal.clone(),
            grant: grant?,
            actual: actual?,
            outcome: outcome?,
        })
    };
    fields.finish(release())
}

/// The dimension that the provider named, for those who count. [`read`] checks it.
pub fn throttled_dimension(request: &v1::ReleaseRequest) -> Option<DimensionName> {
    let name = &request.throttled_dimension;
    // Mostly there is none.
    (!name.is_empty()).then(|| DimensionName::new(name).ok())?
}

fn read_outcome(fields: &mut Fields, outcome: i32, retry_after_us: u64) -> Option<CallOutcome> {
    let retry_after = fields.duration("retry_after_us", retry_after_us);
    let outcome = match v1::CallOutcome::try_from(outcome) {
        Ok(v1::CallOutcome::Ok) => CallOutcome::Ok,
        Ok(v1::CallOutcome::Throttled) => return Some(CallOutcome::Throttled { retry_after }),
        Ok(v1::CallOutcome::Failed) => CallOutcome::Failed,
        Ok(v1::CallOutcome::NotSent) => CallOutcome::NotSent,
        Ok(v1::CallOutcome::Unspecified) | Err(_) => {
            fields.refuse("outcome", "must say how the call ended");
            return None;
        }
    };
    if retry_after > 0 {
        fields.refuse(
            "retry_after_us",
            "must be 0 unless outcome is CALL_OUTCOME_THROTTLED",
        );
    }
    Some(outcome)
}

/// The response to a release at `target`.
///
/// # Errors
/// The refusal, if the rules refused the operation.
pub fn answer(outcome: Outcome, target: &TargetName) -> Result<v1::ReleaseResponse, WireError> {
    let Outcome::Release(settled) = outcome else {
        return Err(outcome::error(outcome, target, "actual"));
    };
    let status = match settled {
        ReleaseOutcome::Applied => v1::ReleaseStatus::Applied,
        ReleaseOutcome::Already => v1::ReleaseStatus::Already,
        ReleaseOutcome::Expired => v1::ReleaseStatus::Expired,
        ReleaseOutcome::Unknown => v1::ReleaseStatus::Unknown,
    };
    Ok(v1::ReleaseResponse {
        status: status.into(),
    })
}
