//! The same log gives the same bytes; and how a leader cuts operations into entries decides nothing.

use super::{NO_GRANT, look};
use crate::history::{Entry, Scope, TARGETS, cases, history, target, tell};
use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_admission::{AdmitOutcome, GrantId, Operation, Outcome, Stamp, State};

/// Operations once more on a new state, in the same entries or each in one of its own. Grants are renamed
/// on the way: they are named after the place of their ask in the first run.
struct Rerun {
    state: State,
    index: u64,
    names: BTreeMap<GrantId, GrantId>,
}

impl Rerun {
    fn of(entries: &[Entry], split: bool) -> (Vec<Outcome>, State) {
        let mut rerun = Rerun {
            state: State::default(),
            index: 0,
            names: BTreeMap::new(),
        };
        let mut outcomes = Vec::new();
        for entry in entries {
            let stamp = Stamp::from_micros(entry.now);
            // Every target is looked at, however many entries there are.
            let looks: Vec<Operation> = (0..TARGETS).map(|place| look(&target(place))).collect();
            rerun.apply(stamp, &looks);
            let places = (0..).map(|offset| GrantId {
                index: entry.index,
                offset,
            });
            let batch: Vec<_> = places.zip(entry.batch.iter().cloned()).collect();
            if split {
                for one in batch {
                    outcomes.extend(rerun.named(stamp, &[one]));
                }
            } else {
                outcomes.extend(rerun.named(stamp, &batch));
            }
        }
        (outcomes, rerun.state)
    }

    fn apply(&mut self, stamp: Stamp, batch: &[Operation]) -> Vec<Outcome> {
        self.index += 1;
        self.state.apply(self.index, stamp, batch)
    }

    fn named(&mut self, stamp: Stamp, batch: &[(GrantId, Operation)]) -> Vec<Outcome> {
        let index = self.index + 1;
        for (offset, (place, _)) in (0..).zip(batch) {
            self.names.insert(*place, GrantId { index, offset });
        }
        let renamed = |operation: &Operation| {
            let mut operation = operation.clone();
            match &mut operation {
                Operation::Release(release) => {
                    release.grant = *self.names.get(&release.grant).unwrap_or(&NO_GRANT);
                }
                Operation::Extend(extend) => {
                    extend.grant = *self.names.get(&extend.grant).unwrap_or(&NO_GRANT);
                }
                _ => {}
            }
            operation
        };
        let operations: Vec<Operation> = batch.iter().map(|(_, op)| renamed(op)).collect();
        let mut outcomes = self.apply(stamp, &operations);
        for outcome in &mut outcomes {
            if let Outcome::Admit(AdmitOutcome::Admitted(admitted)) = outcome
                && let Some(grant) = admitted.grant
            {
                let named = self.names.iter().find(|(_, now)| **now == grant);
                admitted.grant = named.map(|(place, _)| *place);
            }
        }
        outcomes
    }
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn the_same_log_gives_the_same_bytes(history in history(Scope::Everything, 100)) {
        let (entries, state) = history.run();
        let mut again = State::default();
        for entry in &entries {
            let stamp = Stamp::from_micros(entry.now);
            let outcomes = again.apply(entry.index, stamp, &entry.batch);
            prop_assert_eq!(&outcomes, &entry.outcomes, "{}", tell(entry));
        }
        prop_assert!(again.encode() == state.encode());
    }

    #[test]
    fn the_cut_into_entries_decides_nothing(
        history in history(Scope::Everything, 100),
        seed in any::<prop::sample::Index>(),
    ) {
        let (mut entries, _) = history.run();
        // A seed changes what names stand for, wherever it comes.
        entries[0].batch[0] = look(&target(0));
        let mut operations: Vec<_> = entries.iter_mut().flat_map(|entry| &mut entry.batch).collect();
        let place = seed.index(operations.len());
        *operations[place] = Operation::Seed([9; 16]);
        let (joined, one) = Rerun::of(&entries, false);
        let (split, other) = Rerun::of(&entries, true);
        prop_assert_eq!(joined, split);
        for place in 0..TARGETS {
            prop_assert_eq!(one.view(&target(place)), other.view(&target(place)));
        }
    }
}
