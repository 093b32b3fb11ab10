//! A million tenants, each of which asks one target once: `cargo bench -p weir-benches --bench tenants`.
//!
//! Memory is what the state has asked of the allocator and not given back: while they come, at its most, per
//! tenant, and after they were forgotten. `limited` has a cap of 100 per minute, so that nearly all are deferred
//! and never come back; `served` admits and releases each of them.
//!
//! Then eight tenants make a million calls at another target, so fast that as many are remembered as may be: the
//! memory of one, and what a snapshot of them takes besides.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a bench that meets the unexpected should stop right there"
)]

use std::time::{Duration, Instant};
use weir_admission::limits::IDS_PER_TARGET_MAX;
use weir_admission::{
    Admit, AdmitOutcome, Amounts, CallOutcome, CheckpointStep, DimensionName, EnforcedBy,
    InitialUse, Kind, Limit, LimitName, Operation, Outcome, Policy, Principal, Priority,
    PriorityName, PutPolicy, Release, Stamp, State, TargetName, TenantName,
};

/// Counts what is allocated.
#[global_allocator]
static ALLOCATOR: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

const TENANTS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000;
/// Cluster time between two of them.
const BETWEEN: u64 = 1_000;
/// Tenants between two looks at the memory.
const LOOK_EVERY: u64 = 10_000;
/// Calls of the few, and the cluster time between two: far more than are remembered, all within the time for which
/// they would be.
const CALLS: u64 = 1_000_000;
/// See above.
const BETWEEN_CALLS: u64 = 10;
/// Records that a snapshot takes at once.
const PART_RECORDS: usize = 512;
/// Longer than anything about a tenant is remembered, twice.
const REST: u64 = 2 * 1_300 * SECOND;

struct Run {
    state: State,
    index: u64,
    now: u64,
    empty: u64,
    most: u64,
}

fn target() -> TargetName {
    TargetName::new("openai/gpt").unwrap()
}

fn somebody() -> Principal {
    Principal::new("anonymous").unwrap()
}

fn units(units: u64) -> Amounts {
    Amounts::new(vec![(DimensionName::new("requests").unwrap(), units)]).unwrap()
}

fn allocated() -> u64 {
    ALLOCATOR.current_usage() as u64
}

impl Run {
    fn new(cap: u64) -> Run {
        let policy = Policy {
            limits: vec![Limit {
                name: LimitName::new("requests").unwrap(),
                dimension: DimensionName::new("requests").unwrap(),
                cap,
                per: 60 * SECOND,
                kind: Kind::Sliding,
                enforced_by: EnforcedBy::Provider,
                burst: Some(60 * SECOND),
                initial_use: InitialUse::Empty,
            }],
            priorities: vec![Priority {
                name: PriorityName::new("p1").unwrap(),
                weight: 1,
            }],
            ..Policy::default()
        };
        let mut run = Run {
            state: State::default(),
            index: 0,
            now: 0,
            empty: 0,
            most: 0,
        };
        run.apply(Operation::PutPolicy(Box::new(PutPolicy {
            target: target(),
            principal: somebody(),
            policy,
            expected_version: None,
        })));
        run.empty = allocated();
        run
    }

    fn apply(&mut self, operation: Operation) -> Outcome {
        self.index += 1;
        let stamp = Stamp::from_micros(self.now);
        let outcomes = self.state.apply(self.index, stamp, &[operation]);
        outcomes.into_iter().next().unwrap()
    }

    /// One tenant asks; answers what it was told.
    fn tenant(&mut self, number: u64) -> &'static str {
        self.now += BETWEEN;
        self.call(number, number)
    }

    /// A tenant makes a call.
    fn call(&mut self, tenant: u64, number: u64) -> &'static str {
        let told = self.apply(Operation::Admit(Box::new(Admit {
            target: target(),
            tenant: TenantName::new(&format!("tenant-{tenant}")).unwrap(),
            principal: somebody(),
            priority: PriorityName::new("p1").unwrap(),
            admission_id: number.to_string().into_bytes().into(),
            attempt: 1,
            ask: 1,
            cost: units(1),
            cost_max: Amounts::default(),
            labels_digest: 0,
            deadline: None,
            dry_run: false,
            wake: false,
        })));
        match told {
            Outcome::Admit(AdmitOutcome::Admitted(admitted)) => {
                self.apply(Operation::Release(Box::new(Release {
                    target: target(),
                    principal: somebody(),
                    grant: admitted.grant.unwrap(),
                    actual: units(1),
                    outcome: CallOutcome::Ok,
                })));
                "admitted"
            }
            Outcome::Admit(AdmitOutcome::Deferred(_)) => "deferred",
            Outcome::Admit(AdmitOutcome::Rejected(_)) => "rejected",
            other => panic!("{other:?}"),
        }
    }

    fn above_empty(&mut self) -> u64 {
        let above = allocated().saturating_sub(self.empty);
        self.most = self.most.max(above);
        above
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn tenants() {
    println!(
        "| target | admitted, deferred, rejected | MiB at most | tenants then | bytes per tenant | \
         MiB and tenants after a rest | us per tenant |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, cap) in [("limited", 100), ("served", 1 << 40)] {
        let mut run = Run::new(cap);
        let (mut told, mut at_most) = ([0_u64; 3], 0);
        let mut took = Duration::ZERO;
        for round in 0..TENANTS / LOOK_EVERY {
            let begun = Instant::now();
            for number in 0..LOOK_EVERY {
                let answer = run.tenant(round * LOOK_EVERY + number);
                let place = ["admitted", "deferred", "rejected"];
                told[place.iter().position(|name| *name == answer).unwrap()] += 1;
            }
            took += begun.elapsed();
            let before = run.most;
            run.above_empty();
            if run.most > before {
                at_most = run.state.view(&target()).unwrap().tenants;
            }
        }
        // Nobody asks for a while; then one tenant does, now and again, as on any target that is in use.
        run.now += REST;
        for number in 0..50_000 {
            run.tenant(TENANTS + number % 8);
        }
        let rested = run.above_empty();
        let tenants = run.state.view(&target()).unwrap().tenants;
        println!(
            "| {name} | {}, {}, {} | {} | {at_most} | {} | {}, {tenants} | {:.1} |",
            told[0],
            told[1],
            told[2],
            mebibytes(run.most),
            run.most / at_most.max(1),
            mebibytes(rested),
            took.as_secs_f64() * 1e6 / TENANTS as f64,
        );
    }
}

fn calls() {
    let mut run = Run::new(1 << 40);
    for number in 0..CALLS {
        run.now += BETWEEN_CALLS;
        run.call(number % 8, number);
    }
    let calls = IDS_PER_TARGET_MAX as u64;
    let remembered = run.above_empty();
    ALLOCATOR.reset_peak_usage();
    let before = allocated();
    run.state.begin_checkpoint();
    let snapshot = loop {
        match run.state.continue_checkpoint(PART_RECORDS) {
            CheckpointStep::UnderWay => {}
            CheckpointStep::Done(checkpoint) => break checkpoint.encode(),
            CheckpointStep::NotBegun => panic!("it was begun"),
        }
    };
    let besides = (ALLOCATOR.peak_usage() as u64).saturating_sub(before);
    println!();
    println!(
        "| calls remembered | MiB | bytes each | MiB of a snapshot | MiB besides while it is taken |"
    );
    println!("|---|---|---|---|---|");
    println!(
        "| {calls} | {} | {} | {} | {} |",
        mebibytes(remembered),
        remembered / calls,
        mebibytes(snapshot.len() as u64),
        mebibytes(besides),
    );
}

fn main() {
    tenants();
    calls();
}
