//! A call that is told of its turn while nobody holds a slot for it.

use crate::asking::Asking;
use crate::{Answer, Error};
use std::fmt;
use tokio::time::Instant;

/// One visit of a call, and the wait until the next: see [`crate::Client::turn`].
pub struct Turn {
    asking: Asking,
    deadline_at: Option<Instant>,
    /// When to come back if nobody says so earlier.
    resume_at: Instant,
}

impl Turn {
    pub(crate) fn new(mut asking: Asking, deadline_at: Option<Instant>) -> Turn {
        asking.wait_here();
        Turn {
            asking,
            deadline_at,
            resume_at: Instant::now(),
        }
    }

    /// Asks once whether the call may start now, as [`crate::Client::try_admit`] does.
    ///
    /// # Errors
    /// As there.
    pub async fn try_admit(&mut self) -> Result<Answer, Error> {
        let answer = self.asking.decide(self.deadline_at).await?;
        if let Answer::Deferred(deferral) = &answer {
            self.resume_at = Instant::now() + deferral.retry_in;
        }
        Ok(answer)
    }

    /// Resolves when the deferred call should ask again: the cluster says that its turn is near, or the
    /// deferral's time is over. At once if the call was not deferred.
    ///
    /// May be dropped and called again: a turn that came meanwhile is remembered.
    pub async fn near(&self) {
        let pause = self.resume_at.saturating_duration_since(Instant::now());
        if !pause.is_zero() {
            self.asking.rest(pause).await;
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("resume_at", &self.resume_at)
            .finish_non_exhaustive()
    }
}
