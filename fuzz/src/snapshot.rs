//! Snapshots: files, and the state within.
//!
//! Reading is total and takes memory in proportion. A state that is read is sound and is written as the same
//! bytes; whatever is then asked of it, it does not panic.

use crate::kind;
use crate::memory::{self, Memory};
use bytes::Bytes;
use weir_admission::{
    Admit, Amounts, AskName, CallOutcome, DeletePolicy, Extend, GrantId, Operation, Policy,
    Principal, PutPolicy, Release, Report, Stamp, State, TargetName, TargetView, TenantName,
};
use weir_raft::seam;

/// What an input is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The bytes of a state.
    State,
    /// A file.
    File,
    /// The length of a meta in a byte, the meta, and a state, of which a file is made.
    Body,
}

/// Every kind, each at the byte that stands for it.
pub const KINDS: [Kind; 3] = [Kind::State, Kind::File, Kind::Body];

/// Memory for a state: a bucket of a window, a name and the like keep theirs, and the tree of
/// a line is allocated in nodes.
const MEMORY: Memory = Memory {
    each: 256,
    base: memory::SERDE_BASE,
};
/// Targets of a state that are tried.
const TARGETS_TRIED: usize = 3;
/// Entries whose first operation is taken for a grant.
const GRANTS_TRIED: u64 = 24;

/// Takes an input.
///
/// # Panics
/// A rule of the module does not hold.
pub fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = kind(&KINDS, bytes) else {
        return;
    };
    match kind {
        Kind::State => state(bytes),
        Kind::File => file(bytes.to_vec()),
        Kind::Body => {
            let Some((length, rest)) = bytes.split_first() else {
                return;
            };
            let (meta, state) = rest.split_at(usize::from(*length).min(rest.len()));
            file(seam::file_of(meta, state).expect("a short meta"));
        }
    }
}

fn file(bytes: Vec<u8>) {
    let length = bytes.len();
    let read = MEMORY.bounds(length, || seam::read_file(Bytes::from(bytes)));
    let Ok(loaded) = read else { return };
    let meta = seam::meta_of(&loaded).expect("what was read can be written");
    let again = seam::file_of(&meta, &loaded.state).expect("what was read can be written");
    let again = seam::read_file(Bytes::from(again)).expect("what was written reads back");
    assert_eq!(again, loaded);
    state(&loaded.state);
}

fn state(bytes: &[u8]) {
    let read = MEMORY.bounds(bytes.len(), || State::decode(bytes));
    let mut state = match read {
        Ok(state) => state,
        Err(error) => {
            assert!(error.offset <= bytes.len() && !error.expected.is_empty());
            return;
        }
    };
    assert_eq!(state.check(), Ok(()), "a state that is read is sound");
    assert!(state.encode() == bytes, "it is written as it was read");
    let names: Vec<_> = state.target_names().take(TARGETS_TRIED).cloned().collect();
    let now = state.now();
    for name in &names {
        look(&state, name, now);
    }
    let mut index = u64::from(u32::MAX);
    for later in [0, 1, 1_000_000, 61_000_000, 3_600_000_000, u64::MAX] {
        for name in &names {
            let batch = operations(&state, name);
            index += 1;
            state.apply(index, now.after(later), &batch);
            look(&state, name, now);
        }
    }
    let _ = state.digest();
}

fn look(state: &State, name: &TargetName, now: Stamp) {
    let _ = state.versions(name);
    for later in [0, 1_000_000, u64::MAX] {
        let _ = state.near(name, now.after(later), usize::MAX);
    }
    if let Some(view) = state.view(name)
        && let Some(admit) = asks(&view).first()
    {
        let _ = state.explain(admit);
    }
}

fn principal() -> Principal {
    Principal::new("anonymous").expect("a name")
}

/// One unit of every dimension, and as much as the caps allow.
fn costs(policy: &Policy) -> [Amounts; 2] {
    let mut caps: Vec<_> = (policy.limits.iter())
        .map(|limit| (limit.dimension.clone(), limit.cap))
        .collect();
    caps.sort();
    caps.dedup_by(|later, first| later.0 == first.0);
    let ones = caps.iter().map(|(name, _)| (name.clone(), 1)).collect();
    [ones, caps].map(|list| Amounts::new(list).unwrap_or_default())
}

/// Asks of both costs, exact and bounded, for two ids in each priority.
fn asks(view: &TargetView) -> Vec<Admit> {
    let [one, most] = costs(&view.policy);
    let mut asks = Vec::new();
    for priority in &view.policy.priorities {
        for (id, cost, cost_max) in [
            (b'a', &one, &Amounts::default()),
            (b'b', &most, &Amounts::default()),
            (b'c', &one, &most),
        ] {
            asks.push(Admit {
                target: view.name.clone(),
                tenant: TenantName::new("t").expect("a name"),
                principal: principal(),
                priority: priority.name.clone(),
                admission_id: Box::from([id]),
                attempt: 1,
                ask: 1,
                cost: cost.clone(),
                cost_max: cost_max.clone(),
                labels_digest: 0,
                deadline: None,
                dry_run: false,
                wake: false,
            });
        }
    }
    asks
}

/// Everything that can be asked about a target.
fn operations(state: &State, name: &TargetName) -> Vec<Operation> {
    let Some(view) = state.view(name) else {
        return Vec::new();
    };
    let [_, most] = costs(&view.policy);
    let mut batch = Vec::new();
    for (number, admit) in (1..).zip(asks(&view)) {
        batch.push(Operation::Cancel(Box::new(AskName {
            target: name.clone(),
            tenant: admit.tenant.clone(),
            principal: principal(),
            admission_id: admit.admission_id.clone(),
            attempt: number,
            ask: 1,
        })));
        batch.push(Operation::Report(Box::new(Report {
            target: name.clone(),
            tenant: admit.tenant.clone(),
            principal: principal(),
            priority: admit.priority.clone(),
            admission_id: Box::from([b'r']),
            attempt: number,
            actual: most.clone(),
            age: 1_000_000,
        })));
        batch.push(Operation::Admit(Box::new(admit)));
    }
    for index in 1..=GRANTS_TRIED {
        let grant = GrantId { index, offset: 0 };
        batch.push(Operation::Extend(Extend {
            target: name.clone(),
            principal: principal(),
            grant,
        }));
        let outcome = match index % 4 {
            0 => CallOutcome::NotSent,
            1 => CallOutcome::Throttled {
                retry_after: 1_000_000,
            },
            2 => CallOutcome::Failed,
            _ => CallOutcome::Ok,
        };
        batch.push(Operation::Release(Box::new(Release {
            target: name.clone(),
            principal: principal(),
            grant,
            actual: most.clone(),
            outcome,
        })));
    }
    batch.extend(replaced(&view));
    batch
}

/// Another policy in the place of the one in force, none, and that one again.
fn replaced(view: &TargetView) -> Vec<Operation> {
    let put = |policy: Policy| {
        Operation::PutPolicy(Box::new(PutPolicy {
            target: view.name.clone(),
            principal: principal(),
            policy,
            expected_version: None,
        }))
    };
    let mut other = view.policy.clone();
    other.limits.truncate(1);
    other.priorities.reverse();
    for limit in &mut other.limits {
        limit.cap = limit.cap / 2 + 1;
    }
    let delete = DeletePolicy {
        target: view.name.clone(),
        expected_version: None,
    };
    vec![
        put(other),
        Operation::DeletePolicy(delete),
        put(view.policy.clone()),
    ]
}
