//! An explanation says what a dry run says, and its parts add up to it.

use crate::make::{amounts, limit, policy, principal, priority, put, target, tenant};
use proptest::collection::vec;
use proptest::prelude::*;
use weir_admission::{
    Admit, AdmitOutcome, Headroom, Holds, Kind, Limit, Operation, Outcome, Policy, Principal,
    Refusal, Stamp, State,
};

fn two_limits() -> Policy {
    let per = 10_000_000;
    let tokens = Limit {
        kind: Kind::Bucket,
        ..limit("tokens", 900, per)
    };
    Policy {
        headroom: Headroom::On,
        ..policy(
            vec![limit("requests", 6, per), tokens],
            &[("p0", 5), ("p1", 3), ("p2", 2)],
        )
    }
}

fn ask(id: usize, class: usize, of: usize, tokens: u64) -> Admit {
    Admit {
        target: target("api/x"),
        tenant: tenant(&format!("t{of}")),
        principal: principal(),
        priority: priority(&format!("p{class}")),
        admission_id: id.to_string().into_bytes().into(),
        attempt: 1,
        ask: 1,
        cost: amounts(&[("requests", 1), ("tokens", tokens)]),
        cost_max: amounts(&[("tokens", tokens + 50)]),
        labels_digest: 0,
        deadline: None,
        dry_run: false,
        wake: false,
    }
}

fn apply(state: &mut State, index: u64, now: u64, operation: Operation) -> Outcome {
    let mut outcomes = state.apply(index, Stamp::from_micros(now), &[operation]);
    outcomes.pop().unwrap()
}

fn check(state: &mut State, index: u64, now: u64, ask: &Admit) -> Result<(), TestCaseError> {
    let dry = Admit {
        dry_run: true,
        ..ask.clone()
    };
    let answer = apply(state, index, now, Operation::Admit(Box::new(dry.clone())));
    let Outcome::Admit(answer) = answer else {
        return Err(TestCaseError::fail(format!("{answer:?}")));
    };
    let told = state.explain(&dry).unwrap();
    prop_assert_eq!(&told.outcome, &answer);
    let (place, earliest_in) = match answer {
        AdmitOutcome::Deferred(deferred) => {
            let limit = told
                .limits
                .iter()
                .find(|l| Some(&l.name) == deferred.limit.as_ref());
            if let Some(limit) = limit {
                prop_assert_eq!(limit.earliest_in, deferred.earliest_in, "it binds");
            }
            (Some(deferred.place), deferred.earliest_in)
        }
        AdmitOutcome::Admitted(_) => (None, u64::MAX),
        AdmitOutcome::Rejected(rejected) => {
            return Err(TestCaseError::fail(format!("{rejected:?}")));
        }
    };
    let ahead: u64 = told.priorities.iter().map(|priority| priority.ahead).sum();
    prop_assert!(
        place.is_none_or(|place| place == ahead),
        "{place:?} is not {ahead}"
    );
    prop_assert!(
        told.limits
            .iter()
            .all(|limit| limit.earliest_in <= earliest_in)
    );
    prop_assert!(told.priorities.iter().all(|one| one.ahead <= one.waiting));
    Ok(())
}

/// What was just asked is remembered, for whoever asked it.
fn check_known(state: &State, asked: &Admit, waits: bool) -> Result<(), TestCaseError> {
    let known = state.explain(asked).unwrap().known;
    let Some(known) = known else {
        return Err(TestCaseError::fail("nothing is known"));
    };
    prop_assert_eq!((known.attempt, known.ask), (asked.attempt, asked.ask));
    prop_assert_eq!(matches!(known.holds, Holds::Place), waits);
    prop_assert!(waits || matches!(known.holds, Holds::Grant(_)));
    let stranger = Admit {
        principal: Principal::new("mallory").unwrap(),
        ..asked.clone()
    };
    prop_assert_eq!(state.explain(&stranger), Err(Refusal::NotOwner));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_parts_of_an_explanation_add_up(
        calls in vec((0_usize..3, 0_usize..4, 1_u64..200, 0_u64..400_000), 1..60),
    ) {
        let mut state = State::default();
        apply(&mut state, 1, 1, put("api/x", two_limits()));
        let (mut index, mut now) = (1, 1);
        for (id, (class, tenant, tokens, later)) in calls.into_iter().enumerate() {
            now += later;
            let new = ask(id, class, tenant, tokens);
            check(&mut state, index + 1, now, &new)?;
            apply(&mut state, index + 2, now, Operation::Admit(Box::new(new.clone())));
            let waits = matches!(state.explain(&new), Ok(told) if told.waits);
            if waits {
                check(&mut state, index + 3, now, &new)?;
            }
            check_known(&state, &new, waits)?;
            index += 3;
        }
    }
}
