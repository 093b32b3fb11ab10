//! What can go wrong. Deferrals and rejections are answers, not errors.

use crate::Rejection;

/// Why there is no answer. Two questions matter: [`Error::is_retryable`] and
/// [`Error::may_have_happened`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request is wrong: a name, a cost, a policy. Never retried.
    #[error("invalid request: {message}")]
    Invalid {
        /// What is wrong, field by field.
        message: String,
    },
    /// No policy under that target's name. Never retried.
    #[error("unknown target {target:?}")]
    TargetUnknown {
        /// The name asked for.
        target: String,
    },
    /// The credential is missing, wrong or may not do this. Never retried.
    #[error("denied: {message}")]
    Denied {
        /// What is not allowed.
        message: String,
    },
    /// Another version of a policy is in force than the one expected. Read it again, then decide.
    #[error("conflict: {message}")]
    Conflict {
        /// One sentence for people.
        message: String,
        /// The version in force; 0 if there is none.
        version: u64,
    },
    /// The shard has as many targets as it may have. Never retried.
    #[error("full: {message}")]
    Full {
        /// One sentence for people.
        message: String,
    },
    /// [`crate::Client::admit_wait`]: the call can never be admitted this way.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The deadline passed before the call was admitted. Its place was given up.
    #[error("the deadline passed before the call was admitted")]
    DeadlinePassed,
    /// The cluster does not answer, and the mode does not let the call through.
    #[error("the cluster does not answer: {message}")]
    Unavailable {
        /// What happened last.
        message: String,
        /// True if a request went out and its outcome is not known.
        may_have_happened: bool,
    },
    /// The cluster has no room for this request now.
    #[error("the cluster is overloaded")]
    Overloaded,
    /// Weir is at fault. Never lets a call through.
    #[error("internal error: {message}")]
    Internal {
        /// What the node said.
        message: String,
    },
}

impl Error {
    /// True if the same request may succeed later without being changed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Unavailable { .. } | Error::Overloaded | Error::Internal { .. } => true,
            Error::Invalid { .. }
            | Error::TargetUnknown { .. }
            | Error::Denied { .. }
            | Error::Conflict { .. }
            | Error::Full { .. }
            | Error::Rejected(_)
            | Error::DeadlinePassed => false,
        }
    }

    /// True if the request may have had an effect although it failed. Asks, releases, cancels and
    /// reports may be repeated even then; a put or delete of a target is better read first.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Error::Unavailable {
                may_have_happened, ..
            } => *may_have_happened,
            Error::Internal { .. } => true,
            Error::Invalid { .. }
            | Error::TargetUnknown { .. }
            | Error::Denied { .. }
            | Error::Conflict { .. }
            | Error::Full { .. }
            | Error::Rejected(_)
            | Error::DeadlinePassed
            | Error::Overloaded => false,
        }
    }
}
