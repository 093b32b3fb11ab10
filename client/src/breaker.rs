//! When a shard counts as out. No socket, no clock.

use crate::limits::{PROBE_IDLE, PROBES_TO_CLOSE};
use std::time::Duration;
use tokio::time::Instant;

/// What one client knows about whether one shard answers.
///
/// *Answering* until an ask goes unanswered; then *silent*, while calls still ask and become local
/// deferrals; after `ungated_after` without any answer *out*, when calls are decided by the mode at
/// once and a probe in the background finds out when the shard is back. An outage is counted from the
/// sending of the first ask that went unanswered: time in which nobody asked is not silence.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    /// When a call last wanted the shard.
    wanted_at: Instant,
}

#[derive(Debug)]
enum State {
    Answering,
    Silent {
        since: Instant,
        last: Instant,
    },
    Out {
        since: Instant,
        probes_answered: u32,
        ungated: u64,
    },
}

/// What a call does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Ask; if no answer comes it is a local deferral.
    Ask,
    /// The mode decides, without asking.
    Decide {
        /// When the outage began.
        since: Instant,
    },
}

/// An outage is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// From the first unanswered ask.
    pub(crate) lasted: Duration,
    /// Calls let through without a decision.
    pub(crate) ungated: u64,
}

impl Breaker {
    pub(crate) fn new(now: Instant) -> Breaker {
        Breaker {
            state: State::Answering,
            wanted_at: now,
        }
    }

    /// A call wants the shard now.
    pub(crate) fn wanted(&mut self, now: Instant) -> Verdict {
        self.wanted_at = now;
        match self.state {
            State::Answering | State::Silent { .. } => Verdict::Ask,
            State::Out { since, .. } => Verdict::Decide { since },
        }
    }

    /// An ask sent at `asked_at` went unanswered. If the shard is out from now on: since when it did
    /// not answer.
    pub(crate) fn missed(
        &mut self,
        asked_at: Instant,
        now: Instant,
        ungated_after: Duration,
    ) -> Option<Instant> {
        let since = match self.state {
            State::Answering => asked_at,
            State::Silent { last, .. }
                if asked_at.saturating_duration_since(last) >= PROBE_IDLE =>
            {
                asked_at
            }
            State::Silent { since, .. } => since.min(asked_at),
            State::Out { .. } => return None,
        };
        let out = now.saturating_duration_since(since) >= ungated_after;
        self.state = if out {
            State::Out {
                since,
                probes_answered: 0,
                ungated: 0,
            }
        } else {
            State::Silent { since, last: now }
        };
        out.then_some(since)
    }

    /// The shard answered something that was meant. Ends an outage.
    pub(crate) fn answered(&mut self, now: Instant) -> Option<Ended> {
        match std::mem::replace(&mut self.state, State::Answering) {
            State::Answering | State::Silent { .. } => None,
            State::Out { since, ungated, .. } => Some(Ended {
                lasted: now.saturating_duration_since(since),
                ungated,
            }),
        }
    }

    /// The shard answered a probe. Ends an outage if it did so several times in a row.
    pub(crate) fn probe_answered(&mut self, now: Instant) -> Option<Ended> {
        if let State::Out {
            probes_answered, ..
        } = &mut self.state
        {
            *probes_answered += 1;
            if *probes_answered >= PROBES_TO_CLOSE {
                return self.answered(now);
            }
        }
        None
    }

    /// A probe went unanswered.
    pub(crate) fn probe_missed(&mut self) {
        if let State::Out {
            probes_answered, ..
        } = &mut self.state
        {
            *probes_answered = 0;
        }
    }

    /// A call was let through without a decision.
    pub(crate) fn let_through(&mut self) {
        if let State::Out { ungated, .. } = &mut self.state {
            *ungated += 1;
        }
    }

    /// Since when asks went unanswered, while that is no outage yet.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        match self.state {
            State::Silent { since, .. } => Some(since),
            State::Answering | State::Out { .. } => None,
        }
    }

    /// True while the shard is out.
    pub(crate) fn is_out(&self) -> bool {
        match self.state {
            State::Answering | State::Silent { .. } => false,
            State::Out { .. } => true,
        }
    }

    /// Forgets an outage that nobody has met for a while, so that probing can stop. The next call asks
    /// again, as if the shard had answered.
    pub(crate) fn forget_if_idle(&mut self, now: Instant) -> Option<Ended> {
        if self.is_out() && self.is_idle(now) {
            self.answered(now)
        } else {
            None
        }
    }

    /// True if no call wanted the shard for a while.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.wanted_at) >= PROBE_IDLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(3);

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn silence_becomes_an_outage_after_the_time_set() {
        let start = Instant::now();
        let mut breaker = Breaker::new(start);
        assert_eq!(breaker.wanted(start), Verdict::Ask);
        assert_eq!(
            None,
            breaker.missed(at(start, 1_000), at(start, 1_250), AFTER)
        );
        assert_eq!(breaker.wanted(at(start, 1_300)), Verdict::Ask);
        assert_eq!(
            None,
            breaker.missed(at(start, 3_700), at(start, 3_999), AFTER)
        );
        assert!(
            breaker
                .missed(at(start, 3_800), at(start, 4_000), AFTER)
                .is_some(),
            "3 s since the first ask"
        );
        assert_eq!(
            None,
            breaker.missed(at(start, 3_800), at(start, 4_050), AFTER),
            "begins only once"
        );
        let since = at(start, 1_000);
        assert_eq!(breaker.wanted(at(start, 4_001)), Verdict::Decide { since });
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_is_not_silence() {
        let start = Instant::now();
        let mut breaker = Breaker::new(start);
        assert_eq!(breaker.answered(start), None);
        let later = at(start, 3_600_000);
        assert_eq!(None, breaker.missed(later, at(later, 250), AFTER));
        assert_eq!(breaker.wanted(at(later, 300)), Verdict::Ask);
    }

    #[tokio::test(start_paused = true)]
    async fn two_misses_long_apart_are_two_silences() {
        let start = Instant::now();
        let mut breaker = Breaker::new(start);
        assert_eq!(None, breaker.missed(start, at(start, 250), AFTER));
        let later = at(start, 3_600_000);
        assert_eq!(None, breaker.missed(later, at(later, 250), AFTER));
        assert!(
            breaker
                .missed(at(later, 2_900), at(later, 3_100), AFTER)
                .is_some()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn any_answer_starts_the_count_anew() {
        let start = Instant::now();
        let mut breaker = Breaker::new(start);
        for second in 0..60 {
            let asked = at(start, second * 1_000);
            assert_eq!(None, breaker.missed(asked, at(asked, 250), AFTER));
            assert_eq!(None, breaker.missed(asked, at(asked, 900), AFTER));
            assert_eq!(breaker.answered(at(asked, 950)), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn zero_decides_at_the_first_missing_answer() {
        let start = Instant::now();
        let mut breaker = Breaker::new(start);
        assert_eq!(breaker.wanted(start), Verdict::Ask);
        assert!(
            breaker
                .missed(start, at(start, 1), Duration::ZERO)
                .is_some()
        );
        assert_eq!(
            breaker.wanted(at(start, 2)),
            Verdict::Decide { since: start }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn only_probes_in_a_row_end_an_outage() {
        let start = Instant::now();
        let mut breaker = Breaker::new(start);
        assert!(breaker.missed(start, at(start, 3_000), AFTER).is_some());
        breaker.let_through();
        breaker.let_through();
        assert_eq!(breaker.probe_answered(at(start, 4_000)), None);
        breaker.probe_missed();
        assert_eq!(breaker.probe_answered(at(start, 5_000)), None);
        assert!(breaker.is_out());
        let ended = breaker.probe_answered(at(start, 5_500));
        assert_eq!(
            ended,
            Some(Ended {
                lasted: Duration::from_millis(5_500),
                ungated: 2
            })
        );
        assert!(!breaker.is_out());
        assert_eq!(
            breaker.probe_answered(at(start, 6_000)),
            None,
            "ends only once"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_that_nobody_meets_is_forgotten() {
        let start = Instant::now();
        let mut breaker = Breaker::new(start);
        assert!(breaker.missed(start, at(start, 3_000), AFTER).is_some());
        assert!(matches!(
            breaker.wanted(at(start, 4_000)),
            Verdict::Decide { .. }
        ));
        assert_eq!(breaker.forget_if_idle(at(start, 33_999)), None);
        assert!(breaker.forget_if_idle(at(start, 34_000)).is_some());
        assert_eq!(breaker.wanted(at(start, 34_001)), Verdict::Ask);
    }
}
