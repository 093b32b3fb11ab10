//! When things happen.

use super::Number;
use weir_admission::{AdmitOutcome, ExtendOutcome, Outcome};

/// Cluster time, and the times that answers made interesting.
#[derive(Debug, Default)]
pub(super) struct Clock {
    pub(super) now: u64,
    told: [u64; 4],
}

impl Clock {
    /// Goes on by a span; with the last two units to about a moment that an answer told, or back.
    pub(super) fn wait(&mut self, wait: Number) {
        let (magnitude, unit) = wait.parts();
        self.now = match unit {
            14 => {
                let moment = self.told[(magnitude & 3) as usize];
                moment.saturating_add(magnitude >> 2).saturating_sub(512)
            }
            15 => self.now.saturating_sub(magnitude),
            _ => self.now.saturating_add(wait.span()),
        };
    }

    pub(super) fn note(&mut self, outcome: &Outcome) {
        let told = match outcome {
            Outcome::Admit(AdmitOutcome::Admitted(admitted)) => {
                [(0, admitted.start_in), (1, admitted.reply_window)]
            }
            Outcome::Admit(AdmitOutcome::Deferred(deferred)) => {
                [(2, deferred.retry_in), (3, deferred.place_until)]
            }
            Outcome::Extend(ExtendOutcome::Extended { expires_in }) => {
                [(1, *expires_in), (1, *expires_in)]
            }
            Outcome::Admit(AdmitOutcome::Rejected(_))
            | Outcome::Release(_)
            | Outcome::Cancel(_)
            | Outcome::Extend(_)
            | Outcome::Report(_)
            | Outcome::Unwoken
            | Outcome::Policy(_)
            | Outcome::Seeded
            | Outcome::Refused(_) => return,
        };
        for (place, after) in told {
            self.told[place] = self.now.saturating_add(after);
        }
    }
}
