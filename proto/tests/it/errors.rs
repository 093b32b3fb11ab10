//! The error table, and errors on their way to a client and back.

use crate::{generate, golden};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::fmt::Write as _;
use std::time::Duration;
use weir_admission::{Refusal, TargetName, Violation};
use weir_proto::error::{DOMAIN, LeaderHint, Reason, Resource, WireError};

#[test]
fn the_table_is_as_published() {
    let mut table = String::from("# reason | gRPC code | retry | may have happened\n");
    for reason in Reason::ALL {
        let happened = if reason.may_have_happened() {
            "yes"
        } else {
            "no"
        };
        let row = (reason.as_str(), reason.code(), reason.retry());
        writeln!(table, "{} | {:?} | {:?} | {happened}", row.0, row.1, row.2).unwrap();
    }
    golden::check("golden/errors.txt", &table);
}

#[test]
fn every_name_is_read_back() {
    for reason in Reason::ALL {
        assert_eq!(Reason::from_name(reason.as_str()), Some(*reason));
    }
    assert_eq!(Reason::from_name("NOT_LEADERS"), None);
}

fn text() -> impl Strategy<Value = String> {
    "\\P{C}{1,40}"
}

pub(crate) fn wire_error() -> impl Strategy<Value = WireError> {
    let violation =
        (text(), text()).prop_map(|(field, description)| Violation { field, description });
    let leader = (any::<u64>(), text())
        .prop_map(|(node_id, address)| Box::new(LeaderHint { node_id, address }));
    let resource = (text(), text()).prop_map(|(kind, name)| Box::new(Resource { kind, name }));
    (
        prop::sample::select(Reason::ALL),
        text(),
        vec(violation, 0..4),
        option::of(leader),
        option::of((0..1_000_000_000_u64).prop_map(Duration::from_micros)),
        option::of(resource),
        option::of(any::<u64>()),
    )
        .prop_map(
            |(reason, message, violations, leader, retry_after, resource, version)| WireError {
                reason,
                message,
                violations,
                leader,
                retry_after,
                resource,
                version,
            },
        )
}

proptest! {
    #[test]
    fn errors_come_back(error in wire_error()) {
        let status = error.to_status();
        prop_assert_eq!(status.code(), error.reason.code());
        prop_assert_eq!(WireError::from_status(&status), Some(error));
    }

    #[test]
    fn details_that_nobody_wrote_are_no_error_of_ours(details in vec(any::<u8>(), 0..200)) {
        let status = tonic::Status::with_details(tonic::Code::Unavailable, "", details.into());
        prop_assert_eq!(WireError::from_status(&status), None);
    }

    #[test]
    fn refusals_name_their_field(
        target in generate::target(),
        priority in generate::priority(),
        dimension in generate::dimension(),
    ) {
        let error = |refusal| WireError::from_refusal(refusal, &target, "actual");
        let unknown = error(Refusal::TargetUnknown);
        prop_assert_eq!(unknown.reason, Reason::TargetUnknown);
        prop_assert_eq!(unknown.resource.unwrap().name, target.as_str());
        let unknown = error(Refusal::PriorityUnknown(priority));
        prop_assert_eq!(unknown.reason, Reason::PriorityUnknown);
        prop_assert_eq!(&unknown.violations[0].field, "priority");
        let field = format!("actual[{dimension:?}]");
        let unknown = error(Refusal::DimensionUnknown(dimension));
        prop_assert_eq!(unknown.reason, Reason::DimensionUnknown);
        prop_assert_eq!(&unknown.violations[0].field, &field);
    }
}

#[test]
fn the_rules_own_refusals_are_told_in_full() {
    let target = TargetName::new("t").unwrap();
    let malformed = Refusal::Malformed {
        field: "ask",
        rule: "must be at least 1",
    };
    let error = WireError::from_refusal(malformed, &target, "cost");
    assert_eq!(error.to_string(), "MALFORMED: ask must be at least 1");
    assert_eq!(error.to_status().code(), tonic::Code::InvalidArgument);
    let error = WireError::from_refusal(Refusal::NotOwner, &target, "cost");
    assert_eq!(error.to_status().code(), tonic::Code::PermissionDenied);
}

#[test]
fn a_status_of_somebody_else_is_not_read_as_ours() {
    use tonic_types::{ErrorDetails, StatusExt};
    let other = |reason: &str, domain: &str| {
        let details =
            ErrorDetails::with_error_info(reason, domain, [("leader_id".into(), "1".into())]);
        tonic::Status::with_error_details(tonic::Code::Unavailable, "no", details)
    };
    assert_eq!(
        WireError::from_status(&tonic::Status::unavailable("tcp")),
        None
    );
    assert_eq!(
        WireError::from_status(&other("NOT_LEADER", "googleapis.com")),
        None
    );
    assert_eq!(
        WireError::from_status(&other("A_REASON_OF_LATER", DOMAIN)),
        None
    );
    let half = WireError::from_status(&other("NOT_LEADER", DOMAIN)).unwrap();
    assert_eq!(half.leader, None, "a hint without an address is no hint");
}

#[test]
fn a_leader_hint_travels() {
    let leader = LeaderHint {
        node_id: 2,
        address: "10.0.0.2:7400".into(),
    };
    let error = WireError::not_leader(Some(leader.clone()));
    let read = WireError::from_status(&error.to_status()).unwrap();
    assert_eq!(read.leader.as_deref(), Some(&leader));
    assert_eq!(
        read.to_string(),
        "NOT_LEADER: node 2 at 10.0.0.2:7400 leads"
    );
}
