//! What an operator may see of a target.

use crate::{
    AdmitOutcome, DimensionName, GrantId, LimitName, Micros, Policy, Principal, PriorityName,
    TargetName, TenantName,
};

/// A target's policy and use at one moment. Counts of tenants, grants and tickets may include what ended by
/// itself since anything was last asked of the target; use never does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetView {
    /// Its name.
    pub name: TargetName,
    /// Version of its policy.
    pub version: u64,
    /// Its policy.
    pub policy: Policy,
    /// Use of each limit, in the policy's order.
    pub limits: Vec<LimitUse>,
    /// Each priority, in the policy's order.
    pub priorities: Vec<PriorityUse>,
    /// Tenants with state.
    pub tenants: u64,
    /// Grants neither released nor expired.
    pub grants: u64,
    /// Tickets in line, lapsed ones included.
    pub waiting: u64,
    /// Everything is held this long after a Retry-After.
    pub held_for: Micros,
}

/// Use of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUse {
    /// Its name.
    pub name: LimitName,
    /// Units that count against the cap now.
    pub used: u64,
    /// The cap in units.
    pub cap: u64,
    /// Guard added to the period.
    pub guard: Micros,
}

/// One priority's line and history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityUse {
    /// Its name.
    pub name: PriorityName,
    /// Tickets in line.
    pub waiting: u64,
    /// Asks admitted, deferred and rejected, and grants released as throttled, since the first policy.
    pub admitted: u64,
    /// See above.
    pub deferred: u64,
    /// See above.
    pub rejected: u64,
    /// See above.
    pub throttled: u64,
    /// Dominant share served, in nanoseconds of cap time.
    pub served_ns: u64,
}

/// One version of a target's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyVersion {
    /// Its number, from 1.
    pub version: u64,
    /// Who put it.
    pub put_by: Principal,
    /// How long ago, in cluster time: while the shard decides nothing it does not pass.
    pub age: Micros,
    /// The policy.
    pub policy: Policy,
}

/// Why an ask would be answered as it would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The answer to a dry run.
    pub outcome: AdmitOutcome,
    /// True if the admission waits in line already; otherwise it is looked at as a new one.
    pub waits: bool,
    /// What is remembered of the admission; `None` if nothing is.
    pub known: Option<KnownAdmission>,
    /// Everything is held this long after a Retry-After.
    pub held_for: Micros,
    /// Each limit, in the policy's order.
    pub limits: Vec<LimitAhead>,
    /// Each priority, in the policy's order.
    pub priorities: Vec<PriorityAhead>,
}

/// What is remembered of an admission: enough to give it up by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownAdmission {
    /// Its newest attempt.
    pub attempt: u64,
    /// The highest ask of that attempt.
    pub ask: u32,
    /// What it holds.
    pub holds: Holds,
}

/// What an admission holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Nothing: it was given up or rejected.
    Nothing,
    /// A place in line.
    Place,
    /// A grant that was neither released nor expired.
    Grant(GrantId),
    /// Nothing any more: its grant was released, given back or expired.
    EndedGrant(GrantId),
    /// A charge: its client let it through ungated and reported it.
    Charge,
}

/// What one limit has to say to an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitAhead {
    /// Its name.
    pub name: LimitName,
    /// What it counts.
    pub dimension: DimensionName,
    /// The cap in units.
    pub cap: u64,
    /// Units that count against the cap now.
    pub used: u64,
    /// Units of the tickets that are served first.
    pub ahead: u64,
    /// Units that the call would be charged.
    pub cost: u64,
    /// First start behind those tickets if this were the only limit.
    pub earliest_in: Micros,
}

/// What one priority puts before an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityAhead {
    /// Its name.
    pub name: PriorityName,
    /// Tickets in its line.
    pub waiting: u64,
    /// Tickets of it that are served first.
    pub ahead: u64,
    /// Their dominant share, in nanoseconds of cap time.
    pub share_ns: u64,
}

/// What an operation would change in what is charged, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Who the grant is counted against.
    pub tenant: TenantName,
    /// Its priority.
    pub priority: PriorityName,
    /// Units that were charged so far, in each dimension with any.
    pub charged: Vec<(DimensionName, u64)>,
    /// Units more, or fewer, in each dimension that changes.
    pub change: Vec<(DimensionName, i64)>,
}
