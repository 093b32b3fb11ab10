//! How much use there is in asking one shard, and how often to come back to it. No socket, no clock.
//!
//! A fleet that waits asks again and again. Where answers come too late to be used because so many ask, the
//! asks that nobody has any use for are what keeps them late, and the fleet stays in its storm after what
//! began it is over. The retry budget bounds what one decision repeats; this bounds how often callers come back.
//!
//! A *visit* is one decision of a caller that asks. It is *in vain* if it ends with a grant that came too
//! late, a try that was not answered in its time, or a refusal for want of room that names no pause. A shard
//! without a leader is not meant: asking for one costs no leader anything, and the callers of a client do it one
//! at a time.

use crate::limits::{
    LOCAL_RETRY_MAX, LOCAL_RETRY_MIN, STRAIN_DOUBLINGS_MAX, STRAIN_FORGOTTEN, STRAINED_AFTER,
};
use std::time::Duration;
use tokio::time::Instant;

/// What all callers of a client hear from one shard, as far as it tells whether asking is of use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Strain {
    /// Rounds of visits in vain since the last answer that was of use.
    rounds: u32,
    /// When the last of them ended.
    ended_at: Option<Instant>,
}

impl Strain {
    /// A visit that began at `begun_at` was in vain.
    ///
    /// What callers do at the same time is one round, however many they are: the next round is of visits that
    /// began after a pause.
    pub(crate) fn in_vain(&mut self, begun_at: Instant, now: Instant) {
        let (shortest, _) = self.pause(now);
        if self.ended_at.is_none_or(|at| begun_at >= at + shortest) {
            self.rounds = self.rounds.saturating_add(1);
            self.ended_at = Some(now);
        }
    }

    /// An answer was of use.
    pub(crate) fn relieve(&mut self) {
        *self = Strain::default();
    }

    /// True if what is in vain is not repeated within a visit.
    pub(crate) fn is_strained(&mut self, now: Instant) -> bool {
        self.forget(now);
        self.rounds >= STRAINED_AFTER
    }

    /// The shortest and the longest pause before the next visit.
    pub(crate) fn pause(&mut self, now: Instant) -> (Duration, Duration) {
        self.forget(now);
        let doublings = self
            .rounds
            .saturating_sub(STRAINED_AFTER)
            .min(STRAIN_DOUBLINGS_MAX);
        let doubled = |pause: Duration| pause.saturating_mul(1 << doublings);
        (doubled(LOCAL_RETRY_MIN), doubled(LOCAL_RETRY_MAX))
    }

    fn forget(&mut self, now: Instant) {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= STRAIN_FORGOTTEN;
        if self.ended_at.is_some_and(is_old) {
            self.relieve();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONGEST: Duration = LOCAL_RETRY_MAX.saturating_mul(1 << STRAIN_DOUBLINGS_MAX);
    /// What a visit in vain takes.
    const VISIT: Duration = Duration::from_millis(250);

    /// The longest pause after so many rounds, one after the other.
    fn after_rounds(strain: &mut Strain, rounds: u32, mut now: Instant) -> (Duration, Instant) {
        for _ in 0..rounds {
            let begun_at = now + strain.pause(now).1;
            now = begun_at + VISIT;
            strain.in_vain(begun_at, now);
        }
        (strain.pause(now).1, now)
    }

    #[test]
    fn pauses_double_with_every_round_up_to_their_bound() {
        let born_at = Instant::now();
        let mut strain = Strain::default();
        let mut now = born_at;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let (pause, later) = after_rounds(&mut strain, 1, now);
            now = later;
            pauses.push(pause.as_millis());
        }
        assert_eq!(
            pauses,
            [
                400, 400, 800, 1_600, 3_200, 6_400, 6_400, 6_400, 6_400, 6_400
            ]
        );
    }

    #[test]
    fn one_answer_of_use_makes_everything_as_at_first() {
        let now = Instant::now();
        let mut strain = Strain::default();
        let (pause, now) = after_rounds(&mut strain, 20, now);
        assert!(strain.is_strained(now) && pause == LONGEST);
        strain.relieve();
        assert!(!strain.is_strained(now));
        assert_eq!(strain.pause(now), (LOCAL_RETRY_MIN, LOCAL_RETRY_MAX));
        let (pause, now) = after_rounds(&mut strain, 1, now);
        assert!(!strain.is_strained(now) && pause == LOCAL_RETRY_MAX);
    }

    #[test]
    fn strain_that_nobody_felt_for_long_is_forgotten() {
        let (_, now) = after_rounds(&mut Strain::default(), 20, Instant::now());
        let mut strain = Strain::default();
        let (_, now) = after_rounds(&mut strain, 20, now);
        let nearly = now + STRAIN_FORGOTTEN - Duration::from_millis(1);
        assert!(strain.is_strained(nearly));
        assert!(!strain.is_strained(now + STRAIN_FORGOTTEN));
    }

    proptest! {
        /// Whoever is in vain at the same time adds one round together, and never more than time allows.
        #[test]
        fn many_callers_strain_no_more_than_one(
            visits in prop::collection::vec((0_u64..20_000, 1_u64..500), 1..400),
        ) {
            let born_at = Instant::now();
            let at = |ms: u64| born_at + Duration::from_millis(ms);
            let mut visits: Vec<(u64, u64)> =
                visits.into_iter().map(|(begun, takes)| (begun + takes, begun)).collect();
            visits.sort_unstable();
            let mut strain = Strain::default();
            let (mut rounds, mut free_at) = (0, 0);
            for (ends, begun) in visits {
                // The naive rule, in milliseconds.
                if rounds == 0 || begun >= free_at {
                    rounds += 1;
                    let doublings = u32::saturating_sub(rounds, STRAINED_AFTER).min(STRAIN_DOUBLINGS_MAX);
                    free_at = ends + (100 << doublings);
                }
                strain.in_vain(at(begun), at(ends));
                prop_assert_eq!(strain.rounds, rounds);
                let (shortest, longest) = strain.pause(at(ends));
                prop_assert!(LOCAL_RETRY_MIN <= shortest && shortest * 4 == longest && longest <= LONGEST);
            }
        }
    }
}
