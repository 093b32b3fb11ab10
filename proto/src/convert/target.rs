//! Targets: what operators put, remove and look at.

use super::fields::Fields;
use super::{Caller, Violations, outcome, policy};
use crate::error::{Reason, WireError};
use crate::v1;
use weir_admission::{
    DeletePolicy, LimitUse, Outcome, PolicyOutcome, PolicyVersion, PriorityUse, PutPolicy, ShardId,
    TargetName, TargetView, Violation,
};

/// Reads a put.
///
/// # Errors
/// Every field that breaks a rule, those of the policy included.
pub fn read_put(
    request: &v1::PutTargetRequest,
    caller: Caller<'_>,
) -> Result<PutPolicy, Violations> {
    let mut fields = Fields::new();
    let target = fields.name("target", &request.target);
    let policy = match &request.policy {
        Some(policy) => {
            fields.enter("policy.".into());
            Some(policy::read_into(&mut fields, policy))
        }
        None => {
            fields.refuse("policy", "must be set");
            None
        }
    };
    let expected_version = request.expected_version;
    let put = || {
        Some(PutPolicy {
            target: target?,
            principal: caller.principal.clone(),
            policy: policy?,
            expected_version,
        })
    };
    fields.finish(put())
}

/// Reads which target is looked at.
///
/// # Errors
/// The name breaks a rule.
pub fn read_get(request: &v1::GetTargetRequest) -> Result<TargetName, Violations> {
    let mut fields = Fields::new();
    let target = fields.name("target", &request.target);
    fields.finish(target)
}

/// Reads whose versions are listed.
///
/// # Errors
/// The name breaks a rule.
pub fn read_versions(request: &v1::ListVersionsRequest) -> Result<TargetName, Violations> {
    let mut fields = Fields::new();
    let target = fields.name("target", &request.target);
    fields.finish(target)
}

/// Versions of a policy as operators see them.
pub fn write_versions(versions: &[PolicyVersion]) -> v1::ListVersionsResponse {
    let write = |version: &PolicyVersion| v1::PolicyVersion {
        version: version.version,
        policy: Some(policy::write(&version.policy)),
        put_by: version.put_by.to_string(),
        age_us: version.age,
    };
    v1::ListVersionsResponse {
        versions: versions.iter().map(write).collect(),
    }
}

/// Reads a delete.
///
/// # Errors
/// The name breaks a rule.
pub fn read_delete(request: &v1::DeleteTargetRequest) -> Result<DeletePolicy, Violations> {
    let mut fields = Fields::new();
    let target = fields.name("target", &request.target);
    let expected_version = request.expected_version;
    fields.finish(target.map(|target| DeletePolicy {
        target,
        expected_version,
    }))
}

/// The response to a put of `target`.
///
/// # Errors
/// The refusal; another version is in force; the shard is full.
pub fn answer_put(
    outcome: Outcome,
    target: &TargetName,
) -> Result<v1::PutTargetResponse, WireError> {
    match policy_outcome(outcome, target)? {
        Changed::Put { version, changed } => Ok(v1::PutTargetResponse { version, changed }),
        Changed::Deleted => Err(unasked("the target was deleted, but a put was asked")),
    }
}

/// The response to a delete of `target`.
///
/// # Errors
/// The refusal; another version is in force.
pub fn answer_delete(
    outcome: Outcome,
    target: &TargetName,
) -> Result<v1::DeleteTargetResponse, WireError> {
    match policy_outcome(outcome, target)? {
        Changed::Deleted => Ok(v1::DeleteTargetResponse {}),
        Changed::Put { .. } => Err(unasked("the target was put, but a delete was asked")),
    }
}

enum Changed {
    Put { version: u64, changed: bool },
    Deleted,
}

fn policy_outcome(outcome: Outcome, target: &TargetName) -> Result<Changed, WireError> {
    let Outcome::Policy(outcome) = outcome else {
        return Err(outcome::error(outcome, target, ""));
    };
    match outcome {
        PolicyOutcome::Put { version, changed } => Ok(Changed::Put { version, changed }),
        PolicyOutcome::Deleted => Ok(Changed::Deleted),
        PolicyOutcome::Conflict { version } => {
            let message = match version {
                0 => format!("target {target:?} has no policy"),
                _ => format!("version {version} of target {target:?} is in force"),
            };
            let error = WireError::new(Reason::VersionConflict, message);
            Err(WireError {
                version: Some(version),
                ..error
            })
        }
        PolicyOutcome::Full => Err(WireError::new(
            Reason::Full,
            "the target's shard has as many targets as it may",
        )),
        PolicyOutcome::Invalid { violation } => Err(invalid(&violation)),
    }
}

/// A policy that the edge took for valid and the rules did not.
fn invalid(violation: &str) -> WireError {
    let (field, description) = violation.split_once(": ").unwrap_or(("", violation));
    let field = format!("policy.{field}");
    let error = WireError::new(Reason::Malformed, format!("{field} {description}"));
    WireError {
        violations: vec![Violation {
            field,
            description: description.into(),
        }],
        ..error
    }
}

fn unasked(message: &str) -> WireError {
    WireError::new(Reason::Internal, message)
}

/// A target as operators see it.
pub fn write(view: &TargetView, ShardId(shard): ShardId) -> v1::Target {
    v1::Target {
        name: view.name.to_string(),
        version: view.version,
        policy: Some(policy::write(&view.policy)),
        shard,
        limits: view.limits.iter().map(write_limit).collect(),
        priorities: view.priorities.iter().map(write_priority).collect(),
        tenants: view.tenants,
        grants: view.grants,
        waiting: view.waiting,
        held_for_us: view.held_for,
    }
}

fn write_limit(limit: &LimitUse) -> v1::LimitUse {
    v1::LimitUse {
        name: limit.name.to_string(),
        used: limit.used,
        cap: limit.cap,
        guard_us: limit.guard,
    }
}

fn write_priority(priority: &PriorityUse) -> v1::PriorityUse {
    v1::PriorityUse {
        name: priority.name.to_string(),
        waiting: priority.waiting,
        admitted: priority.admitted,
        deferred: priority.deferred,
        rejected: priority.rejected,
        throttled: priority.throttled,
        served_ns: priority.served_ns,
    }
}
