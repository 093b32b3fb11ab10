//! What is to be looked at later, the first first.
//!
//! A [checkpoint](crate::checkpoint) takes the notes as of one moment, some at a time; one that is taken off
//! before is written down then. Notes do not change, and later ones stand behind.

use crate::codec::{Canonical, DecodeError, Reader};
use std::collections::VecDeque;

/// Notes of a page.
const PAGE_NOTES: usize = 1024;

/// A queue of notes.
///
/// It stands in pages. One block for all would be copied as a whole each time it outgrew its place, which for
/// some hundred thousand notes takes longer than a thousand operations, and would keep the memory of the most
/// there ever were.
#[derive(Debug)]
pub(crate) struct Notes<T, const PAGE: usize = PAGE_NOTES> {
    /// The first to be taken off first. All but the first and the last have `PAGE` notes; none but the last is
    /// empty.
    pages: VecDeque<VecDeque<T>>,
    len: usize,
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

impl<T, const PAGE: usize> Default for Notes<T, PAGE> {
    fn default() -> Self {
        Notes {
            pages: VecDeque::new(),
            len: 0,
            taking: None,
        }
    }
}

impl<T: Canonical, const PAGE: usize> Notes<T, PAGE> {
    /// Number of notes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first one.
    pub(crate) fn front(&self) -> Option<&T> {
        self.pages.front()?.front()
    }

    /// All, the first first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten()
    }

    /// Puts one behind the others.
    pub(crate) fn push_back(&mut self, note: T) {
        self.len = self.len.saturating_add(1);
        match self.pages.back_mut() {
            Some(page) if page.len() < PAGE => page.push_back(note),
            full => {
                // The first page grows with what it has to hold: most targets have few notes.
                let room = if full.is_some() { PAGE } else { 1 };
                let mut page = VecDeque::with_capacity(room);
                page.push_back(note);
                self.pages.push_back(page);
            }
        }
    }

    /// Takes the first one off.
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let page = self.pages.front_mut()?;
        let note = page.pop_front()?;
        self.len = self.len.saturating_sub(1);
        if page.is_empty() && self.pages.len() > 1 {
            self.pages.pop_front();
        }
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
        for note in behind(&self.pages, taking.taken, PAGE).take(some) {
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

/// All notes but the first `count`, of pages of so many.
fn behind<T>(pages: &VecDeque<VecDeque<T>>, count: usize, page: usize) -> impl Iterator<Item = &T> {
    let first = pages.front().map_or(0, VecDeque::len);
    let (before, notes) = match count.checked_sub(first) {
        None => (0, count),
        Some(beyond) => (
            beyond.div_euclid(page).saturating_add(1),
            beyond.rem_euclid(page),
        ),
    };
    pages.iter().skip(before).flatten().skip(notes)
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

impl<T: Canonical, const PAGE: usize> Canonical for Notes<T, PAGE> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len.put(out);
        self.iter().for_each(|note| note.put(out));
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut notes = Notes::default();
        for _ in 0..from.count()? {
            notes.push_back(T::take(from)?);
        }
        Ok(notes)
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
            let (mut notes, mut twin) = (Notes::<u64, 3>::default(), VecDeque::new());
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
                prop_assert_eq!((notes.len(), notes.front()), (twin.len(), twin.front()));
            }
        }
    }
}
