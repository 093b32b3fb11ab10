//! A checkpoint is the state as it was when it began, whatever was applied until it was done.

use crate::history::{Scope, cases, history};
use proptest::prelude::*;
use weir_admission::{CheckpointStep, Stamp, State};

proptest! {
    #![proptest_config(cases(96))]

    /// Each entry may begin a checkpoint, and takes a few records for the one under way.
    #[test]
    fn a_checkpoint_is_the_state_at_its_beginning(
        history in history(Scope::Everything, 100),
        plan in prop::collection::vec((0..8u8, 1..12usize), 1..20),
    ) {
        let (entries, _) = history.run();
        let mut state = State::default();
        let mut begun = None;
        for (entry, (roll, records)) in entries.iter().zip(plan.iter().cycle()) {
            match roll {
                0 if begun.is_none() => {
                    state.begin_checkpoint();
                    begun = Some(state.encode());
                }
                1 => {
                    state.abandon_checkpoint();
                    begun = None;
                }
                _ => {}
            }
            state.apply(entry.index, Stamp::from_micros(entry.now), &entry.batch);
            match state.continue_checkpoint(*records) {
                CheckpointStep::UnderWay => prop_assert!(begun.is_some()),
                CheckpointStep::Done(checkpoint) => {
                    prop_assert!(Some(checkpoint.encode()) == begun.take());
                }
                CheckpointStep::NotBegun => prop_assert!(begun.is_none()),
            }
        }
        if let Some(begun) = begun {
            let mut step = state.continue_checkpoint(1);
            while matches!(step, CheckpointStep::UnderWay) {
                step = state.continue_checkpoint(1);
            }
            let CheckpointStep::Done(checkpoint) = step else {
                panic!("{step:?}");
            };
            prop_assert!(checkpoint.encode() == begun);
        }
    }
}
