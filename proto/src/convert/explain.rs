//! Explanations.

use super::{Caller, Violations, admit, grant};
use crate::error::WireError;
use crate::v1;
use weir_admission::{
    Admit, Explanation, Holds, KnownAdmission, LimitAhead, Outcome, PriorityAhead, ShardId,
    TargetName,
};

/// Reads the ask that is to be explained, as a dry run. `new_id` names a call that is looked at as a new
/// one.
///
/// # Errors
/// Every field that breaks a rule.
pub fn read(
    request: v1::ExplainRequest,
    new_id: impl FnOnce() -> String,
    caller: Caller<'_>,
) -> Result<Admit, Violations> {
    let admission_id = Some(request.admission_id).filter(|id| !id.is_empty());
    let ask = v1::AdmitRequest {
        target: request.target,
        tenant: request.tenant,
        priority: request.priority,
        admission_id: admission_id.unwrap_or_else(new_id),
        // A dry run is no attempt: neither number matters.
        attempt: 1,
        ask: 1,
        cost: request.cost,
        cost_max: request.cost_max,
        dry_run: true,
        ..v1::AdmitRequest::default()
    };
    admit::read(ask, caller)
}

/// The response to an ask about `target`, explained by `shard`.
///
/// # Errors
/// None today; answers to asks may have some.
pub fn answer(
    explanation: Explanation,
    target: &TargetName,
    shard: ShardId,
) -> Result<v1::ExplainResponse, WireError> {
    Ok(v1::ExplainResponse {
        waits: explanation.waits,
        known: explanation.known.map(|known| write_known(known, shard)),
        held_for_us: explanation.held_for,
        limits: explanation.limits.iter().map(write_limit).collect(),
        priorities: explanation.priorities.iter().map(write_priority).collect(),
        answer: Some(admit::answer(
            Outcome::Admit(explanation.outcome),
            target,
            shard,
        )?),
    })
}

/// The error of an ask that cannot be explained.
pub fn refused(refusal: weir_admission::Refusal, target: &TargetName) -> WireError {
    super::outcome::error(Outcome::Refused(refusal), target, "cost")
}

fn write_known(known: KnownAdmission, shard: ShardId) -> v1::KnownCall {
    let (holds, grant) = match known.holds {
        Holds::Nothing => (v1::Holding::Nothing, None),
        Holds::Place => (v1::Holding::Place, None),
        Holds::Grant(id) => (v1::Holding::Grant, Some(id)),
        Holds::EndedGrant(id) => (v1::Holding::EndedGrant, Some(id)),
        Holds::Charge => (v1::Holding::Charge, None),
    };
    v1::KnownCall {
        attempt: known.attempt,
        ask: known.ask,
        holds: holds.into(),
        grant: grant.map(|id| grant::write(id, shard)),
    }
}

fn write_limit(limit: &LimitAhead) -> v1::LimitAhead {
    v1::LimitAhead {
        name: limit.name.to_string(),
        dimension: limit.dimension.to_string(),
        cap: limit.cap,
        used: limit.used,
        ahead: limit.ahead,
        cost: limit.cost,
        earliest_in_us: limit.earliest_in,
    }
}

fn write_priority(priority: &PriorityAhead) -> v1::PriorityAhead {
    v1::PriorityAhead {
        name: priority.name.to_string(),
        waiting: priority.waiting,
        ahead: priority.ahead,
        share_ns: priority.share_ns,
    }
}
