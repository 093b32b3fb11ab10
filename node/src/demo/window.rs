//! How the mock provider counts: one limit over time, and the judge that looks at every window.

use super::limits::ARRIVALS_PER_WINDOW_MAX;
use std::collections::VecDeque;

/// Microseconds since the provider started.
pub type At = u64;

/// How a provider's window moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum WindowKind {
    /// Any window of the period counts, whatever its alignment.
    Sliding,
    /// The count starts anew at every multiple of the period.
    Fixed,
}

/// Arrivals of the last period, their sum, and the largest sum there ever was.
///
/// The largest sum over *any* window of the period is met by a window that ends at an arrival, so it is
/// enough to look there. Windows are half open: an arrival leaves exactly one period after it came.
#[derive(Debug)]
pub struct Arrivals {
    period_us: u64,
    entries: VecDeque<(At, u64)>,
    sum: u64,
    worst: u64,
}

impl Arrivals {
    /// Nothing has arrived. `period_us` is at least 1.
    pub fn new(period_us: u64) -> Arrivals {
        Arrivals {
            period_us: period_us.max(1),
            entries: VecDeque::new(),
            sum: 0,
            worst: 0,
        }
    }

    /// Counts `units` at `now`, which never goes back.
    pub fn add(&mut self, now: At, units: u64) {
        self.expire(now);
        if units > 0 {
            self.entries.push_back((now, units));
            self.sum += units;
            self.worst = self.worst.max(self.sum);
        }
    }

    /// Units that arrived in the period that ends at `now`.
    pub fn sum(&mut self, now: At) -> u64 {
        self.expire(now);
        self.sum
    }

    /// The largest sum of any window of the period so far.
    pub fn worst(&self) -> u64 {
        self.worst
    }

    /// True if another arrival at `now` would outgrow the memory.
    fn is_full(&mut self, now: At) -> bool {
        self.expire(now);
        self.entries.len() >= ARRIVALS_PER_WINDOW_MAX
    }

    /// Microseconds from `now` until the sum has fallen to `target`, if nothing else arrives.
    fn falls_to_in(&mut self, now: At, target: u64) -> u64 {
        self.expire(now);
        let mut left = self.sum;
        if left <= target {
            return 0;
        }
        for (at, units) in &self.entries {
            left -= units;
            if left <= target {
                return at + self.period_us - now;
            }
        }
        self.period_us
    }

    fn expire(&mut self, now: At) {
        while let Some((at, units)) = self.entries.front().copied()
            && at + self.period_us <= now
        {
            self.sum -= units;
            self.entries.pop_front();
        }
    }
}

/// One limit as its provider enforces it.
#[derive(Debug)]
pub struct Window {
    kind: WindowKind,
    cap: u64,
    period_us: u64,
    /// Fixed windows start at multiples of the period, minus this.
    phase_us: u64,
    fixed_index: u64,
    fixed_used: u64,
    counted: Arrivals,
}

impl Window {
    /// An empty limit of `cap` units per `period_us`.
    pub fn new(kind: WindowKind, cap: u64, period_us: u64, phase_us: u64) -> Window {
        let period_us = period_us.max(1);
        let counted = Arrivals::new(period_us);
        Window {
            kind,
            cap,
            period_us,
            phase_us,
            fixed_index: 0,
            fixed_used: 0,
            counted,
        }
    }

    /// Units that count against the cap at `now`.
    pub fn used(&mut self, now: At) -> u64 {
        match self.kind {
            WindowKind::Sliding => self.counted.sum(now),
            WindowKind::Fixed => {
                self.turn(now);
                self.fixed_used
            }
        }
    }

    /// Units left at `now`.
    pub fn remaining(&mut self, now: At) -> u64 {
        self.cap.saturating_sub(self.used(now))
    }

    /// Microseconds until the limit is back at its whole cap, if nothing else arrives.
    pub fn reset_in(&mut self, now: At) -> u64 {
        self.falls_to_in(now, 0)
    }

    /// Microseconds until `units` fit; `None` if they fit now. What exceeds the whole cap waits a period.
    pub fn fits_in(&mut self, now: At, units: u64) -> Option<u64> {
        let Some(target) = self.cap.checked_sub(units) else {
            return Some(self.period_us);
        };
        if self.used(now) <= target {
            None
        } else {
            Some(self.falls_to_in(now, target).max(1))
        }
    }

    /// Counts units against the cap, whether or not they fit.
    pub fn count(&mut self, now: At, units: u64) {
        self.counted.add(now, units);
        self.turn(now);
        self.fixed_used += units;
    }

    /// The cap in units.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// The largest count of *any* window of the period over the cap; 1.0 is exactly the cap.
    pub fn worst_over_cap(&self) -> f64 {
        self.counted.worst() as f64 / self.cap.max(1) as f64
    }

    fn is_full(&mut self, now: At) -> bool {
        self.counted.is_full(now)
    }

    fn falls_to_in(&mut self, now: At, target: u64) -> u64 {
        match self.kind {
            WindowKind::Sliding => self.counted.falls_to_in(now, target),
            WindowKind::Fixed => {
                self.turn(now);
                if self.fixed_used <= target {
                    0
                } else {
                    self.next_turn_in(now)
                }
            }
        }
    }

    fn next_turn_in(&self, now: At) -> u64 {
        (self.fixed_index + 1) * self.period_us - (now + self.phase_us)
    }

    fn turn(&mut self, now: At) {
        let index = (now + self.phase_us) / self.period_us;
        if index != self.fixed_index {
            self.fixed_index = index;
            self.fixed_used = 0;
        }
    }
}

/// What the provider says to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Served and counted.
    Accepted,
    /// Answered with 429.
    Rejected {
        /// The dimension that did not fit; with both, the one that waits longer.
        dimension: Dimension,
        /// When it would fit if nobody else came.
        retry_after_us: u64,
    },
    /// More arrivals than the books hold: the run proves nothing any more.
    Overrun,
}

/// What the provider counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Calls.
    Requests,
    /// Prompt and completion tokens.
    Tokens,
}

impl Dimension {
    /// Its name in error bodies, headers and policies.
    pub fn name(self) -> &'static str {
        match self {
            Dimension::Requests => "requests",
            Dimension::Tokens => "tokens",
        }
    }
}

/// Requests and tokens together: a call passes only if both fit.
#[derive(Debug)]
pub struct Limiter {
    /// Calls per period.
    pub requests: Window,
    /// Tokens per period.
    pub tokens: Window,
    /// True if a call answered with 429 counts as a request, as OpenAI counts it. It never counts tokens.
    pub rejected_counts: bool,
}

impl Limiter {
    /// Decides one call at `now`, which never goes back.
    pub fn arrive(&mut self, now: At, tokens: u64) -> Verdict {
        if self.requests.is_full(now) {
            return Verdict::Overrun;
        }
        let requests_in = self.requests.fits_in(now, 1);
        let tokens_in = self.tokens.fits_in(now, tokens);
        let (dimension, retry_after_us) = match (requests_in, tokens_in) {
            (None, None) => {
                self.requests.count(now, 1);
                self.tokens.count(now, tokens);
                return Verdict::Accepted;
            }
            (Some(requests), Some(tokens)) if tokens > requests => (Dimension::Tokens, tokens),
            (Some(requests), _) => (Dimension::Requests, requests),
            (None, Some(tokens)) => (Dimension::Tokens, tokens),
        };
        if self.rejected_counts {
            self.requests.count(now, 1);
        }
        Verdict::Rejected {
            dimension,
            retry_after_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: u64 = 1_000;

    /// The twin keeps every arrival for ever and adds up anew each time.
    struct Naive {
        kind: WindowKind,
        cap: [u64; 2],
        phase: u64,
        rejected_counts: bool,
        counted: Vec<(At, [u64; 2])>,
    }

    impl Naive {
        fn used(&self, now: At, d: usize) -> u64 {
            let index = |at: At| (at + self.phase) / PERIOD;
            let inside = |at: At| match self.kind {
                WindowKind::Sliding => at + PERIOD > now,
                WindowKind::Fixed => index(at) == index(now),
            };
            self.counted
                .iter()
                .filter(|(at, _)| inside(*at))
                .map(|(_, units)| units[d])
                .sum()
        }

        fn fits(&self, now: At, tokens: u64) -> bool {
            self.used(now, 0) < self.cap[0] && self.used(now, 1) + tokens <= self.cap[1]
        }

        fn arrive(&mut self, now: At, tokens: u64) -> bool {
            let fits = self.fits(now, tokens);
            if fits {
                self.counted.push((now, [1, tokens]));
            } else if self.rejected_counts {
                self.counted.push((now, [1, 0]));
            }
            fits
        }

        fn worst(&self, d: usize) -> u64 {
            let window = |start: At| {
                let inside = |at: At| at >= start && at < start + PERIOD;
                self.counted
                    .iter()
                    .filter(|(at, _)| inside(*at))
                    .map(|(_, units)| units[d])
                    .sum()
            };
            self.counted
                .iter()
                .map(|(at, _)| window(*at))
                .max()
                .unwrap_or(0)
        }
    }

    fn kinds() -> impl Strategy<Value = WindowKind> {
        prop_oneof![Just(WindowKind::Sliding), Just(WindowKind::Fixed)]
    }

    proptest! {
        #[test]
        fn limiter_agrees_with_naive_twin(
            kind in kinds(),
            caps in (1u64..12, 1u64..200),
            phase in 0u64..PERIOD,
            rejected_counts: bool,
            calls in prop::collection::vec((0u64..400, 0u64..80), 0..120),
        ) {
            let window = |cap| Window::new(kind, cap, PERIOD, phase);
            let mut limiter =
                Limiter { requests: window(caps.0), tokens: window(caps.1), rejected_counts };
            let mut naive = Naive {
                kind, cap: [caps.0, caps.1], phase, rejected_counts, counted: Vec::new(),
            };
            let mut now = 0;
            for (gap, tokens) in calls {
                now += gap;
                let before = naive.fits(now, tokens);
                match limiter.arrive(now, tokens) {
                    Verdict::Accepted => prop_assert!(before),
                    Verdict::Rejected { retry_after_us, .. } => {
                        prop_assert!(!before);
                        prop_assert!((1..=PERIOD).contains(&retry_after_us));
                        if !rejected_counts && tokens <= caps.1 {
                            prop_assert!(naive.fits(now + retry_after_us, tokens));
                            prop_assert!(!naive.fits(now + retry_after_us - 1, tokens));
                        }
                    }
                    Verdict::Overrun => prop_assert!(false, "120 calls outgrow nothing"),
                }
                naive.arrive(now, tokens);
                prop_assert_eq!(limiter.requests.used(now), naive.used(now, 0));
                prop_assert_eq!(limiter.tokens.used(now), naive.used(now, 1));
            }
            let worst = |d: usize| naive.worst(d) as f64 / naive.cap[d] as f64;
            prop_assert_eq!(limiter.requests.worst_over_cap(), worst(0));
            prop_assert_eq!(limiter.tokens.worst_over_cap(), worst(1));
        }

        #[test]
        fn sliding_limit_never_counts_over_its_cap_without_rejections(
            calls in prop::collection::vec((0u64..300, 0u64..80), 0..200),
        ) {
            let window = |cap| Window::new(WindowKind::Sliding, cap, PERIOD, 0);
            let mut limiter =
                Limiter { requests: window(7), tokens: window(150), rejected_counts: false };
            let mut now = 0;
            for (gap, tokens) in calls {
                now += gap;
                limiter.arrive(now, tokens);
            }
            prop_assert!(limiter.requests.worst_over_cap() <= 1.0);
            prop_assert!(limiter.tokens.worst_over_cap() <= 1.0);
        }
    }

    #[test]
    fn fixed_windows_let_twice_the_cap_through_around_their_edge() {
        let window = |cap| Window::new(WindowKind::Fixed, cap, PERIOD, 0);
        let mut limiter = Limiter {
            requests: window(10),
            tokens: window(1_000),
            rejected_counts: true,
        };
        for now in (990..1_000).chain(1_000..1_010) {
            assert_eq!(limiter.arrive(now, 1), Verdict::Accepted);
        }
        assert_eq!(limiter.requests.worst_over_cap(), 2.0);
    }

    #[test]
    fn reset_is_when_the_whole_cap_is_back() {
        let mut sliding = Window::new(WindowKind::Sliding, 10, PERIOD, 0);
        assert_eq!(sliding.reset_in(0), 0);
        sliding.count(100, 2);
        sliding.count(300, 1);
        assert_eq!(sliding.reset_in(400), 900);
        assert_eq!(sliding.remaining(400), 7);
        let mut fixed = Window::new(WindowKind::Fixed, 10, PERIOD, 250);
        fixed.count(100, 2);
        assert_eq!(fixed.reset_in(400), 350);
    }
}
