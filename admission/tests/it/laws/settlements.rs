//! What a settlement tells is what the answers say: whose grant it was, and what it had been charged.

use crate::history::{Entry, History, Scope, Step, cases, history, tell};
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_admission::{
    Admit, AdmitOutcome, Amounts, CallOutcome, CancelOutcome, DimensionName, GrantId, Operation,
    Outcome, PriorityName, Rejected, ReleaseOutcome, ReportOutcome, Settlement, Stamp, State,
    TargetName, TenantName,
};

/// Grants with whose they are, by target, as the answers told them.
#[derive(Default)]
struct Book(BTreeMap<(TargetName, GrantId), Known>);

struct Known {
    whose: (TenantName, PriorityName),
    /// Of which admission, and which attempt.
    of: (Box<[u8]>, u64),
    charged: Amounts,
}

/// Every operation in an entry of its own: a settlement is about grants of earlier entries.
fn one_by_one(history: History) -> History {
    let alone = |step: Step| match step {
        Step::Wait(wait) => vec![Step::Wait(wait)],
        Step::Batch(acts) => acts.into_iter().map(|act| Step::Batch(vec![act])).collect(),
    };
    let steps = history.steps.into_iter().flat_map(alone).collect();
    History { steps, ..history }
}

/// The change from what was charged to what was used; an unnamed dimension stays.
fn change(
    charged: &Amounts,
    used: impl Fn(&DimensionName, u64) -> u64,
) -> Vec<(DimensionName, i64)> {
    let changes = charged.iter().map(|(dimension, units)| {
        let used = used(dimension, units);
        (dimension.clone(), used as i64 - units as i64)
    });
    changes.filter(|(_, change)| *change != 0).collect()
}

fn sorted<T: Ord + Clone>(told: &[(DimensionName, T)]) -> Vec<(DimensionName, T)> {
    let mut told = told.to_vec();
    told.sort();
    told
}

/// Whose a grant was, what it was charged, and how its charge changes.
type Expected = (
    (TenantName, PriorityName),
    Amounts,
    Vec<(DimensionName, i64)>,
);

/// The change to what was used; a dimension that is not named keeps its charge.
fn used(charged: &Amounts, actual: &Amounts) -> Vec<(DimensionName, i64)> {
    change(charged, |dimension, units| {
        actual.get(dimension).unwrap_or(units)
    })
}

impl Book {
    fn judge(&mut self, told: Option<Settlement>, entry: &Entry) -> Result<(), TestCaseError> {
        let Some((operation, outcome)) = entry.batch.first().zip(entry.outcomes.first()) else {
            return Ok(());
        };
        let own = GrantId {
            index: entry.index,
            offset: 0,
        };
        let expected = match (operation, outcome) {
            (Operation::Admit(ask), Outcome::Admit(decided)) => {
                self.decided(told.is_some(), ask, decided, own)
            }
            _ => self.ended(told.as_ref(), operation, outcome),
        };
        let Some((whose, charged, change)) = expected else {
            return Ok(());
        };
        let told = told.expect("what ends a grant settles it");
        prop_assert_eq!((&told.tenant, &told.priority), (&whose.0, &whose.1));
        let charged = charged.iter().filter(|(_, units)| *units > 0);
        let charged: Vec<_> = charged.map(|(name, units)| (name.clone(), units)).collect();
        prop_assert_eq!(sorted(&told.charged), sorted(&charged));
        prop_assert_eq!(sorted(&told.change), change);
        Ok(())
    }

    /// An ask that is decided anew takes the grant of its attempt back.
    fn decided(
        &mut self,
        told: bool,
        ask: &Admit,
        decided: &AdmitOutcome,
        own: GrantId,
    ) -> Option<Expected> {
        let anew = match decided {
            AdmitOutcome::Admitted(admitted) => admitted.grant == Some(own),
            AdmitOutcome::Deferred(_) => true,
            AdmitOutcome::Rejected(why) => !matches!(why, Rejected::Stale | Rejected::IdConflict),
        };
        let of = (ask.admission_id.clone(), ask.attempt);
        let undone = (anew && told).then(|| {
            let known = self.of_attempt(&ask.target, &ask.tenant, &of);
            let change = change(&known.charged, |_, _| 0);
            (known.whose, known.charged, change)
        });
        if let AdmitOutcome::Admitted(admitted) = decided
            && anew
        {
            let known = Known {
                whose: (ask.tenant.clone(), ask.priority.clone()),
                of,
                charged: admitted.charged.clone(),
            };
            self.0.insert((ask.target.clone(), own), known);
        }
        undone
    }

    fn ended(
        &mut self,
        told: Option<&Settlement>,
        operation: &Operation,
        outcome: &Outcome,
    ) -> Option<Expected> {
        match (operation, outcome) {
            (Operation::Release(release), Outcome::Release(ReleaseOutcome::Applied)) => {
                let known = self.0.remove(&(release.target.clone(), release.grant));
                let known = known.expect("only what was granted is released");
                let expected = match release.outcome {
                    CallOutcome::Ok | CallOutcome::Failed => used(&known.charged, &release.actual),
                    CallOutcome::NotSent => change(&known.charged, |_, _| 0),
                    // Whether a 429 counts is the policy's; the settlement of the state says so.
                    CallOutcome::Throttled { .. } => sorted(&told.expect("a live grant").change),
                };
                Some((known.whose, known.charged, expected))
            }
            (Operation::Cancel(cancel), Outcome::Cancel(CancelOutcome::GrantRefunded)) => {
                let of = (cancel.admission_id.clone(), cancel.attempt);
                let known = self.of_attempt(&cancel.target, &cancel.tenant, &of);
                let change = change(&known.charged, |_, _| 0);
                Some((known.whose, known.charged, change))
            }
            // Of an older attempt nothing is known any more, and nothing is told.
            (Operation::Report(report), Outcome::Report(ReportOutcome::Settled))
                if told.is_some() =>
            {
                let of = (report.admission_id.clone(), report.attempt);
                let known = self.of_attempt(&report.target, &report.tenant, &of);
                let change = used(&known.charged, &report.actual);
                Some((known.whose, known.charged, change))
            }
            _ => None,
        }
    }

    fn of_attempt(
        &mut self,
        target: &TargetName,
        tenant: &TenantName,
        attempt: &(Box<[u8]>, u64),
    ) -> Known {
        let newest = self.0.iter().rev();
        let found = newest.filter(|((on, _), known)| {
            on == target && known.whose.0 == *tenant && known.of == *attempt
        });
        let key = found.map(|(key, _)| key.clone()).next();
        self.0
            .remove(&key.expect("only what was granted is settled"))
            .expect("found")
    }
}

proptest! {
    #![proptest_config(cases(192))]

    #[test]
    fn a_settlement_tells_whose_the_grant_was_and_what_changes(
        history in history(Scope::Exact, 120).prop_map(one_by_one)
    ) {
        let (entries, _) = history.run();
        let (mut state, mut book) = (State::default(), Book::default());
        for entry in &entries {
            let told = state.settlements(&entry.batch).into_iter().next().flatten();
            state.apply(entry.index, Stamp::from_micros(entry.now), &entry.batch);
            book.judge(told, entry).map_err(|error| {
                TestCaseError::fail(format!("{error}\n{}", tell(entry)))
            })?;
        }
    }
}
