//! Hellos, frames, single operations, and errors as answers.

use crate::{generate, wire};
use proptest::prelude::*;
use weir_admission::{
    AdmitOutcome, CallOutcome, Operation, Outcome, Principal, Refusal, Rejected, Release,
    ReleaseOutcome, ReportOutcome, ShardId, TargetName,
};
use weir_proto::convert::session::{self, Kind};
use weir_proto::convert::{self, Caller, Violations};
use weir_proto::error::{Reason, WireError};
use weir_proto::limits::FRAME_OPERATIONS_MAX;
use weir_proto::v1;
use weir_proto::v1::session_answer::Answer;
use weir_proto::v1::session_operation::Operation as Wire;

const SHARDS: u32 = 16;

fn caller(principal: &Principal) -> Caller<'_> {
    Caller {
        principal,
        shards: SHARDS,
        wakes: true,
    }
}

fn said(violations: &Violations) -> Vec<String> {
    violations
        .told()
        .iter()
        .map(|v| format!("{} {}", v.field, v.description))
        .collect()
}

fn hello() -> v1::ClientHello {
    v1::ClientHello {
        protocol_version: 1,
        instance: 7,
        name: "worker".into(),
        features: vec!["wakes".into()],
    }
}

#[test]
fn every_rule_of_a_hello() {
    type Case = (fn(&mut v1::ClientHello), &'static [&'static str]);
    const NAME: &str = "hello.name must be at most 128 bytes without control characters";
    let cases: &[Case] = &[
        (|_| {}, &[]),
        (|h| h.name.clear(), &[]),
        (
            |h| h.protocol_version = 0,
            &["hello.protocol_version must be 1, the only version that this node speaks, is 0"],
        ),
        (
            |h| h.protocol_version = 2,
            &["hello.protocol_version must be 1, the only version that this node speaks, is 2"],
        ),
        (
            |h| h.instance = 0,
            &["hello.instance must be chosen at random and not be 0"],
        ),
        (|h| h.name = "x".repeat(129), &[NAME]),
        (|h| h.name = "a\nb".into(), &[NAME]),
        (
            |h| h.features = vec!["f".into(); 33],
            &["hello.features must be at most 32, are 33"],
        ),
        (
            |h| h.features.push(String::new()),
            &["hello.features[1] must be 1-128 bytes"],
        ),
        (
            |h| h.features.push("f".repeat(129)),
            &["hello.features[1] must be 1-128 bytes"],
        ),
    ];
    for (i, (change, expected)) in cases.iter().enumerate() {
        let mut hello = hello();
        change(&mut hello);
        let told = session::read_hello(hello).map_or_else(|v| said(&v), |_| Vec::new());
        assert_eq!(told, *expected, "case {i}");
    }
}

fn frame(sequences: &[u64]) -> v1::ClientFrame {
    let operation = |sequence: &u64| v1::SessionOperation {
        sequence: *sequence,
        ..v1::SessionOperation::default()
    };
    v1::ClientFrame {
        operations: sequences.iter().map(operation).collect(),
    }
}

#[test]
fn sequences_rise() {
    let full: Vec<u64> = (1..=256).collect();
    let over: Vec<u64> = (1..=257).collect();
    let cases: &[(&[u64], u64, Result<u64, &str>)] = &[
        (&[1], 0, Ok(1)),
        (&[1, 2, 900, u64::MAX], 0, Ok(u64::MAX)),
        (&[8], 7, Ok(8)),
        (&full, 0, Ok(256)),
        (
            &[0],
            0,
            Err("frame.operations[0].sequence must be above 0, the highest one before it"),
        ),
        (
            &[7],
            7,
            Err("frame.operations[0].sequence must be above 7, the highest one before it"),
        ),
        (
            &[1, 3, 3, 4],
            0,
            Err("frame.operations[2].sequence must be above 3, the highest one before it"),
        ),
        (
            &[1, u64::MAX, 3],
            0,
            Err(
                "frame.operations[2].sequence must be above 18446744073709551615, the highest one before it",
            ),
        ),
        (&[], 0, Err("frame.operations must be 1 to 256, are 0")),
        (&over, 0, Err("frame.operations must be 1 to 256, are 257")),
    ];
    assert_eq!(full.len(), FRAME_OPERATIONS_MAX);
    for (sequences, last, expected) in cases {
        let checked = session::check_frame(&frame(sequences), *last);
        let told = checked.map_err(|violations| said(&violations).join("; "));
        assert_eq!(told, expected.map_err(str::to_owned), "{sequences:?}");
    }
}

/// What a session reads is what the unary call reads, and what it refuses is refused alike.
fn agree<R, T: PartialEq + std::fmt::Debug>(
    request: R,
    unary: impl Fn(R, Caller<'_>) -> Result<T, Violations>,
    wire: impl Fn(R) -> Wire,
    domain: impl Fn(T) -> Operation,
) -> Result<(), TestCaseError>
where
    R: Clone,
{
    let principal = Principal::new("anonymous").unwrap();
    let unary = unary(request.clone(), caller(&principal)).map(domain);
    let session = session::read_operation(Some(wire(request)), caller(&principal));
    prop_assert_eq!(session, unary);
    Ok(())
}

proptest! {
    #[test]
    fn operations_are_read_as_in_unary_calls(
        admit in generate::admit(),
        release in generate::release(),
        cancel in generate::ask_name(),
        spoil in any::<bool>(),
    ) {
        let mut ask = wire::admit(&admit, Default::default());
        let mut end = wire::release(&release, SHARDS);
        let mut gone = wire::cancel(&cancel);
        if spoil {
            ask.cost.insert("\n".into(), 1);
            (end.grant, gone.ask) = (None, 0);
        }
        agree(ask, convert::admit::read, Wire::Admit, |it| Operation::Admit(Box::new(it)))?;
        agree(end, convert::release::read, Wire::Release, |it| Operation::Release(Box::new(it)))?;
        agree(gone, convert::cancel::read, Wire::Cancel, |it| Operation::Cancel(Box::new(it)))?;
    }

    #[test]
    fn errors_come_back(error in crate::errors::wire_error()) {
        // No operation of a session is about a version.
        let error = WireError { version: None, ..error };
        let told = error.clone().to_session();
        prop_assert_eq!(told.code, i32::from(error.reason.code()));
        prop_assert_eq!(WireError::from_session(told), Some(error));
    }
}

#[test]
fn a_reason_of_later_is_known_by_its_code() {
    let error = v1::SessionError {
        reason: "A_REASON_OF_LATER".into(),
        ..WireError::new(Reason::NotLeader, "x").to_session()
    };
    assert_eq!(error.code, i32::from(tonic::Code::Unavailable));
    assert_eq!(WireError::from_session(error), None);
}

#[test]
fn an_operation_that_is_none_is_refused() {
    let principal = Principal::new("anonymous").unwrap();
    let refused = session::read_operation(None, caller(&principal)).unwrap_err();
    assert_eq!(
        said(&refused),
        ["operation must be one that this node knows"]
    );
}

#[test]
fn wakes_are_for_sessions() {
    let ask = |dry_run| v1::AdmitRequest {
        target: "t".into(),
        tenant: "acme".into(),
        priority: "p1".into(),
        admission_id: "id".into(),
        attempt: 1,
        ask: 1,
        cost: [("requests".to_owned(), 1)].into(),
        wake: true,
        dry_run,
        ..v1::AdmitRequest::default()
    };
    let principal = Principal::new("anonymous").unwrap();
    let unary = Caller {
        wakes: false,
        ..caller(&principal)
    };
    assert!(convert::admit::read(ask(false), caller(&principal)).is_ok());
    let refused = convert::admit::read(ask(false), unary).unwrap_err();
    assert_eq!(said(&refused), ["wake must be false outside of a session"]);
    let refused = convert::admit::read(ask(true), caller(&principal)).unwrap_err();
    assert_eq!(said(&refused), ["wake must be false with dry_run"]);
}

#[test]
fn answers_are_those_of_unary_calls() {
    let target = TargetName::new("t").unwrap();
    let stale = || Outcome::Admit(AdmitOutcome::Rejected(Rejected::Stale));
    let unary = convert::admit::answer(stale(), &target, ShardId(3)).unwrap();
    assert_eq!(
        session::answer(Kind::Admit, stale(), &target, ShardId(3)),
        Ok(Answer::Admit(unary))
    );
    let report = Outcome::Report(ReportOutcome::Already);
    let statuses = vec![v1::ReportStatus::Already.into()];
    assert_eq!(
        session::answer(Kind::Report, report, &target, ShardId(3)),
        Ok(Answer::Report(v1::ReportResponse { statuses }))
    );
    let refused = || Outcome::Refused(Refusal::TargetUnknown);
    let unary = convert::release::answer(refused(), &target).unwrap_err();
    assert_eq!(
        session::answer(Kind::Release, refused(), &target, ShardId(3)),
        Err(unary)
    );
    // An outcome of another kind is a fault of ours, not an answer.
    let wrong = Outcome::Release(ReleaseOutcome::Applied);
    let error = session::answer(Kind::Extend, wrong, &target, ShardId(3)).unwrap_err();
    assert_eq!(error.reason, Reason::Internal);
}

#[test]
fn a_release_is_read() {
    let principal = Principal::new("anonymous").unwrap();
    let release = Release {
        target: TargetName::new("t").unwrap(),
        principal: principal.clone(),
        grant: weir_admission::GrantId {
            index: 3,
            offset: 4,
        },
        actual: weir_admission::Amounts::default(),
        outcome: CallOutcome::NotSent,
    };
    let request = Some(Wire::Release(wire::release(&release, SHARDS)));
    let read = session::read_operation(request, caller(&principal));
    assert_eq!(read, Ok(Operation::Release(Box::new(release))));
}
