//! The error table: every reason, what a caller may do about it, and what may have happened.

use tonic::Code;

/// Whether the same request may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Not unless something else changes first.
    Never,
    /// Yes, after a pause: the one told, or a short one of the caller's own.
    Later,
    /// Yes, at once, at the leader told; without one, ask any other node.
    AtLeader,
}

/// Whether a request may have had an effect although it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Nothing,
    Possible,
}

macro_rules! reasons {
    ($($(#[$doc:meta])+ $reason:ident, $text:literal, $code:ident, $retry:ident, $effect:ident;)+) => {
        /// Why a request has no answer. Names and meanings are part of the wire contract: they are added
        /// to, never changed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])+ $reason,)+
        }

        impl Reason {
            /// Every reason, in the order of the table.
            pub const ALL: &'static [Reason] = &[$(Reason::$reason),+];

            /// The name that travels: `NOT_LEADER`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Reason::$reason => $text),+ }
            }

            /// The gRPC code that goes with it.
            pub const fn code(self) -> Code {
                match self { $(Reason::$reason => Code::$code),+ }
            }

            /// Whether the same request may succeed later.
            pub const fn retry(self) -> Retry {
                match self { $(Reason::$reason => Retry::$retry),+ }
            }

            const fn effect(self) -> Effect {
                match self { $(Reason::$reason => Effect::$effect),+ }
            }
        }
    };
}

reasons! {
    /// The request breaks a rule; the details name every field and what it must be.
    Malformed, "MALFORMED", InvalidArgument, Never, Nothing;
    /// The target has no policy.
    TargetUnknown, "TARGET_UNKNOWN", NotFound, Never, Nothing;
    /// The target's policy has no such priority.
    PriorityUnknown, "PRIORITY_UNKNOWN", InvalidArgument, Never, Nothing;
    /// No limit of the target's policy counts this dimension.
    DimensionUnknown, "DIMENSION_UNKNOWN", InvalidArgument, Never, Nothing;
    /// The call carries no valid credential.
    Unauthenticated, "UNAUTHENTICATED", Unauthenticated, Never, Nothing;
    /// The credential may not use this target, tenant or verb.
    Forbidden, "FORBIDDEN", PermissionDenied, Never, Nothing;
    /// The grant or admission belongs to another principal.
    NotOwner, "NOT_OWNER", PermissionDenied, Never, Nothing;
    /// Another version of the policy is in force than the one expected; the details tell which.
    VersionConflict, "VERSION_CONFLICT", Aborted, Never, Nothing;
    /// The shard has as many targets as it may have.
    Full, "FULL", ResourceExhausted, Never, Nothing;
    /// The node belongs to another cluster than the one named.
    WrongCluster, "WRONG_CLUSTER", FailedPrecondition, Never, Nothing;
    /// The caller's deadline passed before anything was done.
    DeadlineExceeded, "DEADLINE_EXCEEDED", DeadlineExceeded, Never, Nothing;
    /// Another node leads the target's shard; the details name it, if it is known.
    NotLeader, "NOT_LEADER", Unavailable, AtLeader, Nothing;
    /// The node stops.
    Stopping, "STOPPING", Unavailable, AtLeader, Nothing;
    /// The shard has no quorum, so nobody can decide.
    NoQuorum, "NO_QUORUM", Unavailable, Later, Nothing;
    /// The node has more to do than it can take.
    Overloaded, "OVERLOADED", ResourceExhausted, Later, Nothing;
    /// The request was taken up and its outcome was lost. Ask again: the same attempt, the next number.
    OutcomeUnknown, "OUTCOME_UNKNOWN", Unavailable, Later, Possible;
    /// Weir is at fault.
    Internal, "INTERNAL", Internal, Never, Possible;
}

impl Reason {
    /// True if the request may have had an effect although it failed.
    pub const fn may_have_happened(self) -> bool {
        matches!(self.effect(), Effect::Possible)
    }

    /// The reason of that name; `None` if this version does not know it.
    pub fn from_name(name: &str) -> Option<Reason> {
        Reason::ALL
            .iter()
            .copied()
            .find(|reason| reason.as_str() == name)
    }
}
