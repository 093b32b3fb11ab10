//! A caller that does not come back blocks nobody: once it is late, everybody else is answered as if it had
//! given its place up at once.

use super::look;
use crate::history::{Driver, History, Scope, cases, history, target, tell};
use proptest::prelude::*;
use weir_admission::{
    Admit, AdmitOutcome, Amounts, AskName, CancelOutcome, DimensionName, Operation, Outcome,
    Principal, PriorityName, Stamp, State, TargetView, TenantName,
};

fn ask(view: &TargetView, tenant: &str, id: &str, priority: usize, parts: [u64; 2]) -> Admit {
    let priorities = &view.policy.priorities;
    let priority = &priorities[priority % priorities.len()].name;
    Admit {
        target: view.name.clone(),
        tenant: TenantName::new(tenant).unwrap(),
        principal: Principal::new("fleet").unwrap(),
        priority: PriorityName::new(priority.as_str()).unwrap(),
        admission_id: id.as_bytes().into(),
        attempt: 1,
        ask: 1,
        cost: cost(view, parts),
        cost_max: Amounts::default(),
        labels_digest: 0,
        deadline: None,
        dry_run: false,
        wake: false,
    }
}

/// Sixteenths of the smallest cap in each dimension, at least a unit.
pub(super) fn cost(view: &TargetView, parts: [u64; 2]) -> Amounts {
    let mut list: Vec<(DimensionName, u64)> = Vec::new();
    for limit in &view.policy.limits {
        let units = (limit.cap * parts[list.len().min(1)] / 16).max(1);
        match list.iter_mut().find(|(name, _)| *name == limit.dimension) {
            Some((_, least)) => *least = (*least).min(units),
            None => list.push((limit.dimension.clone(), units)),
        }
    }
    Amounts::new(list).unwrap()
}

/// A state as it is, and the next entry of it.
struct Branch(State, u64);

impl Branch {
    fn of(state: &State) -> Branch {
        Branch(State::decode(&state.encode()).unwrap(), 1_000_000)
    }

    fn apply(&mut self, now: u64, operation: Operation) -> Outcome {
        self.1 += 1;
        let stamp = Stamp::from_micros(now);
        self.0.apply(self.1, stamp, &[operation]).remove(0)
    }
}

fn judge(
    history: &History,
    silent: ([u64; 2], usize),
    others: &[([u64; 2], usize)],
) -> Result<(), TestCaseError> {
    let (mut driver, first) = Driver::start(history);
    let mut told = tell(&first);
    for step in &history.steps {
        told += &driver
            .step(step)
            .map(|entry| tell(&entry))
            .unwrap_or_default();
    }
    let state = &driver.state;
    let now = state.now().as_micros();
    let Some(view) = state.view(&target(0)) else {
        return Ok(());
    };
    let (mut waits, mut gives_up) = (Branch::of(state), Branch::of(state));
    let silent = ask(&view, "silent", "silent", silent.1, silent.0);
    let mut outcome = waits.apply(now, Operation::Admit(Box::new(silent.clone())));
    prop_assert_eq!(
        &outcome,
        &gives_up.apply(now, Operation::Admit(Box::new(silent.clone())))
    );
    let Outcome::Admit(AdmitOutcome::Deferred(deferred)) = &mut outcome else {
        return Ok(());
    };
    let cancel = Operation::Cancel(Box::new(AskName {
        target: silent.target,
        tenant: silent.tenant,
        principal: silent.principal,
        admission_id: silent.admission_id,
        attempt: 1,
        ask: 1,
    }));
    let cancelled = gives_up.apply(now, cancel);
    prop_assert_eq!(cancelled, Outcome::Cancel(CancelOutcome::PlaceDropped));
    waits.apply(now, look(&view.name));
    let late = now + deferred.retry_in + 4 * view.policy.horizon;
    for (place, (parts, priority)) in others.iter().enumerate() {
        let name = format!("other-{place}");
        let ask = Operation::Admit(Box::new(ask(&view, &name, &name, *priority, *parts)));
        let (one, other) = (
            waits.apply(late, ask.clone()),
            gives_up.apply(late, ask.clone()),
        );
        prop_assert_eq!(one, other, "{}at {}: {:?}", told, late, ask);
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn a_lapsed_ticket_blocks_nobody(
        history in history(Scope::Everything, 60),
        silent in ([0..17u64, 0..17u64], 0..3usize),
        others in prop::collection::vec(([0..17u64, 0..17u64], 0..3usize), 1..8),
    ) {
        judge(&history, silent, &others)?;
    }
}
