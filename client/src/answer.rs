//! What a caller hears.

use crate::{Guard, Ticket};
use std::time::Duration;

/// The answer to one [`crate::Client::try_admit`].
#[derive(Debug)]
#[must_use]
pub enum Answer {
    /// Send now. The guard must be settled after the call.
    Admitted(Guard),
    /// Not yet: free the slot and come back.
    Deferred(Deferral),
    /// It will not work this way.
    Rejected(Rejection),
}

/// Come back later; the place is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// Come back after this, with the ticket.
    pub retry_in: Duration,
    /// Honest estimate of the first possible start. Zero if nobody knows, see `origin`.
    pub earliest_in: Duration,
    /// Calls in line before this one. Zero if nobody knows.
    pub place: u64,
    /// Name of the limit that binds. Empty if nobody knows.
    pub limit: String,
    /// The place in line is kept this long. Zero if nobody knows.
    pub place_until: Duration,
    /// To be given to the next [`crate::Client::try_admit`] of the same call.
    pub ticket: Ticket,
    /// Who deferred, and why.
    pub origin: Origin,
}

impl Deferral {
    /// True if the client deferred the call itself, without a decision of the cluster.
    pub fn is_local(&self) -> bool {
        match self.origin {
            Origin::Cluster => false,
            Origin::Overloaded | Origin::LateAnswer | Origin::NoAnswer | Origin::LocalShare => true,
        }
    }
}

/// Where a deferral comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The cluster decided it: the call stands in line.
    Cluster,
    /// The cluster has no room for more asks now. Nothing was decided.
    Overloaded,
    /// Grants came later than the policy's reply window allows, again and again. The cluster or the way
    /// to it is too slow, or the window too short.
    LateAnswer,
    /// No answer came, and the outage is shorter than [`crate::Options::ungated_after`].
    NoAnswer,
    /// In an outage, in [`crate::Mode::Local`]: this client's share is used up for now.
    LocalShare,
}

/// Why a call cannot be admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rejected: {message}")]
pub struct Rejection {
    /// The reason, for programs.
    pub reason: RejectReason,
    /// Name of the limit that can never fit the cost, if that is the reason; otherwise empty.
    pub limit: String,
    /// One sentence, for people.
    pub message: String,
}

/// Why a call is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// The cost is above a cap: it can never be admitted under this policy.
    NeverFits,
    /// Too many calls wait at this target, or for this tenant.
    QueueFull,
    /// The earliest start is after the call's deadline.
    Deadline,
    /// The admission id was used before for another call.
    IdConflict,
    /// A newer attempt of the same admission took over.
    Stale,
    /// A reason that this client does not know: the cluster is newer.
    Other,
}
