//! A node of a line's tree: entries with the sums up to each of them.

use super::{Key, Sums};
use std::ops::Range;

/// No node: an index beyond every arena, so that looking it up ends a walk.
pub(super) const NIL: u32 = u32::MAX;
/// Entries of a node: comparing them all streams through memory, and shifting half of them is cheap.
pub(super) const NODE_ENTRIES_MAX: usize = 32;

/// Up to [`NODE_ENTRIES_MAX`] entries in order of key: tickets in a leaf, children in a node above.
///
/// What a search compares lies together, so that it streams through a few lines of memory instead of
/// waiting for one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// The tickets' keys; of a child, a bound that none of its keys is below and that is above all keys
    /// of the entry before. The first entry of a node takes smaller keys all the same.
    pub(super) keys: Vec<Key>,
    /// Share of all entries up to each one, itself included, and `base`.
    pub(super) shares: Vec<i128>,
    /// Number of tickets and units, likewise: a row for each entry.
    pub(super) rows: Vec<u64>,
    /// What stands in every sum beside its entries: what left at the front. Tickets mostly do, and no sum has
    /// to be changed for them.
    base: Sums,
    /// The children; empty in a leaf.
    pub(super) children: Vec<u32>,
}

impl Node {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Where an entry's row stands.
    fn row(place: usize, dimensions: usize) -> Range<usize> {
        let width = dimensions.wrapping_add(1);
        let start = place.wrapping_mul(width);
        start..start.wrapping_add(width)
    }

    /// Sums of the first `count` entries, at most as many as there are.
    pub(super) fn first(&self, count: usize, dimensions: usize) -> Sums {
        let mut sums = Sums::default();
        let last = count.checked_sub(1);
        let Some((last, share)) = last.and_then(|last| Some((last, self.shares.get(last)?))) else {
            return sums;
        };
        sums.share = *share;
        if let Some([tickets, units @ ..]) = self.rows.get(Node::row(last, dimensions)) {
            sums.count = *tickets;
            for (sum, units) in sums.units.iter_mut().zip(units) {
                *sum = *units;
            }
        }
        sums.subtract(&self.base);
        sums
    }

    /// Number of entries that lie whole below a limit: `is_below` is asked for the share up to them, itself
    /// included, and never again once it said no.
    pub(super) fn shares_below(&self, is_below: impl Fn(i128) -> bool) -> usize {
        let mut below = 0usize;
        for share in &self.shares {
            if !is_below(share.wrapping_sub(self.base.share)) {
                break;
            }
            below = below.wrapping_add(1);
        }
        below
    }

    /// Sums of all entries.
    pub(super) fn total(&self, dimensions: usize) -> Sums {
        self.first(self.len(), dimensions)
    }

    /// Number of entries whose key is below a bound. Counts instead of searching: see the type. The front of
    /// a line is asked for most.
    pub(super) fn below(&self, is_below: impl Fn(&Key) -> bool) -> usize {
        if let [first, second, ..] = self.keys.as_slice()
            && !is_below(second)
        {
            return usize::from(is_below(first));
        }
        self.keys.iter().filter(|key| is_below(key)).count()
    }

    /// The child whose keys `key` is or would be among.
    pub(super) fn child_for(&self, key: Key) -> usize {
        self.below(|bound| *bound <= key).saturating_sub(1)
    }

    pub(super) fn child(&self, place: usize) -> u32 {
        self.children.get(place).copied().unwrap_or(NIL)
    }

    /// Adds to the sums up to each entry from `place` on.
    pub(super) fn add_from(&mut self, place: usize, by: &Sums, dimensions: usize) {
        if place == 0 {
            return self.base.subtract(by);
        }
        for share in self.shares.iter_mut().skip(place) {
            *share = share.wrapping_add(by.share);
        }
        self.rows_from(place, dimensions, |tickets, units| {
            *tickets = tickets.wrapping_add(by.count);
            for (sum, units) in units.iter_mut().zip(by.units) {
                *sum = sum.wrapping_add(units);
            }
        });
    }

    /// Subtracts from the sums up to each entry from `place` on.
    pub(super) fn subtract_from(&mut self, place: usize, by: &Sums, dimensions: usize) {
        if place == 0 {
            return self.base.add(by);
        }
        for share in self.shares.iter_mut().skip(place) {
            *share = share.wrapping_sub(by.share);
        }
        self.rows_from(place, dimensions, |tickets, units| {
            *tickets = tickets.wrapping_sub(by.count);
            for (sum, units) in units.iter_mut().zip(by.units) {
                *sum = sum.wrapping_sub(units);
            }
        });
    }

    fn rows_from(
        &mut self,
        place: usize,
        dimensions: usize,
        mut change: impl FnMut(&mut u64, &mut [u64]),
    ) {
        let start = Node::row(place, dimensions).start;
        let rows = self.rows.get_mut(start..).unwrap_or_default();
        for row in rows.chunks_exact_mut(dimensions.wrapping_add(1)) {
            if let [tickets, units @ ..] = row {
                change(tickets, units);
            }
        }
    }

    /// Puts an entry in a place, at most one past the last, without changing the others. `upto` are the
    /// sums up to it; a ticket has no child.
    pub(super) fn insert(
        &mut self,
        place: usize,
        key: Key,
        child: Option<u32>,
        upto: &Sums,
        dimensions: usize,
    ) {
        let place = place.min(self.len());
        let mut upto = *upto;
        upto.add(&self.base);
        self.keys.insert(place, key);
        self.shares.insert(place, upto.share);
        if let Some(child) = child {
            self.children.insert(place.min(self.children.len()), child);
        }
        let at = Node::row(place, dimensions).start.min(self.rows.len());
        let units = upto.units.iter().take(dimensions).copied();
        let row = std::iter::once(upto.count).chain(units);
        self.rows.splice(at..at, row);
    }

    /// Takes an entry out of its place without changing the others.
    pub(super) fn remove(&mut self, place: usize, dimensions: usize) {
        if place >= self.len() {
            return;
        }
        self.keys.remove(place);
        self.shares.remove(place);
        if place < self.children.len() {
            self.children.remove(place);
        }
        let row = Node::row(place, dimensions);
        if row.end <= self.rows.len() {
            self.rows.drain(row);
        }
    }

    /// Sets the sums up to one entry.
    pub(super) fn replace(&mut self, place: usize, upto: &Sums, dimensions: usize) {
        let mut upto = *upto;
        upto.add(&self.base);
        if let Some(share) = self.shares.get_mut(place) {
            *share = upto.share;
        }
        if let Some([tickets, units @ ..]) = self.rows.get_mut(Node::row(place, dimensions)) {
            *tickets = upto.count;
            for (units, sum) in units.iter_mut().zip(upto.units) {
                *units = sum;
            }
        }
    }

    /// Takes the entries from `place` on into a node of their own.
    pub(super) fn split_off(&mut self, place: usize, dimensions: usize) -> Node {
        let left = self.first(place, dimensions);
        let place = place.min(self.len());
        let row = Node::row(place, dimensions).start.min(self.rows.len());
        let mut right = Node {
            keys: self.keys.split_off(place),
            shares: self.shares.split_off(place),
            rows: self.rows.split_off(row),
            base: self.base,
            children: self.children.split_off(place.min(self.children.len())),
        };
        right.base.add(&left);
        right
    }
}
