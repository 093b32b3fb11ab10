//! One record of a plan: the bytes of an operation, and how they are read.

use super::{DIMENSIONS, Number, PRINCIPALS, PRIORITIES, TARGETS, TENANTS, name};
use arbitrary::Arbitrary;
use weir_admission::limits::UNITS_MAX;
use weir_admission::{
    Admit, Amounts, AskName, CallOutcome, DimensionName, Principal, PriorityName, Report,
    TargetName, TenantName,
};

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

    pub(super) fn target(&self) -> TargetName {
        name(TargetName::new, TARGETS[usize::from(self.who & 3)])
    }

    fn tenant(&self) -> TenantName {
        name(TenantName::new, TENANTS[usize::from(self.who >> 2 & 3)])
    }

    fn id(&self) -> Box<[u8]> {
        // 0 to 7: a text each.
        Box::from([b'a' + (self.who >> 4 & 7)])
    }

    pub(super) fn principal(&self) -> Principal {
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

    pub(super) fn amounts(&self, costs: [Number; 2]) -> Amounts {
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

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn expected(&self) -> Option<u64> {
        self.has(Step::EXPECTS).then_some(self.number.into())
    }

    pub(super) fn outcome(&self) -> CallOutcome {
        match self.flags & 3 {
            0 => CallOutcome::Ok,
            1 => CallOutcome::Failed,
            2 => CallOutcome::NotSent,
            _ => CallOutcome::Throttled {
                retry_after: self.span.span(),
            },
        }
    }

    /// Who asks for what, under which number.
    pub(super) fn ask_name(&self) -> AskName {
        AskName {
            target: self.target(),
            tenant: self.tenant(),
            principal: self.principal(),
            admission_id: self.id(),
            attempt: self.attempt(),
            ask: self.ask(),
        }
    }

    pub(super) fn admit(&self) -> Admit {
        let AskName {
            target,
            tenant,
            principal,
            admission_id,
            attempt,
            ask,
        } = self.ask_name();
        Admit {
            target,
            tenant,
            principal,
            priority: self.priority(),
            admission_id,
            attempt,
            ask,
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

    pub(super) fn report(&self) -> Report {
        let ask = self.ask_name();
        Report {
            target: ask.target,
            tenant: ask.tenant,
            principal: ask.principal,
            priority: self.priority(),
            admission_id: ask.admission_id,
            attempt: ask.attempt,
            actual: self.amounts(self.cost),
            age: self.span.span(),
        }
    }
}
