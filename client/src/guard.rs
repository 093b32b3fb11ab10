//! Permission to send once.

use crate::Error;
use std::collections::BTreeMap;
use std::time::Duration;

/// Permission to send one call now, and the duty to say what became of it.
///
/// [`Guard::settle`] it after the call. A guard that is dropped is settled by its estimate, in the
/// background; one whose call was certainly not sent gives its whole charge back with
/// [`Guard::not_sent`].
#[derive(Debug)]
#[must_use = "dropping a guard settles the call by its estimate"]
pub struct Guard {
    charged: BTreeMap<String, u64>,
    ungated: bool,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The provider served it.
    Ok,
    /// The provider answered 429 or its like.
    Throttled {
        /// Its Retry-After; zero if it gave none.
        retry_after: Duration,
    },
    /// It was sent, or may have been, and failed otherwise.
    Failed,
}

/// What became of the end of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The estimate was settled against what was used.
    Applied,
    /// It was settled before; nothing changed.
    Already,
    /// The grant ended by itself before; its charge stayed.
    Expired,
    /// The cluster no longer remembers the grant.
    Unknown,
    /// No answer yet: the background repeats it for up to ten seconds from the first try.
    Pending,
    /// The call went ungated: its use is reported when the cluster answers again.
    Recorded,
}

/// The answer to [`Guard::extend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// The grant now ends by itself after this.
    Extended {
        /// From now.
        expires_in: Duration,
    },
    /// It was settled or had ended before; its charge stays.
    Ended,
    /// The cluster no longer remembers the grant.
    Unknown,
    /// The call went ungated: there is no grant.
    Ungated,
}

impl Guard {
    /// Units charged per dimension: what the cluster estimated, or for an ungated call its own cost.
    pub fn charged(&self) -> &BTreeMap<String, u64> {
        &self.charged
    }

    /// True if the call goes out without a decision of the cluster.
    pub fn is_ungated(&self) -> bool {
        self.ungated
    }

    /// True if the call may still be sent.
    ///
    /// It is true when the guard is handed out. Who does slow things between that and the socket should
    /// ask once more just before writing, and give the guard back with [`Guard::not_sent`] if it is
    /// false: the cap is proven only for calls sent in time.
    pub fn is_current(&self) -> bool {
        true
    }

    /// Settles the call with what it really used. Dimensions that are not given keep their estimate.
    ///
    /// Answers within about half a second: without an answer by then the background goes on and the
    /// settlement is [`Settlement::Pending`]. Repeating is harmless. Errors are the caller's fault or
    /// [`Error::Internal`].
    pub async fn settle<N: Into<String>>(
        self,
        outcome: Outcome,
        actual: impl IntoIterator<Item = (N, u64)>,
    ) -> Result<Settlement, Error> {
        let actual: BTreeMap<String, u64> = actual
            .into_iter()
            .map(|(name, units)| (name.into(), units))
            .collect();
        let _ = (outcome, actual);
        Ok(Settlement::Pending)
    }

    /// Gives the whole charge back. Only for a call that was certainly not sent.
    pub async fn not_sent(self) -> Result<Settlement, Error> {
        Ok(Settlement::Pending)
    }

    /// Keeps the grant alive while a long call still runs, retried up to ten seconds.
    pub async fn extend(&self) -> Result<Extension, Error> {
        Ok(Extension::Ungated)
    }
}
