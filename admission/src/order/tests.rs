//! The line against a sorted list, and the bounds it promises.

use super::*;
use proptest::prelude::*;

const DIMENSIONS: usize = 2;

/// The obvious line: a sorted list, summed from the front.
#[derive(Default)]
struct Twin(Vec<(Key, [u64; DIMENSIONS], i64)>);

impl Twin {
    fn insert(&mut self, key: Key, units: [u64; DIMENSIONS], share: i64) -> bool {
        let absent = self.0.iter().all(|ticket| ticket.0 != key);
        if absent {
            self.0.push((key, units, share));
            self.0.sort();
        }
        absent
    }

    fn remove(&mut self, key: Key) -> bool {
        let len = self.0.len();
        self.0.retain(|ticket| ticket.0 != key);
        self.0.len() < len
    }

    fn sum_while(&self, mut go_on: impl FnMut(Key, i128) -> bool) -> Sums {
        let mut sums = Sums::default();
        for (key, units, share) in &self.0 {
            if !go_on(*key, sums.share) {
                break;
            }
            for (sum, units) in sums.units.iter_mut().zip(units) {
                *sum += units;
            }
            sums.share += i128::from(*share);
            sums.count += 1;
        }
        sums
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert {
        key: Key,
        units: [u64; DIMENSIONS],
        share: i64,
    },
    Remove(Key),
    /// Removes the ticket at this place, modulo the length.
    RemoveAt(usize),
}

fn keys(line: &Line) -> Vec<Key> {
    line.walk_in_order().map(|(key, _)| key).collect()
}

/// Few distinct tags and serials, so that keys collide and tags tie.
fn key() -> impl Strategy<Value = Key> {
    let tag = prop_oneof![-20..20i128, Just(i128::MAX), Just(i128::MIN), any::<i128>()];
    (tag, 0..40u64).prop_map(|(tag, serial)| Key { tag, serial })
}

fn step() -> impl Strategy<Value = Step> {
    let units = prop_oneof![0..10u64, 0..=crate::limits::UNITS_MAX];
    let share = prop_oneof![Just(0i64), 0..10i64, 0..=i64::MAX];
    prop_oneof![
        4 => (key(), [units.clone(), units], share)
            .prop_map(|(key, units, share)| Step::Insert { key, units, share }),
        1 => key().prop_map(Step::Remove),
        2 => any::<usize>().prop_map(Step::RemoveAt),
    ]
}

fn check_queries(line: &Line, twin: &Twin) {
    assert_eq!(line.total(), twin.sum_while(|_, _| true));
    assert_eq!(line.len() as usize, twin.0.len());
    assert_eq!(line.is_empty(), twin.0.is_empty());
    let own = |sums: Sums| (sums.units[0], sums.units[1], sums.share, sums.count);
    let walked = line.walk_in_order().map(|(key, sums)| (key, own(sums)));
    let tickets = twin.0.iter();
    assert!(walked.eq(tickets.map(|(key, [a, b], share)| (*key, (*a, *b, i128::from(*share), 1)))));
    let mut limits = vec![i128::MIN, -1, 0, 1, i128::MAX];
    for (key, _, share) in &twin.0 {
        for serial in [key.serial, key.serial + 1] {
            let key = Key { serial, ..*key };
            assert_eq!(line.before(key), twin.sum_while(|other, _| other < key));
        }
        let start = line.before(*key).share;
        limits.extend([start - 1, start, start + 1, start + i128::from(*share)]);
    }
    for limit in limits {
        assert_eq!(
            line.upto(limit, false),
            twin.sum_while(|_, start| start < limit)
        );
        assert_eq!(
            line.upto(limit, true),
            twin.sum_while(|_, start| start <= limit)
        );
    }
}

proptest! {
    #[test]
    fn answers_like_a_sorted_list(steps in prop::collection::vec(step(), 1..250)) {
        let mut line = Line::new(DIMENSIONS);
        let mut twin = Twin::default();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert { key, units, share } => {
                    assert_eq!(line.insert(key, &units, share), twin.insert(key, units, share));
                }
                Step::Remove(key) => assert_eq!(line.remove(key), twin.remove(key)),
                Step::RemoveAt(place) => {
                    let key = twin.0.get(place % twin.0.len().max(1)).map(|ticket| ticket.0);
                    if let Some(key) = key {
                        assert!(line.remove(key) && twin.remove(key));
                    }
                }
            }
            check_shape(&line);
            if number % 16 == 0 {
                check_queries(&line, &twin);
            }
        }
        check_queries(&line, &twin);
    }

    /// Nothing that fits the types makes it panic, and what is undone leaves nothing behind.
    #[test]
    fn survives_any_amounts(
        dimensions in 0..2 * DIMENSIONS_MAX,
        tickets in prop::collection::vec(
            (any::<i128>(), any::<u64>(), prop::collection::vec(any::<u64>(), 0..12), any::<i64>()),
            1..20,
        ),
        limit in any::<i128>(),
    ) {
        let mut line = Line::new(dimensions);
        for (tag, serial, units, share) in &tickets {
            line.insert(Key { tag: *tag, serial: *serial }, units, *share);
            line.upto(limit, true);
        }
        for (tag, serial, ..) in &tickets {
            line.remove(Key { tag: *tag, serial: *serial });
            line.before(Key { tag: limit, serial: *serial });
        }
        assert!(line.is_empty());
        assert_eq!(line.total(), Sums::default());
    }
}

fn sequential(serial: u64) -> Key {
    Key {
        tag: i128::from(serial),
        serial,
    }
}

/// Tags in no order, serials in order: how tickets arrive.
fn scattered(serial: u64) -> Key {
    let tag = i128::from(serial.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
    Key { tag, serial }
}

fn filled(count: u64, key: fn(u64) -> Key) -> Line {
    let mut line = Line::new(DIMENSIONS);
    for serial in 0..count {
        assert!(line.insert(key(serial), &[1, 2], 3));
    }
    line
}

/// The order and the sums of every node, its size, and that nothing is lost or held twice.
fn check_shape(line: &Line) {
    let mut seen = 0;
    let mut open = vec![(line.root, line.height, None, None)];
    while let Some((at, above, least, bound)) = open.pop() {
        let Some(node) = line.node(at) else {
            assert!(line.is_empty() && at == NIL);
            continue;
        };
        seen += 1;
        assert!((1..=NODE_ENTRIES_MAX).contains(&node.len()));
        assert_eq!(node.shares.len(), node.len());
        assert_eq!(node.rows.len(), node.len() * (line.dimensions + 1));
        assert_eq!(node.children.len(), if above == 0 { 0 } else { node.len() });
        assert!(node.keys.is_sorted_by(|a, b| a < b));
        for (place, key) in node.keys.iter().enumerate() {
            let next = node.keys.get(place + 1).copied().or(bound);
            let inside = |key: Key| {
                least.is_none_or(|least| least <= key) && bound.is_none_or(|bound| key < bound)
            };
            assert!(inside(*key), "{key:?} between {least:?} and {bound:?}");
            if above == 0 {
                continue;
            }
            let mut own = node.first(place + 1, line.dimensions);
            own.subtract(&node.first(place, line.dimensions));
            let child = node.child(place);
            let below = line.node(child).unwrap().total(line.dimensions);
            assert_eq!(below, own, "sums of a child");
            open.push((child, above - 1, Some(*key), next));
        }
    }
    assert_eq!(seen + line.free.len(), line.nodes.len());
}

#[test]
fn stays_shallow_at_the_most_tickets() {
    for key in [sequential, scattered] {
        let line = filled(crate::limits::TICKETS_PER_TARGET_MAX, key);
        check_shape(&line);
        assert!(line.height <= 4, "height {}", line.height);
    }
}

/// Tickets come at the back and go at the front, or anywhere: the line is no larger afterwards.
#[test]
fn nodes_are_reused() {
    let mut line = filled(1_000, sequential);
    for serial in 1_000..100_000 {
        assert!(line.remove(sequential(serial - 1_000)));
        assert!(line.insert(sequential(serial), &[1, 2], 3));
    }
    check_shape(&line);
    assert!(line.nodes.len() < 40, "{} nodes", line.nodes.len());
}

#[test]
fn a_sparse_line_is_packed() {
    let mut line = filled(100_000, scattered);
    for serial in 0..99_000 {
        assert!(line.remove(scattered(serial)));
        let nodes = line.nodes.len() - line.free.len();
        let tickets = line.len() as usize;
        assert!(nodes <= SPARSE_NODES_MIN || nodes * SPARSE_TICKETS_PER_NODE <= tickets);
    }
    check_shape(&line);
    let expected = Sums {
        count: 1_000,
        share: 3_000,
        units: [1_000, 2_000, 0, 0, 0, 0, 0, 0],
    };
    assert_eq!(line.total(), expected);
    for serial in 99_000..100_000 {
        assert!(line.remove(scattered(serial)));
    }
    assert_eq!(line.nodes.capacity() + line.free.capacity(), 0);
}

/// One ticket is left in every leaf, again and again: the emptiest tree that removals can leave.
#[test]
fn hollow_nodes_do_not_make_it_high() {
    let mut line = Line::new(DIMENSIONS);
    let mut next = 0;
    for _ in 0..200 {
        for _ in 0..600 {
            next += 1;
            assert!(line.insert(scattered(next), &[1, 2], 3));
        }
        let keys: Vec<Key> = keys(&line);
        for (place, key) in keys.iter().enumerate() {
            if place % 20 != 0 {
                assert!(line.remove(*key));
            }
        }
        check_shape(&line);
    }
    assert!(line.height <= 4, "height {}", line.height);
}
