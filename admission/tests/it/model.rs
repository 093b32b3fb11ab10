//! A second implementation of the rules, as naive as it can be: names instead of digests, lists that are
//! searched from end to end, a ledger instead of a log of buckets, sums made anew for each question.
//!
//! It is written from the rules and from what the public items promise, not from the product's code. Where
//! an answer hangs on a choice that the rules leave open (the width of a bucket, how many notes one
//! operation looks at), the choice is written down here again. Bounds on the number of tickets and ids are
//! out of its scope: histories stay far below them.

mod admit;
mod ends;
mod estimate;
mod meter;
mod order;
mod policy;
mod time;
mod view;

use meter::Meter;
use std::collections::{BTreeMap, BTreeSet};
use weir_admission::{
    Admit, Amounts, AskName, DimensionName, GrantId, Operation, Outcome, Policy, PolicyOutcome,
    Principal, PriorityName, Refusal, Stamp, TargetName, TargetView, TenantName,
};

/// Units by dimension, without zeros.
pub(crate) type Units = BTreeMap<DimensionName, u64>;
/// A call's name: tenant and the caller's id.
type CallName = (TenantName, Box<[u8]>);
/// A tenant in a priority.
type QueueName = (TenantName, PriorityName);

const SECOND: u64 = 1_000_000;

/// One shard.
#[derive(Default)]
pub(crate) struct Model {
    now: u64,
    targets: BTreeMap<TargetName, Target>,
    /// Whose turn it was to be looked at without being asked for.
    turn: Option<TargetName>,
}

/// One target: its policy, what was used, who waits, who runs.
#[derive(Default)]
struct Target {
    now: u64,
    version: u64,
    policy: Option<Policy>,
    /// The dimensions that the last policy counts.
    counted: BTreeSet<DimensionName>,
    meters: Vec<Meter>,
    /// Limits of former policies, and until when each goes on counting.
    former: Vec<(Meter, u64)>,
    classes: Vec<Class>,
    queues: BTreeMap<QueueName, Queue>,
    calls: BTreeMap<CallName, Call>,
    grants: BTreeMap<GrantId, Record>,
    /// Notes to forget a call that holds nothing, to end a grant, to forget a grant that ended.
    to_forget: Vec<(u64, CallName)>,
    to_expire: Vec<(u64, GrantId)>,
    to_bury: Vec<(u64, GrantId)>,
    /// Tenants of which nothing waits or runs, in the order in which they were noted.
    idle: Vec<(u64, QueueName)>,
    /// Largest start tag of a priority served.
    virtual_time: i128,
    last_start: u64,
    held_until: u64,
    lateness: u64,
    largest: Units,
    next_serial: u64,
    served: bool,
}

/// A priority of the policy.
struct Class {
    name: PriorityName,
    weight: u32,
    tag: i128,
    /// Largest tag of a ticket served.
    virtual_time: i128,
    last_ask: Option<(u64, Units)>,
    admitted: u64,
    deferred: u64,
    rejected: u64,
    throttled: u64,
    served_ns: i128,
}

/// What a tenant has in a priority.
struct Queue {
    weight: u32,
    /// Tag at which its last ticket ends.
    finish: i128,
    grants: u32,
    learned: BTreeMap<DimensionName, estimate::Learned>,
    idle_since: u64,
    listed: bool,
}

/// One call that wants to happen.
struct Call {
    owner: Principal,
    /// Priority, costs and labels; `None` until an ask was seen.
    stands_for: Option<(PriorityName, Amounts, Amounts, u64)>,
    queue: Option<QueueName>,
    attempt: u64,
    ask: u32,
    /// Earlier attempts, and whether each left a charge.
    closed: Vec<(u64, bool)>,
    holds: Holds,
    forget_at: u64,
}

enum Holds {
    Nothing,
    Ticket(Ticket),
    Grant(GrantId),
    /// It was let through ungated and is charged.
    Report,
}

#[derive(Clone)]
struct Ticket {
    tag: i128,
    serial: u64,
    units: Units,
    share: i128,
    due: u64,
    /// It stands in no line.
    lapsed: bool,
}

enum Record {
    Live(Grant),
    Ended {
        call: CallName,
        owner: Principal,
        expired: bool,
    },
}

#[derive(Clone)]
struct Grant {
    call: CallName,
    queue: QueueName,
    owner: Principal,
    start: u64,
    charge: Charge,
    share: i128,
    tag: i128,
    serial: u64,
    expires: u64,
}

/// What is charged, and what part of it is a guess.
#[derive(Clone)]
struct Charge {
    units: Units,
    /// Lower bounds, and the variance of each dimension that was guessed.
    guess: Option<(Units, BTreeMap<DimensionName, u128>)>,
}

impl Charge {
    fn exact(units: Units) -> Charge {
        Charge { units, guess: None }
    }

    fn variance(&self, dimension: &DimensionName) -> u128 {
        let guess = self.guess.as_ref();
        guess
            .and_then(|(_, variance)| variance.get(dimension).copied())
            .unwrap_or(0)
    }
}

/// Units of one dimension.
fn of(units: &Units, dimension: &DimensionName) -> u64 {
    units.get(dimension).copied().unwrap_or(0)
}

impl Model {
    /// What [`weir_admission::State::apply`] does.
    pub(crate) fn apply(&mut self, index: u64, stamp: Stamp, batch: &[Operation]) -> Vec<Outcome> {
        self.now = self.now.max(stamp.as_micros());
        for target in self.targets.values_mut() {
            target.now = self.now;
        }
        // A deleted target is forgotten once no use of it counts.
        let now = self.now;
        self.targets
            .retain(|_, target| target.policy.is_some() || target.counts_until() > now);
        self.look_at_next();
        let mut outcomes = Vec::new();
        for (offset, operation) in (0..).zip(batch) {
            let id = GrantId { index, offset };
            outcomes.push(self.one(id, operation).unwrap_or_else(Outcome::Refused));
        }
        outcomes
    }

    /// One target is looked at in turn, in order of name; after the last one a turn is left out.
    fn look_at_next(&mut self) {
        let last = self.turn.take();
        for (name, target) in &mut self.targets {
            if last.as_ref().is_none_or(|last| name > last) {
                target.look();
                self.turn = Some(name.clone());
                return;
            }
        }
    }

    fn one(&mut self, id: GrantId, operation: &Operation) -> Result<Outcome, Refusal> {
        match operation {
            Operation::Admit(admit) => {
                well_formed(admit)?;
                self.in_force(&admit.target)?.admit(id, admit)
            }
            Operation::Release(release) => self.known(&release.target)?.release(
                &release.principal,
                release.grant,
                &release.actual,
                release.outcome,
            ),
            Operation::Cancel(cancel) => self.cancel(cancel),
            Operation::Extend(extend) => self
                .known(&extend.target)?
                .extend(&extend.principal, extend.grant),
            Operation::Unwake(unwake) => {
                well_named(&unwake.admission_id)?;
                self.in_force(&unwake.target)?.unwake(unwake);
                Ok(Outcome::Unwoken)
            }
            Operation::Report(report) => {
                well_named(&report.admission_id)?;
                self.in_force(&report.target)?.report(report)
            }
            Operation::PutPolicy(put) => {
                let outcome = self.put(&put.target, &put.policy, put.expected_version);
                Ok(Outcome::Policy(outcome))
            }
            Operation::DeletePolicy(delete) => {
                let outcome = self.delete(&delete.target, delete.expected_version)?;
                Ok(Outcome::Policy(outcome))
            }
            Operation::Seed(_) => Ok(Outcome::Seeded),
        }
    }

    fn cancel(&mut self, cancel: &AskName) -> Result<Outcome, Refusal> {
        well_named(&cancel.admission_id)?;
        self.known(&cancel.target)?.cancel(cancel)
    }

    /// A target with a policy, looked at.
    fn in_force(&mut self, name: &TargetName) -> Result<&mut Target, Refusal> {
        match self.targets.get_mut(name) {
            Some(target) if target.policy.is_some() => {
                target.look();
                Ok(target)
            }
            Some(_) | None => Err(Refusal::TargetUnknown),
        }
    }

    /// A target with a policy or without, looked at: grants outlive their policy.
    fn known(&mut self, name: &TargetName) -> Result<&mut Target, Refusal> {
        let target = self.targets.get_mut(name).ok_or(Refusal::TargetUnknown)?;
        target.look();
        Ok(target)
    }

    fn version(&self, name: &TargetName) -> u64 {
        match self.targets.get(name) {
            Some(target) if target.policy.is_some() => target.version,
            Some(_) | None => 0,
        }
    }

    fn put(&mut self, name: &TargetName, policy: &Policy, expected: Option<u64>) -> PolicyOutcome {
        if let Some(violation) = policy.violations().first() {
            let violation = format!("{}: {}", violation.field, violation.description);
            return PolicyOutcome::Invalid { violation };
        }
        let version = self.version(name);
        if expected.is_some_and(|expected| expected != version) {
            return PolicyOutcome::Conflict { version };
        }
        let now = self.now;
        let target = self.targets.entry(name.clone()).or_insert_with(|| Target {
            now,
            lateness: order::LATENESS_AT_FIRST,
            ..Target::default()
        });
        let changed = target.policy.as_ref() != Some(policy);
        if changed {
            target.look();
            target.put(policy);
        }
        PolicyOutcome::Put {
            version: target.version,
            changed,
        }
    }

    fn delete(
        &mut self,
        name: &TargetName,
        expected: Option<u64>,
    ) -> Result<PolicyOutcome, Refusal> {
        let version = self.version(name);
        if version == 0 {
            return Err(Refusal::TargetUnknown);
        }
        if expected.is_some_and(|expected| expected != version) {
            return Ok(PolicyOutcome::Conflict { version });
        }
        let target = self.known(name)?;
        target.delete();
        Ok(PolicyOutcome::Deleted)
    }

    /// What [`weir_admission::State::view`] shows.
    pub(crate) fn view(&self, name: &TargetName) -> Option<TargetView> {
        self.targets.get(name)?.view(name)
    }
}

fn rule(holds: bool, field: &'static str, rule: &'static str) -> Result<(), Refusal> {
    if holds {
        Ok(())
    } else {
        Err(Refusal::Malformed { field, rule })
    }
}

fn well_named(id: &[u8]) -> Result<(), Refusal> {
    let fits = !id.is_empty() && id.len() <= 128;
    rule(fits, "admission_id", "must be 1 to 128 bytes")
}

fn well_formed(admit: &Admit) -> Result<(), Refusal> {
    well_named(&admit.admission_id)?;
    rule(admit.ask >= 1, "ask", "must be at least 1")?;
    let costs = admit.cost.iter().any(|(_, units)| units > 0);
    rule(costs, "cost", "must have a unit in at least one dimension")?;
    let month = 31 * 24 * 3_600 * SECOND;
    let soon = admit.deadline.is_none_or(|deadline| deadline <= month);
    rule(soon, "deadline_us", "must be at most 31 days")
}
