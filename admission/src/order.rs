//! The waiting line of one priority, in the order of fair queueing.
//!
//! An ask has to know how much is ahead of it, in every dimension and in cap time, among up to
//! [`TICKETS_PER_TARGET_MAX`](crate::limits::TICKETS_PER_TARGET_MAX) others. A treap that keeps prefix
//! sums answers that in one walk from the root. Its heap order is a fixed mix of the ticket's serial,
//! so the shape follows from the content alone: it needs no random source and is the same on every
//! replica.
//!
//! A node keeps the sums of its *left subtree and itself*, not of the whole subtree: then a walk reads
//! only the nodes on its way, never their siblings, and splitting or joining changes one side only.

use crate::limits::DIMENSIONS_MAX;

#[cfg(test)]
mod tests;

/// No node: an index beyond every arena, so that looking it up ends a walk.
const NIL: u32 = u32::MAX;
/// Arenas up to this many slots are never compacted; 64 KiB of nodes are not worth the work.
const COMPACT_SLOTS_MIN: usize = 1024;
/// An arena is compacted when at most one slot in this many is in use, which spreads the work of it
/// over three removals for every node that is moved.
const COMPACT_SLOTS_PER_TICKET: usize = 4;

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

/// What a walk reads at each level, in one cache line. `share` and `count` are prefix sums: left
/// subtree and this node. A free slot links to the next free one through `left`.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node {
    key: Key,
    share: i128,
    count: u64,
    left: u32,
    right: u32,
}

/// The place that holds a node's index.
#[derive(Clone, Copy)]
enum Link {
    Root,
    Left(u32),
    Right(u32),
}

/// Tickets in order of their keys, with sums over any prefix of them.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    dimensions: usize,
    root: u32,
    /// First free slot.
    free: u32,
    nodes: Vec<Node>,
    /// Prefix sums of units: `dimensions` of them for each slot of `nodes`.
    units: Vec<u64>,
    total: Sums,
}

/// The heap order: the finalizer of SplitMix64, a bijection that spreads consecutive serials.
fn weight(key: Key) -> u64 {
    let mut mixed = key.serial.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Line {
    /// An empty line that keeps sums of `dimensions` dimensions, at most [`DIMENSIONS_MAX`].
    pub(crate) fn new(dimensions: usize) -> Line {
        Line {
            dimensions: dimensions.min(DIMENSIONS_MAX),
            root: NIL,
            free: NIL,
            nodes: Vec::new(),
            units: Vec::new(),
            total: Sums::default(),
        }
    }

    /// Number of tickets.
    pub(crate) fn len(&self) -> u64 {
        self.total.count
    }

    #[cfg(test)]
    /// True if nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.total.count == 0
    }

    /// Sums over all tickets.
    pub(crate) fn total(&self) -> Sums {
        self.total
    }

    #[cfg(test)]
    /// The ticket at the front.
    pub(crate) fn first(&self) -> Option<Key> {
        let mut first = None;
        let mut at = self.root;
        while let Some(node) = self.node(at) {
            first = Some(node.key);
            at = node.left;
        }
        first
    }

    /// Sums over the tickets ordered strictly before `key`, which need not be in the line.
    pub(crate) fn before(&self, key: Key) -> Sums {
        let mut sums = Sums::default();
        let mut at = self.root;
        while let Some(node) = self.node(at) {
            if node.key < key {
                sums.add(&self.prefix(at));
                at = node.right;
            } else {
                at = node.left;
            }
        }
        sums
    }

    /// Sums over the tickets that start before `limit`, or at it if `tie`. A ticket's start is the
    /// share of all tickets before it; tickets count whole.
    pub(crate) fn upto(&self, limit: i128, tie: bool) -> Sums {
        let reached = |end: i128| if tie { end > limit } else { end >= limit };
        if reached(0) {
            return Sums::default();
        }
        // The last ticket that starts in time is the first one whose end reaches the limit.
        let mut sums = Sums::default();
        let mut last = None;
        let mut at = self.root;
        while let Some(node) = self.node(at) {
            if reached(sums.share.wrapping_add(node.share)) {
                last = Some((sums, at));
                at = node.left;
            } else {
                sums.add(&self.prefix(at));
                at = node.right;
            }
        }
        let Some((mut sums, at)) = last else {
            return self.total;
        };
        sums.add(&self.prefix(at));
        sums
    }

    /// The keys in order.
    pub(crate) fn iter(&self) -> Iter<'_> {
        Iter {
            line: self,
            path: Vec::new(),
            at: self.root,
        }
    }

    /// Puts a ticket in its place. `units` beyond the line's dimensions are ignored and missing ones
    /// are 0; a negative share counts as 0. False, and nothing changed, if the key is there already.
    pub(crate) fn insert(&mut self, key: Key, units: &[u64], share_ns: i64) -> bool {
        let Some(smaller) = self.smaller_below_cut(key) else {
            return false;
        };
        let Some(new) = self.allocate(key) else {
            return false;
        };
        let own = self.sums_of(units, share_ns);
        let (mut link, mut at) = (Link::Root, self.root);
        while let Some(&node) = self.node(at) {
            if weight(node.key) < weight(key) {
                break;
            }
            if node.key < key {
                (link, at) = (Link::Right(at), node.right);
            } else {
                self.change_prefix(at, |sums| sums.add(&own));
                (link, at) = (Link::Left(at), node.left);
            }
        }
        self.set(link, new);
        self.deal_out(at, new, key, smaller);
        self.change_prefix(new, |sums| {
            *sums = smaller;
            sums.add(&own);
        });
        self.total.add(&own);
        true
    }

    /// Takes a ticket out. False if the key is not there.
    pub(crate) fn remove(&mut self, key: Key) -> bool {
        let Some((found, node)) = self.find(key) else {
            return false;
        };
        let left_total = self.subtree(node.left);
        let mut own = self.prefix(found);
        own.subtract(&left_total);
        let (mut link, mut at) = (Link::Root, self.root);
        while let Some(&passed) = self.node(at) {
            if at == found {
                break;
            }
            if passed.key < key {
                (link, at) = (Link::Right(at), passed.right);
            } else {
                self.change_prefix(at, |sums| sums.subtract(&own));
                (link, at) = (Link::Left(at), passed.left);
            }
        }
        self.join(link, node.left, node.right, left_total);
        self.total.subtract(&own);
        self.release(found);
        true
    }

    fn node(&self, at: u32) -> Option<&Node> {
        self.nodes.get(at as usize)
    }

    fn find(&self, key: Key) -> Option<(u32, Node)> {
        let mut at = self.root;
        loop {
            let node = self.node(at)?;
            at = match key.cmp(&node.key) {
                std::cmp::Ordering::Less => node.left,
                std::cmp::Ordering::Equal => return Some((at, *node)),
                std::cmp::Ordering::Greater => node.right,
            };
        }
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

    /// Where the units of a slot are kept.
    fn stride(&self, at: u32) -> std::ops::Range<usize> {
        let start = (at as usize).wrapping_mul(self.dimensions);
        start..start.wrapping_add(self.dimensions)
    }

    /// Sums of a node and its left subtree.
    fn prefix(&self, at: u32) -> Sums {
        let mut sums = Sums::default();
        if let Some(node) = self.node(at) {
            sums.share = node.share;
            sums.count = node.count;
        }
        let units = self.units.get(self.stride(at)).unwrap_or_default();
        for (sum, units) in sums.units.iter_mut().zip(units) {
            *sum = *units;
        }
        sums
    }

    fn change_prefix(&mut self, at: u32, change: impl FnOnce(&mut Sums)) {
        let mut sums = self.prefix(at);
        change(&mut sums);
        if let Some(node) = self.nodes.get_mut(at as usize) {
            node.share = sums.share;
            node.count = sums.count;
        }
        let stride = self.stride(at);
        let units = self.units.get_mut(stride).unwrap_or_default();
        for (units, sum) in units.iter_mut().zip(sums.units) {
            *units = sum;
        }
    }

    /// Sums of a whole subtree: the prefixes along its right edge, two nodes on average.
    fn subtree(&self, mut at: u32) -> Sums {
        let mut sums = Sums::default();
        while let Some(node) = self.node(at) {
            sums.add(&self.prefix(at));
            at = node.right;
        }
        sums
    }

    fn set(&mut self, link: Link, child: u32) {
        match link {
            Link::Root => self.root = child,
            Link::Left(parent) => {
                if let Some(node) = self.nodes.get_mut(parent as usize) {
                    node.left = child;
                }
            }
            Link::Right(parent) => {
                if let Some(node) = self.nodes.get_mut(parent as usize) {
                    node.right = child;
                }
            }
        }
    }

    /// Sums of the keys smaller than `key` in the subtree that it will displace; `None` if the key is
    /// in the line.
    fn smaller_below_cut(&self, key: Key) -> Option<Sums> {
        let mut sums = Sums::default();
        let mut below = false;
        let mut at = self.root;
        while let Some(node) = self.node(at) {
            below = below || weight(node.key) < weight(key);
            at = match key.cmp(&node.key) {
                std::cmp::Ordering::Less => node.left,
                std::cmp::Ordering::Equal => return None,
                std::cmp::Ordering::Greater => {
                    if below {
                        sums.add(&self.prefix(at));
                    }
                    node.right
                }
            };
        }
        Some(sums)
    }

    /// Splits the subtree `at` at `key` into the two children of `new`. `smaller` are the sums of its
    /// keys below `key`: what is left of them further down is what a larger node loses.
    fn deal_out(&mut self, mut at: u32, new: u32, key: Key, mut smaller: Sums) {
        let (mut left, mut right) = (Link::Left(new), Link::Right(new));
        while let Some(&node) = self.node(at) {
            if node.key < key {
                smaller.subtract(&self.prefix(at));
                self.set(left, at);
                (left, at) = (Link::Right(at), node.right);
            } else {
                self.change_prefix(at, |sums| sums.subtract(&smaller));
                self.set(right, at);
                (right, at) = (Link::Left(at), node.left);
            }
        }
        self.set(left, NIL);
        self.set(right, NIL);
    }

    /// Joins two subtrees, every key of `left` below every key of `right`, and hangs them at `link`.
    fn join(&mut self, mut link: Link, mut left: u32, mut right: u32, mut left_total: Sums) {
        while let (Some(&smaller), Some(&larger)) = (self.node(left), self.node(right)) {
            if weight(smaller.key) < weight(larger.key) {
                self.change_prefix(right, |sums| sums.add(&left_total));
                self.set(link, right);
                (link, right) = (Link::Left(right), larger.left);
            } else {
                left_total.subtract(&self.prefix(left));
                self.set(link, left);
                (link, left) = (Link::Right(left), smaller.right);
            }
        }
        self.set(
            link,
            if self.node(left).is_some() {
                left
            } else {
                right
            },
        );
    }

    /// A slot for a new node; `None` if no index is left.
    fn allocate(&mut self, key: Key) -> Option<u32> {
        let fresh = Node {
            key,
            share: 0,
            count: 0,
            left: NIL,
            right: NIL,
        };
        if let Some(slot) = self.nodes.get_mut(self.free as usize) {
            let at = self.free;
            self.free = slot.left;
            *slot = fresh;
            return Some(at);
        }
        let at = u32::try_from(self.nodes.len())
            .ok()
            .filter(|&at| at != NIL)?;
        self.nodes.push(fresh);
        let end = self.stride(at).end;
        self.units.resize(end, 0);
        Some(at)
    }

    /// Gives a slot back, and memory when little of it is in use.
    fn release(&mut self, at: u32) {
        let free = self.free;
        self.set(Link::Left(at), free);
        self.free = at;
        let tickets = usize::try_from(self.len()).unwrap_or(usize::MAX);
        let slots = self.nodes.len();
        if tickets == 0 {
            *self = Line::new(self.dimensions);
        } else if slots > COMPACT_SLOTS_MIN
            && tickets.saturating_mul(COMPACT_SLOTS_PER_TICKET) <= slots
        {
            self.compact();
        }
    }

    /// Moves all nodes, in order of key, to an arena of just their number.
    fn compact(&mut self) {
        let mut order = Vec::new();
        let mut walk = self.iter();
        while let Some(at) = walk.next_index() {
            order.push(at);
        }
        let mut moved = vec![NIL; self.nodes.len()];
        for (new, &old) in (0..NIL).zip(&order) {
            if let Some(slot) = moved.get_mut(old as usize) {
                *slot = new;
            }
        }
        let new_index = |old: u32| moved.get(old as usize).copied().unwrap_or(NIL);
        let mut nodes = Vec::with_capacity(order.len());
        let mut units = Vec::with_capacity(order.len().wrapping_mul(self.dimensions));
        for &at in &order {
            let Some(&node) = self.node(at) else { continue };
            nodes.push(Node {
                left: new_index(node.left),
                right: new_index(node.right),
                ..node
            });
            units.extend_from_slice(self.units.get(self.stride(at)).unwrap_or_default());
        }
        self.root = new_index(self.root);
        self.free = NIL;
        self.nodes = nodes;
        self.units = units;
    }
}

/// Walks a line in order.
#[derive(Debug)]
pub(crate) struct Iter<'a> {
    line: &'a Line,
    /// Nodes whose left side is being walked.
    path: Vec<u32>,
    at: u32,
}

impl Iter<'_> {
    fn next_index(&mut self) -> Option<u32> {
        while let Some(node) = self.line.node(self.at) {
            self.path.push(self.at);
            self.at = node.left;
        }
        let next = self.path.pop()?;
        self.at = self.line.node(next)?.right;
        Some(next)
    }
}

impl Iterator for Iter<'_> {
    type Item = Key;

    fn next(&mut self) -> Option<Key> {
        let at = self.next_index()?;
        self.line.node(at).map(|node| node.key)
    }
}
