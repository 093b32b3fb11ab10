//! The log of one sliding limit: what was started in the last guarded period.

use crate::Micros;
use std::collections::VecDeque;

/// Buckets per guarded period: a start leaves the window at most 1/256 of it late.
const RESOLUTION: u64 = 256;

/// Cost started within one quantum of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Number of the quantum: start / quantum.
    pub(crate) number: u64,
    /// Units started.
    pub(crate) units: u64,
    /// Variance of those units that are still an estimate.
    pub(crate) variance: u128,
}

/// Units started in the last `period`, in buckets of `period / 256`.
///
/// Invariants: buckets are in rising order of number, none is empty, at most a few more than
/// [`RESOLUTION`] of them; `units` and `variance` are their sums. A bucket counts until its youngest
/// possible start is a whole period old, so the sum is never below the true one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    period: Micros,
    quantum: Micros,
    buckets: VecDeque<Bucket>,
    units: u64,
    variance: u128,
}

impl Window {
    /// An empty log over a guarded period.
    pub(crate) fn new(period: Micros) -> Window {
        Window {
            period: period.max(1),
            quantum: period.div_ceil(RESOLUTION).max(1),
            buckets: VecDeque::new(),
            units: 0,
            variance: 0,
        }
    }

    /// The guarded period.
    pub(crate) fn period(&self) -> Micros {
        self.period
    }

    /// Units that count now.
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// Units that will still count at `now`, whether or not the log was brought there.
    pub(crate) fn units_at(&self, now: u64) -> u64 {
        let counting = self
            .buckets
            .iter()
            .filter(|bucket| self.leaves(bucket) > now);
        counting.fold(0, |sum, bucket| sum.saturating_add(bucket.units))
    }

    /// Variance of the units that are still an estimate.
    pub(crate) fn variance(&self) -> u128 {
        self.variance
    }

    /// The buckets, oldest first.
    pub(crate) fn buckets(&self) -> impl ExactSizeIterator<Item = &Bucket> {
        self.buckets.iter()
    }

    fn number(&self, at: u64) -> u64 {
        at.checked_div(self.quantum).unwrap_or(0)
    }

    /// When a bucket stops to count.
    fn leaves(&self, bucket: &Bucket) -> u64 {
        bucket
            .number
            .saturating_add(1)
            .saturating_mul(self.quantum)
            .saturating_add(self.period)
    }

    /// Drops what left the window.
    pub(crate) fn expire(&mut self, now: u64) {
        while let Some(oldest) = self.buckets.front().copied() {
            if self.leaves(&oldest) > now {
                break;
            }
            self.buckets.pop_front();
            self.units = self.units.saturating_sub(oldest.units);
            self.variance = self.variance.saturating_sub(oldest.variance);
        }
    }

    /// Place of a bucket: `Ok` if it is there, `Err` where it would be. Starts are almost always in the
    /// youngest buckets, so the search begins there.
    fn find(&self, number: u64) -> Result<usize, usize> {
        match self.buckets.back() {
            None => Err(0),
            Some(youngest) if youngest.number < number => Err(self.buckets.len()),
            Some(youngest) if youngest.number == number => Ok(self.buckets.len().saturating_sub(1)),
            Some(_) => self
                .buckets
                .binary_search_by_key(&number, |bucket| bucket.number),
        }
    }

    /// Adds a start.
    pub(crate) fn add(&mut self, at: u64, units: u64, variance: u128) {
        if units == 0 && variance == 0 {
            return;
        }
        let number = self.number(at);
        self.units = self.units.saturating_add(units);
        self.variance = self.variance.saturating_add(variance);
        match self.find(number) {
            Ok(place) => {
                if let Some(bucket) = self.buckets.get_mut(place) {
                    bucket.units = bucket.units.saturating_add(units);
                    bucket.variance = bucket.variance.saturating_add(variance);
                }
            }
            Err(place) => self.buckets.insert(
                place,
                Bucket {
                    number,
                    units,
                    variance,
                },
            ),
        }
    }

    /// Replaces the cost of one earlier start, if it still counts. True if it did.
    ///
    /// After a change of period a start may stand in a neighbouring bucket; what is not found where it
    /// should be stays charged there, so a correction never frees units that are still counted.
    pub(crate) fn correct(
        &mut self,
        now: u64,
        at: u64,
        old: (u64, u128),
        new: (u64, u128),
    ) -> bool {
        let number = self.number(at);
        if self.leaves(&Bucket {
            number,
            units: 0,
            variance: 0,
        }) <= now
        {
            return false;
        }
        let place = self.find(number);
        let bucket = place.ok().and_then(|place| self.buckets.get_mut(place));
        let (found, found_variance) = bucket.map_or((0, 0), |bucket| {
            (bucket.units.min(old.0), bucket.variance.min(old.1))
        });
        let add = new.0.saturating_sub(old.0.saturating_sub(found));
        let add_variance = new.1.saturating_sub(old.1.saturating_sub(found_variance));
        self.take(place, found, found_variance);
        self.add(at, add, add_variance);
        true
    }

    fn take(&mut self, place: Result<usize, usize>, units: u64, variance: u128) {
        let Ok(place) = place else { return };
        let Some(bucket) = self.buckets.get_mut(place) else {
            return;
        };
        bucket.units = bucket.units.saturating_sub(units);
        bucket.variance = bucket.variance.saturating_sub(variance);
        self.units = self.units.saturating_sub(units);
        self.variance = self.variance.saturating_sub(variance);
        if bucket.units == 0 && bucket.variance == 0 {
            self.buckets.remove(place);
        }
    }

    /// The first instant at which at least `over` units have left; `None` if fewer are there.
    pub(crate) fn left(&self, over: u64) -> Option<u64> {
        if over > self.units {
            return None;
        }
        let mut gone: u64 = 0;
        for bucket in &self.buckets {
            gone = gone.saturating_add(bucket.units);
            if gone >= over {
                return Some(self.leaves(bucket));
            }
        }
        None
    }

    /// The same starts seen through another period. Buckets keep the later end of their quantum, so use
    /// is never dated earlier than it was.
    pub(crate) fn with_period(&self, period: Micros) -> Window {
        let mut other = Window::new(period);
        for bucket in &self.buckets {
            let end = bucket
                .number
                .saturating_add(1)
                .saturating_mul(self.quantum)
                .saturating_sub(1);
            other.add(end, bucket.units, bucket.variance);
        }
        other
    }

    /// Rebuilds a window from its parts; `None` if they break an invariant.
    pub(crate) fn restore(period: Micros, buckets: Vec<Bucket>) -> Option<Window> {
        if period == 0 {
            return None;
        }
        let mut window = Window::new(period);
        let mut last = None;
        for bucket in buckets {
            if last.is_some_and(|last| last >= bucket.number)
                || (bucket.units == 0 && bucket.variance == 0)
            {
                return None;
            }
            last = Some(bucket.number);
            window.units = window.units.checked_add(bucket.units)?;
            window.variance = window.variance.checked_add(bucket.variance)?;
            window.buckets.push_back(bucket);
        }
        Some(window)
    }
}
