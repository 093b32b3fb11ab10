//! What changes nothing: refused, rejected and dry asks, what a stranger does, releases and cancels of
//! nothing, a second release, and a release that uses what was charged. Whatever of it is strewn into a
//! history, everybody else is answered as without it.

use super::NO_GRANT;
use crate::history::{Entry, History, Scope, cases, history, tell};
use proptest::prelude::*;
use weir_admission::{
    Admit, AdmitOutcome, Amounts, AskName, CallOutcome, CancelOutcome, ExtendOutcome, GrantId,
    Headroom, Operation, Outcome, Principal, Refusal, Rejected, Release, ReleaseOutcome, Stamp,
    State, limits::UNITS_MAX,
};

/// An operation that must change nothing, and how to tell that it was what it was meant to be.
type Extra = (Operation, fn(&Outcome) -> bool);

fn stranger() -> Principal {
    Principal::new("stranger").unwrap()
}

fn rejected(outcome: &Outcome, is: fn(&Rejected) -> bool) -> bool {
    matches!(outcome, Outcome::Admit(AdmitOutcome::Rejected(rejected)) if is(rejected))
}

fn not_owned(outcome: &Outcome) -> bool {
    *outcome == Outcome::Refused(Refusal::NotOwner)
}

/// What may follow an ask that was admitted or deferred.
fn after_ask(admit: &Admit, fresh: u64) -> Vec<Extra> {
    let ask = |change: fn(&mut Admit)| {
        let mut other = admit.clone();
        change(&mut other);
        Operation::Admit(Box::new(other))
    };
    let mut new = admit.clone();
    new.admission_id = format!("extra-{fresh}").into_bytes().into();
    let mut huge = new.clone();
    let units = admit.cost.iter().map(|(name, _)| (name.clone(), UNITS_MAX));
    huge.cost = Amounts::new(units.collect()).unwrap();
    huge.cost_max = Amounts::default();
    let cancel = AskName {
        target: new.target,
        tenant: new.tenant,
        principal: new.principal,
        admission_id: new.admission_id,
        attempt: 1,
        ask: 1,
    };
    let mut extras: Vec<Extra> = vec![
        (ask(|a| a.dry_run = true), |o| {
            matches!(o, Outcome::Admit(_))
        }),
        (ask(|a| a.principal = stranger()), not_owned),
        (ask(|a| a.labels_digest = 77), |o| {
            rejected(o, |r| *r == Rejected::IdConflict)
        }),
        (ask(|a| a.ask = 0), |o| {
            matches!(o, Outcome::Refused(Refusal::Malformed { .. }))
        }),
        (Operation::Admit(Box::new(huge)), |o| {
            rejected(o, |r| matches!(r, Rejected::NeverFits { .. }))
        }),
        (Operation::Cancel(Box::new(cancel)), |o| {
            *o == Outcome::Cancel(CancelOutcome::Nothing)
        }),
    ];
    if admit.ask > 1 {
        let stale: fn(&Outcome) -> bool = |o| rejected(o, |r| *r == Rejected::Stale);
        extras.push((ask(|a| a.ask -= 1), stale));
    }
    extras
}

fn after_release(release: &Release) -> Vec<Extra> {
    let again = |change: fn(&mut Release)| {
        let mut other = release.clone();
        change(&mut other);
        Operation::Release(Box::new(other))
    };
    let nobody = weir_admission::Extend {
        target: release.target.clone(),
        principal: stranger(),
        grant: NO_GRANT,
    };
    vec![
        (again(|r| r.outcome = CallOutcome::NotSent), |o| {
            use ReleaseOutcome::{Already, Expired, Unknown};
            matches!(o, Outcome::Release(Already | Expired | Unknown))
        }),
        (again(|r| r.grant = NO_GRANT), |o| {
            *o == Outcome::Release(ReleaseOutcome::Unknown)
        }),
        (Operation::Extend(nobody), |o| {
            *o == Outcome::Extend(ExtendOutcome::Unknown)
        }),
    ]
}

/// Whether later operations name a grant or its call.
fn is_named(entries: &[Entry], admit: &Admit, grant: GrantId) -> bool {
    let names = |operation: &Operation| match operation {
        Operation::Admit(other) => {
            other.admission_id == admit.admission_id && other.tenant == admit.tenant
        }
        Operation::Cancel(other) | Operation::Unwake(other) => {
            other.admission_id == admit.admission_id && other.tenant == admit.tenant
        }
        Operation::Release(other) => other.grant == grant,
        Operation::Extend(other) => other.grant == grant,
        Operation::Report(_)
        | Operation::PutPolicy(_)
        | Operation::DeletePolicy(_)
        | Operation::Seed(_) => false,
    };
    entries.iter().flat_map(|entry| &entry.batch).any(names)
}

/// A release that uses what was charged, where nobody comes back to the grant.
fn exact_release(
    entries: &[Entry],
    place: usize,
    admit: &Admit,
    outcome: &Outcome,
) -> Option<Extra> {
    let Outcome::Admit(AdmitOutcome::Admitted(admitted)) = outcome else {
        return None;
    };
    let grant = admitted.grant?;
    let later = entries[place]
        .batch
        .iter()
        .filter(|operation| match operation {
            Operation::Admit(other) => other.admission_id == admit.admission_id,
            Operation::Cancel(other) => other.admission_id == admit.admission_id,
            _ => false,
        });
    if later.count() > 1 || is_named(&entries[place + 1..], admit, grant) {
        return None;
    }
    let release = Release {
        target: admit.target.clone(),
        principal: admit.principal.clone(),
        grant,
        actual: admitted.charged.clone(),
        outcome: CallOutcome::Ok,
    };
    Some((Operation::Release(Box::new(release)), |o| {
        matches!(o, Outcome::Release(_))
    }))
}

/// An ask of the lowest priority that cannot wait, if it would have to.
fn in_vain(state: &State, stamp: Stamp, admit: &Admit, fresh: u64) -> Option<Extra> {
    let view = state.view(&admit.target)?;
    let mut ask = admit.clone();
    ask.admission_id = format!("vain-{fresh}").into_bytes().into();
    ask.priority = view.policy.priorities.last()?.name.clone();
    ask.deadline = Some(0);
    let ask = Operation::Admit(Box::new(ask));
    let misses = |o: &Outcome| rejected(o, |r| matches!(r, Rejected::Deadline { .. }));
    let mut copy = State::decode(&state.encode()).unwrap();
    let outcome = copy
        .apply(u64::MAX, stamp, std::slice::from_ref(&ask))
        .remove(0);
    misses(&outcome).then_some((ask, misses))
}

/// Answers without the numbers of tickets: an ask in vain uses one up.
fn unnumbered(outcomes: &[Outcome]) -> Vec<Outcome> {
    let mut outcomes = outcomes.to_vec();
    for outcome in &mut outcomes {
        if let Outcome::Admit(AdmitOutcome::Deferred(deferred)) = outcome {
            deferred.ticket = None;
        }
    }
    outcomes
}

fn judge(history: &History, strewn: &[usize]) -> Result<(), TestCaseError> {
    let (entries, _) = history.run();
    let headroom = history
        .policies
        .iter()
        .any(|policy| policy.headroom != Headroom::Off);
    let mut state = State::default();
    let mut fresh = 0;
    let mut strewn = strewn.iter().cycle();
    let mut told = String::new();
    for (place, entry) in entries.iter().enumerate() {
        let stamp = Stamp::from_micros(entry.now);
        let mut after = State::decode(&state.encode()).unwrap();
        after.apply(entry.index, stamp, &entry.batch);
        let mut extras: Vec<Extra> = Vec::new();
        // After a policy in the same entry an extra may be wrong in another way than it is meant to be.
        let changes = |operation: &Operation| {
            matches!(
                operation,
                Operation::PutPolicy(_) | Operation::DeletePolicy(_)
            )
        };
        let steady = !entry.batch.iter().any(changes);
        for (operation, outcome) in entry.batch.iter().zip(&entry.outcomes) {
            fresh += 1;
            let mut possible = match (operation, outcome) {
                (
                    Operation::Admit(admit),
                    Outcome::Admit(AdmitOutcome::Admitted(_) | AdmitOutcome::Deferred(_)),
                ) if steady && !admit.dry_run => {
                    let mut possible = after_ask(admit, fresh);
                    possible.extend(exact_release(&entries, place, admit, outcome));
                    if !headroom {
                        possible.extend(in_vain(&after, stamp, admit, fresh));
                    }
                    possible
                }
                (Operation::Release(release), Outcome::Release(_)) if steady => {
                    after_release(release)
                }
                _ => continue,
            };
            let chosen = strewn.next().copied().unwrap_or(0) % possible.len();
            extras.push(possible.swap_remove(chosen));
        }
        let mut batch = entry.batch.clone();
        batch.extend(extras.iter().map(|(extra, _)| extra.clone()));
        let mut outcomes = state.apply(entry.index, stamp, &batch);
        let of_extras = outcomes.split_off(entry.batch.len());
        told += &tell(entry);
        prop_assert_eq!(
            unnumbered(&outcomes),
            unnumbered(&entry.outcomes),
            "{}",
            told
        );
        for ((extra, holds), outcome) in extras.iter().zip(&of_extras) {
            told += &format!("  extra {extra:?}\n    -> {outcome:?}\n");
            let gone = *outcome == Outcome::Refused(Refusal::TargetUnknown);
            prop_assert!(holds(outcome) || gone, "{}", told);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn what_changes_nothing_changes_no_answer(
        history in history(Scope::Exact, 100),
        strewn in prop::collection::vec(0..64usize, 1..40),
    ) {
        judge(&history, &strewn)?;
    }
}
