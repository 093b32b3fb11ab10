//! The judge must find what is planted, name it, and find nothing else.

use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_chaos::history::{Arrival, Call, End, GrantName, History, Pass};
use weir_chaos::judge::{Cap, Promises, Violation, audit, judge, worst_window};

const PER_US: u64 = 1_000_000;

fn cap(units: u64) -> Cap {
    Cap {
        limit: "rps".into(),
        dimension: "requests".into(),
        cap: units,
        per_us: PER_US,
    }
}

fn promises(units: u64) -> Promises {
    Promises {
        caps: vec![cap(units)],
        no_ungated: true,
        all_served: true,
    }
}

fn arrival(attempt: u64, at_us: u64, grant: GrantName) -> Arrival {
    let costs = BTreeMap::from([("requests".into(), 1)]);
    Arrival {
        attempt,
        at_us,
        pass: Pass::Grant(grant),
        costs,
    }
}

fn served(name: &str, arrivals: Vec<Arrival>) -> Call {
    let asked_us = arrivals.first().map_or(0, |one| one.at_us);
    Call {
        admission: name.into(),
        asked_us,
        arrivals,
        end: End::Served,
    }
}

/// One call of one unit at each instant, each with its own id, attempt and grant.
fn arrivals_at(at_us: &[u64]) -> History {
    let calls = (1..)
        .zip(at_us)
        .map(|(n, &at)| served(&format!("call-{n}"), vec![arrival(n, at, (0, n, 0))]));
    History {
        calls: calls.collect(),
        answers_us: at_us.to_vec(),
    }
}

fn check(history: &History, promises: &Promises, expected: &[Violation]) {
    assert_eq!(judge(history, promises), expected);
}

fn over(from_us: u64, sum: u64, cap: u64) -> Violation {
    Violation::OverCap {
        limit: "rps".into(),
        from_us,
        sum,
        cap,
    }
}

#[test]
fn a_full_window_is_no_violation() {
    check(&arrivals_at(&[0, 1, 2]), &promises(3), &[]);
    check(&History::default(), &promises(0), &[]);
}

#[test]
fn one_call_over_the_cap_is_found() {
    check(&arrivals_at(&[0, 1, 2, 3]), &promises(3), &[over(0, 4, 3)]);
}

#[test]
fn a_window_that_opens_one_microsecond_early_is_found() {
    let full_then_next = |next| arrivals_at(&[0, 0, 0, next, next, next]);
    check(&full_then_next(PER_US), &promises(3), &[]);
    check(&full_then_next(PER_US - 1), &promises(3), &[over(0, 6, 3)]);
}

#[test]
fn a_window_across_two_aligned_ones_is_found() {
    // Both calendar seconds hold three calls, which a counter of fixed windows would accept.
    let history = arrivals_at(&[900_000, 950_000, 999_999, PER_US, PER_US + 1, PER_US + 2]);
    check(&history, &promises(3), &[over(900_000, 6, 3)]);
}

#[test]
fn arrivals_need_not_be_recorded_in_order() {
    check(&arrivals_at(&[3, 0, 2, 1]), &promises(3), &[over(0, 4, 3)]);
}

#[test]
fn each_dimension_is_summed_alone() {
    let mut history = arrivals_at(&[0, 1]);
    history.calls[0].arrivals[0]
        .costs
        .insert("tokens".into(), 600);
    history.calls[1].arrivals[0]
        .costs
        .insert("tokens".into(), 500);
    let tokens = Cap {
        limit: "tpm".into(),
        dimension: "tokens".into(),
        cap: 1_000,
        per_us: PER_US,
    };
    let promises = Promises {
        caps: vec![cap(3), tokens],
        ..Promises::default()
    };
    let found = Violation::OverCap {
        limit: "tpm".into(),
        from_us: 0,
        sum: 1_100,
        cap: 1_000,
    };
    check(&history, &promises, &[found]);
}

#[test]
fn an_attempt_sent_twice_is_found_and_a_new_attempt_is_not() {
    let twice = |second| {
        let arrivals = vec![arrival(7, 0, (0, 1, 0)), arrival(second, 5, (0, 2, 0))];
        History {
            calls: vec![served("a", arrivals)],
            answers_us: vec![],
        }
    };
    check(&twice(8), &promises(9), &[]);
    let found = Violation::SentTwice {
        admission: "a".into(),
        attempt: 7,
    };
    check(&twice(7), &promises(9), &[found]);
}

#[test]
fn one_grant_for_two_calls_is_found() {
    let mut history = arrivals_at(&[0, 1]);
    history.calls[1].arrivals[0].pass = Pass::Grant((0, 1, 0));
    let admissions = ["call-1".into(), "call-2".into()];
    let found = Violation::GrantShared {
        grant: (0, 1, 0),
        admissions,
    };
    check(&history, &promises(9), &[found]);
}

#[test]
fn a_call_without_a_decision_is_found_unless_it_was_allowed() {
    let mut history = arrivals_at(&[0]);
    history.calls[0].arrivals[0].pass = Pass::Ungated;
    check(
        &history,
        &promises(9),
        &[Violation::Ungated {
            admission: "call-1".into(),
        }],
    );
    check(
        &history,
        &Promises {
            no_ungated: false,
            ..promises(9)
        },
        &[],
    );
}

#[test]
fn a_call_that_kept_asking_must_be_served() {
    let mut history = arrivals_at(&[0, 1]);
    history.calls[1].arrivals.clear();
    history.calls[1].end = End::Waiting { for_us: 42 };
    check(
        &history,
        &promises(9),
        &[Violation::NeverServed {
            admission: "call-2".into(),
            for_us: 42,
        }],
    );
    history.calls[1].end = End::GivenUp;
    check(&history, &promises(9), &[]);
}

#[test]
fn an_end_that_does_not_fit_is_found() {
    let mut history = arrivals_at(&[0, 1]);
    history.calls[0].arrivals.clear();
    history.calls[1].end = End::Rejected;
    let untrue = |name: &str| Violation::EndUntrue {
        admission: name.into(),
    };
    check(
        &history,
        &promises(9),
        &[untrue("call-1"), untrue("call-2")],
    );
}

#[test]
fn an_id_used_for_two_calls_is_found() {
    let mut history = arrivals_at(&[0, 1]);
    history.calls[1].admission = "call-1".into();
    check(
        &history,
        &promises(9),
        &[Violation::IdReused {
            admission: "call-1".into(),
        }],
    );
}

#[test]
fn a_double_and_a_lost_charge_are_found() {
    let history = arrivals_at(&[0, 1, 2]);
    let counted = |units| BTreeMap::from([("rps".to_owned(), units)]);
    let differs = |counted| Violation::UseDiffers {
        limit: "rps".into(),
        counted,
        sent: 3,
    };
    assert_eq!(audit(&history, &[cap(9)], &counted(3)), []);
    assert_eq!(audit(&history, &[cap(9)], &counted(4)), [differs(4)]);
    assert_eq!(audit(&history, &[cap(9)], &counted(2)), [differs(2)]);
    let missing = Violation::UseMissing {
        limit: "rps".into(),
    };
    assert_eq!(audit(&history, &[cap(9)], &BTreeMap::new()), [missing]);
}

#[test]
fn silence_is_measured_to_both_ends() {
    let history = History {
        calls: vec![],
        answers_us: vec![10, 20, 90, 95],
    };
    assert_eq!(history.longest_silence_us(15, 96), (20, 70));
    assert_eq!(history.longest_silence_us(91, 200), (95, 105));
    assert_eq!(history.longest_silence_us(90, 95), (90, 5));
    assert_eq!(History::default().longest_silence_us(3, 10), (3, 7));
}

/// Adds up every window that begins at an arrival, each from nothing.
fn worst_window_plainly(history: &History, cap: &Cap) -> u64 {
    let arrivals = history.arrivals();
    let sum_from = |from: u64| {
        let inside = arrivals
            .iter()
            .filter(|one| (from..from + cap.per_us).contains(&one.at_us));
        inside.map(|one| one.costs["requests"]).sum()
    };
    arrivals
        .iter()
        .map(|send| sum_from(send.at_us))
        .max()
        .unwrap_or(0)
}

proptest! {
    #[test]
    fn the_sliding_sum_equals_the_plain_one(
        at_us in prop::collection::vec(0..3 * PER_US, 0..60),
        units in prop::collection::vec(0_u64..5, 60),
    ) {
        let mut history = arrivals_at(&at_us);
        for (call, units) in history.calls.iter_mut().zip(units) {
            call.arrivals[0].costs.insert("requests".into(), units);
        }
        prop_assert_eq!(worst_window(&history, &cap(0)).0, worst_window_plainly(&history, &cap(0)));
    }
}
