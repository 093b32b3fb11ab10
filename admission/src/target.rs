//! One target: its policy at work.
//!
//! Invariants, checked by [`Target::check`] in tests:
//! - an admission waits, holds a grant, or neither; a waiting one is in its priority's line unless it
//!   lapsed, and always in `due`;
//! - a live grant is charged in every meter of its dimensions exactly once;
//! - `tickets` and the counts in the queues are the numbers of waiting admissions and live grants.

mod account;
mod admission;
mod ahead;
mod ask;
mod check;
mod checkpoint;
mod class;
mod codec;
mod estimate;
mod grants;
mod history;
mod housekeeping;
mod near;
mod put;
mod settle;
mod view;

use crate::by_digest::ByDigest;
use crate::limits::{DIMENSIONS_MAX, LATENESS_START};
use crate::meter::Meter;
use crate::notes::Notes;
use crate::{DimensionName, GrantId, Micros, Policy, Refusal};
use std::collections::BTreeSet;

pub(crate) use admission::{Admission, Grant, GrantRecord, Place, Ticket, Uncertain};
pub(crate) use ahead::Ahead;
pub(crate) use ask::Ask;
pub(crate) use checkpoint::{Stage, Taken};
pub(crate) use class::{Class, Queue};
pub(crate) use estimate::{Bounds, Learned};
pub(crate) use grants::Grants;
pub(crate) use history::{Former, History, Origin};
pub(crate) use settle::{Known, Ungated};

/// Units per dimension slot of a target.
pub(crate) type Units = [u64; DIMENSIONS_MAX];

/// Digest of a tenant and an admission id under the state's secret.
pub(crate) type AdmissionKey = u128;

/// Digest of a tenant and a priority under the state's secret.
pub(crate) type QueueKey = u128;

/// A limit that a former policy had; it goes on counting while a later policy could need it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Retired {
    pub(crate) meter: Meter,
    /// Nothing in its log counts after this.
    pub(crate) until: u64,
}

/// One target's policy, use, waiting admissions and grants.
#[derive(Debug, Default)]
pub(crate) struct Target {
    /// Of the policy in force, or of the last one.
    pub(crate) version: u64,
    /// `None` once deleted: the use is still remembered.
    pub(crate) policy: Option<Policy>,
    /// Who put it, and what was in force before.
    pub(crate) history: History,
    /// Dimension of each slot in use. A dimension keeps its slot as long as a policy names it.
    pub(crate) slots: [Option<DimensionName>; DIMENSIONS_MAX],
    /// The policy's limits, in its order.
    pub(crate) meters: Vec<Meter>,
    /// Limits of former policies.
    pub(crate) retired: Vec<Retired>,
    /// The policy's priorities, highest first.
    pub(crate) classes: Vec<Class>,
    /// Tenants by priority.
    pub(crate) queues: ByDigest<Queue>,
    /// Admissions that are remembered.
    pub(crate) admissions: ByDigest<Admission>,
    /// Grants that are remembered.
    pub(crate) grants: Grants,
    /// When to look at each waiting admission: at the time its caller is due back, or earlier (an ask that
    /// only moves that time on leaves the note as it is).
    pub(crate) due: BTreeSet<(u64, AdmissionKey)>,
    /// Admissions that hold nothing, with the time of forgetting, in rising order of it.
    pub(crate) forgetting: Notes<(u64, AdmissionKey)>,
    /// Grants with the time of their expiry as first set; an extended one is put back when its turn comes.
    pub(crate) expiring: Notes<(u64, GrantId)>,
    /// Ended grants with the time of forgetting, in rising order of it.
    pub(crate) ended: Notes<(u64, GrantId)>,
    /// Idle queues with the time they became idle; a queue that was busy since is put back or dropped.
    pub(crate) idle: Notes<(u64, QueueKey)>,
    /// Largest start tag of a priority served, in 1/1024 ns of cap time.
    pub(crate) virtual_time: i128,
    /// The latest start granted.
    pub(crate) last_start: u64,
    /// Nothing starts before this: the provider said Retry-After.
    pub(crate) held_until: u64,
    /// Average lateness of callers that come back.
    pub(crate) lateness: Micros,
    /// Largest call charged, per slot.
    pub(crate) largest: Units,
    /// Serial of the next ticket.
    pub(crate) next_serial: u64,
    /// Waiting admissions, lapsed ones included.
    pub(crate) tickets: u64,
    /// Grants that are neither released nor expired.
    pub(crate) live_grants: u64,
    /// True once anything was charged.
    pub(crate) served: bool,
    /// How far a checkpoint under way is with it.
    pub(crate) checkpoint: Stage,
}

impl Target {
    /// A target without a policy.
    pub(crate) fn without_policy() -> Target {
        Target {
            lateness: LATENESS_START,
            ..Target::default()
        }
    }

    /// The slot of a dimension of the policy.
    pub(crate) fn slot_of(&self, dimension: &DimensionName) -> Option<usize> {
        self.slots
            .iter()
            .position(|slot| slot.as_ref() == Some(dimension))
    }

    /// A tenant in a priority.
    pub(crate) fn queue(&self, key: QueueKey) -> Option<&Queue> {
        self.queues.get(key)
    }

    /// Slots that are in use, counted to the last one.
    pub(crate) fn dimensions(&self) -> usize {
        self.slots
            .iter()
            .rposition(Option::is_some)
            .map_or(0, |last| last.saturating_add(1))
    }

    /// The longest guarded period of the policy.
    pub(crate) fn longest_period(&self) -> Micros {
        self.meters.iter().map(Meter::period).max().unwrap_or(0)
    }

    /// Dominant share of a cost: nanoseconds of cap time in the dimension that takes most, at least 1.
    pub(crate) fn share(&self, units: &Units) -> i64 {
        self.meters
            .iter()
            .map(|meter| meter.share(at(units, meter.slot)))
            .max()
            .unwrap_or(1)
            .max(1)
    }

    /// Refuses a principal that does not own an admission.
    pub(crate) fn check_owner(&self, key: AdmissionKey, owner: u64) -> Result<(), Refusal> {
        match self.admissions.get(key) {
            Some(admission) if admission.owner != owner => Err(Refusal::NotOwner),
            Some(_) | None => Ok(()),
        }
    }

    /// True if anybody stands in any line.
    pub(crate) fn anybody_in_line(&self) -> bool {
        self.classes.iter().any(|class| !class.line.is_empty())
    }

    /// All meters that charges go to: those in force, and those a later policy could need.
    pub(crate) fn charged_meters(&mut self) -> impl Iterator<Item = &mut Meter> {
        self.meters
            .iter_mut()
            .chain(self.retired.iter_mut().map(|retired| &mut retired.meter))
    }
}

/// Units of one slot; 0 for a slot that does not exist.
pub(crate) fn at(units: &Units, slot: usize) -> u64 {
    units.get(slot).copied().unwrap_or(0)
}
