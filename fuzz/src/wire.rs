//! Operations as a client writes them.

use std::collections::BTreeMap;
use weir_admission::{
    Amounts, CallOutcome, GrantId, Operation, Report, ShardId, TargetName, shard_of,
};
use weir_proto::v1;
use weir_proto::v1::session_operation::Operation as Wire;

/// Shards of the cluster that is spoken to.
pub const SHARDS: u32 = 3;

/// What a client sends for an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// In a session, or as a unary call.
    Session(Wire),
    /// From an operator.
    Put(v1::PutTargetRequest),
    /// From an operator.
    Delete(v1::DeleteTargetRequest),
}

/// The request for an operation; `None` if clients send none, or could not send this one. Labels are left
/// out: an operation holds only their digest.
pub fn request(operation: &Operation) -> Option<Request> {
    Some(match operation {
        Operation::Admit(admit) => Request::Session(Wire::Admit(v1::AdmitRequest {
            target: admit.target.to_string(),
            tenant: admit.tenant.to_string(),
            priority: admit.priority.to_string(),
            admission_id: text(&admit.admission_id)?,
            attempt: admit.attempt,
            ask: admit.ask,
            cost: amounts(&admit.cost),
            cost_max: amounts(&admit.cost_max),
            labels: BTreeMap::new(),
            deadline_us: admit.deadline.unwrap_or(0),
            dry_run: admit.dry_run,
            wake: admit.wake,
        })),
        Operation::Release(release) => {
            let (outcome, retry_after_us) = outcome(release.outcome);
            Request::Session(Wire::Release(v1::ReleaseRequest {
                target: release.target.to_string(),
                grant: grant(release.grant, &release.target),
                actual: amounts(&release.actual),
                outcome: outcome.into(),
                retry_after_us,
                throttled_dimension: String::new(),
            }))
        }
        Operation::Cancel(cancel) => Request::Session(Wire::Cancel(v1::CancelRequest {
            target: cancel.target.to_string(),
            tenant: cancel.tenant.to_string(),
            admission_id: text(&cancel.admission_id)?,
            attempt: cancel.attempt,
            ask: cancel.ask,
        })),
        Operation::Extend(extend) => Request::Session(Wire::Extend(v1::ExtendRequest {
            target: extend.target.to_string(),
            grant: grant(extend.grant, &extend.target),
        })),
        Operation::Report(report) => Request::Session(Wire::Report(ungated(report)?)),
        Operation::PutPolicy(put) => Request::Put(v1::PutTargetRequest {
            target: put.target.to_string(),
            policy: Some(weir_proto::convert::policy::write(&put.policy)),
            expected_version: put.expected_version,
        }),
        Operation::DeletePolicy(delete) => Request::Delete(v1::DeleteTargetRequest {
            target: delete.target.to_string(),
            expected_version: delete.expected_version,
        }),
        Operation::Unwake(_) | Operation::Seed(_) => return None,
    })
}

fn ungated(report: &Report) -> Option<v1::UngatedCall> {
    Some(v1::UngatedCall {
        target: report.target.to_string(),
        tenant: report.tenant.to_string(),
        priority: report.priority.to_string(),
        admission_id: text(&report.admission_id)?,
        attempt: report.attempt,
        actual: amounts(&report.actual),
        age_us: report.age,
    })
}

fn text(id: &[u8]) -> Option<String> {
    String::from_utf8(id.to_vec()).ok()
}

fn amounts(amounts: &Amounts) -> BTreeMap<String, u64> {
    let pairs = amounts.iter();
    pairs
        .map(|(name, units)| (name.to_string(), units))
        .collect()
}

fn grant(grant: GrantId, target: &TargetName) -> Option<v1::Grant> {
    let ShardId(shard) = shard_of(target, SHARDS);
    Some(v1::Grant {
        shard,
        index: grant.index,
        offset: grant.offset,
    })
}

fn outcome(outcome: CallOutcome) -> (v1::CallOutcome, u64) {
    match outcome {
        CallOutcome::Ok => (v1::CallOutcome::Ok, 0),
        CallOutcome::Throttled { retry_after } => (v1::CallOutcome::Throttled, retry_after),
        CallOutcome::Failed => (v1::CallOutcome::Failed, 0),
        CallOutcome::NotSent => (v1::CallOutcome::NotSent, 0),
    }
}
