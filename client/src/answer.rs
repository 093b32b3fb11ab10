//! What a caller hears.

use crate::limits::RETRY_IN_MAX;
use crate::{Guard, Ticket};
use std::time::Duration;
use weir_proto::v1;

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

impl Answer {
    /// True if the cluster decided it, in time.
    pub(crate) fn is_of_use(&self) -> bool {
        match self {
            Answer::Admitted(guard) => !guard.is_ungated(),
            Answer::Deferred(deferral) => !deferral.is_local(),
            Answer::Rejected(_) => true,
        }
    }
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
    /// What the cluster decided.
    pub(crate) fn decided(deferred: v1::Deferred, ticket: Ticket) -> Deferral {
        Deferral {
            retry_in: Duration::from_micros(deferred.retry_in_us)
                .clamp(Duration::from_millis(1), RETRY_IN_MAX),
            earliest_in: Duration::from_micros(deferred.earliest_in_us),
            place: deferred.place,
            limit: deferred.limit,
            place_until: Duration::from_micros(deferred.place_until_us),
            ticket,
            origin: Origin::Cluster,
        }
    }

    /// What the client decides itself, knowing nothing.
    pub(crate) fn local(origin: Origin, retry_in: Duration, ticket: Ticket) -> Deferral {
        Deferral {
            retry_in: retry_in.min(RETRY_IN_MAX),
            earliest_in: Duration::ZERO,
            place: 0,
            limit: String::new(),
            place_until: Duration::ZERO,
            ticket,
            origin,
        }
    }

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
    /// to it is too slow, or the window too short. The pause grows while nothing of use is heard from the
    /// shard, up to 6.4 s. Before a long one the grant is given back, and with it the place in line.
    LateAnswer,
    /// No answer came, and the outage is shorter than [`crate::Options::ungated_after`]. The pause grows as
    /// with [`Origin::LateAnswer`] if the mode is not to decide soon.
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
    /// Cap of that limit and cost in its dimension, in units; otherwise zero.
    pub cap: u64,
    /// See `cap`.
    pub cost: u64,
    /// First possible start, if the deadline is the reason; otherwise zero.
    pub earliest_in: Duration,
    /// One sentence, for people.
    pub message: String,
}

impl Rejection {
    /// What the cluster decided.
    pub(crate) fn decided(reason: RejectReason, rejected: v1::Rejected) -> Rejection {
        Rejection {
            reason,
            limit: rejected.limit,
            cap: rejected.cap,
            cost: rejected.cost,
            earliest_in: Duration::from_micros(rejected.earliest_in_us),
            message: rejected.message,
        }
    }

    /// Every answer was stale.
    pub(crate) fn taken_over() -> Rejection {
        let rejected = v1::Rejected {
            message: "a newer attempt of this admission took over".to_owned(),
            ..v1::Rejected::default()
        };
        Rejection::decided(RejectReason::Stale, rejected)
    }
}

/// Why a call is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// The cost is above a cap: it can never be admitted under this policy.
    NeverFits,
    /// Too many calls wait at this target.
    QueueFull,
    /// Too many calls of this tenant wait at this target.
    TenantQueueFull,
    /// The earliest start is after the call's deadline.
    Deadline,
    /// The admission id was used before for another call.
    IdConflict,
    /// A newer attempt of the same admission took over.
    Stale,
    /// A reason that this client does not know: the cluster is newer.
    Other,
}
