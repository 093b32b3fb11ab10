//! The canonical bytes of a state, frozen: a history that touches every part of it makes these bytes, and
//! they read back.
//!
//! A change of these bytes is a new format. `UPDATE_GOLDENFILES=1` writes them anew, which is right only as
//! long as no release has written any.

use crate::make::{amounts, limit, policy, principal, priority, target, tenant};
use weir_admission::{
    Admit, AskName, CallOutcome, DeletePolicy, EnforcedBy, GrantId, InitialUse, Kind, Limit,
    Operation, Policy, Release, Report, Stamp, State,
};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/state_v1.bin");
const SECOND: u64 = 1_000_000;

fn put(name: &str) -> Operation {
    let full = |name| Limit {
        burst: Some(60 * SECOND),
        initial_use: InitialUse::Full,
        ..limit(name, 100, 60 * SECOND)
    };
    let ours = Limit {
        kind: Kind::Bucket,
        enforced_by: EnforcedBy::Us,
        ..full("tokens")
    };
    let policy = Policy {
        tenant_weights: [(tenant("ann"), 200)].into(),
        ..policy(vec![full("requests"), ours], &[("high", 3), ("low", 1)])
    };
    crate::make::put(name, policy)
}

fn ask(id: &str, (attempt, ask): (u64, u32), requests: u64, tokens: (u64, u64)) -> Operation {
    Operation::Admit(Box::new(Admit {
        target: target("api/x"),
        tenant: tenant("ann"),
        principal: principal(),
        priority: priority(if requests > 50 { "low" } else { "high" }),
        admission_id: id.as_bytes().into(),
        attempt,
        ask,
        cost: amounts(&[("requests", requests), ("tokens", tokens.0)]),
        cost_max: amounts(&[("tokens", tokens.1)]),
        labels_digest: 5,
        deadline: None,
        dry_run: false,
        wake: false,
    }))
}

fn release(index: u64, tokens: u64, outcome: CallOutcome) -> Operation {
    Operation::Release(Box::new(Release {
        target: target("api/x"),
        principal: principal(),
        grant: GrantId { index, offset: 0 },
        actual: amounts(&[("tokens", tokens)]),
        outcome,
    }))
}

/// Live, ended and expired grants, an undone start, places in line and lapsed, an older attempt, a
/// tombstone, ungated use, learned estimates, a hold, a deleted policy.
fn history() -> State {
    let throttled = CallOutcome::Throttled {
        retry_after: 5 * SECOND,
    };
    let cancel = AskName {
        target: target("api/x"),
        tenant: tenant("bob"),
        principal: principal(),
        admission_id: b"early".as_slice().into(),
        attempt: 1,
        ask: 2,
    };
    let report = Report {
        target: target("api/x"),
        tenant: tenant("bob"),
        principal: principal(),
        priority: priority("low"),
        admission_id: b"ungated".as_slice().into(),
        attempt: 1,
        actual: amounts(&[("requests", 1)]),
        age: SECOND,
    };
    let delete = DeletePolicy {
        target: target("api/y"),
        expected_version: None,
    };
    let entries = [
        (
            0,
            vec![Operation::Seed([7; 16]), put("api/x"), put("api/y")],
        ),
        (68, vec![ask("old", (1, 1), 1, (1, 9))]),
        (602, vec![ask("one", (1, 1), 2, (2, 20))]),
        (603, vec![ask("two", (1, 1), 10, (3, 20))]),
        (604, vec![release(3, 7, CallOutcome::Ok)]),
        (605, vec![ask("two", (2, 1), 10, (3, 20))]),
        (606, vec![ask("two", (2, 2), 10, (3, 20))]),
        (607, vec![ask("gone", (1, 1), 99, (1, 1))]),
        (610, vec![Operation::DeletePolicy(delete)]),
        (668, vec![]),
        (668, vec![]),
        (
            669,
            vec![
                ask("live", (1, 1), 1, (1, 1)),
                release(7, 5, CallOutcome::Ok),
            ],
        ),
        (
            669,
            vec![
                Operation::Cancel(Box::new(cancel)),
                Operation::Report(Box::new(report)),
            ],
        ),
        (
            669,
            vec![release(4, 1, throttled), ask("last", (1, 1), 98, (1, 1))],
        ),
    ];
    let mut state = State::default();
    for (index, (seconds, batch)) in (1..).zip(entries) {
        state.apply(index, Stamp::from_micros(seconds * SECOND), &batch);
    }
    state
}

#[test]
fn the_bytes_of_a_state_are_frozen() {
    let state = history();
    state.check().unwrap();
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(PATH, state.encode()).unwrap();
    }
    let frozen = std::fs::read(PATH).unwrap();
    assert!(
        state.encode() == frozen,
        "the same history makes other bytes"
    );
    let again = State::decode(&frozen).unwrap();
    assert!(
        again.encode() == frozen,
        "the frozen bytes read back as others"
    );
    let parts = format!("{again:?}");
    for part in [
        "Live(",
        "expired: true",
        "expired: false",
        "lapsed: true",
        "lapsed: false",
        "Reported",
        "place: Nothing",
        "closed: [(1",
        "Retired {",
        "Former {",
        "Learned {",
        "Mark {",
        "policy: None",
    ] {
        assert!(parts.contains(part), "nothing in the state says {part}");
    }
}
