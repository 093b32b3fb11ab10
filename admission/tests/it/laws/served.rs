//! Whoever keeps asking as told is served, in time that can be named beforehand.

use super::lapse::cost;
use crate::history::{Scope, cases, policy, target};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_admission::{
    Admit, AdmitOutcome, Amounts, Operation, Outcome, Policy, Principal, PutPolicy, Rejected,
    Stamp, State, TenantName,
};

/// A call: parts of the smallest cap, priority, tenant, and how late its caller comes each time, in
/// quarters of the lapse.
type Call = ([u64; 2], usize, usize, u64);

fn ask(state: &State, place: usize, call: &Call, ask: u32) -> Operation {
    let view = state.view(&target(0)).unwrap();
    let priorities = &view.policy.priorities;
    Operation::Admit(Box::new(Admit {
        target: view.name.clone(),
        tenant: TenantName::new(["ann", "bob", "cy"][call.2]).unwrap(),
        principal: Principal::new("fleet").unwrap(),
        priority: priorities[call.1 % priorities.len()].name.clone(),
        admission_id: format!("{place}").into_bytes().into(),
        attempt: 1,
        ask,
        cost: cost(&view, call.0),
        cost_max: Amounts::default(),
        labels_digest: 0,
        deadline: None,
        dry_run: false,
        wake: false,
    }))
}

/// A call that has all limits to itself waits for at most one guarded period and a step of it. With others
/// before it, each of them takes no longer than that; and nobody comes back later than 60 s after that,
/// nor much later than told.
fn patience(state: &State, calls: usize) -> u64 {
    let view = state.view(&target(0)).unwrap();
    let limits = view.policy.limits.iter().zip(&view.limits);
    let longest = limits.map(|(limit, used)| limit.per + used.guard).max();
    let one = longest.unwrap_or(0) * 257 / 256 + 60_000_000 + 8 * view.policy.horizon;
    one * (calls as u64 + 1)
}

fn judge(policy: Policy, calls: &[Call]) -> Result<(), TestCaseError> {
    let mut state = State::default();
    let put = Operation::PutPolicy(Box::new(PutPolicy {
        target: target(0),
        principal: Principal::new("anonymous").unwrap(),
        policy: policy.clone(),
        expected_version: None,
    }));
    state.apply(1, Stamp::ZERO, &[put]);
    let patience = patience(&state, calls.len());
    let mut index = 1;
    let mut due: BinaryHeap<_> = (0..calls.len())
        .map(|place| Reverse((0, place, 1)))
        .collect();
    while let Some(Reverse((now, place, number))) = due.pop() {
        prop_assert!(now <= patience, "call {place} was not served by {patience}");
        index += 1;
        let call = &calls[place];
        let operation = ask(&state, place, call, number);
        let stamp = Stamp::from_micros(now);
        match state.apply(index, stamp, &[operation]).remove(0) {
            Outcome::Admit(AdmitOutcome::Admitted(_)) => {}
            Outcome::Admit(AdmitOutcome::Deferred(deferred)) => {
                let late = policy.horizon * call.3;
                due.push(Reverse((now + deferred.retry_in + late, place, number + 1)));
            }
            Outcome::Admit(AdmitOutcome::Rejected(Rejected::NeverFits { .. })) if number == 1 => {}
            other => prop_assert!(false, "call {place} was answered {other:?}"),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn who_asks_as_told_is_served(
        policy in policy(Scope::Everything),
        calls in prop::collection::vec(([0..17u64, 0..17u64], 0..3usize, 0..3usize, 0..4u64), 1..9),
    ) {
        judge(policy, &calls)?;
    }
}
