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
    assert_eq!(line.first(), twin.0.first().map(|ticket| ticket.0));
    assert!(line.iter().eq(twin.0.iter().map(|ticket| ticket.0)));
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
    fn answers_like_a_sorted_list(steps in prop::collection::vec(step(), 1..80)) {
        let mut line = Line::new(DIMENSIONS);
        let mut twin = Twin::default();
        for step in steps {
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
            check_queries(&line, &twin);
        }
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

fn depth(line: &Line) -> usize {
    let mut deepest = 0;
    let mut open = vec![(line.root, 1)];
    while let Some((at, level)) = open.pop() {
        if let Some(node) = line.node(at) {
            deepest = deepest.max(level);
            open.extend([(node.left, level + 1), (node.right, level + 1)]);
        }
    }
    deepest
}

fn filled(count: u64, key: fn(u64) -> Key) -> Line {
    let mut line = Line::new(DIMENSIONS);
    for serial in 0..count {
        assert!(line.insert(key(serial), &[1, 2], 3));
    }
    line
}

#[test]
fn stays_shallow_at_the_most_tickets() {
    for key in [sequential, scattered] {
        let line = filled(crate::limits::TICKETS_PER_TARGET_MAX, key);
        assert!(depth(&line) < 60, "depth {}", depth(&line));
    }
}

#[test]
fn the_shape_depends_on_the_tickets_alone() {
    let links = |line: &Line| {
        let child = |at| line.node(at).map(|node| node.key);
        let mut links = Vec::new();
        let mut walk = line.iter();
        while let Some(at) = walk.next_index() {
            let node = line.node(at).unwrap();
            links.push((node.key, child(node.left), child(node.right)));
        }
        links
    };
    let mut detour = filled(3_000, scattered);
    for serial in 0..2_500 {
        assert!(detour.remove(scattered(serial)));
    }
    let mut direct = Line::new(DIMENSIONS);
    for serial in (2_500..3_000).rev() {
        assert!(direct.insert(scattered(serial), &[1, 2], 3));
    }
    assert_eq!(links(&detour), links(&direct));
}

#[test]
fn slots_are_reused() {
    let mut line = filled(100, sequential);
    for serial in 100..10_000 {
        assert!(line.remove(sequential(serial - 100)));
        assert!(line.insert(sequential(serial), &[1, 2], 3));
    }
    assert_eq!(line.nodes.len(), 100);
    assert_eq!(line.units.len(), 100 * DIMENSIONS);
}

#[test]
fn memory_is_given_back() {
    let mut line = filled(100_000, scattered);
    for serial in 0..99_000 {
        assert!(line.remove(scattered(serial)));
        let tickets = line.len() as usize;
        assert!(line.nodes.len() <= (tickets * COMPACT_SLOTS_PER_TICKET).max(COMPACT_SLOTS_MIN));
    }
    assert!(
        line.nodes.capacity() <= 4 * 1_000,
        "{} slots",
        line.nodes.capacity()
    );
    assert!(line.units.capacity() <= 4 * 1_000 * DIMENSIONS);
    let expected = Sums {
        count: 1_000,
        share: 3_000,
        ..Sums::default()
    };
    assert_eq!(
        Sums {
            units: [0; DIMENSIONS_MAX],
            ..line.total()
        },
        expected
    );
    for serial in 99_000..100_000 {
        assert!(line.remove(scattered(serial)));
    }
    assert_eq!(line.nodes.capacity() + line.units.capacity(), 0);
}
