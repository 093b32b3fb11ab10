//! Input and output of the state: everything that can be asked, everything that can be answered.

use crate::{
    Amounts, DimensionName, LimitName, Micros, Policy, Principal, PriorityName, TargetName,
    TenantName,
};

/// One operation of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Ask whether an attempt may start.
    Admit(Box<Admit>),
    /// End a grant with what was used.
    Release(Box<Release>),
    /// Give up what an attempt holds, a place or a grant that was not used. Names the highest ask sent.
    Cancel(Box<AskName>),
    /// Keep a grant alive.
    Extend(Extend),
    /// Take back the [`wake`](Admit::wake) of a deferred ask: its caller is due back as if it had come by
    /// the clock, now.
    ///
    /// Said by the node that answered the ask, when its session ends: a caller that died with it must not
    /// hold up the line for as long as one that only waits to be told. Changes nothing once a newer ask was
    /// seen.
    Unwake(Box<AskName>),
    /// Charge use that a client let through while it had no answer.
    Report(Box<Report>),
    /// Create or replace a target's policy.
    PutPolicy(Box<PutPolicy>),
    /// Remove a target.
    DeletePolicy(DeletePolicy),
    /// Give a new state the secret under which it keeps ids. Once; later ones change nothing.
    Seed([u8; 16]),
}

impl Operation {
    /// The target that it is about; `None` for a seed, which is about all of them.
    pub fn target(&self) -> Option<&TargetName> {
        match self {
            Operation::Admit(ask) => Some(&ask.target),
            Operation::Release(release) => Some(&release.target),
            Operation::Cancel(ask) | Operation::Unwake(ask) => Some(&ask.target),
            Operation::Extend(extend) => Some(&extend.target),
            Operation::Report(report) => Some(&report.target),
            Operation::PutPolicy(put) => Some(&put.target),
            Operation::DeletePolicy(delete) => Some(&delete.target),
            Operation::Seed(_) => None,
        }
    }
}

/// The answer to one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To [`Operation::Admit`].
    Admit(AdmitOutcome),
    /// To [`Operation::Release`].
    Release(ReleaseOutcome),
    /// To [`Operation::Cancel`].
    Cancel(CancelOutcome),
    /// To [`Operation::Extend`].
    Extend(ExtendOutcome),
    /// To [`Operation::Report`].
    Report(ReportOutcome),
    /// To [`Operation::Unwake`], whether it changed anything or not.
    Unwoken,
    /// To [`Operation::PutPolicy`] and [`Operation::DeletePolicy`].
    Policy(PolicyOutcome),
    /// To [`Operation::Seed`].
    Seeded,
    /// The operation is wrong, whatever its kind; nothing changed.
    Refused(Refusal),
}

/// The caller's fault, found only when the operation met the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No policy under that name.
    TargetUnknown,
    /// The policy has no such priority.
    PriorityUnknown(PriorityName),
    /// No limit of the policy counts this dimension.
    DimensionUnknown(DimensionName),
    /// A cost without a unit, an upper bound below the cost, an id of a wrong length and the like. The
    /// edge checks these first; a log entry that carries one all the same is refused alike everywhere.
    Malformed {
        /// Name of the field.
        field: &'static str,
        /// What it must be.
        rule: &'static str,
    },
    /// The grant or admission belongs to another principal.
    NotOwner,
}

/// Names one grant for ever: where its operation stands in the shard's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId {
    /// Index of the log entry.
    pub index: u64,
    /// Offset of the operation in the entry.
    pub offset: u32,
}

/// Asks whether one attempt of an admission may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admit {
    /// What is called.
    pub target: TargetName,
    /// Who the use is counted against.
    pub tenant: TenantName,
    /// Who asks.
    pub principal: Principal,
    /// A priority of the policy.
    pub priority: PriorityName,
    /// The caller's name of this logical call, 1-128 bytes.
    pub admission_id: Box<[u8]>,
    /// One intention to send.
    pub attempt: u64,
    /// Number of this ask in its attempt, from 1.
    pub ask: u32,
    /// Estimate, or lower bound where `cost_max` has the dimension too.
    pub cost: Amounts,
    /// Upper bounds.
    pub cost_max: Amounts,
    /// Digest of the labels (0 without any); part of what an id stands for.
    pub labels_digest: u64,
    /// Refuse instead of deferring beyond this, from now. `None` means no deadline.
    pub deadline: Option<Micros>,
    /// Answer, change nothing.
    pub dry_run: bool,
    /// The caller is told when its turn is near ([`crate::State::near`]), and need not come back by the
    /// clock before.
    pub wake: bool,
}

/// The answer to an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmitOutcome {
    /// Start in `start_in`.
    Admitted(Admitted),
    /// Come back.
    Deferred(Deferred),
    /// It will not work this way.
    Rejected(Rejected),
}

/// Permission to send once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Names the grant. `None` in a dry run.
    pub grant: Option<GrantId>,
    /// Sleep this long from the answer, then send.
    pub start_in: Micros,
    /// If the answer took longer than this from the ask, do not send: ask again.
    pub reply_window: Micros,
    /// What was charged.
    pub charged: Amounts,
    /// Version of the policy that decided.
    pub policy_version: u64,
}

/// A place in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferred {
    /// Come back after this.
    pub retry_in: Micros,
    /// First possible start if nobody else asked, rounded up.
    pub earliest_in: Micros,
    /// Tickets served before this one.
    pub place: u64,
    /// The limit that binds; `None` while everything is held after a Retry-After.
    pub limit: Option<LimitName>,
    /// The place is kept this long.
    pub place_until: Micros,
    /// Number of the ticket, one of its kind at its target for as long as the admission waits: names it in
    /// [`crate::State::near`]. `None` in a dry run.
    pub ticket: Option<u64>,
    /// Version of the policy that decided.
    pub policy_version: u64,
}

/// Why an ask is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The cost is above the cap of this limit.
    NeverFits {
        /// The limit.
        limit: LimitName,
        /// Its cap in units.
        cap: u64,
        /// The cost in units.
        cost: u64,
        /// Version of the policy that decided.
        policy_version: u64,
    },
    /// Too many tickets at this target, or of this tenant.
    QueueFull {
        /// True if it is the tenant's own bound.
        tenant: bool,
    },
    /// The earliest start is after the deadline. The place is given up.
    Deadline {
        /// First possible start.
        earliest_in: Micros,
    },
    /// The id stands for another call (priority, costs or labels differ).
    IdConflict,
    /// A newer ask or attempt was seen, or the same answer can no longer be used.
    Stale,
}

/// Ends a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The grant's target.
    pub target: TargetName,
    /// Who releases.
    pub principal: Principal,
    /// The grant.
    pub grant: GrantId,
    /// Units used; a missing dimension keeps its estimate, one that no limit counts is ignored.
    pub actual: Amounts,
    /// How the call ended.
    pub outcome: CallOutcome,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// Served.
    Ok,
    /// The provider refused it with 429.
    Throttled {
        /// Its Retry-After.
        retry_after: Micros,
    },
    /// Sent and failed otherwise.
    Failed,
    /// Certainly not sent: the charge is given back.
    NotSent,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// Settled now.
    Applied,
    /// Settled before.
    Already,
    /// The grant ended by itself; its charge stayed.
    Expired,
    /// No such grant is remembered.
    Unknown,
}

/// Names one ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskName {
    /// The admission's target.
    pub target: TargetName,
    /// The admission's tenant.
    pub tenant: TenantName,
    /// Whose it is.
    pub principal: Principal,
    /// The admission's id.
    pub admission_id: Box<[u8]>,
    /// The attempt.
    pub attempt: u64,
    /// Its number in the attempt.
    pub ask: u32,
}

/// The answer to a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// A waiting place was given up.
    PlaceDropped,
    /// A grant was given back with its charge.
    GrantRefunded,
    /// Nothing was there. From now on the attempt's asks up to this number are stale; all of them, if
    /// another attempt of the admission is known.
    Nothing,
    /// A newer ask or attempt was seen.
    Stale,
}

/// Keeps a grant alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extend {
    /// The grant's target.
    pub target: TargetName,
    /// Who extends.
    pub principal: Principal,
    /// The grant.
    pub grant: GrantId,
}

/// The answer to an extend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendOutcome {
    /// The grant now ends by itself after this.
    Extended {
        /// From now.
        expires_in: Micros,
    },
    /// Released or expired before.
    Ended,
    /// No such grant is remembered.
    Unknown,
}

/// Charges one call that a client let through ungated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What was called.
    pub target: TargetName,
    /// Who the use is counted against.
    pub tenant: TenantName,
    /// Who reports.
    pub principal: Principal,
    /// A priority of the policy.
    pub priority: PriorityName,
    /// The admission's id.
    pub admission_id: Box<[u8]>,
    /// The attempt that was let through.
    pub attempt: u64,
    /// Units used.
    pub actual: Amounts,
    /// How long ago it was sent.
    pub age: Micros,
}

/// The answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    /// Charged now.
    Charged,
    /// The attempt had a grant after all: that was settled instead.
    Settled,
    /// Reported or settled before.
    Already,
}

/// Creates or replaces a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutPolicy {
    /// The target.
    pub target: TargetName,
    /// Who puts it; remembered with the policy.
    pub principal: Principal,
    /// The policy.
    pub policy: Policy,
    /// Compare-and-set: `None` puts whatever is there, 0 only creates, n replaces only version n.
    pub expected_version: Option<u64>,
}

/// Removes a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletePolicy {
    /// The target.
    pub target: TargetName,
    /// As in [`PutPolicy`].
    pub expected_version: Option<u64>,
}

/// The answer to a put or a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyOutcome {
    /// In force.
    Put {
        /// Its version, from 1; versions of a name never repeat while its use is remembered.
        version: u64,
        /// False if the same policy was in force.
        changed: bool,
    },
    /// Removed.
    Deleted,
    /// Another version is in force.
    Conflict {
        /// The version in force, 0 if none.
        version: u64,
    },
    /// The shard has [`crate::limits::TARGETS_MAX`] targets.
    Full,
    /// The policy breaks a rule; the edge reports all of them.
    Invalid {
        /// The first violation, as `field: rule`.
        violation: String,
    },
}
