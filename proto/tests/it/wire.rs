//! Requests as a client writes them, and hostile ones.

use crate::generate;
use proptest::collection::btree_map;
use proptest::prelude::*;
use prost::Message;
use std::collections::BTreeMap;
use weir_admission::limits::LABELS_MAX;
use weir_admission::{
    Admit, Amounts, AskName, CallOutcome, DeletePolicy, Extend, GrantId, Principal, PutPolicy,
    Release, Report, ShardId, TargetName, shard_of,
};
use weir_proto::convert::{self, Caller};
use weir_proto::v1;

/// Valid labels.
pub(crate) fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(generate::name(), "[a-z0-9]{0,128}", 0..=LABELS_MAX)
}

fn text(id: &[u8]) -> String {
    String::from_utf8(id.to_vec()).unwrap()
}

fn amounts(amounts: &Amounts) -> BTreeMap<String, u64> {
    amounts
        .iter()
        .map(|(name, units)| (name.to_string(), units))
        .collect()
}

fn grant(grant: GrantId, target: &TargetName, shards: u32) -> Option<v1::Grant> {
    let ShardId(shard) = shard_of(target, shards);
    Some(v1::Grant {
        shard,
        index: grant.index,
        offset: grant.offset,
    })
}

pub(crate) fn admit(admit: &Admit, labels: BTreeMap<String, String>) -> v1::AdmitRequest {
    v1::AdmitRequest {
        target: admit.target.to_string(),
        tenant: admit.tenant.to_string(),
        priority: admit.priority.to_string(),
        admission_id: text(&admit.admission_id),
        attempt: admit.attempt,
        ask: admit.ask,
        cost: amounts(&admit.cost),
        cost_max: amounts(&admit.cost_max),
        labels,
        deadline_us: admit.deadline.unwrap_or(0),
        dry_run: admit.dry_run,
        wake: admit.wake,
    }
}

pub(crate) fn release(release: &Release, shards: u32) -> v1::ReleaseRequest {
    let (outcome, retry_after_us) = match release.outcome {
        CallOutcome::Ok => (v1::CallOutcome::Ok, 0),
        CallOutcome::Throttled { retry_after } => (v1::CallOutcome::Throttled, retry_after),
        CallOutcome::Failed => (v1::CallOutcome::Failed, 0),
        CallOutcome::NotSent => (v1::CallOutcome::NotSent, 0),
    };
    v1::ReleaseRequest {
        target: release.target.to_string(),
        grant: grant(release.grant, &release.target, shards),
        actual: amounts(&release.actual),
        outcome: outcome.into(),
        retry_after_us,
        throttled_dimension: String::new(),
    }
}

pub(crate) fn cancel(cancel: &AskName) -> v1::CancelRequest {
    v1::CancelRequest {
        target: cancel.target.to_string(),
        tenant: cancel.tenant.to_string(),
        admission_id: text(&cancel.admission_id),
        attempt: cancel.attempt,
        ask: cancel.ask,
    }
}

pub(crate) fn extend(extend: &Extend, shards: u32) -> v1::ExtendRequest {
    v1::ExtendRequest {
        target: extend.target.to_string(),
        grant: grant(extend.grant, &extend.target, shards),
    }
}

pub(crate) fn report(reports: &[Report]) -> v1::ReportRequest {
    let call = |report: &Report| v1::UngatedCall {
        target: report.target.to_string(),
        tenant: report.tenant.to_string(),
        priority: report.priority.to_string(),
        admission_id: text(&report.admission_id),
        attempt: report.attempt,
        actual: amounts(&report.actual),
        age_us: report.age,
    };
    v1::ReportRequest {
        calls: reports.iter().map(call).collect(),
    }
}

pub(crate) fn put(put: &PutPolicy) -> v1::PutTargetRequest {
    v1::PutTargetRequest {
        target: put.target.to_string(),
        policy: Some(convert::policy::write(&put.policy)),
        expected_version: put.expected_version,
    }
}

pub(crate) fn delete(delete: &DeletePolicy) -> v1::DeleteTargetRequest {
    v1::DeleteTargetRequest {
        target: delete.target.to_string(),
        expected_version: delete.expected_version,
    }
}

/// A small valid policy.
pub(crate) fn policy() -> v1::Policy {
    v1::Policy {
        limits: vec![limit("rps"), limit("rpm")],
        priorities: vec![v1::Priority {
            name: "p1".into(),
            weight: 1,
        }],
        ..v1::Policy::default()
    }
}

fn limit(name: &str) -> v1::Limit {
    v1::Limit {
        name: name.into(),
        dimension: "requests".into(),
        cap: 10,
        per_us: 1_000_000,
        kind: v1::LimitKind::Sliding.into(),
        enforced_by: v1::EnforcedBy::Provider.into(),
        ..v1::Limit::default()
    }
}

/// Takes bytes for every request there is.
pub(crate) fn read_as_anything(bytes: &[u8]) {
    let principal = Principal::new("anonymous").unwrap();
    let caller = Caller {
        principal: &principal,
        shards: 3,
        wakes: true,
    };
    let _ = v1::AdmitRequest::decode(bytes).map(|m| convert::admit::read(m, caller));
    let _ = v1::ReleaseRequest::decode(bytes).map(|m| convert::release::read(m, caller));
    let _ = v1::CancelRequest::decode(bytes).map(|m| convert::cancel::read(m, caller));
    let _ = v1::ExtendRequest::decode(bytes).map(|m| convert::extend::read(&m, caller));
    let _ = v1::ReportRequest::decode(bytes).map(|m| convert::report::read(m, caller));
    let _ = v1::SessionRequest::decode(bytes).map(|m| read_session(m, caller));
    let _ = v1::PutTargetRequest::decode(bytes).map(|m| convert::target::read_put(&m, caller));
    let _ = v1::ListVersionsRequest::decode(bytes).map(|m| convert::target::read_versions(&m));
    let _ = v1::ExplainRequest::decode(bytes)
        .map(|m| convert::explain::read(m, || "new".into(), caller));
    let _ = v1::GetTargetRequest::decode(bytes).map(|m| convert::target::read_get(&m));
    let _ = v1::DeleteTargetRequest::decode(bytes).map(|m| convert::target::read_delete(&m));
}

fn read_session(request: v1::SessionRequest, caller: Caller<'_>) {
    match request.message {
        Some(v1::session_request::Message::Hello(hello)) => {
            let _ = convert::session::read_hello(hello);
        }
        Some(v1::session_request::Message::Frame(frame)) => {
            let _ = convert::session::check_frame(&frame, 7);
            for operation in frame.operations {
                let _ = convert::session::read_operation(operation.operation, caller);
            }
        }
        None => {}
    }
}
