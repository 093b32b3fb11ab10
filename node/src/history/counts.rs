//! What is counted of one minute, in memory until it is written.

use crate::limits::{
    HISTORY_DIMENSIONS_MAX, HISTORY_KEYS_MAX, HISTORY_MINUTES_MAX, HISTORY_TARGETS_MAX,
};
use std::collections::{BTreeMap, HashMap};
use weir_admission::{DimensionName, PriorityName, TargetName, TenantName};

/// Whose use is counted. `None` stands for all that found no room of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    /// What was called.
    pub(super) target: Option<TargetName>,
    /// Its priority.
    pub(super) priority: Option<PriorityName>,
    /// Who the use is counted against.
    pub(super) tenant: Option<TenantName>,
}

impl Key {
    /// A key of its own.
    pub(super) fn of(target: &TargetName, tenant: &TenantName, priority: &PriorityName) -> Key {
        Key {
            target: Some(target.clone()),
            priority: Some(priority.clone()),
            tenant: Some(tenant.clone()),
        }
    }

    /// What is counted of a target without a room of its own.
    pub(super) fn rest_of(target: &TargetName) -> Key {
        Key {
            target: Some(target.clone()),
            ..Key::default()
        }
    }
}

/// Units of one dimension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Units {
    /// Charged when grants were given and calls reported.
    pub(super) charged: u64,
    /// By which releases and refunds corrected charges.
    pub(super) corrected: i64,
}

/// What was counted under one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Grants given.
    pub(super) admitted: u64,
    /// Asks deferred.
    pub(super) deferred: u64,
    /// Asks rejected.
    pub(super) rejected: u64,
    /// Grants released as throttled.
    pub(super) throttled: u64,
    /// Calls charged that were let through without a decision.
    pub(super) ungated: u64,
    /// Units by dimension; `None` stands for dimensions beyond those that one key counts.
    pub(super) units: BTreeMap<Option<DimensionName>, Units>,
}

impl Counts {
    /// True if nothing was counted.
    pub(super) fn is_empty(&self) -> bool {
        *self == Counts::default()
    }

    /// Counts units of one dimension.
    pub(super) fn count(&mut self, dimension: &DimensionName, charged: u64, corrected: i64) {
        let more = Units { charged, corrected };
        self.add_units(Some(dimension.clone()), more);
    }

    /// Adds what was counted elsewhere.
    pub(super) fn add(&mut self, more: &Counts) {
        for (count, more) in [
            (&mut self.admitted, more.admitted),
            (&mut self.deferred, more.deferred),
            (&mut self.rejected, more.rejected),
            (&mut self.throttled, more.throttled),
            (&mut self.ungated, more.ungated),
        ] {
            *count = count.saturating_add(more);
        }
        for (dimension, units) in &more.units {
            self.add_units(dimension.clone(), *units);
        }
    }

    fn add_units(&mut self, dimension: Option<DimensionName>, more: Units) {
        let room = self.units.len() < HISTORY_DIMENSIONS_MAX;
        let own = room || self.units.contains_key(&dimension);
        let dimension = dimension.filter(|_| own);
        let units = self.units.entry(dimension).or_default();
        units.charged = units.charged.saturating_add(more.charged);
        units.corrected = units.corrected.saturating_add(more.corrected);
    }
}

/// One minute of counts.
pub(super) type Rows = HashMap<Key, Counts>;

/// The minutes that are not written yet, with a bound on keys and on minutes.
#[derive(Debug, Default)]
pub(super) struct Minutes {
    by_minute: BTreeMap<u32, Minute>,
    /// Rows given up because too many minutes waited.
    lost: u64,
}

/// A minute that is being counted. Keys stay until it is over, also when their counts were taken: they are
/// what the bound is about.
#[derive(Debug, Default)]
pub(super) struct Minute {
    rows: Rows,
    /// Keys that stand for a target, or for all.
    rests: usize,
    /// Times something was counted without a row of its own.
    overflowed: u64,
}

impl Minute {
    /// Where to count a key: its own place, the rest of its target, or the rest of all.
    pub(super) fn row(&mut self, key: Key) -> &mut Counts {
        let own = self.rows.len() - self.rests;
        if self.rows.contains_key(&key) || own < HISTORY_KEYS_MAX {
            return self.rows.entry(key).or_default();
        }
        self.overflowed += 1;
        let rest = Key {
            target: key.target,
            ..Key::default()
        };
        let known = self.rows.contains_key(&rest);
        // One place is kept for the rest of all.
        let room = self.rests + 1 < HISTORY_TARGETS_MAX;
        let rest = if known || room { rest } else { Key::default() };
        if !self.rows.contains_key(&rest) {
            self.rests += 1;
        }
        self.rows.entry(rest).or_default()
    }
}

/// What was taken to be written.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) rows: Vec<(u32, Key, Counts)>,
    /// Times something was counted without a row of its own.
    pub(super) overflowed: u64,
    /// See [`Minutes`].
    pub(super) lost: u64,
}

impl Minutes {
    /// The minute to count in.
    pub(super) fn at(&mut self, minute: u32) -> &mut Minute {
        if !self.by_minute.contains_key(&minute) && self.by_minute.len() >= HISTORY_MINUTES_MAX {
            let oldest = self.by_minute.pop_first();
            let rows = oldest.map_or(0, |(_, minute)| minute.counted());
            self.lost += rows as u64;
        }
        self.by_minute.entry(minute).or_default()
    }

    /// Takes all that was counted. Minutes before `now` are over.
    pub(super) fn take(&mut self, now: u32) -> Taken {
        let mut taken = Taken {
            lost: std::mem::take(&mut self.lost),
            ..Taken::default()
        };
        for (minute, counted) in &mut self.by_minute {
            taken.overflowed += std::mem::take(&mut counted.overflowed);
            for (key, counts) in &mut counted.rows {
                if !counts.is_empty() {
                    let counts = std::mem::take(counts);
                    taken.rows.push((*minute, key.clone(), counts));
                }
            }
        }
        self.by_minute.retain(|minute, _| *minute >= now);
        taken
    }
}

impl Minute {
    fn counted(&self) -> usize {
        self.rows
            .values()
            .filter(|counts| !counts.is_empty())
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(target: usize, tenant: usize) -> Key {
        Key::of(
            &TargetName::new(&format!("t/{target}")).unwrap(),
            &TenantName::new(&format!("{tenant}")).unwrap(),
            &PriorityName::new("p").unwrap(),
        )
    }

    fn sum<'a>(rows: impl Iterator<Item = &'a (u32, Key, Counts)>) -> u64 {
        rows.map(|(_, _, counts)| counts.admitted).sum()
    }

    #[test]
    fn keys_beyond_the_bound_are_counted_with_their_target() {
        let mut minutes = Minutes::default();
        let minute = minutes.at(7);
        for tenant in 0..HISTORY_KEYS_MAX + 5 {
            minute.row(key(0, tenant)).admitted += 1;
        }
        minute.row(key(0, 3)).admitted += 1;
        for target in 1..HISTORY_TARGETS_MAX + 4 {
            minute.row(key(target, 0)).admitted += 1;
        }
        assert_eq!(minute.rows.len(), HISTORY_KEYS_MAX + HISTORY_TARGETS_MAX);
        let taken = minutes.take(7);
        let of = |key: &Key| {
            let own = taken.rows.iter().filter(|(_, of, _)| of == key);
            sum(own)
        };
        assert_eq!(of(&key(0, 3)), 2);
        assert_eq!(of(&Key::rest_of(&TargetName::new("t/0").unwrap())), 5);
        // The rests of targets 1 to HISTORY_TARGETS_MAX - 2 have a place beside those of 0 and of all.
        assert_eq!(of(&Key::default()), 5);
        let expected = HISTORY_KEYS_MAX + 5 + 1 + HISTORY_TARGETS_MAX + 3;
        assert_eq!(sum(taken.rows.iter()), expected as u64);
        assert_eq!(taken.overflowed, 5 + HISTORY_TARGETS_MAX as u64 + 3);
    }

    #[test]
    fn a_minute_keeps_its_bound_when_its_counts_are_taken() {
        let mut minutes = Minutes::default();
        for tenant in 0..HISTORY_KEYS_MAX {
            minutes.at(7).row(key(0, tenant)).admitted += 1;
        }
        assert_eq!(minutes.take(7).rows.len(), HISTORY_KEYS_MAX);
        minutes.at(7).row(key(0, HISTORY_KEYS_MAX)).admitted += 1;
        let taken = minutes.take(8);
        assert_eq!((taken.rows.len(), taken.overflowed), (1, 1));
        assert_eq!(minutes.by_minute.len(), 0, "the minute is over");
    }

    #[test]
    fn minutes_that_nobody_takes_are_given_up_from_the_oldest() {
        let mut minutes = Minutes::default();
        for minute in 0..HISTORY_MINUTES_MAX as u32 + 2 {
            minutes.at(minute).row(key(0, 0)).admitted += 1;
        }
        let taken = minutes.take(100);
        assert_eq!(taken.lost, 2);
        let kept: Vec<u32> = taken.rows.iter().map(|(minute, ..)| *minute).collect();
        assert_eq!(kept, Vec::from_iter(2..HISTORY_MINUTES_MAX as u32 + 2));
    }

    #[test]
    fn dimensions_beyond_the_bound_are_counted_together() {
        let mut counts = Counts::default();
        for number in 0..HISTORY_DIMENSIONS_MAX + 3 {
            let dimension = DimensionName::new(&format!("{number:03}")).unwrap();
            counts.count(&dimension, 1, -1);
        }
        let rest = Units {
            charged: 3,
            corrected: -3,
        };
        assert_eq!(counts.units.get(&None), Some(&rest));
        assert_eq!(counts.units.len(), HISTORY_DIMENSIONS_MAX + 1);
    }
}
