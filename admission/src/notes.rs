//! What is to be looked at later, the first first.
//!
//! A [checkpoint](crate::checkpoint) takes the notes as of one moment, some at a time; one that is taken off
//! before is written down then. Notes do not change, and later ones stand behind.

use crate::codec::{Canonical, DecodeError, Reader};
use std::collections::VecDeque;

/// A queue of notes.
#[derive(Debug)]
pub(crate) struct Notes<T> {
    notes: VecDeque<T>,
    taking: Option<Box<Taking>>,
}

/// A checkpoint under way.
#[derive(Debug)]
struct Taking {
    /// Notes at the front that were taken.
    taken: usize,
    /// Notes behind them that are still to be taken.
    left: usize,
    written: Vec<u8>,
}

impl<T> Default for Notes<T> {
    fn default() -> Self {
        Notes {
            notes: VecDeque::new(),
            taking: None,
        }
    }
}

impl<T: Canonical> Notes<T> {
    /// Number of notes.
    pub(crate) fn len(&self) -> usize {
        self.notes.len()
    }

    /// The first one.
    pub(crate) fn front(&self) -> Option<&T> {
        self.notes.front()
    }

    /// All, the first first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.notes.iter()
    }

    /// Puts one behind the others.
    pub(crate) fn push_back(&mut self, note: T) {
        self.notes.push_back(note);
    }

    /// Takes the first one off.
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let note = self.notes.pop_front()?;
        if let Some(taking) = &mut self.taking {
            match taking.taken.checked_sub(1) {
                Some(taken) => taking.taken = taken,
                None => taking.take(&note),
            }
        }
        Some(note)
    }

    /// Begins to take all notes there are now. Any other checkpoint under way ends.
    pub(crate) fn begin_checkpoint(&mut self) {
        let mut written = Vec::with_capacity(self.len().saturating_mul(size_of::<T>()));
        self.len().put(&mut written);
        self.taking = Some(Box::new(Taking {
            taken: 0,
            left: self.len(),
            written,
        }));
    }

    /// Takes some more. `left` is the number of notes that may be taken, and counts down. True if there are
    /// none left to take.
    pub(crate) fn continue_checkpoint(&mut self, left: &mut usize) -> bool {
        let Some(taking) = &mut self.taking else {
            return true;
        };
        let some = (*left).min(taking.left);
        for note in self.notes.range(taking.taken..).take(some) {
            taking.take(note);
            taking.taken = taking.taken.saturating_add(1);
        }
        *left = left.saturating_sub(some);
        taking.left == 0
    }

    /// Ends the checkpoint under way. What was taken is all there was at its beginning if
    /// [`Self::continue_checkpoint`] said so.
    pub(crate) fn end_checkpoint(&mut self) -> Vec<u8> {
        let taken = self.taking.take();
        taken.map_or_else(Vec::new, |taking| taking.written)
    }
}

impl Taking {
    /// Takes the next one, if it was there at the beginning.
    fn take(&mut self, note: &impl Canonical) {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            note.put(&mut self.written);
        }
    }
}

impl<T: Canonical> Canonical for Notes<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.notes.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Notes {
            notes: Canonical::take(from)?,
            taking: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        Pop,
        Begin,
        Continue(usize),
    }

    proptest! {
        #[test]
        fn are_a_queue_and_checkpoints_are_what_it_was(
            steps in prop::collection::vec(
                prop_oneof![
                    6 => any::<u64>().prop_map(Step::Push),
                    5 => Just(Step::Pop),
                    1 => Just(Step::Begin),
                    3 => (0..9usize).prop_map(Step::Continue),
                ],
                1..300,
            ),
        ) {
            let (mut notes, mut twin) = (Notes::default(), VecDeque::new());
            let mut begun = None;
            for step in steps {
                match step {
                    Step::Push(note) => {
                        notes.push_back(note);
                        twin.push_back(note);
                    }
                    Step::Pop => prop_assert_eq!(notes.pop_front(), twin.pop_front()),
                    Step::Begin => {
                        notes.begin_checkpoint();
                        let mut bytes = Vec::new();
                        twin.put(&mut bytes);
                        begun = Some(bytes);
                    }
                    Step::Continue(mut some) => {
                        if notes.continue_checkpoint(&mut some) && let Some(begun) = begun.take() {
                            prop_assert_eq!(notes.end_checkpoint(), begun);
                        }
                    }
                }
                prop_assert!(notes.iter().eq(&twin));
            }
        }
    }
}
