//! Asks.

use super::fields::Fields;
use super::{Caller, Violations, amounts, grant, labels, outcome};
use crate::error::WireError;
use crate::v1;
use v1::admit_response::Decision;
use weir_admission::{
    Admit, AdmitOutcome, Admitted, Deferred, LimitName, Outcome, Rejected, ShardId, TargetName,
};

/// Reads an ask.
///
/// # Errors
/// Every field that breaks a rule.
pub fn read(request: v1::AdmitRequest, caller: Caller<'_>) -> Result<Admit, Violations> {
    let mut fields = Fields::new();
    let target = fields.name("target", &request.target);
    let tenant = fields.name("tenant", &request.tenant);
    let priority = fields.name("priority", &request.priority);
    let admission_id = fields.admission_id(request.admission_id);
    let attempt = fields.attempt(request.attempt);
    let ask = fields.ask(request.ask);
    let cost = amounts::read(&mut fields, "cost", &request.cost);
    let cost_max = amounts::read(&mut fields, "cost_max", &request.cost_max);
    if let (Some(cost), Some(cost_max)) = (&cost, &cost_max) {
        amounts::check_cost(&mut fields, cost, cost_max);
    }
    let labels_digest = labels::read(&mut fields, &request.labels);
    let deadline_us = fields.duration("deadline_us", request.deadline_us);
    if request.wake && !caller.wakes {
        fields.refuse("wake", "must be false outside of a session");
    } else if request.wake && request.dry_run {
        fields.refuse("wake", "must be false with dry_run");
    }
    let admit = || {
        Some(Admit {
            target: target?,
            tenant: tenant?,
            principal: caller.principal.clone(),
            priority: priority?,
            admission_id: admission_id?,
            attempt,
            ask,
            cost: cost?,
            cost_max: cost_max?,
            labels_digest,
            deadline: (deadline_us > 0).then_some(deadline_us),
            dry_run: request.dry_run,
            wake: request.wake,
        })
    };
    fields.finish(admit())
}

/// The response to an ask about `target`, decided by `shard`.
///
/// # Errors
/// The refusal, if the rules refused the operation.
pub fn answer(
    outcome: Outcome,
    target: &TargetName,
    shard: ShardId,
) -> Result<v1::AdmitResponse, WireError> {
    let Outcome::Admit(decided) = outcome else {
        return Err(outcome::error(outcome, target, "cost"));
    };
    let (decision, policy_version) = match decided {
        AdmitOutcome::Admitted(admitted) => {
            let version = admitted.policy_version;
            (
                Decision::Admitted(write_admitted(&admitted, shard)),
                version,
            )
        }
        AdmitOutcome::Deferred(deferred) => {
            let version = deferred.policy_version;
            (Decision::Deferred(write_deferred(&deferred)), version)
        }
        AdmitOutcome::Rejected(rejected) => {
            let version = version_of(&rejected);
            (Decision::Rejected(write_rejected(&rejected)), version)
        }
    };
    Ok(v1::AdmitResponse {
        policy_version,
        decision: Some(decision),
    })
}

fn write_admitted(admitted: &Admitted, shard: ShardId) -> v1::Admitted {
    v1::Admitted {
        start_in_us: admitted.start_in,
        reply_window_us: admitted.reply_window,
        grant: admitted.grant.map(|id| grant::write(id, shard)),
        charged: amounts::write(&admitted.charged),
    }
}

fn write_deferred(deferred: &Deferred) -> v1::Deferred {
    v1::Deferred {
        retry_in_us: deferred.retry_in,
        earliest_in_us: deferred.earliest_in,
        place: deferred.place,
        limit: deferred
            .limit
            .as_ref()
            .map(LimitName::to_string)
            .unwrap_or_default(),
        place_until_us: deferred.place_until,
    }
}

fn version_of(rejected: &Rejected) -> u64 {
    match rejected {
        Rejected::NeverFits { policy_version, .. } => *policy_version,
        Rejected::QueueFull { .. }
        | Rejected::Deadline { .. }
        | Rejected::IdConflict
        | Rejected::Stale => 0,
    }
}

fn write_rejected(rejected: &Rejected) -> v1::Rejected {
    let told = |reason: v1::RejectReason, message: &str| v1::Rejected {
        reason: reason.into(),
        message: message.to_owned(),
        ..v1::Rejected::default()
    };
    match rejected {
        Rejected::NeverFits {
            limit,
            cap,
            cost,
            policy_version: _,
        } => {
            let message =
                format!("the cost of {cost} is above the cap of {cap} of limit {limit:?}");
            v1::Rejected {
                limit: limit.to_string(),
                cap: *cap,
                cost: *cost,
                ..told(v1::RejectReason::NeverFits, &message)
            }
        }
        Rejected::QueueFull { tenant: false } => told(
            v1::RejectReason::QueueFull,
            "too many calls wait at this target",
        ),
        Rejected::QueueFull { tenant: true } => told(
            v1::RejectReason::TenantQueueFull,
            "too many calls of this tenant wait at this target",
        ),
        Rejected::Deadline { earliest_in } => v1::Rejected {
            earliest_in_us: *earliest_in,
            ..told(
                v1::RejectReason::Deadline,
                "the earliest start is after the deadline",
            )
        },
        Rejected::IdConflict => told(
            v1::RejectReason::IdConflict,
            "the admission id stands for another call: priority, costs or labels differ",
        ),
        Rejected::Stale => told(
            v1::RejectReason::Stale,
            "a newer ask or attempt was seen, or the same answer can no longer be used",
        ),
    }
}
