//! What limiters are known to get wrong, one test for each way; golden scripts tell the shorter ones.

use crate::make::{amounts, limit, policy, principal, priority, put, target, tenant};
use weir_admission::limits::{
    IDS_PER_TARGET_MAX, PERIOD_MAX, RETRY_IN_MAX, TENANT_MEMORY, UNITS_MAX, UNRELEASED_MEMORY_MIN,
};
use weir_admission::{
    Admit, AdmitOutcome, Admitted, Amounts, AskName, CallOutcome, CancelOutcome, DeletePolicy,
    EnforcedBy, GrantId, Limit, Operation, Outcome, Policy, Rejected, Release, ReleaseOutcome,
    Stamp, State, TargetView,
};

const TARGET: &str = "api/x";
const SECOND: u64 = 1_000_000;
const MILLISECOND: u64 = 1_000;

/// One limit, of which an idle target may give out all at once.
fn one_limit(cap: u64, per: u64, enforced_by: EnforcedBy) -> Policy {
    let limit = Limit {
        enforced_by,
        burst: Some(per),
        ..limit("units", cap, per)
    };
    policy(vec![limit], &[("p1", 1)])
}

/// A target, a clock, and callers that are told apart by their ids.
struct World {
    state: State,
    index: u64,
    now: u64,
}

/// The answer to an ask, as far as these tests look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// May start at this time.
    Start {
        at: u64,
        grant: GrantId,
    },
    /// Asking alone at this time succeeds.
    Wait {
        until: u64,
    },
    NeverFits,
    /// The line is full.
    Full,
}

impl Told {
    fn is_start(self) -> bool {
        matches!(self, Told::Start { .. })
    }
}

impl World {
    fn new(policy: Policy) -> World {
        let mut world = World {
            state: State::default(),
            index: 0,
            now: SECOND,
        };
        world.put(policy);
        world
    }

    fn apply(&mut self, operation: Operation) -> Outcome {
        self.index += 1;
        let outcomes = self
            .state
            .apply(self.index, Stamp::from_micros(self.now), &[operation]);
        outcomes.into_iter().next().unwrap()
    }

    fn put(&mut self, policy: Policy) {
        let outcome = self.apply(put(TARGET, policy));
        assert!(matches!(outcome, Outcome::Policy(_)), "{outcome:?}");
    }

    fn ask(&mut self, of: &str, id: &str, ask: u32, cost: u64) -> Told {
        let admit = Operation::Admit(Box::new(Admit {
            target: target(TARGET),
            tenant: tenant(of),
            principal: principal(),
            priority: priority("p1"),
            admission_id: id.as_bytes().into(),
            attempt: 1,
            ask,
            cost: amounts(&[("units", cost)]),
            cost_max: Amounts::default(),
            labels_digest: 0,
            deadline: None,
            dry_run: false,
            wake: false,
        }));
        match self.apply(admit) {
            Outcome::Admit(AdmitOutcome::Admitted(Admitted {
                start_in, grant, ..
            })) => Told::Start {
                at: self.now + start_in,
                grant: grant.unwrap(),
            },
            Outcome::Admit(AdmitOutcome::Deferred(deferred)) => Told::Wait {
                until: self.now + deferred.earliest_in,
            },
            Outcome::Admit(AdmitOutcome::Rejected(Rejected::NeverFits { .. })) => Told::NeverFits,
            Outcome::Admit(AdmitOutcome::Rejected(Rejected::QueueFull { tenant: false })) => {
                Told::Full
            }
            other => panic!("{other:?}"),
        }
    }

    fn cancel(&mut self, of: &str, id: &str) {
        let cancel = Operation::Cancel(Box::new(AskName {
            target: target(TARGET),
            tenant: tenant(of),
            principal: principal(),
            admission_id: id.as_bytes().into(),
            attempt: 1,
            ask: 1,
        }));
        let outcome = self.apply(cancel);
        assert_eq!(outcome, Outcome::Cancel(CancelOutcome::PlaceDropped));
    }

    fn release(&mut self, grant: GrantId, actual: u64) -> ReleaseOutcome {
        let release = Operation::Release(Box::new(Release {
            target: target(TARGET),
            principal: principal(),
            grant,
            actual: amounts(&[("units", actual)]),
            outcome: CallOutcome::Ok,
        }));
        match self.apply(release) {
            Outcome::Release(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// The target now.
    fn view(&mut self) -> TargetView {
        let stamp = Stamp::from_micros(self.now);
        self.state.apply(self.index, stamp, &[]);
        self.state.check().unwrap();
        self.state.view(&target(TARGET)).unwrap()
    }

    fn used(&mut self) -> u64 {
        self.view().limits[0].used
    }

    /// Another leader takes over, from a snapshot.
    fn fail_over(&mut self) {
        self.state = State::decode(&self.state.encode()).unwrap();
    }
}

/// The most that fell into any window of `per`: `[start, start + per)` over the starts.
fn worst_window(starts: &[(u64, u64)], per: u64) -> u64 {
    let mut sorted = starts.to_vec();
    sorted.sort_unstable();
    let window = |from: u64| {
        let inside = sorted.iter().skip_while(|(at, _)| *at < from);
        let inside = inside.take_while(|(at, _)| *at < from + per);
        inside.map(|(_, cost)| cost).sum()
    };
    sorted.iter().map(|(at, _)| window(*at)).max().unwrap_or(0)
}

#[test]
fn what_is_asked_in_one_instant_never_passes_the_cap() {
    // In every order.
    let costs = [58, 80, 175, 175, 175];
    for first in 0..costs.len() {
        let mut world = World::new(one_limit(100, 60 * SECOND, EnforcedBy::Provider));
        let mut granted = 0;
        for place in 0..costs.len() {
            let cost = costs[(first + place) % costs.len()];
            match world.ask("t", &place.to_string(), 1, cost) {
                Told::Start { .. } => granted += cost,
                Told::Wait { .. } => assert!(cost <= 100),
                Told::NeverFits => assert_eq!(cost, 175),
                Told::Full => panic!("five calls fit into a line"),
            }
        }
        assert!([58, 80].contains(&granted), "{granted}");
        assert_eq!(world.used(), granted);
    }
}

#[test]
fn a_thousand_large_refusals_use_nothing_up() {
    let mut world = World::new(one_limit(10, 60 * SECOND, EnforcedBy::Us));
    assert!(world.ask("greedy", "before", 1, 8).is_start());
    let mut told = Vec::new();
    for number in 0..1_000 {
        told.push(world.ask("greedy", &number.to_string(), 1, 5));
    }
    assert!(told.iter().all(|told| matches!(told, Told::Wait { .. })));
    assert_eq!(world.used(), 8);
    assert!(world.ask("modest", "small", 1, 2).is_start());
    assert_eq!(world.used(), 10);
}

#[test]
fn what_was_refused_leaves_a_raised_cap_whole() {
    const PER: u64 = 3600 * SECOND;
    let mut world = World::new(one_limit(10, PER, EnforcedBy::Us));
    let first = (0..50).map(|call| world.ask("t", &format!("first {call}"), 1, 1));
    assert_eq!(first.filter(|told| told.is_start()).count(), 10);
    for call in 10..50 {
        world.cancel("t", &format!("first {call}"));
    }
    world.put(one_limit(20, PER, EnforcedBy::Us));
    // The first burst spent all credit, so that the new room goes out at the new pace: one at once.
    let begun = world.now;
    for call in 0..10 {
        world.now = begun + PER / 20 * call;
        let told = world.ask("t", &format!("second {call}"), 1, 1);
        assert!(told.is_start(), "{call}: {told:?}");
    }
    assert_eq!(world.used(), 20);
    assert!(!world.ask("t", "one more", 1, 1).is_start());
}

#[test]
fn a_raised_cap_is_told_to_those_who_wait() {
    const PER: u64 = 3600 * SECOND;
    let mut world = World::new(one_limit(10, PER, EnforcedBy::Us));
    assert!(world.ask("t", "all", 1, 10).is_start());
    let waits = |world: &mut World, id, ask| match world.ask("t", id, ask, 1) {
        Told::Wait { until } => until - world.now,
        other => panic!("{other:?}"),
    };
    assert!(waits(&mut world, "first", 1) >= PER);
    assert!(waits(&mut world, "second", 1) >= PER);
    world.put(one_limit(20, PER, EnforcedBy::Us));
    assert!(world.ask("t", "first", 2, 1).is_start());
    // While others wait, what is free is given out at the pace of the cap.
    assert!(waits(&mut world, "second", 2) <= PER / 20);
}

#[test]
fn asking_again_and_again_does_not_put_off_the_next_free_moment() {
    const PER: u64 = 30 * SECOND;
    let mut world = World::new(one_limit(10, PER, EnforcedBy::Us));
    let (mut call, mut ask) = (0_u64, 0);
    let (mut starts, mut free_at) = (Vec::new(), u64::MAX);
    for second in 1..=600 {
        world.now = second * SECOND;
        ask += 1;
        match world.ask("t", &call.to_string(), ask, 1) {
            Told::Start { at, .. } => {
                starts.push((at, 1));
                (call, ask, free_at) = (call + 1, 0, u64::MAX);
            }
            Told::Wait { until } => {
                assert!(until <= free_at, "put off from {free_at} to {until}");
                assert!(until <= world.now + PER + PER / 256 + MILLISECOND);
                free_at = until;
            }
            Told::NeverFits | Told::Full => panic!("one unit fits"),
        }
    }
    assert!((190..=210).contains(&starts.len()), "{}", starts.len());
    assert!(worst_window(&starts, PER) <= 10);
}

#[test]
fn waiting_exactly_as_told_is_enough_for_any_cap_and_period() {
    for cap in [1, 3, 7, 1000] {
        for per in [SECOND, 60 * SECOND, 86_400 * SECOND, PERIOD_MAX] {
            for enforced_by in [EnforcedBy::Us, EnforcedBy::Provider] {
                let mut world = World::new(one_limit(cap, per, enforced_by));
                assert!(world.ask("t", "all", 1, cap).is_start());
                let Told::Wait { until } = world.ask("t", "next", 1, 1) else {
                    panic!("the cap is used up")
                };
                let begun = world.now;
                assert!(until >= begun + per, "{cap} per {per}: {until}");
                // Its place is kept for a while after it is due back, so it comes back from time to time.
                let mut ask = 1;
                while world.now + RETRY_IN_MAX / 2 < until - MILLISECOND {
                    world.now =
                        (world.now + RETRY_IN_MAX / 2 + per / 4096).min(until - MILLISECOND);
                    ask += 1;
                    assert!(
                        !matches!(world.ask("t", "next", ask, 1), Told::Start { at, .. } if at < until)
                    );
                }
                world.now = until - MILLISECOND;
                match world.ask("t", "next", ask + 1, 1) {
                    // So near that it is told when to start.
                    Told::Start { at, .. } => assert!(at >= until, "{cap} per {per}: {at} {until}"),
                    Told::Wait { until: again } => assert!(again <= until, "{cap} per {per}"),
                    Told::NeverFits | Told::Full => panic!("one unit fits"),
                }
                world.now = until;
                let told = world.ask("t", "next", ask + 2, 1);
                assert!(
                    matches!(told, Told::Start { at, .. } if at == until),
                    "{cap} per {per}: {told:?} at {until}"
                );
            }
        }
    }
}

#[test]
fn grants_of_the_dead_end_in_time_and_a_new_leader_does_not_renew_them() {
    const HOLDERS: u64 = 1_000;
    let mut world = World::new(one_limit(HOLDERS, 60 * SECOND, EnforcedBy::Us));
    let mut last = None;
    for number in 0..HOLDERS {
        world.now += MILLISECOND;
        match world.ask("t", &number.to_string(), 1, 1) {
            Told::Start { grant, .. } => last = Some(grant),
            other => panic!("{other:?}"),
        }
    }
    let (granted_at, last) = (world.now, last.unwrap());
    for step in 1..=20 {
        world.now = granted_at + UNRELEASED_MEMORY_MIN / 20 * step - 2 * SECOND;
        world.fail_over();
        if step < 20 {
            assert_eq!(world.view().grants, HOLDERS, "step {step}");
        }
    }
    world.now = granted_at + UNRELEASED_MEMORY_MIN + SECOND;
    // An entry takes a bounded number of steps.
    for _ in 0..HOLDERS {
        world.view();
    }
    assert_eq!(world.view().grants, 0);
    let used = world.used();
    let late = world.release(last, 0);
    assert!(
        matches!(late, ReleaseOutcome::Expired | ReleaseOutcome::Unknown),
        "{late:?}"
    );
    assert_eq!(world.used(), used, "a late release gives nothing back");
}

#[test]
fn a_greedy_caller_after_a_long_rest_gets_one_cap_in_any_window() {
    const PER: u64 = 60 * SECOND;
    let spread = 200 * MILLISECOND;
    let mut limit = one_limit(15, PER, EnforcedBy::Provider);
    limit.send_spread = Some(spread);
    let mut world = World::new(limit);
    world.now += 600 * SECOND;
    let begun = world.now;
    let (mut call, mut ask) = (0_u64, 0);
    let mut arrivals = Vec::new();
    while world.now < begun + 300 * SECOND {
        ask += 1;
        match world.ask("t", &call.to_string(), ask, 1) {
            Told::Start { at, grant } => {
                // The way to the provider takes up to the spread, now long, now short.
                let way = spread * (call * 7 % 11) / 10;
                arrivals.push((at + way.min(spread), 1));
                world.release(grant, 1);
                (call, ask) = (call + 1, 0);
            }
            Told::Wait { .. } => world.now += 50 * MILLISECOND,
            Told::NeverFits | Told::Full => panic!("one unit fits"),
        }
    }
    assert!(worst_window(&arrivals, PER) <= 15);
    // Five windows, each nearly full: the guard costs a part of each.
    assert!(arrivals.len() >= 70, "{}", arrivals.len());
}

#[test]
fn names_cannot_be_mistaken_for_others() {
    let mut world = World::new(one_limit(100, 60 * SECOND, EnforcedBy::Us));
    let callers = [
        ("a", "b:c"),
        ("a:b", "c"),
        ("a/b", "c"),
        ("ab", "c"),
        ("a", "bc"),
        // The same letter, composed and decomposed; another direction; beyond the basic plane.
        ("\u{e9}", "c"),
        ("e\u{301}", "c"),
        ("\u{5d0}\u{5d1}", "c"),
        ("\u{1f600}", "c"),
    ];
    for (tenant, id) in callers {
        assert!(world.ask(tenant, id, 1, 1).is_start(), "{tenant:?} {id:?}");
    }
    assert_eq!(world.used(), callers.len() as u64);
    // Nothing is anybody else's: each one's next ask is answered with its own grant.
    for (tenant, id) in callers {
        assert!(world.ask(tenant, id, 2, 1).is_start(), "{tenant:?} {id:?}");
    }
    assert_eq!(world.used(), callers.len() as u64);
}

#[test]
fn the_highest_and_the_lowest_rate_are_exact() {
    let mut fast = World::new(one_limit(UNITS_MAX, SECOND, EnforcedBy::Us));
    assert!(fast.ask("t", "all but one", 1, UNITS_MAX - 1).is_start());
    assert!(fast.ask("t", "one", 1, 1).is_start());
    assert_eq!(fast.used(), UNITS_MAX);
    let Told::Wait { until } = fast.ask("t", "more", 1, 1) else {
        panic!("the cap is used up")
    };
    assert!((fast.now + SECOND..=fast.now + SECOND + SECOND / 256 + 1).contains(&until));

    let mut slow = World::new(one_limit(1, PERIOD_MAX, EnforcedBy::Us));
    assert!(slow.ask("t", "one", 1, 1).is_start());
    slow.now += PERIOD_MAX - 1;
    assert!(!slow.ask("t", "two", 1, 1).is_start());
    assert_eq!(slow.used(), 1);
}

#[test]
fn grants_are_released_after_their_policy_is_gone() {
    let mut world = World::new(one_limit(10, 60 * SECOND, EnforcedBy::Us));
    let Told::Start { grant, .. } = world.ask("t", "runs", 1, 6) else {
        panic!("there is room")
    };
    assert!(!world.ask("t", "waits", 1, 6).is_start());
    let delete = Operation::DeletePolicy(DeletePolicy {
        target: target(TARGET),
        expected_version: None,
    });
    world.apply(delete);
    world.now += SECOND;
    assert_eq!(world.release(grant, 2), ReleaseOutcome::Applied);
    assert_eq!(world.release(grant, 2), ReleaseOutcome::Already);
    world.put(one_limit(10, 60 * SECOND, EnforcedBy::Us));
    assert_eq!(world.used(), 2);
}

#[test]
fn a_long_call_is_settled_however_many_short_ones_came_since() {
    const SHORT: usize = IDS_PER_TARGET_MAX + 1_000;
    let mut world = World::new(one_limit(UNITS_MAX, SECOND, EnforcedBy::Us));
    let ask = |world: &mut World, id: &str| match world.ask("t", id, 1, 1) {
        Told::Start { grant, .. } => grant,
        other => panic!("{other:?}"),
    };
    let (long, dead) = (ask(&mut world, "long"), ask(&mut world, "dead"));
    let granted_at = world.now;
    for number in 0..SHORT {
        world.now += 100;
        let short = ask(&mut world, &number.to_string());
        assert_eq!(world.release(short, 1), ReleaseOutcome::Applied);
    }
    assert!(world.now < granted_at + UNRELEASED_MEMORY_MIN);
    assert_eq!(world.view().grants, 2);
    assert_eq!(world.release(long, 1), ReleaseOutcome::Applied);
    // The one that never ends is still found, though later.
    world.now += 2 * UNRELEASED_MEMORY_MIN;
    for _ in 0..SHORT / 32 {
        assert_ne!(world.release(long, 1), ReleaseOutcome::Applied);
    }
    assert_eq!(world.view().grants, 0);
    assert_eq!(world.release(dead, 1), ReleaseOutcome::Expired);
}

#[test]
fn tenants_that_come_once_are_forgotten() {
    const TENANTS: u64 = 3_000;
    /// The longest that one of them takes: its place, then its id, then its share.
    const MINUTES: u64 = 2 * TENANT_MEMORY / (60 * SECOND) + 5;
    for cap in [100, UNITS_MAX] {
        let mut world = World::new(one_limit(cap, 60 * SECOND, EnforcedBy::Us));
        let empty = world.state.encode().len();
        for number in 0..TENANTS {
            world.now += MILLISECOND;
            if let Told::Start { grant, .. } = world.ask(&number.to_string(), "once", 1, 1) {
                world.release(grant, 1);
            }
        }
        assert_eq!(world.view().tenants, TENANTS);
        let full = world.state.encode().len();
        assert!(full > empty + 100 * 1024, "{full} bytes");
        // Time alone changes nothing. Each operation forgets some of those whose time is over, as soon as the
        // target's use has gone on past them.
        let unknown = GrantId {
            index: u64::MAX,
            offset: 0,
        };
        for minute in 0..MINUTES {
            world.now += 60 * SECOND;
            // At first those who do not come back still stand before it.
            let told = world.ask("regular", &minute.to_string(), 1, cap / 2);
            if let Told::Start { grant, .. } = told {
                world.release(grant, cap / 2);
            } else {
                assert!(minute < 3, "{told:?}");
                world.cancel("regular", &minute.to_string());
            }
            for _ in 0..TENANTS / 32 {
                assert_eq!(world.release(unknown, 0), ReleaseOutcome::Unknown);
            }
        }
        let view = world.view();
        assert_eq!((view.tenants, view.waiting, view.grants), (1, 0, 0));
        let rested = world.state.encode().len();
        assert!(rested < empty + 16 * 1024, "{empty} -> {rested} bytes");
    }
}
