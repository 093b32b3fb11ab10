//! Permission to send once.

use crate::call::{check_amounts, check_dimension};
use crate::client::Owner;
use crate::limits::RETRY_MAX;
use crate::lock::lock;
use crate::shared::Aim;
use crate::ungated::UngatedKey;
use crate::{Client, Error, Grant};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use weir_admission::TargetName;
use weir_admission::limits::CALLER_DURATION_MAX;
use weir_proto::v1::{
    self, CallOutcome, ExtendRequest, ExtendStatus, ReleaseRequest, ReleaseStatus,
};

/// Permission to send one call now, and the duty to say what became of it.
///
/// [`Guard::settle`] it after the call. A guard that is dropped is settled by its estimate, in the
/// background; one whose call was certainly not sent gives its whole charge back with
/// [`Guard::not_sent`]. A guard keeps its client's background alive.
#[must_use = "dropping a guard settles the call by its estimate"]
pub struct Guard {
    owner: Arc<Owner>,
    target: TargetName,
    right: Right,
    charged: BTreeMap<String, u64>,
    /// What is released when this is dropped; `None` when nothing is left to do.
    end: Option<End>,
    /// True once a release was sent.
    released: bool,
}

/// What the call goes out by.
enum Right {
    Granted { grant: v1::Grant, send_by: Instant },
    Ungated { key: UngatedKey },
}

/// How the call ended.
struct End {
    outcome: Outcome,
    actual: BTreeMap<String, u64>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The provider served it.
    Ok,
    /// The provider answered 429 or its like.
    Throttled {
        /// Its Retry-After; zero if it gave none.
        retry_after: Duration,
        /// The dimension that it named, for example `tokens`; `None` if it named none. It is counted, and
        /// decides nothing.
        dimension: Option<String>,
    },
    /// It was sent, or may have been, and failed otherwise.
    Failed,
    /// It was certainly not sent: its whole charge is given back.
    NotSent,
}

impl Outcome {
    fn check(&self) -> Result<(), Error> {
        match self {
            Outcome::Throttled { dimension, .. } => {
                check_dimension("dimension", dimension.as_deref())
            }
            Outcome::Ok | Outcome::Failed | Outcome::NotSent => Ok(()),
        }
    }

    fn forget_dimension(&mut self) {
        match self {
            Outcome::Throttled { dimension, .. } => *dimension = None,
            Outcome::Ok | Outcome::Failed | Outcome::NotSent => {}
        }
    }
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

/// The request that ends a grant.
fn release_request(
    target: &TargetName,
    grant: v1::Grant,
    outcome: Outcome,
    actual: BTreeMap<String, u64>,
) -> ReleaseRequest {
    let mut throttled_dimension = String::new();
    let (outcome, retry_after) = match outcome {
        Outcome::Ok => (CallOutcome::Ok, Duration::ZERO),
        Outcome::Throttled {
            retry_after,
            dimension,
        } => {
            throttled_dimension = dimension.unwrap_or_default();
            (CallOutcome::Throttled, retry_after)
        }
        Outcome::Failed => (CallOutcome::Failed, Duration::ZERO),
        Outcome::NotSent => (CallOutcome::NotSent, Duration::ZERO),
    };
    let retry_after_us = u64::try_from(retry_after.as_micros()).unwrap_or(u64::MAX);
    ReleaseRequest {
        target: target.as_str().to_owned(),
        grant: Some(grant),
        actual,
        outcome: outcome.into(),
        retry_after_us: retry_after_us.min(CALLER_DURATION_MAX),
        throttled_dimension,
    }
}

fn settlement_of(status: ReleaseStatus) -> Settlement {
    match status {
        ReleaseStatus::Applied => Settlement::Applied,
        ReleaseStatus::Already => Settlement::Already,
        ReleaseStatus::Expired => Settlement::Expired,
        ReleaseStatus::Unknown | ReleaseStatus::Unspecified => Settlement::Unknown,
    }
}

fn collected<N: Into<String>>(units: impl IntoIterator<Item = (N, u64)>) -> BTreeMap<String, u64> {
    units
        .into_iter()
        .map(|(name, units)| (name.into(), units))
        .collect()
}

impl Client {
    /// Settles a grant that left its guard ([`Guard::detach`]), perhaps in another process. Repeated for
    /// up to ten seconds, and harmless to repeat.
    pub async fn settle<N: Into<String>>(
        &self,
        target: &str,
        grant: Grant,
        outcome: Outcome,
        actual: impl IntoIterator<Item = (N, u64)>,
    ) -> Result<Settlement, Error> {
        let target = TargetName::new(target).map_err(|error| Error::Invalid {
            message: format!("target {error}"),
        })?;
        let actual = collected(actual);
        check_amounts("actual", &actual)?;
        outcome.check()?;
        let request = release_request(&target, grant.into(), outcome, actual);
        let shared = &self.owner.shared;
        let until = Instant::now() + RETRY_MAX;
        let aim = Aim::Target(target);
        let delivered = shared
            .deliver(&aim, request, shared.options.try_timeout, until)
            .await;
        let answer = delivered.map_err(|undelivered| undelivered.error)?;
        Ok(settlement_of(answer.status()))
    }
}

impl Guard {
    pub(crate) fn granted(
        owner: Arc<Owner>,
        target: TargetName,
        grant: v1::Grant,
        charged: BTreeMap<String, u64>,
        send_by: Instant,
    ) -> Guard {
        let right = Right::Granted { grant, send_by };
        // Until its holder says more it was sent, or perhaps sent: the estimate stays.
        let end = Some(End {
            outcome: Outcome::Failed,
            actual: BTreeMap::new(),
        });
        Guard {
            owner,
            target,
            right,
            charged,
            end,
            released: false,
        }
    }

    pub(crate) fn ungated(
        owner: Arc<Owner>,
        target: TargetName,
        key: UngatedKey,
        charged: BTreeMap<String, u64>,
    ) -> Guard {
        // Its estimate is kept for the report already.
        Guard {
            owner,
            target,
            right: Right::Ungated { key },
            charged,
            end: None,
            released: false,
        }
    }

    /// Units charged per dimension: what the cluster estimated, or for an ungated call its upper bound.
    pub fn charged(&self) -> &BTreeMap<String, u64> {
        &self.charged
    }

    /// True if the call goes out without a decision of the cluster.
    pub fn is_ungated(&self) -> bool {
        match self.right {
            Right::Ungated { .. } => true,
            Right::Granted { .. } => false,
        }
    }

    /// True if the call may still be sent.
    ///
    /// It is true when the guard is handed out. Who does slow things between that and the socket should
    /// ask once more just before writing, and give the guard back with [`Guard::not_sent`] if it is
    /// false: the cap is proven only for calls sent in time.
    pub fn is_current(&self) -> bool {
        match &self.right {
            Right::Granted { send_by, .. } => Instant::now() <= *send_by,
            Right::Ungated { .. } => true,
        }
    }

    /// Settles the call with what it really used. Dimensions that are not given keep their estimate.
    ///
    /// Answers within [`crate::Options::answer_within`]: without an answer by then the background goes
    /// on and the settlement is [`Settlement::Pending`]. Repeating is harmless. Errors are the caller's
    /// fault or [`Error::Internal`].
    pub async fn settle<N: Into<String>>(
        mut self,
        outcome: Outcome,
        actual: impl IntoIterator<Item = (N, u64)>,
    ) -> Result<Settlement, Error> {
        let actual = collected(actual);
        let mut end = End {
            outcome,
            actual: BTreeMap::new(),
        };
        let mut checked = end.outcome.check();
        if checked.is_err() {
            end.outcome.forget_dimension();
        }
        match check_amounts("actual", &actual) {
            Ok(_) => end.actual = actual,
            Err(error) => checked = Err(error),
        }
        match &self.right {
            Right::Ungated { key } => {
                let mut ungated = lock(&self.owner.shared.ungated);
                let (recorded, settlement) = match &end.outcome {
                    Outcome::NotSent => (ungated.forget(key), Settlement::Applied),
                    Outcome::Ok | Outcome::Throttled { .. } | Outcome::Failed => {
                        (ungated.settle(key, &end.actual), Settlement::Recorded)
                    }
                };
                drop(ungated);
                checked?;
                Ok(if recorded {
                    settlement
                } else {
                    Settlement::Already
                })
            }
            Right::Granted { .. } => {
                // Should this future be dropped while it waits, the background sends the same.
                self.end = Some(end);
                checked?;
                self.release().await
            }
        }
    }

    /// Gives the whole charge back. Only for a call that was certainly not sent.
    pub async fn not_sent(self) -> Result<Settlement, Error> {
        self.settle(Outcome::NotSent, [("", 0); 0]).await
    }

    /// Takes the grant out of its guard, to be settled later with [`Client::settle`], perhaps by another
    /// process. Never settled, it ends by itself and its estimate stays. `None` for an ungated call: its
    /// estimate is reported.
    pub fn detach(mut self) -> Option<Grant> {
        self.end = None;
        match &self.right {
            Right::Granted { grant, .. } => Some(Grant::from(*grant)),
            Right::Ungated { .. } => None,
        }
    }

    /// Keeps the grant alive while a long call still runs. Repeated for up to ten seconds.
    pub async fn extend(&self) -> Result<Extension, Error> {
        let Right::Granted { grant, .. } = &self.right else {
            return Ok(Extension::Ungated);
        };
        let request = ExtendRequest {
            target: self.target.as_str().to_owned(),
            grant: Some(*grant),
        };
        let shared = &self.owner.shared;
        let aim = Aim::Target(self.target.clone());
        let until = Instant::now() + RETRY_MAX;
        let delivered = shared
            .deliver(&aim, request, shared.options.try_timeout, until)
            .await;
        let answer = delivered.map_err(|undelivered| undelivered.error)?;
        Ok(match answer.status() {
            ExtendStatus::Extended => Extension::Extended {
                expires_in: Duration::from_micros(answer.expires_in_us),
            },
            ExtendStatus::Ended => Extension::Ended,
            ExtendStatus::Unknown | ExtendStatus::Unspecified => Extension::Unknown,
        })
    }

    /// Releases the grant now, or leaves it to the background.
    async fn release(mut self) -> Result<Settlement, Error> {
        let Some(request) = self.release_request() else {
            return Ok(Settlement::Already);
        };
        let shared = self.owner.shared.clone();
        if shared.zones.is_out(shared.shard_of(&self.target)) {
            return Ok(Settlement::Pending);
        }
        let aim = Aim::Target(self.target.clone());
        let until = Instant::now() + shared.options.answer_within;
        self.released = true;
        match shared
            .deliver(&aim, request, shared.options.try_timeout, until)
            .await
        {
            Ok(answer) => {
                self.end = None;
                Ok(settlement_of(answer.status()))
            }
            // Dropping this hands it over.
            Err(undelivered) if undelivered.unanswered => Ok(Settlement::Pending),
            Err(undelivered) => {
                self.end = None;
                Err(undelivered.error)
            }
        }
    }

    fn release_request(&self) -> Option<ReleaseRequest> {
        let Right::Granted { grant, .. } = &self.right else {
            return None;
        };
        let end = self.end.as_ref()?;
        Some(release_request(
            &self.target,
            *grant,
            end.outcome.clone(),
            end.actual.clone(),
        ))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(request) = self.release_request() {
            let target = self.target.clone();
            self.owner.release_later(target, request, self.released);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("target", &self.target)
            .field("ungated", &self.is_ungated())
            .field("charged", &self.charged)
            .finish_non_exhaustive()
    }
}
