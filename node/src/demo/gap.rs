//! How long nobody got an answer from the cluster.

use super::limits::FAILOVER_WITHIN;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Watches the answers of a cluster and finds the longest time without any around a kill.
#[derive(Debug)]
pub struct GapWatch {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    last: Instant,
    killed: Option<Instant>,
    longest: Option<Gap>,
}

/// A time without any answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When the last answer before it came.
    pub from: Instant,
    /// When the next answer came.
    pub to: Instant,
}

impl Gap {
    /// How long it was.
    pub fn length(&self) -> Duration {
        self.to - self.from
    }
}

impl GapWatch {
    /// Nothing was killed yet.
    pub fn new(now: Instant) -> GapWatch {
        GapWatch {
            inner: Mutex::new(Inner {
                last: now,
                killed: None,
                longest: None,
            }),
        }
    }

    /// An answer came.
    pub fn answered(&self, now: Instant) {
        let inner = &mut *self.lock();
        inner.close(now);
        inner.last = inner.last.max(now);
    }

    /// The leader is being killed now: gaps count that end later and began within [`FAILOVER_WITHIN`].
    pub fn killed(&self, now: Instant) {
        self.lock().killed = Some(now);
    }

    /// When it was killed, if it was.
    pub fn killed_at(&self) -> Option<Instant> {
        self.lock().killed
    }

    /// The longest gap around the kill; one that is still open ends at `now`. `None` if nothing was
    /// killed.
    pub fn longest(&self, now: Instant) -> Option<Gap> {
        let inner = &mut *self.lock();
        inner.close(now);
        inner.longest
    }

    /// An instant and a gap are true at every moment.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn close(&mut self, now: Instant) {
        let gap = Gap {
            from: self.last,
            to: now.max(self.last),
        };
        let counts = self
            .killed
            .is_some_and(|killed| gap.to > killed && gap.from <= killed + FAILOVER_WITHIN);
        if counts
            && self
                .longest
                .is_none_or(|longest| gap.length() > longest.length())
        {
            self.longest = Some(gap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_longest_gap_after_the_kill() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let watch = GapWatch::new(start);
        watch.answered(at(5_000));
        assert_eq!(watch.longest(at(5_000)), None);
        watch.answered(at(5_010));
        watch.killed(at(5_015));
        for ms in [5_012, 5_014, 6_500, 6_510, 6_900] {
            watch.answered(at(ms));
        }
        let longest = watch.longest(at(7_000)).unwrap();
        assert_eq!(
            longest,
            Gap {
                from: at(5_014),
                to: at(6_500)
            }
        );
        assert_eq!(longest.length(), Duration::from_millis(1_486));
        let open = watch.longest(at(9_000)).unwrap();
        assert_eq!(open.from, at(6_900), "a gap that is still open counts");
        for ms in [9_000, 15_100] {
            watch.answered(at(ms));
        }
        let longest = watch.longest(at(60_000)).unwrap();
        assert_eq!(
            (longest.from, longest.to),
            (at(9_000), at(15_100)),
            "what comes later does not"
        );
    }
}
