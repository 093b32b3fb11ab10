//! The pacer of one limit: how much cap time is spent, as a point in time.
//!
//! A start moves the point on by its cap time; credit is the distance from the point to now, and what
//! exceeds the limit's burst overflows. A start whose cost shrinks later gives cap time back, but never
//! more than the credit had room for at every start since: the rest would have overflowed there.

use crate::limits::{PACER_MARKS_MAX, PERIOD_MAX};
use crate::time::nanos;
use std::collections::VecDeque;

/// A start, and how much cap time its credit lacked to be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The start; not before that of the mark before it.
    pub(crate) start: u64,
    /// Nanoseconds, 0 if the credit overflowed.
    pub(crate) lacked: i128,
}

/// See the module.
///
/// Invariant: from mark to mark `start` does not fall and `lacked` rises, so the first mark after a start
/// lacked least. Marks that lacked as much as a later one are left out; too many are merged so that less
/// is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pacer {
    /// In nanoseconds of cluster time.
    pub(crate) spent_until: i128,
    pub(crate) marks: VecDeque<Mark>,
}

impl Pacer {
    /// Nothing is spent: credit is whole even when cluster time has just begun.
    pub(crate) fn new() -> Pacer {
        Pacer {
            spent_until: nanos(PERIOD_MAX).saturating_neg(),
            marks: VecDeque::new(),
        }
    }

    /// Rebuilds a pacer from its parts; `None` if they break the invariant.
    pub(crate) fn restore(spent_until: i128, marks: VecDeque<Mark>) -> Option<Pacer> {
        let rising = marks.iter().zip(marks.iter().skip(1));
        let mut rising = rising.map(|(a, b)| a.start <= b.start && a.lacked < b.lacked);
        let sound = marks.len() <= PACER_MARKS_MAX && rising.all(|rising| rising);
        sound.then_some(Pacer { spent_until, marks })
    }

    /// Spends cap time at a start. At `floor` the credit is whole.
    pub(crate) fn spend(&mut self, start: u64, floor: i128, cap_time: i128) {
        let lacked = self.spent_until.saturating_sub(floor).max(0);
        self.spent_until = self.spent_until.max(floor).saturating_add(cap_time);
        let last = self.marks.back().map_or(0, |mark| mark.start);
        while self.marks.back().is_some_and(|mark| mark.lacked >= lacked) {
            self.marks.pop_back();
        }
        let start = start.max(last);
        self.marks.push_back(Mark { start, lacked });
        if self.marks.len() > PACER_MARKS_MAX
            && let Some(first) = self.marks.pop_front()
            && let Some(second) = self.marks.front_mut()
        {
            second.lacked = first.lacked;
        }
    }

    /// Spends more, or less, on an earlier start.
    pub(crate) fn correct(&mut self, start: u64, change: i128) {
        if change >= 0 {
            // Later marks stay as they are: one that was left out for them may have lacked no more.
            self.spent_until = self.spent_until.saturating_add(change);
            return;
        }
        let later = self.marks.partition_point(|mark| mark.start <= start);
        let Some(room) = self.marks.get(later).map(|mark| mark.lacked) else {
            self.spent_until = self.spent_until.saturating_add(change);
            return;
        };
        let back = change.saturating_neg().min(room);
        self.spent_until = self.spent_until.saturating_sub(back);
        for mark in self.marks.range_mut(later..) {
            mark.lacked = mark.lacked.saturating_sub(back);
        }
        let least = room.saturating_sub(back);
        let earlier = self.marks.iter().take(later);
        let kept = earlier.filter(|mark| mark.lacked < least).count();
        self.marks.drain(kept..later);
    }

    /// Takes over what another pacer spent, if that is more.
    pub(crate) fn inherit(&mut self, other: &Pacer) {
        if other.spent_until > self.spent_until {
            self.clone_from(other);
        }
    }

    /// Assumes that no credit is left.
    pub(crate) fn exhaust(&mut self, now: u64) {
        self.spent_until = self.spent_until.max(nanos(now));
    }
}
