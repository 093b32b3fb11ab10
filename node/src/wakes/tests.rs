//! Who is told what, with keys made by hand.

use super::*;
use proptest::prelude::*;
use weir_admission::{Admitted, Amounts, Deferred, Principal};

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

fn line(shard: ShardId) -> Line {
    let target = TargetName::new("api/x").unwrap();
    Line { shard, target }
}

fn seat(ticket: u64) -> Seat {
    let line = line(SHARD);
    Seat { line, ticket }
}

/// The first ask of an attempt, of an admission of its own.
fn ask(attempt: u64) -> Box<AskName> {
    ask_of(attempt, attempt)
}

/// The first ask of an attempt of an admission.
fn ask_of(admission: u64, attempt: u64) -> Box<AskName> {
    Box::new(AskName {
        target: line(SHARD).target,
        tenant: TenantName::new("t").unwrap(),
        principal: Principal::new("anonymous").unwrap(),
        admission_id: admission.to_string().into_bytes().into(),
        attempt,
        ask: 1,
    })
}

/// Attempts that were given up, in the order in which the rules are told.
fn lost(wakes: &Wakes) -> Vec<u64> {
    let batches = std::iter::from_fn(|| wakes.next_lost());
    let all = batches.flat_map(|(shard, batch)| {
        assert_eq!(shard, SHARD);
        assert!(batch.len() <= LOST_AT_ONCE);
        batch
    });
    all.map(|operation| {
        let Operation::Unwake(unwake) = operation else {
            panic!("{operation:?}")
        };
        unwake.attempt
    })
    .collect()
}

/// As the watch would, after everybody has rested.
async fn turn(wakes: &Wakes, tickets: &[u64]) {
    tokio::time::advance(WAKE_REST).await;
    wakes.due(&line(SHARD), tickets);
}

fn session(wakes: &Wakes) -> (Waiters, Arc<Ear>) {
    let ear = Arc::new(Ear::default());
    (wakes.session(ear.clone()), ear)
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_told_once_to_the_session_that_waits() {
    let wakes = Wakes::default();
    let (one, ear) = session(&wakes);
    let (two, other) = session(&wakes);
    one.wait(seat(10), ask_of(10, 1));
    two.wait(seat(20), ask_of(20, 1));
    turn(&wakes, &[20]).await;
    turn(&wakes, &[20]).await;
    assert_eq!((ear.heard(), other.heard()), (vec![], vec![(1, NOW)]));
    assert_eq!((one.count(), two.count(), wakes.waiting()), (1, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn who_was_just_told_to_wait_rests_first() {
    let wakes = Wakes::default();
    let (waiters, ear) = session(&wakes);
    waiters.wait(seat(10), ask(1));
    wakes.due(&line(SHARD), &[10]);
    assert_eq!((ear.heard(), waiters.count()), (vec![], 1));
    tokio::time::advance(WAKE_REST).await;
    wakes.due(&line(SHARD), &[10]);
    assert_eq!((ear.heard(), waiters.count()), (vec![(1, NOW)], 0));
}

#[test]
fn lines_take_turns() {
    let wakes = Wakes::default();
    let (waiters, _ear) = session(&wakes);
    let at = |shard: u32| line(ShardId(shard));
    for shard in [3, 1, 2] {
        for ticket in 0..3 {
            let line = at(shard);
            let admission = 10 * u64::from(shard) + ticket;
            waiters.wait(Seat { line, ticket }, ask(admission));
        }
    }
    assert_eq!(wakes.lines(None, 2), [at(1), at(2)]);
    assert_eq!(wakes.lines(Some(at(2)), 2), [at(3), at(1)]);
    assert_eq!(wakes.lines(Some(at(1)), 9), [at(2), at(3), at(1)]);
    drop(waiters);
    assert_eq!(wakes.lines(Some(at(1)), 9), []);
}

#[tokio::test(start_paused = true)]
async fn the_last_ask_of_an_admission_is_the_one_that_waits() {
    let wakes = Wakes::default();
    let (one, ear) = session(&wakes);
    let (two, other) = session(&wakes);
    one.wait(seat(10), ask(1));
    one.wait(seat(10), ask(1));
    assert_eq!(one.count(), 1);
    two.wait(seat(10), ask(2));
    assert_eq!((one.count(), two.count()), (0, 1));
    turn(&wakes, &[10]).await;
    assert_eq!((ear.heard(), other.heard()), (vec![], vec![(2, NOW)]));
}

#[tokio::test(start_paused = true)]
async fn who_is_granted_or_gone_is_not_told() {
    let wakes = Wakes::default();
    let (one, ear) = session(&wakes);
    let (two, other) = session(&wakes);
    one.wait(seat(10), ask_of(10, 1));
    one.wait(seat(11), ask(2));
    two.wait(seat(20), ask_of(20, 1));
    one.done(1);
    one.done(7);
    drop(two);
    assert_eq!((one.count(), wakes.waiting()), (1, 1));
    turn(&wakes, &[10, 20, 11]).await;
    assert_eq!((ear.heard(), other.heard()), (vec![(2, NOW)], vec![]));
}

#[tokio::test(start_paused = true)]
async fn who_waits_in_a_session_that_ends_is_given_up_told_or_not() {
    let wakes = Wakes::default();
    let (one, _ear) = session(&wakes);
    for attempt in 1..=4 {
        one.wait(seat(attempt), ask(attempt));
    }
    turn(&wakes, &[1, 2]).await;
    // The first one asked again and was granted, the third was cancelled.
    one.done(1);
    one.done(3);
    assert_eq!(lost(&wakes), [0; 0]);
    drop(one);
    assert_eq!(lost(&wakes), [2, 4]);
    assert_eq!(lost(&wakes), [0; 0]);
}

#[test]
fn who_asks_in_another_session_is_not_given_up_with_the_first() {
    let wakes = Wakes::default();
    let ((one, _), (two, _)) = (session(&wakes), session(&wakes));
    one.wait(seat(10), ask(1));
    two.wait(seat(10), ask(1));
    drop(one);
    assert_eq!(lost(&wakes), [0; 0]);
    drop(two);
    assert_eq!(lost(&wakes), [1]);
}

#[test]
fn what_finds_no_room_is_given_up_later() {
    let wakes = Wakes::default();
    let (one, _ear) = session(&wakes);
    let many = 2 * LOST_AT_ONCE as u64 + 1;
    for attempt in 1..=many {
        one.wait(seat(attempt), ask(attempt));
    }
    drop(one);
    let (shard, refused) = wakes.next_lost().unwrap();
    wakes.lost_again(shard, refused);
    let mut all = lost(&wakes);
    all.sort_unstable();
    assert_eq!(all, (1..=many).collect::<Vec<_>>());
}

#[test]
fn waiters_of_a_shard_that_moved_are_sent_on_spread_out() {
    let wakes = Wakes::default();
    let (waiters, ear) = session(&wakes);
    let elsewhere = line(ShardId(0));
    waiters.wait(
        Seat {
            line: elsewhere,
            ticket: 10,
        },
        ask(1),
    );
    waiters.wait(seat(11), ask(2));
    waiters.wait(seat(12), ask(3));
    wakes.moved(SHARD);
    assert_eq!(ear.heard(), [(2, WAKE_SPREAD), (3, WAKE_SPREAD)]);
    assert_eq!(waiters.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_registry_leaves_further_ones_to_the_clock() {
    let wakes = Wakes::default();
    let (waiters, ear) = session(&wakes);
    for ticket in 0..=WAKES_MAX as u64 {
        waiters.wait(seat(ticket), ask(1 + ticket));
    }
    assert_eq!(wakes.waiting(), WAKES_MAX);
    assert_eq!(lost(&wakes), [1 + WAKES_MAX as u64]);
    turn(&wakes, &[WAKES_MAX as u64, 0]).await;
    assert_eq!(ear.heard(), [(1, NOW)]);
}

fn admitted() -> Outcome {
    Outcome::Admit(AdmitOutcome::Admitted(Admitted {
        start_in: 0,
        reply_window: 0,
        grant: None,
        charged: Amounts::default(),
        policy_version: 1,
    }))
}

fn deferred() -> Outcome {
    Outcome::Admit(AdmitOutcome::Deferred(Deferred {
        retry_in: 1,
        earliest_in: 1,
        place: 0,
        limit: None,
        place_until: 1,
        ticket: Some(10),
        policy_version: 1,
    }))
}

/// Whatever another attempt does with the admission of one that waits, in another session or in none.
#[tokio::test(start_paused = true)]
async fn a_place_that_another_attempt_takes_over_is_nobodys_here() {
    let rejected = |rejected| Outcome::Admit(AdmitOutcome::Rejected(rejected));
    let dropped = Outcome::Cancel(CancelOutcome::PlaceDropped);
    let late = rejected(Rejected::Deadline { earliest_in: 1 });
    let stale = rejected(Rejected::Stale);
    let nothing = Outcome::Cancel(CancelOutcome::Nothing);
    let (again, other) = (ask_of(7, 1), ask_of(7, 2));
    for (by, outcome, waits) in [
        (&other, admitted(), false),
        (&other, deferred(), false),
        (&other, late, false),
        (&other, dropped, false),
        (&again, admitted(), false),
        (&again, deferred(), true),
        (&other, stale, true),
        (&other, nothing, true),
        (&ask(2), admitted(), true),
    ] {
        let wakes = Wakes::default();
        let (waiters, ear) = session(&wakes);
        waiters.wait(seat(10), ask_of(7, 1));
        wakes.decided(by, &outcome);
        assert_eq!(waiters.count(), usize::from(waits), "{outcome:?}");
        assert_eq!(wakes.anybody(), waits, "{outcome:?}");
        turn(&wakes, &[10]).await;
        assert_eq!(ear.heard().len(), usize::from(waits), "{outcome:?}");
        drop(waiters);
        // Who waits for nothing is not given up either.
        assert_eq!(lost(&wakes).len(), usize::from(waits), "{outcome:?}");
    }
}

/// Given up and asked for again, an admission has another ticket.
#[test]
fn an_admission_has_one_seat() {
    let wakes = Wakes::default();
    let ((one, _), (two, _)) = (session(&wakes), session(&wakes));
    one.wait(seat(10), ask_of(7, 1));
    two.wait(seat(11), ask_of(7, 2));
    assert_eq!((one.count(), two.count(), wakes.waiting()), (0, 1, 1));
    drop(one);
    assert_eq!(lost(&wakes), [0; 0]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(usize, u64, u64),
    Decided(u64, u64),
    Done(usize, u64),
    Due(u64),
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3_usize, 0..6_u64, 1..5_u64).prop_map(|(s, k, a)| Step::Wait(s, k, a)),
        (0..6_u64, 1..5_u64).prop_map(|(k, a)| Step::Decided(k, a)),
        (0..3_usize, 1..5_u64).prop_map(|(s, a)| Step::Done(s, a)),
        (0..6_u64).prop_map(Step::Due),
        (0..3_usize).prop_map(Step::End),
    ]
}

proptest! {
    /// Both sides of the registry say the same, whatever happens.
    #[test]
    fn every_waiter_belongs_to_a_session_that_lives(steps in prop::collection::vec(step(), 0..60)) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let wakes = Wakes::default();
        let mut sessions: Vec<_> = (0..3).map(|_| session(&wakes).0).collect();
        for step in steps {
            match step {
                Step::Wait(at, key, attempt) => sessions[at].wait(seat(key % 4), ask_of(key, attempt)),
                Step::Decided(key, attempt) => wakes.decided(&ask_of(key, attempt), &admitted()),
                Step::Done(at, attempt) => sessions[at].done(attempt),
                Step::Due(key) => runtime.block_on(turn(&wakes, &[key])),
                Step::End(at) => sessions[at] = session(&wakes).0,
            }
            let counted: usize = sessions.iter().map(Waiters::count).sum();
            prop_assert_eq!(counted, wakes.waiting());
            let registry = wakes.registry();
            prop_assert_eq!(registry.seats.len(), registry.waiters.len());
            for (name, seat) in &registry.seats {
                prop_assert_eq!(name, &Name::of(&registry.waiters[seat].unwake));
            }
        }
        drop(sessions);
        prop_assert_eq!(wakes.waiting(), 0);
    }
}
