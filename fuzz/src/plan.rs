//! A history in a few bytes: what happens to a state, said so that operations meet.
//!
//! Names, ids and principals come from small pools, numbers from a short form that reaches the edges, grants
//! and times also from the answers so far. Every byte string is a plan, and every record has one width, so
//! that mutations keep their meaning; [`Step::bytes`] writes what [`Step::arbitrary`] reads.

mod clock;
mod number;
mod policy;
mod step;

pub use number::Number;
pub use policy::{LimitPlan, PolicyPlan};
pub use step::{Kind, Step};

use arbitrary::{Arbitrary, Unstructured};
use clock::Clock;
use std::collections::VecDeque;
use weir_admission::{
    AdmitOutcome, DeletePolicy, Extend, GrantId, Operation, Outcome, PutPolicy, Release, Stamp,
};

/// Names of the pools. The first target is that of the golden scripts.
pub const TARGETS: [&str; 4] = ["api/x", "api/y", "other/x", "z"];
/// See [`TARGETS`].
pub const TENANTS: [&str; 4] = ["t", "ann", "bob", "cy"];
/// See [`TARGETS`].
pub const PRIORITIES: [&str; 4] = ["p1", "p2", "p3", "none"];
/// See [`TARGETS`].
pub const DIMENSIONS: [&str; 10] = [
    "requests", "tokens", "images", "slots", "d4", "d5", "d6", "d7", "d8", "d9",
];
const PRINCIPALS: [&str; 2] = ["anonymous", "mallory"];
/// Grants that are kept of the answers: the oldest are forgotten.
const GRANTS_KEPT: usize = 64;

fn name<N, E: std::fmt::Debug>(new: impl FnOnce(&str) -> Result<N, E>, text: &str) -> N {
    new(text).expect("names of the pools are names")
}

/// One log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its index, from 1.
    pub index: u64,
    /// Its stamp, which may lie before that of the entry before.
    pub stamp: Stamp,
    /// Its operations.
    pub batch: Vec<Operation>,
    /// True if one replica is read back from its bytes before it.
    pub restores: bool,
}

/// Makes entries of a plan, with what the answers told.
#[derive(Debug)]
pub struct Plan<'a> {
    rest: Unstructured<'a>,
    /// The first step of the next entry.
    next: Option<(Step, Option<Operation>)>,
    clock: Clock,
    index: u64,
    grants: VecDeque<GrantId>,
}

impl<'a> Plan<'a> {
    /// The plan that some bytes are.
    pub fn new(bytes: &'a [u8]) -> Plan<'a> {
        Plan {
            rest: Unstructured::new(bytes),
            next: None,
            clock: Clock::default(),
            index: 0,
            grants: VecDeque::new(),
        }
    }

    /// The next entry, if the plan goes on.
    pub fn entry(&mut self) -> Option<Entry> {
        let (first, operation) = self.next.take().or_else(|| self.step())?;
        self.clock.wait(first.wait);
        let mut batch = Vec::from_iter(operation);
        while let Some((step, operation)) = self.step() {
            if step.what & Step::JOINS == 0 {
                self.next = Some((step, operation));
                break;
            }
            batch.extend(operation);
        }
        self.index += 1;
        Some(Entry {
            index: self.index,
            stamp: Stamp::from_micros(self.clock.now),
            batch,
            restores: first.what & Step::RESTORES != 0,
        })
    }

    /// Takes note of the answers to the last entry.
    pub fn note(&mut self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            self.clock.note(outcome);
            let Outcome::Admit(AdmitOutcome::Admitted(admitted)) = outcome else {
                continue;
            };
            self.grants.extend(admitted.grant);
            if self.grants.len() > GRANTS_KEPT {
                self.grants.pop_front();
            }
        }
    }

    fn step(&mut self) -> Option<(Step, Option<Operation>)> {
        if self.rest.is_empty() {
            return None;
        }
        let step = Step::arbitrary(&mut self.rest).ok()?;
        let operation = self.operation(&step)?;
        Some((step, operation))
    }

    /// A grant of an answer, or any.
    fn grant(&self, step: &Step) -> GrantId {
        let back = usize::from(step.number);
        let known = self
            .grants
            .iter()
            .rev()
            .nth(back % self.grants.len().max(1));
        match known {
            Some(grant) if !step.has(Step::BY_INDEX) => *grant,
            Some(_) | None => GrantId {
                index: step.number.into(),
                offset: 0,
            },
        }
    }

    /// What a step does; nothing inside if time only goes on, nothing at all if its policy is cut off.
    fn operation(&mut self, step: &Step) -> Option<Option<Operation>> {
        Some(Some(match step.kind() {
            Kind::Admit => Operation::Admit(Box::new(step.admit())),
            Kind::Release => Operation::Release(Box::new(Release {
                target: step.target(),
                principal: step.principal(),
                grant: self.grant(step),
                actual: step.amounts(step.cost),
                outcome: step.outcome(),
            })),
            Kind::Cancel => Operation::Cancel(Box::new(step.ask_name())),
            Kind::Unwake => Operation::Unwake(Box::new(step.ask_name())),
            Kind::Extend => Operation::Extend(Extend {
                target: step.target(),
                principal: step.principal(),
                grant: self.grant(step),
            }),
            Kind::Report => Operation::Report(Box::new(step.report())),
            Kind::Put => Operation::PutPolicy(Box::new(PutPolicy {
                target: step.target(),
                principal: step.principal(),
                policy: PolicyPlan::arbitrary(&mut self.rest).ok()?.policy(),
                expected_version: step.expected(),
            })),
            Kind::Delete => Operation::DeletePolicy(DeletePolicy {
                target: step.target(),
                expected_version: step.expected(),
            }),
            Kind::Seed => Operation::Seed([step.number; 16]),
            Kind::Nothing => return Some(None),
        }))
    }
}
