//! Who is told what, with keys made by hand.

use super::*;
use proptest::prelude::*;

/// Remembers what it was told.
#[derive(Default)]
struct Ear(Mutex<Vec<(u64, Duration)>>);

impl Waker for Ear {
    fn wake(&self, attempt: u64, spread: Duration) {
        self.0.lock().unwrap().push((attempt, spread));
    }
}

impl Ear {
    fn heard(&self) -> Vec<(u64, Duration)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

const NOW: Duration = Duration::ZERO;
const SHARD: ShardId = ShardId(2);

fn session(wakes: &Wakes) -> (Waiters, Arc<Ear>) {
    let ear = Arc::new(Ear::default());
    (wakes.session(ear.clone()), ear)
}

#[test]
fn a_turn_is_told_once_to_the_session_that_waits() {
    let wakes = Wakes::default();
    let (one, ear) = session(&wakes);
    let (two, other) = session(&wakes);
    one.wait(10, SHARD, 1);
    two.wait(20, SHARD, 1);
    wakes.due(&[20]);
    wakes.due(&[20]);
    assert_eq!((ear.heard(), other.heard()), (vec![], vec![(1, NOW)]));
    assert_eq!((one.count(), two.count(), wakes.waiting()), (1, 0, 1));
}

#[test]
fn a_turn_that_comes_before_its_waiter_is_told_at_once() {
    let wakes = Wakes::default();
    let (waiters, ear) = session(&wakes);
    wakes.due(&[10]);
    waiters.wait(10, SHARD, 1);
    assert_eq!(ear.heard(), [(1, NOW)]);
    // It waits anew, and is not told of the same turn again.
    waiters.wait(10, SHARD, 1);
    assert_eq!((ear.heard(), waiters.count()), (vec![], 1));
}

#[test]
fn early_turns_are_forgotten_oldest_first() {
    let wakes = Wakes::default();
    let (waiters, ear) = session(&wakes);
    let keys: Vec<u128> = (0..=WAKES_EARLY_MAX as u128).collect();
    wakes.due(&keys);
    waiters.wait(0, SHARD, 100);
    waiters.wait(1, SHARD, 101);
    assert_eq!(ear.heard(), [(101, NOW)]);
}

#[test]
fn the_last_ask_of_an_admission_is_the_one_that_waits() {
    let wakes = Wakes::default();
    let (one, ear) = session(&wakes);
    let (two, other) = session(&wakes);
    one.wait(10, SHARD, 1);
    one.wait(10, SHARD, 1);
    assert_eq!(one.count(), 1);
    two.wait(10, SHARD, 2);
    assert_eq!((one.count(), two.count()), (0, 1));
    wakes.due(&[10]);
    assert_eq!((ear.heard(), other.heard()), (vec![], vec![(2, NOW)]));
}

#[test]
fn who_is_granted_or_gone_is_not_told() {
    let wakes = Wakes::default();
    let (one, ear) = session(&wakes);
    let (two, other) = session(&wakes);
    one.wait(10, SHARD, 1);
    one.wait(11, SHARD, 2);
    two.wait(20, SHARD, 1);
    one.done(1);
    one.done(7);
    drop(two);
    assert_eq!((one.count(), wakes.waiting()), (1, 1));
    wakes.due(&[10, 20, 11]);
    assert_eq!((ear.heard(), other.heard()), (vec![(2, NOW)], vec![]));
}

#[test]
fn waiters_of_a_shard_that_moved_are_sent_on_spread_out() {
    let wakes = Wakes::default();
    let (waiters, ear) = session(&wakes);
    waiters.wait(10, ShardId(0), 1);
    waiters.wait(11, SHARD, 2);
    waiters.wait(12, SHARD, 3);
    wakes.moved(SHARD);
    assert_eq!(ear.heard(), [(2, WAKE_SPREAD), (3, WAKE_SPREAD)]);
    assert_eq!(waiters.count(), 1);
}

#[test]
fn a_full_registry_leaves_further_ones_to_the_clock() {
    let wakes = Wakes::default();
    let (waiters, ear) = session(&wakes);
    for key in 0..=WAKES_MAX as u128 {
        waiters.wait(key, SHARD, 1 + key as u64);
    }
    assert_eq!(wakes.waiting(), WAKES_MAX);
    wakes.due(&[WAKES_MAX as u128, 0]);
    assert_eq!(ear.heard(), [(1, NOW)]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(usize, u128, u64),
    Done(usize, u64),
    Due(u128),
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3_usize, 0..6_u128, 1..5_u64).prop_map(|(s, k, a)| Step::Wait(s, k, a)),
        (0..3_usize, 1..5_u64).prop_map(|(s, a)| Step::Done(s, a)),
        (0..6_u128).prop_map(Step::Due),
        (0..3_usize).prop_map(Step::End),
    ]
}

proptest! {
    /// Both sides of the registry say the same, whatever happens.
    #[test]
    fn every_waiter_belongs_to_a_session_that_lives(steps in prop::collection::vec(step(), 0..60)) {
        let wakes = Wakes::default();
        let mut sessions: Vec<_> = (0..3).map(|_| session(&wakes).0).collect();
        for step in steps {
            match step {
                Step::Wait(at, key, attempt) => sessions[at].wait(key, SHARD, attempt),
                Step::Done(at, attempt) => sessions[at].done(attempt),
                Step::Due(key) => wakes.due(&[key]),
                Step::End(at) => sessions[at] = session(&wakes).0,
            }
            let counted: usize = sessions.iter().map(Waiters::count).sum();
            prop_assert_eq!(counted, wakes.waiting());
        }
        drop(sessions);
        prop_assert_eq!(wakes.waiting(), 0);
    }
}
