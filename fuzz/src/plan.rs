//! A history in a few bytes: what happens to a state, said so that operations meet.
//!
//! Names, ids and principals come from small pools, numbers from a short form that reaches the edges, grants
//! and times also from the answers so far. Every byte string is a plan, and every record has one width, so
//! that mutations keep their meaning; [`Step::bytes`] writes what [`Step::arbitrary`] reads.

mod policy;

pub use policy::{LimitPlan, PolicyPlan};

use arbitrary::{Arbitrary, Unstructured};
use std::collections::VecDeque;
use weir_admission::limits::{PERIOD_MAX, UNITS_MAX};
use weir_admission::{
    Admit, AdmitOutcome, Amounts, AskName, CallOutcome, DeletePolicy, DimensionName, Extend,
    ExtendOutcome, GrantId, Operation, Outcome, Principal, PriorityName, PutPolicy, Release,
    Report, Stamp, TargetName, TenantName,
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

/// A number in two bytes: 12 bits, and what they count.
#[derive(Arbitrary, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Number(pub u16);

const MAGNITUDE: u16 = 0x0fff;

impl Number {
    /// What the bits of magnitude count, in microseconds, up to the last two: those are special.
    const SPANS: [u64; 14] = [
        1,
        10,
        1_000,
        10_000,
        100_000,
        500_000,
        1_000_000,
        10_000_000,
        60_000_000,
        600_000_000,
        3_600_000_000,
        86_400_000_000,
        1 << 40,
        1 << 49,
    ];
    const UNITS: [u64; 14] = [
        1,
        2,
        3,
        10,
        100,
        1_000,
        10_000,
        1_000_000,
        1_000_000_000,
        1 << 20,
        1 << 30,
        1 << 35,
        1 << 40,
        1 << 51,
    ];

    fn parts(self) -> (u64, usize) {
        let Number(bits) = self;
        (u64::from(bits & MAGNITUDE), usize::from(bits >> 12))
    }

    fn scaled(self, scales: [u64; 14], edge: u64) -> u64 {
        let (magnitude, unit) = self.parts();
        match scales.get(unit) {
            Some(scale) => magnitude.saturating_mul(*scale),
            None if unit == 14 => edge.saturating_add(8).saturating_sub(magnitude),
            None => u64::MAX.saturating_sub(magnitude),
        }
    }

    /// A length of time in microseconds; with the last units around the longest that is allowed, and the
    /// longest that there is.
    pub fn span(self) -> u64 {
        self.scaled(Self::SPANS, PERIOD_MAX)
    }

    /// A number of units, likewise.
    pub fn units(self) -> u64 {
        self.scaled(Self::UNITS, UNITS_MAX)
    }

    fn nearest(value: u64, scales: [u64; 14]) -> Number {
        let fits = |scale: &u64| value.is_multiple_of(*scale) && value / scale <= 0x0fff;
        let unit = scales.iter().rposition(fits);
        let unit = unit.or_else(|| scales.iter().position(|scale| value / scale <= 0x0fff));
        let unit = unit.unwrap_or(scales.len() - 1);
        let magnitude = (value / scales[unit]).min(0x0fff);
        Number((unit as u16) << 12 | magnitude as u16)
    }

    /// The form of a length of time, or of one near it.
    pub fn of_span(us: u64) -> Number {
        Self::nearest(us, Self::SPANS)
    }

    /// The form of a number of units, or of one near it.
    pub fn of_units(units: u64) -> Number {
        Self::nearest(units, Self::UNITS)
    }
}

/// One operation, and when it comes.
#[derive(Arbitrary, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The kind of operation in the low four bits ([`Step::KINDS`]), and [`Step::JOINS`],
    /// [`Step::RESTORES`].
    pub what: u8,
    /// Target, tenant (two bits each), id (three bits), and whether a stranger speaks.
    pub who: u8,
    /// Attempt and ask, four bits each; or which grant, counted from the last one; or the version expected.
    pub number: u8,
    /// Priority (two bits), and what else the operation can say.
    pub flags: u8,
    /// Dimensions of the two costs, four bits each.
    pub dimensions: u8,
    /// Costs, or what was used.
    pub cost: [Number; 2],
    /// Upper bounds.
    pub cost_max: [Number; 2],
    /// Deadline, Retry-After or age.
    pub span: Number,
    /// How far time goes on before it; see [`Clock::wait`].
    pub wait: Number,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An ask.
    Admit,
    /// A release.
    Release,
    /// A cancel.
    Cancel,
    /// An extension.
    Extend,
    /// A wake taken back.
    Unwake,
    /// A report.
    Report,
    /// A put; its policy follows the step.
    Put,
    /// A delete.
    Delete,
    /// The seed.
    Seed,
    /// Nothing: time goes on.
    Nothing,
}

impl Step {
    /// Kinds by their number; asks are the most frequent ones.
    pub const KINDS: [Kind; 16] = [
        Kind::Admit,
        Kind::Release,
        Kind::Cancel,
        Kind::Extend,
        Kind::Report,
        Kind::Put,
        Kind::Delete,
        Kind::Seed,
        Kind::Nothing,
        Kind::Admit,
        Kind::Admit,
        Kind::Admit,
        Kind::Unwake,
        Kind::Release,
        Kind::Release,
        Kind::Put,
    ];
    /// The operation joins the entry of the one before.
    pub const JOINS: u8 = 0x80;
    /// One replica is read back from its bytes before the entry.
    pub const RESTORES: u8 = 0x40;
    /// The asks' flags.
    pub const DRY_RUN: u8 = 0x04;
    /// See [`Step::DRY_RUN`].
    pub const WAKE: u8 = 0x08;
    /// See [`Step::DRY_RUN`].
    pub const DEADLINE: u8 = 0x10;
    /// Upper bounds are told.
    pub const BOUNDED: u8 = 0x20;
    /// Only the first cost is told.
    pub const ONE_COST: u8 = 0x40;
    /// Of releases and extensions: `number` is the index of the grant's entry.
    pub const BY_INDEX: u8 = 0x80;
    /// Of puts and deletes: `number` is the version expected.
    pub const EXPECTS: u8 = 0x80;

    /// What the step does.
    pub fn kind(&self) -> Kind {
        Self::KINDS[usize::from(self.what & 0x0f)]
    }

    /// The bytes that [`Step::arbitrary`] reads as this step.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![
            self.what,
            self.who,
            self.number,
            self.flags,
            self.dimensions,
        ];
        let numbers = self.cost.iter().chain(&self.cost_max);
        for Number(bits) in numbers.chain([&self.span, &self.wait]) {
            bytes.extend_from_slice(&bits.to_le_bytes());
        }
        bytes
    }

    fn target(&self) -> TargetName {
        name(TargetName::new, TARGETS[usize::from(self.who & 3)])
    }

    fn tenant(&self) -> TenantName {
        name(TenantName::new, TENANTS[usize::from(self.who >> 2 & 3)])
    }

    fn id(&self) -> Box<[u8]> {
        // 0 to 7: a text each.
        Box::from([b'a' + (self.who >> 4 & 7)])
    }

    fn principal(&self) -> Principal {
        name(Principal::new, PRINCIPALS[usize::from(self.who >> 7)])
    }

    fn priority(&self) -> PriorityName {
        name(PriorityName::new, PRIORITIES[usize::from(self.flags & 3)])
    }

    fn attempt(&self) -> u64 {
        match self.number & 0x0f {
            15 => u64::MAX,
            attempt => attempt.into(),
        }
    }

    fn ask(&self) -> u32 {
        match self.number >> 4 {
            15 => u32::MAX,
            ask => ask.into(),
        }
    }

    fn amounts(&self, costs: [Number; 2]) -> Amounts {
        let (first, second) = (self.dimensions & 0x0f, self.dimensions >> 4);
        let places = [first, second].map(|place| usize::from(place) % DIMENSIONS.len());
        let mut list: Vec<_> = (places.into_iter().zip(costs))
            .map(|(place, cost)| {
                let units = cost.units().min(UNITS_MAX);
                (name(DimensionName::new, DIMENSIONS[place]), units)
            })
            .collect();
        if places[0] == places[1] || self.has(Step::ONE_COST) {
            list.truncate(1);
        }
        Amounts::new(list).expect("two dimensions")
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn expected(&self) -> Option<u64> {
        self.has(Step::EXPECTS).then_some(self.number.into())
    }

    fn outcome(&self) -> CallOutcome {
        match self.flags & 3 {
            0 => CallOutcome::Ok,
            1 => CallOutcome::Failed,
            2 => CallOutcome::NotSent,
            _ => CallOutcome::Throttled {
                retry_after: self.span.span(),
            },
        }
    }

    fn admit(&self) -> Admit {
        Admit {
            target: self.target(),
            tenant: self.tenant(),
            principal: self.principal(),
            priority: self.priority(),
            admission_id: self.id(),
            attempt: self.attempt(),
            ask: self.ask(),
            cost: self.amounts(self.cost),
            cost_max: if self.has(Step::BOUNDED) {
                self.amounts(self.cost_max)
            } else {
                Amounts::default()
            },
            labels_digest: 0,
            deadline: self.has(Step::DEADLINE).then(|| self.span.span()),
            dry_run: self.has(Step::DRY_RUN),
            wake: self.has(Step::WAKE),
        }
    }

    fn ask_name(&self) -> AskName {
        AskName {
            target: self.target(),
            tenant: self.tenant(),
            principal: self.principal(),
            admission_id: self.id(),
            attempt: self.attempt(),
            ask: self.ask(),
        }
    }

    fn report(&self) -> Report {
        Report {
            target: self.target(),
            tenant: self.tenant(),
            principal: self.principal(),
            priority: self.priority(),
            admission_id: self.id(),
            attempt: self.attempt(),
            actual: self.amounts(self.cost),
            age: self.span.span(),
        }
    }
}

fn name<N, E: std::fmt::Debug>(new: impl FnOnce(&str) -> Result<N, E>, text: &str) -> N {
    new(text).expect("names of the pools are names")
}

/// Cluster time, and the times that answers made interesting.
#[derive(Debug, Default)]
struct Clock {
    now: u64,
    told: [u64; 4],
}

impl Clock {
    /// Goes on by a span; with the last two units to about a moment that an answer told, or back.
    fn wait(&mut self, wait: Number) {
        let (magnitude, unit) = wait.parts();
        self.now = match unit {
            14 => {
                let moment = self.told[(magnitude & 3) as usize];
                moment.saturating_add(magnitude >> 2).saturating_sub(512)
            }
            15 => self.now.saturating_sub(magnitude),
            _ => self.now.saturating_add(wait.span()),
        };
    }

    fn note(&mut self, outcome: &Outcome) {
        let told = match outcome {
            Outcome::Admit(AdmitOutcome::Admitted(admitted)) => {
                [(0, admitted.start_in), (1, admitted.reply_window)]
            }
            Outcome::Admit(AdmitOutcome::Deferred(deferred)) => {
                [(2, deferred.retry_in), (3, deferred.place_until)]
            }
            Outcome::Extend(ExtendOutcome::Extended { expires_in }) => {
                [(1, *expires_in), (1, *expires_in)]
            }
            Outcome::Admit(AdmitOutcome::Rejected(_))
            | Outcome::Release(_)
            | Outcome::Cancel(_)
            | Outcome::Extend(_)
            | Outcome::Report(_)
            | Outcome::Unwoken
            | Outcome::Policy(_)
            | Outcome::Seeded
            | Outcome::Refused(_) => return,
        };
        for (place, after) in told {
            self.told[place] = self.now.saturating_add(after);
        }
    }
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
