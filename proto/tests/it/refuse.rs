//! Every rule of every request: one wrong field, and what is said about it.

use crate::wire;
use std::collections::BTreeMap;
use weir_admission::limits::{CALLER_DURATION_MAX, UNITS_MAX};
use weir_admission::{Principal, ShardId, TargetName, shard_of};
use weir_proto::convert::{self, Caller, Violations};
use weir_proto::error::{Reason, WireError};
use weir_proto::limits::{VIOLATION_TEXT_BYTES_MAX, VIOLATIONS_MAX};
use weir_proto::v1;

const SHARDS: u32 = 16;

/// A change of a valid request, and the violations it must lead to, as `field rule`.
type Case<R> = (fn(&mut R), &'static [&'static str]);

fn check<R: Clone, T: std::fmt::Debug>(
    valid: &R,
    read: impl Fn(R, Caller<'_>) -> Result<T, Violations>,
    cases: &[Case<R>],
) {
    let principal = Principal::new("anonymous").unwrap();
    let caller = Caller {
        principal: &principal,
        shards: SHARDS,
        wakes: false,
    };
    read(valid.clone(), caller).unwrap();
    for (i, (change, expected)) in cases.iter().enumerate() {
        let mut request = valid.clone();
        change(&mut request);
        let violations = read(request, caller).unwrap_err();
        assert_eq!(said(&violations), *expected, "case {i}");
        assert_eq!(violations.found(), expected.len(), "case {i}");
    }
}

fn said(violations: &Violations) -> Vec<String> {
    violations
        .told()
        .iter()
        .map(|v| format!("{} {}", v.field, v.description))
        .collect()
}

fn map(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs
        .iter()
        .map(|(name, units)| (name.to_string(), *units))
        .collect()
}

fn nine() -> BTreeMap<String, u64> {
    (0..9).map(|i| (i.to_string(), 1)).collect()
}

fn grant() -> Option<v1::Grant> {
    let ShardId(shard) = shard_of(&TargetName::new("openai/gpt-5").unwrap(), SHARDS);
    Some(v1::Grant {
        shard,
        index: 9,
        offset: 511,
    })
}

fn admit() -> v1::AdmitRequest {
    v1::AdmitRequest {
        target: "openai/gpt-5".into(),
        tenant: "acme".into(),
        priority: "p1".into(),
        admission_id: "order-17".into(),
        attempt: 1,
        ask: 1,
        cost: map(&[("requests", 1), ("tokens", 0)]),
        cost_max: map(&[("tokens", UNITS_MAX)]),
        labels: BTreeMap::from([("model".into(), "gpt-5".into())]),
        deadline_us: CALLER_DURATION_MAX,
        dry_run: false,
        wake: false,
    }
}

#[test]
fn names_of_an_ask() {
    let cases: &[Case<v1::AdmitRequest>] = &[
        (|r| r.target.clear(), &["target must not be empty"]),
        (
            |r| r.target = "a".repeat(129),
            &["target must be at most 128 bytes, has 129"],
        ),
        (
            |r| r.target = "a\u{7f}".into(),
            &["target must not contain control characters, has one at byte 1"],
        ),
        (|r| r.tenant.clear(), &["tenant must not be empty"]),
        (
            |r| r.tenant = "ü".repeat(65),
            &["tenant must be at most 128 bytes, has 130"],
        ),
        (
            |r| r.tenant = "\0".into(),
            &["tenant must not contain control characters, has one at byte 0"],
        ),
        (|r| r.priority.clear(), &["priority must not be empty"]),
        (
            |r| r.priority = "p".repeat(129),
            &["priority must be at most 128 bytes, has 129"],
        ),
        (
            |r| r.priority = "p\u{85}".into(),
            &["priority must not contain control characters, has one at byte 1"],
        ),
        (
            |r| r.admission_id.clear(),
            &["admission_id must not be empty"],
        ),
        (
            |r| r.admission_id = "i".repeat(129),
            &["admission_id must be at most 128 bytes, has 129"],
        ),
        (
            |r| r.admission_id = "a\nb".into(),
            &["admission_id must not contain control characters, has one at byte 1"],
        ),
    ];
    check(&admit(), convert::admit::read, cases);
}

#[test]
fn numbers_of_an_ask() {
    let cases: &[Case<v1::AdmitRequest>] = &[
        (
            |r| r.attempt = 0,
            &["attempt must be chosen at random and not be 0"],
        ),
        (|r| r.ask = 0, &["ask must be at least 1"]),
        (
            |r| r.deadline_us = CALLER_DURATION_MAX + 1,
            &["deadline_us must be at most 2678400000000 microseconds"],
        ),
    ];
    check(&admit(), convert::admit::read, cases);
}

#[test]
fn costs_of_an_ask() {
    let cases: &[Case<v1::AdmitRequest>] = &[
        (
            |r| r.cost.clear(),
            &["cost must have at least one unit in some dimension"],
        ),
        (
            |r| r.cost = map(&[("requests", 0), ("tokens", 0)]),
            &["cost must have at least one unit in some dimension"],
        ),
        (
            |r| r.cost = nine(),
            &["cost must have at most 8 dimensions, has 9"],
        ),
        (
            |r| r.cost_max = nine(),
            &["cost_max must have at most 8 dimensions, has 9"],
        ),
        (
            |r| r.cost = map(&[("requests", UNITS_MAX + 1)]),
            &["cost[\"requests\"] must be at most 70368744177664 units"],
        ),
        (
            |r| r.cost_max = map(&[("tokens", u64::MAX)]),
            &["cost_max[\"tokens\"] must be at most 70368744177664 units"],
        ),
        (
            |r| r.cost_max = map(&[("requests", 0)]),
            &["cost_max[\"requests\"] must be at least the cost, 1"],
        ),
        (
            |r| r.cost = map(&[("", 1)]),
            &["cost[\"\"] must not be empty"],
        ),
        (
            |r| r.cost = map(&[("\"\n", 1), ("x", 1)]),
            &["cost[\"\\\"\\n\"] must not contain control characters, has one at byte 1"],
        ),
    ];
    check(&admit(), convert::admit::read, cases);
}

#[test]
fn labels_of_an_ask() {
    let cases: &[Case<v1::AdmitRequest>] = &[
        (
            |r| r.labels = (0..9).map(|i| (i.to_string(), String::new())).collect(),
            &["labels must have at most 8 labels, has 9"],
        ),
        (
            |r| r.labels = [(String::new(), "x".into())].into(),
            &["labels[\"\"] the name must not be empty"],
        ),
        (
            |r| r.labels = [("model".into(), "x".repeat(129))].into(),
            &["labels[\"model\"] must be at most 128 bytes, has 129"],
        ),
        (
            |r| r.labels = [("model".into(), "\t".into())].into(),
            &["labels[\"model\"] must not contain control characters"],
        ),
    ];
    check(&admit(), convert::admit::read, cases);
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let cases: &[Case<v1::AdmitRequest>] = &[(
        |r| {
            *r = v1::AdmitRequest {
                deadline_us: u64::MAX,
                ..v1::AdmitRequest::default()
            }
        },
        &[
            "target must not be empty",
            "tenant must not be empty",
            "priority must not be empty",
            "admission_id must not be empty",
            "attempt must be chosen at random and not be 0",
            "ask must be at least 1",
            "cost must have at least one unit in some dimension",
            "deadline_us must be at most 2678400000000 microseconds",
        ],
    )];
    check(&admit(), convert::admit::read, cases);
}

#[test]
fn releases() {
    let valid = v1::ReleaseRequest {
        target: "openai/gpt-5".into(),
        grant: grant(),
        actual: map(&[("tokens", 0)]),
        outcome: v1::CallOutcome::Throttled.into(),
        retry_after_us: CALLER_DURATION_MAX,
        throttled_dimension: "a name that no policy knows".into(),
    };
    let cases: &[Case<v1::ReleaseRequest>] = &[
        (|r| r.target.clear(), &["target must not be empty"]),
        (|r| r.grant = None, &["grant must be set"]),
        (
            |r| {
                r.grant = Some(v1::Grant {
                    index: 0,
                    ..grant().unwrap()
                })
            },
            &["grant.index must be at least 1"],
        ),
        (
            |r| {
                r.grant = Some(v1::Grant {
                    offset: 512,
                    ..grant().unwrap()
                })
            },
            &["grant.offset must be below 512"],
        ),
        (
            |r| {
                r.grant = Some(v1::Grant {
                    shard: 77,
                    ..grant().unwrap()
                })
            },
            &["grant.shard must be the shard of the target, 9"],
        ),
        (
            |r| r.actual = nine(),
            &["actual must have at most 8 dimensions, has 9"],
        ),
        (
            |r| r.actual = map(&[("tokens", UNITS_MAX + 1)]),
            &["actual[\"tokens\"] must be at most 70368744177664 units"],
        ),
        (|r| r.outcome = 0, &["outcome must say how the call ended"]),
        (|r| r.outcome = 99, &["outcome must say how the call ended"]),
        (
            |r| r.outcome = v1::CallOutcome::Ok.into(),
            &[
                "retry_after_us must be 0 unless outcome is CALL_OUTCOME_THROTTLED",
                "throttled_dimension must be empty unless outcome is CALL_OUTCOME_THROTTLED",
            ],
        ),
        (
            |r| r.throttled_dimension = "a\nb".into(),
            &["throttled_dimension must not contain control characters, has one at byte 1"],
        ),
        (
            |r| r.throttled_dimension = "x".repeat(129),
            &["throttled_dimension must be at most 128 bytes, has 129"],
        ),
        (
            |r| r.retry_after_us = u64::MAX,
            &["retry_after_us must be at most 2678400000000 microseconds"],
        ),
    ];
    check(&valid, convert::release::read, cases);
}

#[test]
fn cancels() {
    let valid = v1::CancelRequest {
        target: "openai/gpt-5".into(),
        tenant: "acme".into(),
        admission_id: "order-17".into(),
        attempt: 1,
        ask: 1,
    };
    let cases: &[Case<v1::CancelRequest>] = &[
        (|r| r.target.clear(), &["target must not be empty"]),
        (|r| r.tenant.clear(), &["tenant must not be empty"]),
        (
            |r| r.admission_id.clear(),
            &["admission_id must not be empty"],
        ),
        (
            |r| r.attempt = 0,
            &["attempt must be chosen at random and not be 0"],
        ),
        (|r| r.ask = 0, &["ask must be at least 1"]),
    ];
    check(&valid, convert::cancel::read, cases);
}

#[test]
fn extensions() {
    let valid = v1::ExtendRequest {
        target: "openai/gpt-5".into(),
        grant: grant(),
    };
    let cases: &[Case<v1::ExtendRequest>] = &[
        (
            |r| r.target = "\u{1}".into(),
            &["target must not contain control characters, has one at byte 0"],
        ),
        (|r| r.grant = None, &["grant must be set"]),
        (
            |r| {
                *r = v1::ExtendRequest {
                    grant: Some(v1::Grant::default()),
                    ..v1::ExtendRequest::default()
                }
            },
            &["target must not be empty", "grant.index must be at least 1"],
        ),
    ];
    check(
        &valid,
        |request, caller| convert::extend::read(&request, caller),
        cases,
    );
}

fn call() -> v1::UngatedCall {
    v1::UngatedCall {
        target: "openai/gpt-5".into(),
        tenant: "acme".into(),
        priority: "p1".into(),
        admission_id: "order-17".into(),
        attempt: 1,
        actual: map(&[("requests", 1)]),
        age_us: CALLER_DURATION_MAX,
    }
}

#[test]
fn reports() {
    let other = v1::UngatedCall {
        target: "openai/o3".into(),
        ..call()
    };
    let valid = v1::ReportRequest {
        calls: vec![call(), other],
    };
    let cases: &[Case<v1::ReportRequest>] = &[
        (
            |r| r.calls.clear(),
            &["calls must have 1 to 256 calls, has 0"],
        ),
        (
            |r| r.calls = vec![call(); 257],
            &["calls must have 1 to 256 calls, has 257"],
        ),
        (
            |r| r.calls[1].target = "payments/charge".into(),
            &["calls[1].target must be of the pool of the calls before it, \"openai\""],
        ),
        (
            |r| r.calls[1].tenant.clear(),
            &["calls[1].tenant must not be empty"],
        ),
        (
            |r| r.calls[0].priority.clear(),
            &["calls[0].priority must not be empty"],
        ),
        (
            |r| r.calls[0].admission_id.clear(),
            &["calls[0].admission_id must not be empty"],
        ),
        (
            |r| r.calls[0].attempt = 0,
            &["calls[0].attempt must be chosen at random and not be 0"],
        ),
        (
            |r| r.calls[1].actual = map(&[("", 1)]),
            &["calls[1].actual[\"\"] must not be empty"],
        ),
        (
            |r| r.calls[1].age_us = u64::MAX,
            &["calls[1].age_us must be at most 2678400000000 microseconds"],
        ),
    ];
    check(&valid, convert::report::read, cases);
}

fn put() -> v1::PutTargetRequest {
    v1::PutTargetRequest {
        target: "openai/gpt-5".into(),
        policy: Some(wire::policy()),
        expected_version: None,
    }
}

fn policy(request: &mut v1::PutTargetRequest) -> &mut v1::Policy {
    request.policy.as_mut().unwrap()
}

#[test]
fn limits_of_a_put() {
    let cases: &[Case<v1::PutTargetRequest>] = &[
        (|r| r.target.clear(), &["target must not be empty"]),
        (|r| r.policy = None, &["policy must be set"]),
        (
            |r| policy(r).limits.clear(),
            &["policy.limits must have 1 to 32 limits, has 0"],
        ),
        (
            |r| {
                let limit = policy(r).limits[0].clone();
                let named = |i| v1::Limit {
                    name: format!("l{i}"),
                    ..limit.clone()
                };
                policy(r).limits = (0..33).map(named).collect();
            },
            &["policy.limits must have 1 to 32 limits, has 33"],
        ),
        (
            |r| policy(r).limits[1].name = "rps".into(),
            &["policy.limits[1].name must be unique, \"rps\" appears twice"],
        ),
        (
            |r| policy(r).limits[1].name.clear(),
            &["policy.limits[1].name must not be empty"],
        ),
        (
            |r| policy(r).limits[0].dimension.clear(),
            &["policy.limits[0].dimension must not be empty"],
        ),
        (
            |r| policy(r).limits[1].cap = UNITS_MAX + 1,
            &["policy.limits[1].cap must be at most 70368744177664 units"],
        ),
        (
            |r| policy(r).limits[1].per_us = 999_999,
            &["policy.limits[1].per_us must be 1000000 to 2678400000000 microseconds"],
        ),
        (
            |r| policy(r).limits[1].burst_us = Some(1_000_001),
            &["policy.limits[1].burst_us must be at most per_us"],
        ),
        (
            |r| policy(r).limits[1].kind = 0,
            &["policy.limits[1].kind must be LIMIT_KIND_SLIDING or LIMIT_KIND_BUCKET"],
        ),
        (
            |r| policy(r).limits[1].enforced_by = 9,
            &["policy.limits[1].enforced_by must be ENFORCED_BY_PROVIDER or ENFORCED_BY_US"],
        ),
        (
            |r| policy(r).limits[1].initial_use = 9,
            &["policy.limits[1].initial_use must be INITIAL_USE_FULL, INITIAL_USE_EMPTY or unset"],
        ),
    ];
    check(
        &put(),
        |request, caller| convert::target::read_put(&request, caller),
        cases,
    );
}

#[test]
fn shares_of_a_put() {
    let cases: &[Case<v1::PutTargetRequest>] = &[
        (
            |r| policy(r).priorities.clear(),
            &["policy.priorities must have 1 to 8 priorities, has 0"],
        ),
        (
            |r| {
                let named = |i| v1::Priority {
                    name: format!("p{i}"),
                    weight: 1,
                };
                policy(r).priorities = (0..9).map(named).collect();
            },
            &["policy.priorities must have 1 to 8 priorities, has 9"],
        ),
        (
            |r| policy(r).priorities[0].weight = 0,
            &["policy.priorities[0].weight must be 1 to 10000"],
        ),
        (
            |r| policy(r).priorities[0].name = "\t".into(),
            &["policy.priorities[0].name must not contain control characters, has one at byte 0"],
        ),
        (
            |r| {
                policy(r).priorities.push(v1::Priority {
                    name: "p1".into(),
                    weight: 10_001,
                })
            },
            &[
                "policy.priorities[1].name must be unique, \"p1\" appears twice",
                "policy.priorities[1].weight must be 1 to 10000",
            ],
        ),
        (
            |r| policy(r).tenant_weights = [("acme".into(), 0)].into(),
            &["policy.tenant_weights[\"acme\"] must be 1 to 10000"],
        ),
        (
            |r| policy(r).tenant_weights = [(String::new(), 1)].into(),
            &["policy.tenant_weights[\"\"] must not be empty"],
        ),
        (
            |r| policy(r).tenant_weights = (0..10_001).map(|i| (i.to_string(), 1)).collect(),
            &["policy.tenant_weights must name at most 10000 tenants, names 10001"],
        ),
        (
            |r| policy(r).default_tenant_weight = 10_001,
            &["policy.default_tenant_weight must be 1 to 10000"],
        ),
    ];
    check(
        &put(),
        |request, caller| convert::target::read_put(&request, caller),
        cases,
    );
}

#[test]
fn knobs_of_a_put() {
    let cases: &[Case<v1::PutTargetRequest>] = &[
        (
            |r| policy(r).reply_window_us = Some(10_000_001),
            &["policy.reply_window_us must be at most 10000000 microseconds"],
        ),
        (
            |r| policy(r).send_spread_us = Some(u64::MAX),
            &["policy.send_spread_us must be at most 10000000 microseconds"],
        ),
        (
            |r| policy(r).horizon_us = 999,
            &["policy.horizon_us must be 1000 to 1000000 microseconds"],
        ),
        (
            |r| policy(r).estimate_sigmas_milli = Some(10_001),
            &["policy.estimate_sigmas_milli must be at most 10000"],
        ),
        (
            |r| policy(r).headroom = -1,
            &["policy.headroom must be HEADROOM_AUTO, HEADROOM_ON, HEADROOM_OFF or unset"],
        ),
        (
            |r| policy(r).estimate = 3,
            &["policy.estimate must be ESTIMATE_LEARNED, ESTIMATE_RESERVE or unset"],
        ),
        (
            |r| policy(r).rejected_counts = 3,
            &["policy.rejected_counts must be REJECTED_COUNTS_YES, REJECTED_COUNTS_NO or unset"],
        ),
    ];
    check(
        &put(),
        |request, caller| convert::target::read_put(&request, caller),
        cases,
    );
}

#[test]
fn looks_and_deletes() {
    let empty = v1::GetTargetRequest::default();
    assert_eq!(
        said(&convert::target::read_get(&empty).unwrap_err()),
        ["target must not be empty"]
    );
    let empty = v1::DeleteTargetRequest::default();
    let violations = convert::target::read_delete(&empty).unwrap_err();
    assert_eq!(said(&violations), ["target must not be empty"]);
}

/// However much is wrong, the answer fits into the trailers that carry it.
fn history() -> v1::ReadHistoryRequest {
    v1::ReadHistoryRequest {
        target: "openai/gpt-5".into(),
        tenant: "acme".into(),
        priority: String::new(),
        from_unix_s: 1_800_000_000,
        to_unix_s: 1_800_086_400,
        step_s: 60,
        by: v1::HistoryBy::Priority.into(),
    }
}

#[test]
fn reads_of_the_history() {
    #[rustfmt::skip]
    let cases: &[Case<v1::ReadHistoryRequest>] = &[
        (|r| r.target.clear(), &["target must not be empty"]),
        (|r| r.tenant = "a\n".into(), &["tenant must not contain control characters, has one at byte 1"]),
        (|r| r.priority = "p".repeat(129), &["priority must be at most 128 bytes, has 129"]),
        (|r| r.from_unix_s += 1, &["from_unix_s must be a multiple of 60"]),
        (|r| r.to_unix_s = u64::MAX / 60 * 60, &["to_unix_s must be at most 253402300800"]),
        (|r| r.to_unix_s = r.from_unix_s, &["to_unix_s must be above from_unix_s"]),
        (|r| r.step_s = 0, &["step_s must be a multiple of 60, at least 60"]),
        (|r| r.step_s = 90, &["step_s must be a multiple of 60, at least 60"]),
        (|r| r.to_unix_s += 60, &["step_s must be at least 120: a range has at most 1440 steps"]),
        (|r| r.by = 9, &["by must be one that this node knows"]),
        (|r| { r.target.clear(); r.to_unix_s = 1; r.step_s = 1 }, &[
            "target must not be empty",
            "to_unix_s must be a multiple of 60",
            "step_s must be a multiple of 60, at least 60",
        ]),
    ];
    check(
        &history(),
        |request, _| convert::history::read(&request),
        cases,
    );
}

#[test]
fn a_history_of_any_length_has_steps_that_are_long_enough() {
    for days in [1, 2, 7, 31, 365] {
        let to_unix_s = history().from_unix_s + days * 86_400;
        let request = |step_s| v1::ReadHistoryRequest {
            to_unix_s,
            step_s,
            ..history()
        };
        assert!(
            convert::history::read(&request(days * 60)).is_ok(),
            "{days}"
        );
        let short = convert::history::read(&request(days * 60 - 60));
        assert!(short.is_err(), "{days}");
    }
}

#[test]
fn an_answer_stays_small() {
    let mut request = put();
    let limit = v1::Limit {
        name: "\n".repeat(4096),
        ..v1::Limit::default()
    };
    policy(&mut request).limits = vec![limit; 10_000];
    policy(&mut request).tenant_weights = (0..9_000)
        .map(|i| (format!("\u{1}{i}ü{}", "ü".repeat(2_000)), 0))
        .collect();
    let violations = read_put(&request).unwrap_err();
    assert_eq!(violations.told().len(), VIOLATIONS_MAX);
    assert!(violations.found() > 9_000);
    let longest = violations
        .told()
        .iter()
        .map(|v| v.field.len().max(v.description.len()))
        .max();
    assert!(longest.unwrap() <= VIOLATION_TEXT_BYTES_MAX + "...".len());

    let status = WireError::from(violations).to_status();
    assert!(
        status.details().len() < 7 * 1024,
        "{} bytes",
        status.details().len()
    );
    assert!(status.message().len() < 512, "{}", status.message());
}

fn read_put(
    request: &v1::PutTargetRequest,
) -> Result<weir_admission::PutPolicy, convert::Violations> {
    let principal = Principal::new("anonymous").unwrap();
    let caller = Caller {
        principal: &principal,
        shards: 3,
        wakes: false,
    };
    convert::target::read_put(request, caller)
}

#[test]
fn violations_become_one_error() {
    let violations = read_put(&v1::PutTargetRequest::default()).unwrap_err();
    assert_eq!(
        violations.to_string(),
        "target must not be empty (and 1 more)"
    );
    let error = WireError::from(violations);
    assert_eq!(error.reason, Reason::Malformed);
    let read = WireError::from_status(&error.to_status()).unwrap();
    let fields: Vec<_> = read.violations.iter().map(|v| v.field.as_str()).collect();
    assert_eq!(fields, ["target", "policy"]);
}
