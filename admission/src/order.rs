//! The waiting line of one priority, in the order of fair queueing.
//!
//! An ask has to know how much is ahead of it, in every dimension and in cap time, among up to
//! [`TICKETS_PER_TARGET_MAX`](crate::limits::TICKETS_PER_TARGET_MAX) others. A B+ tree whose entries
//! carry the sums of all entries up to them answers that on one walk from the root. Its nodes are wide
//! because what a query costs is the memory it touches: among 100 000 tickets it reads four nodes, of
//! which all but the last are shared by many tickets and so are warm.
//!
//! Nodes split when they overflow and go when they are empty, not before (T. Johnson, D. Shasha,
//! "B-trees with inserts and deletes: why free-at-empty is better than merge-at-half", 1993). A line
//! that has become sparse is packed anew, which bounds memory. The shape follows from the history, the
//! answers from the content alone.

use crate::limits::DIMENSIONS_MAX;
use node::{NIL, NODE_ENTRIES_MAX, Node};
pub(crate) use walk::Walk;

mod node;
#[cfg(test)]
mod tests;
mod walk;

/// Levels above the leaves. A level more takes some sixteen times as many insertions, so a line cannot
/// live long enough to need these; one that would is packed first.
const HEIGHT_MAX: usize = 12;
/// Up to this many nodes a line is never packed: 150 KiB are not worth the work.
const SPARSE_NODES_MIN: usize = 64;
/// A line is packed when its nodes hold fewer tickets than this on average. Packing fills them, so it
/// happens at most once in several removals for every ticket that is moved.
const SPARSE_TICKETS_PER_NODE: usize = 4;

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Start tag in nanoseconds of cap time.
    pub(crate) tag: i128,
    /// The ticket's number; decides between equal tags.
    pub(crate) serial: u64,
}

/// Sums over some tickets of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Units of each dimension; those beyond the line's dimensions are 0.
    pub(crate) units: [u64; DIMENSIONS_MAX],
    /// Dominant share in nanoseconds of cap time.
    pub(crate) share: i128,
    /// Number of tickets.
    pub(crate) count: u64,
}

/// Sums fit their types (`limits` asserts it), so nothing wraps; with operands beyond those limits
/// wrapping at least keeps addition and subtraction each other's inverse.
impl Sums {
    pub(crate) fn add(&mut self, other: &Sums) {
        for (sum, units) in self.units.iter_mut().zip(other.units) {
            *sum = sum.wrapping_add(units);
        }
        self.share = self.share.wrapping_add(other.share);
        self.count = self.count.wrapping_add(other.count);
    }

    fn subtract(&mut self, other: &Sums) {
        for (sum, units) in self.units.iter_mut().zip(other.units) {
            *sum = sum.wrapping_sub(units);
        }
        self.share = self.share.wrapping_sub(other.share);
        self.count = self.count.wrapping_sub(other.count);
    }
}

/// A step of a walk from the root: the entry taken in a node above the leaves.
#[derive(Clone, Copy)]
struct Step {
    node: u32,
    place: usize,
}

/// A walk from the root to a leaf.
struct Path {
    steps: [Step; HEIGHT_MAX],
    leaf: u32,
}

/// The right half of a node that was split, for its parent.
struct Split {
    key: Key,
    child: u32,
    total: Sums,
}

/// Tickets in order of their keys, with sums over any prefix of them.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    dimensions: usize,
    root: u32,
    /// Levels above the leaves.
    height: usize,
    nodes: Vec<Node>,
    /// Slots of `nodes` that are free.
    free: Vec<u32>,
    total: Sums,
}

impl Line {
    /// An empty line that keeps sums of `dimensions` dimensions, at most [`DIMENSIONS_MAX`].
    pub(crate) fn new(dimensions: usize) -> Line {
        Line {
            dimensions: dimensions.min(DIMENSIONS_MAX),
            root: NIL,
            height: 0,
            nodes: Vec::new(),
            free: Vec::new(),
            total: Sums::default(),
        }
    }

    /// Number of tickets.
    pub(crate) fn len(&self) -> u64 {
        self.total.count
    }

    /// True if nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.total.count == 0
    }

    /// Sums over all tickets.
    #[cfg(test)]
    pub(crate) fn total(&self) -> Sums {
        self.total
    }

    /// Sums over the tickets ordered strictly before `key`, which need not be in the line.
    pub(crate) fn before(&self, key: Key) -> Sums {
        let mut sums = Sums::default();
        let mut at = self.root;
        for _ in 0..self.height {
            let Some(node) = self.node(at) else { break };
            let place = node.child_for(key);
            sums.add(&node.first(place, self.dimensions));
            at = node.child(place);
        }
        if let Some(leaf) = self.node(at) {
            let place = leaf.below(|other| *other < key);
            sums.add(&leaf.first(place, self.dimensions));
        }
        sums
    }

    /// Sums over the tickets that start before `limit`, or at it if `tie`. A ticket's start is the
    /// share of all tickets before it; tickets count whole.
    pub(crate) fn upto(&self, limit: i128, tie: bool) -> Sums {
        let reached = |start: i128| if tie { start > limit } else { start >= limit };
        let mut sums = Sums::default();
        if reached(0) {
            return sums;
        }
        let mut at = self.root;
        let mut above = self.height;
        while let Some(node) = self.node(at) {
            // An entry starts where the one before it ends; the first one starts in time.
            let below = node.shares_below(|end| !reached(sums.share.wrapping_add(end)));
            let started = below.saturating_add(1);
            let started = started.min(node.len());
            let Some(lower) = above.checked_sub(1) else {
                sums.add(&node.first(started, self.dimensions));
                break;
            };
            let place = started.saturating_sub(1);
            sums.add(&node.first(place, self.dimensions));
            (at, above) = (node.child(place), lower);
        }
        sums
    }

    /// The tickets in order, each with its own sums.
    pub(crate) fn walk_in_order(&self) -> Walk<'_> {
        Walk::from(self)
    }

    /// Puts a ticket in its place. `units` beyond the line's dimensions are ignored and missing ones
    /// are 0; a negative share counts as 0. False, and nothing changed, if the key is there already.
    pub(crate) fn insert(&mut self, key: Key, units: &[u64], share_ns: i64) -> bool {
        if self.height >= HEIGHT_MAX {
            self.pack();
        }
        if self.root == NIL {
            self.root = self.allocate(Node::default());
        }
        let path = self.walk(key);
        let Err(place) = self.search(path.leaf, key) else {
            return false;
        };
        let own = self.sums_of(units, share_ns);
        let mut split = self.put(path.leaf, place, key, &own);
        for step in path.steps.iter().take(self.height).rev() {
            split = self.pass_insertion(*step, key, &own, split);
        }
        if let Some(right) = split {
            self.grow(right);
        }
        self.total.add(&own);
        true
    }

    /// Takes a ticket out. False if the key is not there.
    pub(crate) fn remove(&mut self, key: Key) -> bool {
        let path = self.walk(key);
        let Ok(place) = self.search(path.leaf, key) else {
            return false;
        };
        let dimensions = self.dimensions;
        let Some(leaf) = self.nodes.get_mut(path.leaf as usize) else {
            return false;
        };
        let mut own = leaf.first(place.saturating_add(1), dimensions);
        own.subtract(&leaf.first(place, dimensions));
        leaf.remove(place, dimensions);
        leaf.subtract_from(place, &own, dimensions);
        let mut emptied = (leaf.len() == 0).then_some(path.leaf);
        for step in path.steps.iter().take(self.height).rev() {
            let gone = emptied.take();
            self.release(gone);
            let Some(node) = self.nodes.get_mut(step.node as usize) else {
                continue;
            };
            node.subtract_from(step.place, &own, dimensions);
            if gone.is_some() {
                node.remove(step.place, dimensions);
            }
            emptied = (node.len() == 0).then_some(step.node);
        }
        self.total.subtract(&own);
        if emptied.is_some() {
            *self = Line::new(dimensions);
        } else {
            self.shrink();
        }
        true
    }

    fn node(&self, at: u32) -> Option<&Node> {
        self.nodes.get(at as usize)
    }

    /// The way to the leaf that holds `key`, or would.
    fn walk(&self, key: Key) -> Path {
        let unused = Step {
            node: NIL,
            place: 0,
        };
        let mut path = Path {
            steps: [unused; HEIGHT_MAX],
            leaf: self.root,
        };
        for step in path.steps.iter_mut().take(self.height) {
            let Some(node) = self.node(path.leaf) else {
                break;
            };
            let place = node.child_for(key);
            *step = Step {
                node: path.leaf,
                place,
            };
            path.leaf = node.child(place);
        }
        path
    }

    /// Place of a key in a leaf: `Ok` if it is there, `Err` where it would be.
    fn search(&self, leaf: u32, key: Key) -> Result<usize, usize> {
        self.node(leaf).map_or(Err(0), |leaf| {
            let place = leaf.below(|other| *other < key);
            match leaf.keys.get(place) {
                Some(other) if *other == key => Ok(place),
                Some(_) | None => Err(place),
            }
        })
    }

    fn sums_of(&self, units: &[u64], share_ns: i64) -> Sums {
        let mut sums = Sums {
            share: i128::from(share_ns.max(0)),
            count: 1,
            ..Sums::default()
        };
        for (sum, units) in sums.units.iter_mut().zip(units).take(self.dimensions) {
            *sum = *units;
        }
        sums
    }

    /// Puts a ticket into a leaf, and splits the leaf if it overflows.
    fn put(&mut self, at: u32, place: usize, key: Key, own: &Sums) -> Option<Split> {
        let dimensions = self.dimensions;
        let node = self.nodes.get_mut(at as usize)?;
        let upto = node.first(place, dimensions);
        node.insert(place, key, None, &upto, dimensions);
        node.add_from(place, own, dimensions);
        self.split(at, place)
    }

    /// Splits a node that overflowed by an entry at `place`. A line grows at its end most of the time:
    /// then the left half stays full.
    fn split(&mut self, at: u32, place: usize) -> Option<Split> {
        let dimensions = self.dimensions;
        let node = self.nodes.get_mut(at as usize)?;
        if node.len() <= NODE_ENTRIES_MAX {
            return None;
        }
        let cut = if place == NODE_ENTRIES_MAX {
            NODE_ENTRIES_MAX
        } else {
            NODE_ENTRIES_MAX.div_ceil(2)
        };
        let right = node.split_off(cut, dimensions);
        let (key, total) = (*right.keys.first()?, right.total(dimensions));
        let child = self.allocate(right);
        Some(Split { key, child, total })
    }

    /// Takes note, above, of a ticket that was put in below an entry, and of the split that it caused.
    fn pass_insertion(
        &mut self,
        step: Step,
        key: Key,
        own: &Sums,
        split: Option<Split>,
    ) -> Option<Split> {
        let dimensions = self.dimensions;
        let node = self.nodes.get_mut(step.node as usize)?;
        node.add_from(step.place, own, dimensions);
        if let Some(bound) = node.keys.get_mut(step.place) {
            *bound = key.min(*bound);
        }
        let right = split?;
        let next = step.place.saturating_add(1);
        let mut upto = node.first(next, dimensions);
        node.insert(next, right.key, Some(right.child), &upto, dimensions);
        upto.subtract(&right.total);
        node.replace(step.place, &upto, dimensions);
        self.split(step.node, next)
    }

    /// Puts a root above the old one and the right half that was split off it.
    fn grow(&mut self, right: Split) {
        let left = self.root;
        let Some(node) = self.node(left) else { return };
        let Some(key) = node.keys.first().copied() else {
            return;
        };
        let mut upto = node.total(self.dimensions);
        let mut root = Node::default();
        root.insert(0, key, Some(left), &upto, self.dimensions);
        upto.add(&right.total);
        root.insert(1, right.key, Some(right.child), &upto, self.dimensions);
        self.root = self.allocate(root);
        self.height = self.height.saturating_add(1);
    }

    /// Takes away roots with a single child, and packs a sparse line.
    fn shrink(&mut self) {
        while self.height > 0 {
            let only = match self.node(self.root).map(|root| root.children.as_slice()) {
                Some([only]) => *only,
                Some(_) | None => break,
            };
            let root = std::mem::replace(&mut self.root, only);
            self.release(Some(root));
            self.height = self.height.saturating_sub(1);
        }
        let nodes = self.nodes.len().saturating_sub(self.free.len());
        let tickets = usize::try_from(self.len()).unwrap_or(usize::MAX);
        let sparse = nodes.saturating_mul(SPARSE_TICKETS_PER_NODE) > tickets;
        if nodes > SPARSE_NODES_MIN && sparse {
            self.pack();
        }
    }

    /// Builds the same line with full nodes.
    fn pack(&mut self) {
        let mut packed = Line::new(self.dimensions);
        for (key, own) in self.walk_in_order() {
            let share = i64::try_from(own.share).unwrap_or(i64::MAX);
            packed.insert(key, &own.units, share);
        }
        *self = packed;
    }

    fn allocate(&mut self, node: Node) -> u32 {
        let reused = self.free.pop();
        let slot = reused.and_then(|at| Some((at, self.nodes.get_mut(at as usize)?)));
        if let Some((at, slot)) = slot {
            *slot = node;
            return at;
        }
        let at = u32::try_from(self.nodes.len()).unwrap_or(NIL);
        self.nodes.push(node);
        at
    }

    fn release(&mut self, at: Option<u32>) {
        let Some(at) = at else { return };
        if let Some(node) = self.nodes.get_mut(at as usize) {
            *node = Node::default();
            self.free.push(at);
        }
    }
}
