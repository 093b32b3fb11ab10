//! What was decided, as a client hears it.

use crate::fixtures::amounts;
use weir_admission::{
    AdmitOutcome, Admitted, CancelOutcome, Deferred, ExtendOutcome, GrantId, LimitName, LimitUse,
    Outcome, PolicyOutcome, PriorityName, PriorityUse, Refusal, Rejected, ReleaseOutcome,
    ReportOutcome, ShardId, TargetName, TargetView,
};
use weir_proto::convert;
use weir_proto::error::{Reason, WireError};
use weir_proto::v1;
use weir_proto::v1::admit_response::Decision;

const SHARD: ShardId = ShardId(5);

fn target() -> TargetName {
    TargetName::new("openai/gpt-5").unwrap()
}

fn limit() -> LimitName {
    LimitName::new("rpm").unwrap()
}

fn answered(outcome: AdmitOutcome) -> v1::AdmitResponse {
    convert::admit::answer(Outcome::Admit(outcome), &target(), SHARD).unwrap()
}

#[test]
fn an_admission() {
    let admitted = |grant| Admitted {
        grant,
        start_in: 1,
        reply_window: 2,
        charged: amounts(&[("requests", 1), ("tokens", 9)]),
        policy_version: 3,
    };
    let expected = |grant| v1::AdmitResponse {
        policy_version: 3,
        decision: Some(Decision::Admitted(v1::Admitted {
            start_in_us: 1,
            reply_window_us: 2,
            grant,
            charged: [("requests".into(), 1), ("tokens".into(), 9)].into(),
        })),
    };
    let grant = GrantId {
        index: 7,
        offset: 8,
    };
    assert_eq!(
        answered(AdmitOutcome::Admitted(admitted(Some(grant)))),
        expected(Some(v1::Grant {
            shard: 5,
            index: 7,
            offset: 8
        }))
    );
    assert_eq!(
        answered(AdmitOutcome::Admitted(admitted(None))),
        expected(None)
    );
}

#[test]
fn a_deferral() {
    let deferred = |limit| Deferred {
        retry_in: 1,
        earliest_in: 2,
        place: 3,
        limit,
        place_until: 4,
        ticket: Some(5),
        policy_version: 5,
    };
    let expected = |limit: &str| v1::AdmitResponse {
        policy_version: 5,
        decision: Some(Decision::Deferred(v1::Deferred {
            retry_in_us: 1,
            earliest_in_us: 2,
            place: 3,
            limit: limit.into(),
            place_until_us: 4,
        })),
    };
    assert_eq!(
        answered(AdmitOutcome::Deferred(deferred(Some(limit())))),
        expected("rpm")
    );
    assert_eq!(
        answered(AdmitOutcome::Deferred(deferred(None))),
        expected("")
    );
}

#[test]
fn rejections() {
    let rejected = |rejected| match answered(AdmitOutcome::Rejected(rejected)).decision {
        Some(Decision::Rejected(rejected)) => rejected,
        other => panic!("{other:?}"),
    };
    let never = Rejected::NeverFits {
        limit: limit(),
        cap: 5,
        cost: 6,
        policy_version: 9,
    };
    assert_eq!(
        answered(AdmitOutcome::Rejected(never.clone())).policy_version,
        9
    );
    assert_eq!(
        rejected(never),
        v1::Rejected {
            reason: v1::RejectReason::NeverFits.into(),
            limit: "rpm".into(),
            message: "the cost of 6 is above the cap of 5 of limit \"rpm\"".into(),
            cap: 5,
            cost: 6,
            earliest_in_us: 0,
        }
    );
    let late = rejected(Rejected::Deadline { earliest_in: 77 });
    assert_eq!(
        (late.reason(), late.earliest_in_us),
        (v1::RejectReason::Deadline, 77)
    );
    let table = [
        (
            Rejected::QueueFull { tenant: false },
            v1::RejectReason::QueueFull,
        ),
        (
            Rejected::QueueFull { tenant: true },
            v1::RejectReason::TenantQueueFull,
        ),
        (Rejected::IdConflict, v1::RejectReason::IdConflict),
        (Rejected::Stale, v1::RejectReason::Stale),
    ];
    for (outcome, reason) in table {
        let rejected = rejected(outcome);
        assert_eq!(rejected.reason(), reason);
        assert!(!rejected.message.is_empty());
    }
}

#[test]
fn ends_of_grants() {
    use v1::{CancelStatus, ExtendStatus, ReleaseStatus};
    let release = |o| {
        convert::release::answer(Outcome::Release(o), &target())
            .unwrap()
            .status()
    };
    assert_eq!(release(ReleaseOutcome::Applied), ReleaseStatus::Applied);
    assert_eq!(release(ReleaseOutcome::Already), ReleaseStatus::Already);
    assert_eq!(release(ReleaseOutcome::Expired), ReleaseStatus::Expired);
    assert_eq!(release(ReleaseOutcome::Unknown), ReleaseStatus::Unknown);
    let cancel = |o| {
        convert::cancel::answer(Outcome::Cancel(o), &target())
            .unwrap()
            .status()
    };
    assert_eq!(
        cancel(CancelOutcome::PlaceDropped),
        CancelStatus::PlaceDropped
    );
    assert_eq!(
        cancel(CancelOutcome::GrantRefunded),
        CancelStatus::GrantRefunded
    );
    assert_eq!(cancel(CancelOutcome::Nothing), CancelStatus::Nothing);
    assert_eq!(cancel(CancelOutcome::Stale), CancelStatus::Stale);
    let extend = |o| convert::extend::answer(Outcome::Extend(o), &target()).unwrap();
    let extended = extend(ExtendOutcome::Extended { expires_in: 4 });
    assert_eq!(
        (extended.status(), extended.expires_in_us),
        (ExtendStatus::Extended, 4)
    );
    assert_eq!(extend(ExtendOutcome::Ended).status(), ExtendStatus::Ended);
    assert_eq!(
        extend(ExtendOutcome::Unknown).status(),
        ExtendStatus::Unknown
    );
}

#[test]
fn reported_calls() {
    let report = |o| convert::report::answer(o, &target()).unwrap();
    let table = [
        (
            Outcome::Report(ReportOutcome::Charged),
            v1::ReportStatus::Charged,
        ),
        (
            Outcome::Report(ReportOutcome::Settled),
            v1::ReportStatus::Settled,
        ),
        (
            Outcome::Report(ReportOutcome::Already),
            v1::ReportStatus::Already,
        ),
        (
            Outcome::Refused(Refusal::TargetUnknown),
            v1::ReportStatus::Dropped,
        ),
        (
            Outcome::Refused(Refusal::NotOwner),
            v1::ReportStatus::Dropped,
        ),
    ];
    for (outcome, status) in table {
        assert_eq!(report(outcome), status);
    }
}

fn refused(outcome: PolicyOutcome) -> WireError {
    convert::target::answer_put(Outcome::Policy(outcome), &target()).unwrap_err()
}

#[test]
fn changes_of_policy() {
    let put = Outcome::Policy(PolicyOutcome::Put {
        version: 3,
        changed: false,
    });
    let response = convert::target::answer_put(put, &target()).unwrap();
    assert_eq!(
        response,
        v1::PutTargetResponse {
            version: 3,
            changed: false
        }
    );
    let deleted = Outcome::Policy(PolicyOutcome::Deleted);
    convert::target::answer_delete(deleted, &target()).unwrap();

    let conflict = refused(PolicyOutcome::Conflict { version: 8 });
    assert_eq!(
        (conflict.reason, conflict.version),
        (Reason::VersionConflict, Some(8))
    );
    assert_eq!(
        refused(PolicyOutcome::Conflict { version: 0 }).version,
        Some(0)
    );
    assert_eq!(refused(PolicyOutcome::Full).reason, Reason::Full);
    let invalid = refused(PolicyOutcome::Invalid {
        violation: "limits[1].cap: must be".into(),
    });
    assert_eq!(invalid.reason, Reason::Malformed);
    assert_eq!(invalid.violations[0].field, "policy.limits[1].cap");
    assert_eq!(invalid.violations[0].description, "must be");
}

#[test]
fn refusals_and_answers_to_another_kind() {
    let refused = || Outcome::Refused(Refusal::TargetUnknown);
    let release = || Outcome::Release(ReleaseOutcome::Applied);
    let of_kind = |outcome: fn() -> Outcome| {
        [
            convert::admit::answer(outcome(), &target(), SHARD)
                .map(|_| ())
                .err(),
            convert::cancel::answer(outcome(), &target())
                .map(|_| ())
                .err(),
            convert::extend::answer(outcome(), &target())
                .map(|_| ())
                .err(),
            convert::target::answer_put(outcome(), &target())
                .map(|_| ())
                .err(),
            convert::target::answer_delete(outcome(), &target())
                .map(|_| ())
                .err(),
        ]
    };
    for error in of_kind(|| Outcome::Refused(Refusal::TargetUnknown)) {
        assert_eq!(error.unwrap().reason, Reason::TargetUnknown);
    }
    for error in of_kind(|| Outcome::Release(ReleaseOutcome::Applied)) {
        assert_eq!(error.unwrap().reason, Reason::Internal);
    }
    let error = convert::release::answer(refused(), &target()).unwrap_err();
    assert_eq!(error.resource.unwrap().name, "openai/gpt-5");
    let error = convert::report::answer(release(), &target()).unwrap_err();
    assert_eq!(error.reason, Reason::Internal);
    let deleted = Outcome::Policy(PolicyOutcome::Deleted);
    let error = convert::target::answer_put(deleted, &target()).unwrap_err();
    assert_eq!(error.reason, Reason::Internal);
}

#[test]
fn a_target_as_seen() {
    let view = TargetView {
        name: target(),
        version: 2,
        policy: crate::fixtures::put_policy().policy,
        limits: vec![LimitUse {
            name: limit(),
            used: 3,
            cap: 500,
            guard: 4,
        }],
        priorities: vec![PriorityUse {
            name: PriorityName::new("batch").unwrap(),
            waiting: 1,
            admitted: 2,
            deferred: 3,
            rejected: 4,
            throttled: 5,
            served_ns: 6,
        }],
        tenants: 7,
        grants: 8,
        waiting: 9,
        held_for: 10,
    };
    let expected = v1::Target {
        name: "openai/gpt-5".into(),
        version: 2,
        policy: Some(convert::policy::write(&view.policy)),
        shard: 5,
        limits: vec![v1::LimitUse {
            name: "rpm".into(),
            used: 3,
            cap: 500,
            guard_us: 4,
        }],
        priorities: vec![v1::PriorityUse {
            name: "batch".into(),
            waiting: 1,
            admitted: 2,
            deferred: 3,
            rejected: 4,
            throttled: 5,
            served_ns: 6,
        }],
        tenants: 7,
        grants: 8,
        waiting: 9,
        held_for_us: 10,
    };
    assert_eq!(convert::target::write(&view, SHARD), expected);
}
