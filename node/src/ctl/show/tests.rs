//! Every answer as it is printed, against files. `WEIR_GOLDEN=write cargo test` writes them anew.

use super::*;
use crate::ctl::apply::{Applied, Planned, Version};
use crate::ctl::diff::changes;
use crate::ctl::history::{By, Range};
use crate::ctl::watch::{Row, Seen};
use std::path::PathBuf;
use weir_client::TargetList;
use weir_proto::v1 as wire;
use weir_proto::v1::admit_response::Decision;

fn check(name: &str, actual: &str) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("src/ctl/show/golden")
        .join(name);
    if std::env::var("WEIR_GOLDEN").is_ok_and(|mode| mode == "write") {
        std::fs::write(&file, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    assert_eq!(actual, expected, "{}", file.display());
}

fn check_both(name: &str, render: impl Fn(Form) -> String) {
    check(&format!("{name}.txt"), &render(Form::Table));
    check(&format!("{name}.json"), &render(Form::Json));
}

fn group(shard: u32, role: wire::GroupRole, applied: u64, digest: &str) -> wire::GroupStatus {
    wire::GroupStatus {
        shard,
        role: role.into(),
        leader: if shard == 2 { 0 } else { 1 },
        term: 3,
        last_log_index: applied + 1,
        applied_index: applied,
        snapshot_index: 100,
        purged_index: 50,
        voters: vec![1, 2, 3],
        digest: digest.into(),
        targets: u64::from(shard) + 1,
    }
}

fn node(node_id: u64, groups: Vec<wire::GroupStatus>) -> wire::NodeStatus {
    wire::NodeStatus {
        node_id,
        address: format!("127.0.0.1:74{node_id}0"),
        peer_address: format!("127.0.0.1:74{node_id}1"),
        reachable: !groups.is_empty(),
        version: if groups.is_empty() {
            String::new()
        } else {
            "0.1.0".into()
        },
        uptime_us: if groups.is_empty() { 0 } else { 7_384_000_001 },
        drained: node_id == 2,
        refused_by: Vec::new(),
        groups,
    }
}

fn cluster() -> wire::StatusResponse {
    use wire::GroupRole::{Candidate, Follower, Leader};
    wire::StatusResponse {
        cluster_id: "00112233445566778899aabbccddeeff".into(),
        shards: 3,
        nodes: vec![
            node(
                1,
                vec![
                    group(0, Leader, 120, "aa"),
                    group(1, Leader, 7, "bb"),
                    group(2, Candidate, 9, "cc"),
                ],
            ),
            node(
                2,
                vec![
                    group(0, Follower, 119, "a9"),
                    group(1, Follower, 7, "b0"),
                    group(2, Candidate, 9, "cc"),
                ],
            ),
            node(3, Vec::new()),
        ],
    }
}

fn a_policy() -> wire::Policy {
    let text = r#"
        [[target]]
        name = "openai/gpt-5"
        reply_window = "100ms"
        tenant_weights = { acme = 300, zeta = 50 }
        [[target.limit]]
        name = "rpm"
        dimension = "requests"
        cap = 600
        per = "60s"
        [[target.limit]]
        name = "daily"
        dimension = "tokens"
        cap = 400_000_000
        per = "1d"
        kind = "bucket"
        enforced_by = "us"
        burst = "2h"
        [[target.priority]]
        name = "interactive"
        weight = 600
        [[target.priority]]
        name = "batch"
        weight = 100
    "#;
    let [target] = crate::ctl::policy_file::parse(text)
        .unwrap()
        .try_into()
        .unwrap();
    // As the cluster tells it: every default spelled out.
    weir_proto::convert::policy::write(&weir_proto::convert::policy::read(&target.policy).unwrap())
}

fn a_target() -> wire::Target {
    let limit = |name: &str, used, cap, guard_us| wire::LimitUse {
        name: name.into(),
        used,
        cap,
        guard_us,
    };
    let priority = |name: &str, waiting| wire::PriorityUse {
        name: name.into(),
        waiting,
        admitted: 1_234,
        deferred: 99,
        rejected: 2,
        throttled: 1,
        served_ns: 61_500_000_000,
    };
    wire::Target {
        name: "openai/gpt-5".into(),
        version: 4,
        policy: Some(a_policy()),
        shard: 2,
        limits: vec![
            limit("rpm", 412, 600, 262_000),
            limit("daily", 1_200_000, 400_000_000, 0),
        ],
        priorities: vec![priority("interactive", 0), priority("batch", 17)],
        tenants: 6,
        grants: 12,
        waiting: 17,
        held_for_us: 1_500_000,
    }
}

#[test]
fn status_tells_nodes_and_shards() {
    check_both("status", |form| status(&cluster(), form));
}

#[test]
fn targets_tell_their_use() {
    check_both("target", |form| target(&a_target(), form));
    let other = wire::Target {
        name: "payments/charge".into(),
        policy: None,
        limits: Vec::new(),
        priorities: Vec::new(),
        ..a_target()
    };
    let list = TargetList {
        targets: vec![a_target(), other],
        missing_shards: vec![0, 1],
    };
    check_both("targets", |form| targets(&list, form));
    assert_eq!(list_exit(&list), crate::exit::Exit::Unavailable);
}

fn request() -> wire::AdmitRequest {
    wire::AdmitRequest {
        target: "openai/gpt-5".into(),
        admission_id: "job-7".into(),
        attempt: u64::MAX,
        ask: 1,
        ..wire::AdmitRequest::default()
    }
}

fn answer(decision: Decision) -> wire::AdmitResponse {
    wire::AdmitResponse {
        decision: Some(decision),
        policy_version: 4,
    }
}

#[test]
fn decisions_tell_what_to_do_next() {
    let admitted = answer(Decision::Admitted(wire::Admitted {
        start_in_us: 12_345,
        reply_window_us: 100_000,
        grant: Some(a_grant()),
        charged: [("tokens".to_owned(), 500), ("requests".to_owned(), 1)].into(),
    }));
    check_both("admitted", |form| decision(&request(), &admitted, form));
    check("admitted.quiet", &grant_only(&admitted));
    let deferred = answer(Decision::Deferred(wire::Deferred {
        retry_in_us: 812_000,
        earliest_in_us: 790_000,
        place: 4,
        limit: "rpm".into(),
        place_until_us: 10_812_000,
    }));
    check_both("deferred", |form| decision(&request(), &deferred, form));
    check("deferred.quiet", &grant_only(&deferred));
    let rejected = answer(Decision::Rejected(wire::Rejected {
        reason: wire::RejectReason::NeverFits.into(),
        limit: "rpm".into(),
        message: "the cost of 700 is above the cap of 600 of limit \"rpm\"".into(),
        cap: 600,
        cost: 700,
        earliest_in_us: 0,
    }));
    check_both("rejected", |form| decision(&request(), &rejected, form));
    let late = wire::AdmitResponse {
        decision: Some(Decision::Rejected(wire::Rejected {
            reason: wire::RejectReason::Deadline.into(),
            message: "the earliest start is after the deadline".into(),
            earliest_in_us: 12_300_000,
            ..wire::Rejected::default()
        })),
        policy_version: 0,
    };
    check_both("too-late", |form| decision(&request(), &late, form));
}

#[test]
fn the_history_tells_steps_and_who_is_missing() {
    let point = |minute: u64, tenant: &str, corrected| wire::HistoryPoint {
        start_unix_s: 1_796_046_300 + 60 * minute,
        tenant: tenant.into(),
        admitted: 12,
        deferred: 3,
        rejected: 1,
        throttled: 2,
        ungated: 4,
        charged: [("requests".to_owned(), 12), ("tokens".to_owned(), 9_000)].into(),
        corrected: [("tokens".to_owned(), corrected)].into(),
        ..wire::HistoryPoint::default()
    };
    let range = Range {
        target: "openai/gpt-5".into(),
        from_s: 1_796_046_300,
        to_s: 1_796_046_420,
        step_s: 60,
        by: Some(By::Tenant),
    };
    let told = weir_client::History {
        points: vec![point(0, "acme", -500), point(1, "(other)", -10_000)],
        oldest_unix_s: 1_796_046_360,
        missing_nodes: vec![2],
        troubled_nodes: vec![(3, "the disk is full".into())],
    };
    check_both("history", |form| history(&range, &told, form));
}

#[test]
fn keys_are_told_for_people_and_programs() {
    check_both("policy-keys", keys);
}

#[test]
fn releases_tell_what_became_of_the_grant() {
    for status in [
        wire::ReleaseStatus::Applied,
        wire::ReleaseStatus::Already,
        wire::ReleaseStatus::Expired,
        wire::ReleaseStatus::Unknown,
    ] {
        let name = format!(
            "release-{}",
            super::target::word(status.as_str_name(), "RELEASE_STATUS_")
        );
        let answer = wire::ReleaseResponse {
            status: status.into(),
        };
        check_both(&name, |form| released(&answer, form));
    }
}

fn plan(target: &str, in_force: u64, old: Option<&wire::Policy>) -> Planned {
    let policy = a_policy();
    Planned {
        target: target.into(),
        in_force,
        changes: changes(old, &policy),
        policy,
    }
}

/// The policy with another cap, one tenant less and a knob turned.
fn an_older_policy() -> wire::Policy {
    let mut policy = a_policy();
    policy.limits[0].cap = 500;
    policy.tenant_weights.remove("zeta");
    policy.send_spread_us = Some(20_000);
    policy
}

#[test]
fn plans_tell_every_field_that_changes() {
    let list = [
        plan("openai/gpt-5", 4, Some(&an_older_policy())),
        plan("payments/charge", 1, Some(&a_policy())),
        plan("other", 0, None),
    ];
    check_both("planned", |form| planned(&list, false, form));
    check("planned-defaults.txt", &planned(&list, true, Form::Table));
}

#[test]
fn applying_tells_what_became_of_each_target() {
    let list = [
        Applied {
            planned: plan("openai/gpt-5", 4, Some(&an_older_policy())),
            result: Ok(Version::New(5)),
        },
        Applied {
            planned: plan("payments/charge", 1, Some(&a_policy())),
            result: Ok(Version::Same(1)),
        },
        Applied {
            planned: plan("other", 2, Some(&a_policy())),
            result: Err("the cluster is overloaded".into()),
        },
    ];
    check_both("applied", |form| applied(&list, form));
    check_both("done", |form| done(form, "node 2 leads shard 1"));
}

#[test]
fn versions_tell_who_changed_what() {
    let version = |version, policy, put_by: &str, age_us| wire::PolicyVersion {
        version,
        policy: Some(policy),
        put_by: put_by.into(),
        age_us,
    };
    let mut oldest = an_older_policy();
    oldest.limits[0].cap = 400;
    oldest.estimate = wire::Estimate::Reserve.into();
    oldest.priorities[0].weight = 1;
    oldest.horizon_us = 40_000;
    let list = [
        version(9, a_policy(), "ops", 90_000_000),
        version(8, an_older_policy(), "anonymous", 7_384_000_001),
        version(6, an_older_policy(), "anonymous", 86_400_000_000),
        version(5, oldest, "ops", 90_000_000_001),
    ];
    check_both("versions", |form| versions("openai/gpt-5", &list, form));
}

fn known(holds: wire::Holding, grant: Option<wire::Grant>) -> wire::KnownCall {
    wire::KnownCall {
        attempt: u64::MAX,
        ask: 2,
        holds: holds.into(),
        grant,
    }
}

fn a_grant() -> wire::Grant {
    wire::Grant {
        shard: 2,
        index: 120,
        offset: 3,
    }
}

#[test]
fn explanations_tell_what_binds_and_who_is_ahead() {
    let limit = |name: &str, dimension: &str, used, cap, ahead, earliest_in_us| wire::LimitAhead {
        name: name.into(),
        dimension: dimension.into(),
        cap,
        used,
        ahead,
        cost: 1,
        earliest_in_us,
    };
    let priority = |name: &str, waiting, ahead, share_ns| wire::PriorityAhead {
        name: name.into(),
        waiting,
        ahead,
        share_ns,
    };
    let request = wire::ExplainRequest {
        target: "openai/gpt-5".into(),
        tenant: "acme".into(),
        priority: "batch".into(),
        ..wire::ExplainRequest::default()
    };
    let explained_as = |name: &str, decision, waits, held_for_us, known| {
        let answer = wire::ExplainResponse {
            answer: Some(answer(decision)),
            waits,
            known,
            held_for_us,
            limits: vec![
                limit("rpm", "requests", 600, 600, 17, 12_300_000),
                limit("daily", "tokens", 1_200_000, 400_000_000, 8_500, 0),
            ],
            priorities: vec![
                priority("interactive", 2, 2, 200_000_000),
                priority("batch", 20, 15, 1_500_000_000),
            ],
        };
        check_both(name, |form| explained(&request, &answer, form));
    };
    let deferred = |limit: &str| {
        Decision::Deferred(wire::Deferred {
            retry_in_us: 12_200_000,
            earliest_in_us: 12_300_000,
            place: 17,
            limit: limit.into(),
            place_until_us: 22_000_000,
        })
    };
    let place = Some(known(wire::Holding::Place, None));
    explained_as("explain-deferred", deferred("rpm"), true, 0, place);
    explained_as("explain-held", deferred(""), false, 12_300_000, None);
    let admitted = wire::Admitted {
        start_in_us: 5_000,
        ..wire::Admitted::default()
    };
    let granted = Some(known(wire::Holding::Grant, Some(a_grant())));
    let admitted = Decision::Admitted(admitted);
    explained_as("explain-admitted", admitted, false, 0, granted);
    let rejected = wire::Rejected {
        reason: wire::RejectReason::NeverFits.into(),
        limit: "rpm".into(),
        message: "the cost of 700 is above the cap of 600 of limit \"rpm\"".into(),
        cap: 600,
        cost: 700,
        earliest_in_us: 0,
    };
    let nothing = Some(known(wire::Holding::Nothing, None));
    let rejected = Decision::Rejected(rejected);
    explained_as("explain-rejected", rejected, false, 0, nothing);
}

#[test]
fn cancels_tell_what_was_given_up() {
    for status in [
        wire::CancelStatus::PlaceDropped,
        wire::CancelStatus::GrantRefunded,
        wire::CancelStatus::Nothing,
        wire::CancelStatus::Stale,
    ] {
        let word = super::target::word(status.as_str_name(), "CANCEL_STATUS_");
        let answer = wire::CancelResponse {
            status: status.into(),
        };
        check_both(&format!("cancel-{word}"), |form| cancelled(&answer, form));
    }
}

#[test]
fn watching_tells_rates_lines_and_use() {
    let mut closed = a_target();
    closed.name = "payments/charge".into();
    closed.held_for_us = 0;
    closed.limits[0].cap = 0;
    let row = |target, leader| Row {
        target,
        leader,
        admitted: 25,
        deferred: 5,
        rejected: 1,
        throttled: 0,
    };
    let seen = Seen {
        elapsed: Duration::from_millis(2_000),
        rows: vec![row(a_target(), Some(3)), row(closed, None)],
        missing_shards: vec![1],
    };
    check_both("watch", |form| watched(&seen, form));
}

#[test]
fn spans_read_well() {
    for (us, text) in [
        (0, "0us"),
        (999, "999us"),
        (12_345, "12.3ms"),
        (250_000, "250ms"),
        (1_500_000, "1.5s"),
        (1_500_001, "1.5s"),
        (10_000_000, "10s"),
        (60_000_000, "1m"),
        (90_000_000, "90s"),
        (121_000_001, "2m"),
        (7_384_000_001, "2h03m"),
        (86_400_000_000, "1d"),
        (90_000_000_001, "1d01h"),
    ] {
        assert_eq!(span(us), text, "{us}");
    }
}
