//! The values whose stored bytes are frozen. A value here never changes; new ones may be added.

use std::collections::BTreeMap;
use weir_admission::{
    Admit, Amounts, AskName, CallOutcome, DeletePolicy, DimensionName, EnforcedBy, Estimate,
    Extend, GrantId, Headroom, InitialUse, Kind, Limit, LimitName, Operation, Policy, Principal,
    Priority, PriorityName, PutPolicy, Release, Report, Stamp, TargetName, TenantName,
};

/// One stored batch.
pub(crate) struct Fixture {
    /// Name of its file.
    pub(crate) name: &'static str,
    pub(crate) stamp: Stamp,
    pub(crate) operations: Vec<Operation>,
}

/// Every frozen batch of format 1: one for each kind of operation, and the edges.
pub(crate) fn batches_v1() -> Vec<Fixture> {
    let throttled = CallOutcome::Throttled {
        retry_after: 2_500_000,
    };
    vec![
        batch("empty", 0, vec![]),
        batch("admit", 1_700_000, vec![asked(admit())]),
        batch("admit_plain", 250, vec![asked(admit_plain())]),
        batch("release_ok", 251, vec![released(CallOutcome::Ok)]),
        batch("release_throttled", 65_535, vec![released(throttled)]),
        batch(
            "release_failed",
            65_536,
            vec![released(CallOutcome::Failed)],
        ),
        batch(
            "release_not_sent",
            1 << 40,
            vec![released(CallOutcome::NotSent)],
        ),
        batch("cancel", 5, vec![Operation::Cancel(Box::new(ask_name()))]),
        batch("extend", 6, vec![Operation::Extend(extend())]),
        batch("report", 7, vec![Operation::Report(Box::new(report()))]),
        batch(
            "put_policy",
            8,
            vec![Operation::PutPolicy(Box::new(put_policy()))],
        ),
        batch(
            "put_policy_small",
            9,
            vec![Operation::PutPolicy(Box::new(put_small()))],
        ),
        batch(
            "delete_policy",
            10,
            vec![Operation::DeletePolicy(delete_policy())],
        ),
        batch("seed", 1 << 60, vec![Operation::Seed(*b"0123456789abcdef")]),
        batch("mixed", 11, mixed()),
        batch("unwake", 12, vec![Operation::Unwake(Box::new(ask_name()))]),
    ]
}

fn batch(name: &'static str, stamp_us: u64, operations: Vec<Operation>) -> Fixture {
    Fixture {
        name,
        stamp: Stamp::from_micros(stamp_us),
        operations,
    }
}

fn asked(admit: Admit) -> Operation {
    Operation::Admit(Box::new(admit))
}

fn released(outcome: CallOutcome) -> Operation {
    Operation::Release(Box::new(release(outcome)))
}

fn mixed() -> Vec<Operation> {
    vec![
        asked(admit()),
        asked(admit_plain()),
        released(CallOutcome::Ok),
        Operation::Extend(extend()),
    ]
}

fn target(text: &str) -> TargetName {
    TargetName::new(text).unwrap()
}

fn tenant(text: &str) -> TenantName {
    TenantName::new(text).unwrap()
}

fn principal(text: &str) -> Principal {
    Principal::new(text).unwrap()
}

fn priority(text: &str) -> PriorityName {
    PriorityName::new(text).unwrap()
}

pub(crate) fn amounts(list: &[(&str, u64)]) -> Amounts {
    let list = list
        .iter()
        .map(|(name, units)| (DimensionName::new(name).unwrap(), *units));
    Amounts::new(list.collect()).unwrap()
}

/// An ask with everything set.
pub(crate) fn admit() -> Admit {
    Admit {
        target: target("openai/gpt-5"),
        tenant: tenant("übung"),
        principal: principal("spiffe://fleet/worker"),
        priority: priority("interactive"),
        admission_id: Box::from(&b"3f1c9a52-order-17"[..]),
        attempt: 0xfeed_beef_dead_cafe,
        ask: 3,
        cost: amounts(&[("requests", 1), ("tokens", 1_200)]),
        cost_max: amounts(&[("tokens", 5_296)]),
        labels_digest: 0x0123_4567_89ab_cdef,
        deadline: Some(30_000_000),
        dry_run: true,
        wake: false,
    }
}

/// An ask with as little as possible.
fn admit_plain() -> Admit {
    Admit {
        target: target("t"),
        tenant: tenant("u"),
        principal: principal("anonymous"),
        priority: priority("p1"),
        admission_id: Box::from(&b"a"[..]),
        attempt: 1,
        ask: 1,
        cost: amounts(&[("requests", 1)]),
        cost_max: Amounts::default(),
        labels_digest: 0,
        deadline: None,
        dry_run: false,
        wake: false,
    }
}

fn release(outcome: CallOutcome) -> Release {
    Release {
        target: target("openai/gpt-5"),
        principal: principal("anonymous"),
        grant: GrantId {
            index: 9_000_000_000,
            offset: 511,
        },
        actual: amounts(&[("tokens", 1 << 46)]),
        outcome,
    }
}

fn ask_name() -> AskName {
    AskName {
        target: target("payments/charge"),
        tenant: tenant("acme"),
        principal: principal("anonymous"),
        admission_id: Box::from([0xff_u8; 128]),
        attempt: u64::MAX,
        ask: u32::MAX,
    }
}

fn extend() -> Extend {
    Extend {
        target: target("payments/charge"),
        principal: principal("anonymous"),
        grant: GrantId {
            index: 1,
            offset: 0,
        },
    }
}

fn report() -> Report {
    Report {
        target: target("payments/charge"),
        tenant: tenant("acme"),
        principal: principal("anonymous"),
        priority: priority("batch"),
        admission_id: Box::from(&b"17"[..]),
        attempt: 77,
        actual: amounts(&[("requests", 1)]),
        age: 4_000_000,
    }
}

/// A policy with everything set.
pub(crate) fn put_policy() -> PutPolicy {
    let limit = |name: &str, dimension: &str, kind, enforced_by, initial_use| Limit {
        name: LimitName::new(name).unwrap(),
        dimension: DimensionName::new(dimension).unwrap(),
        cap: 500,
        per: 60_000_000,
        kind,
        enforced_by,
        burst: Some(6_000_000),
        initial_use,
    };
    let policy = Policy {
        limits: vec![
            limit(
                "rpm",
                "requests",
                Kind::Sliding,
                EnforcedBy::Provider,
                InitialUse::Full,
            ),
            limit(
                "tpm",
                "tokens",
                Kind::Bucket,
                EnforcedBy::Us,
                InitialUse::Empty,
            ),
        ],
        priorities: vec![
            Priority {
                name: priority("interactive"),
                weight: 700,
            },
            Priority {
                name: priority("batch"),
                weight: 300,
            },
        ],
        tenant_weights: BTreeMap::from([(tenant("acme"), 10_000), (tenant("übung"), 1)]),
        default_tenant_weight: 50,
        reply_window: Some(250_000),
        send_spread: Some(0),
        horizon: 1_000_000,
        headroom: Headroom::On,
        estimate: Estimate::Reserve,
        rejected_counts: false,
        estimate_sigmas_milli: 1_250,
    };
    PutPolicy {
        target: target("openai/gpt-5"),
        principal: principal("operator"),
        policy,
        expected_version: Some(7),
    }
}

/// The smallest policy, everything else at the values that are defaults today.
fn put_small() -> PutPolicy {
    let policy = Policy {
        limits: vec![Limit {
            name: LimitName::new("rps").unwrap(),
            dimension: DimensionName::new("requests").unwrap(),
            cap: 0,
            per: 1_000_000,
            kind: Kind::Sliding,
            enforced_by: EnforcedBy::Provider,
            burst: None,
            initial_use: InitialUse::Full,
        }],
        priorities: vec![Priority {
            name: priority("p1"),
            weight: 1,
        }],
        tenant_weights: BTreeMap::new(),
        default_tenant_weight: 100,
        reply_window: None,
        send_spread: None,
        horizon: 30_000,
        headroom: Headroom::Off,
        estimate: Estimate::Learned,
        rejected_counts: true,
        estimate_sigmas_milli: 2_500,
    };
    PutPolicy {
        target: target("t"),
        principal: principal("p"),
        policy,
        expected_version: None,
    }
}

fn delete_policy() -> DeletePolicy {
    DeletePolicy {
        target: target("openai/gpt-5"),
        expected_version: Some(0),
    }
}
