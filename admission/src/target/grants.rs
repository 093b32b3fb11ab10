//! Grants by name.
//!
//! A grant is named by the log entry that gave it and its place in it. Grants come in that order, most of
//! them many to an entry, and those of one entry end at about the same time: so they stand together, entry by
//! entry.
//!
//! A [checkpoint](crate::checkpoint) takes them as of one moment, a few entries at a time. Every change goes
//! through the functions here, which take an entry before it changes for the first time.

use super::{Grant, GrantRecord};
use crate::GrantId;
use crate::checkpoint::Written;
use crate::codec::{Canonical, DecodeError, Reader};
use std::collections::{BTreeMap, BTreeSet};

/// What is remembered of grants, by their names.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// Grants by log entry, each with its offset, in rising order. No list is empty.
    entries: BTreeMap<u64, Entry>,
    count: usize,
    taking: Option<Box<Taking>>,
}

type Entry = Vec<(u32, GrantRecord)>;

/// A checkpoint under way.
#[derive(Debug)]
struct Taking {
    /// Entries before this one were taken.
    next: u64,
    /// The last entry of the beginning.
    last: u64,
    /// Entries from `next` on that were taken early, or came later.
    early: BTreeSet<u64>,
    written: Written<GrantId>,
}

impl Grants {
    /// Number of grants.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// True if the grant is remembered.
    pub(crate) fn contains(&self, id: GrantId) -> bool {
        self.get(id).is_some()
    }

    /// What is remembered of one.
    pub(crate) fn get(&self, id: GrantId) -> Option<&GrantRecord> {
        let entry = self.entries.get(&id.index)?;
        let place = find(entry, id.offset).ok()?;
        entry.get(place).map(|(_, record)| record)
    }

    /// One that counts.
    pub(crate) fn live(&self, id: GrantId) -> Option<&Grant> {
        self.get(id).and_then(GrantRecord::live)
    }

    /// What is remembered of one, to be changed.
    pub(crate) fn get_mut(&mut self, id: GrantId) -> Option<&mut GrantRecord> {
        let entry = self.entries.get_mut(&id.index)?;
        let place = find(entry, id.offset).ok()?;
        if let Some(taking) = &mut self.taking {
            taking.take_early(id.index, entry);
        }
        entry.get_mut(place).map(|(_, record)| record)
    }

    /// Remembers a grant, instead of any of its name.
    pub(crate) fn insert(&mut self, id: GrantId, record: GrantRecord) {
        // Where little is asked an entry gives one grant, and has no room for others.
        let entry = self.entries.entry(id.index);
        let entry = entry.or_insert_with(|| Vec::with_capacity(1));
        if let Some(taking) = &mut self.taking {
            taking.take_early(id.index, entry);
        }
        match find(entry, id.offset) {
            Ok(place) => {
                if let Some((_, old)) = entry.get_mut(place) {
                    *old = record;
                }
            }
            Err(place) => {
                entry.insert(place, (id.offset, record));
                self.count = self.count.saturating_add(1);
            }
        }
    }

    /// Forgets a grant.
    pub(crate) fn remove(&mut self, id: GrantId) -> Option<GrantRecord> {
        let entry = self.entries.get_mut(&id.index)?;
        let place = find(entry, id.offset).ok()?;
        if let Some(taking) = &mut self.taking {
            taking.take_early(id.index, entry);
        }
        let (_, record) = entry.remove(place);
        self.count = self.count.saturating_sub(1);
        if entry.is_empty() {
            self.entries.remove(&id.index);
        } else if entry.len() <= entry.capacity() / 4 {
            // A few that are extended again and again must not hold the room of all others.
            entry.shrink_to_fit();
        }
        Some(record)
    }

    /// All, in rising order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (GrantId, &GrantRecord)> {
        let entries = self.entries.iter();
        entries.flat_map(|(index, entry)| {
            let id = |offset| GrantId {
                index: *index,
                offset,
            };
            entry
                .iter()
                .map(move |(offset, record)| (id(*offset), record))
        })
    }

    /// Changes all.
    pub(crate) fn change_each(&mut self, mut change: impl FnMut(&mut GrantRecord)) {
        for (index, entry) in &mut self.entries {
            if let Some(taking) = &mut self.taking {
                taking.take_early(*index, entry);
            }
            for (_, record) in entry {
                change(record);
            }
        }
    }

    /// Begins to take all grants as they are now. Any other checkpoint under way ends.
    pub(crate) fn begin_checkpoint(&mut self) {
        let last = self.entries.last_key_value();
        self.taking = last.map(|(last, _)| {
            Box::new(Taking {
                next: 0,
                last: *last,
                early: BTreeSet::new(),
                written: Written::with_capacity(self.count),
            })
        });
    }

    /// Takes some more. `most` is the number of grants that may be taken, and counts down; an entry is taken
    /// whole. True if there are none left.
    pub(crate) fn continue_checkpoint(&mut self, most: &mut usize) -> bool {
        let Some(taking) = &mut self.taking else {
            return true;
        };
        for (index, entry) in self.entries.range(taking.next..) {
            if *index > taking.last {
                // What stands behind came later.
                break;
            }
            if *most == 0 {
                taking.next = *index;
                return false;
            }
            if !taking.early.remove(index) {
                taking.take(*index, entry);
            }
            *most = most.saturating_sub(entry.len());
        }
        // No entry is to come, whatever its number.
        (taking.next, taking.last) = (1, 0);
        true
    }

    /// Ends the checkpoint under way. What was taken is all there was at its beginning if
    /// [`Self::continue_checkpoint`] said so.
    pub(crate) fn end_checkpoint(&mut self) -> Written<GrantId> {
        let taken = self.taking.take();
        taken.map_or_else(Written::default, |taking| taking.written)
    }
}

impl Taking {
    fn take(&mut self, index: u64, entry: &Entry) {
        for (offset, record) in entry {
            let offset = *offset;
            self.written.add(GrantId { index, offset }, record);
        }
    }

    /// Takes an entry that is about to change, if its turn is still to come.
    fn take_early(&mut self, index: u64, entry: &Entry) {
        let to_come = (self.next..=self.last).contains(&index);
        if to_come && self.early.insert(index) {
            self.take(index, entry);
        }
    }
}

/// Place of a grant in its entry: `Err` where it would be. What comes last is what was given last.
fn find(entry: &[(u32, GrantRecord)], offset: u32) -> Result<usize, usize> {
    match entry.last() {
        Some((last, _)) if *last < offset => Err(entry.len()),
        Some(_) | None => entry.binary_search_by_key(&offset, |(offset, _)| *offset),
    }
}

impl Canonical for Grants {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for (id, record) in self.iter() {
            id.put(out);
            record.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut grants = Grants::default();
        let mut last = None;
        for _ in 0..from.count()? {
            let id = GrantId::take(from)?;
            if last.is_some_and(|last| last >= id) {
                return Err(from.expected("rising order"));
            }
            last = Some(id);
            grants.insert(id, GrantRecord::take(from)?);
        }
        Ok(grants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(GrantId, u64),
        End(GrantId),
        Remove(GrantId),
        ChangeEach(u64),
        Begin,
        Continue(usize),
    }

    fn id() -> impl Strategy<Value = GrantId> {
        (0..13u64, 0..9u32).prop_map(|(index, offset)| GrantId {
            index: if index == 12 { u64::MAX } else { index },
            offset,
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            9 => (id(), any::<u64>()).prop_map(|(id, owner)| Step::Insert(id, owner)),
            6 => id().prop_map(Step::End),
            6 => id().prop_map(Step::Remove),
            1 => any::<u64>().prop_map(Step::ChangeEach),
            2 => Just(Step::Begin),
            4 => (0..20usize).prop_map(Step::Continue),
        ]
    }

    fn ended(owner: u64) -> GrantRecord {
        let (admission, expired) = (u128::from(owner), false);
        GrantRecord::Ended {
            admission,
            owner,
            expired,
        }
    }

    fn own(record: &mut GrantRecord, by: u64) {
        let owner = record.owner() ^ by;
        *record = ended(owner);
    }

    fn bytes(of: &impl Canonical) -> Vec<u8> {
        let mut bytes = Vec::new();
        of.put(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn are_an_ordered_map_and_a_checkpoint_what_it_was(
            steps in prop::collection::vec(step(), 1..300),
        ) {
            let (mut grants, mut twin) = (Grants::default(), BTreeMap::new());
            let mut begun = None;
            for step in steps {
                match step {
                    Step::Insert(id, owner) => {
                        grants.insert(id, ended(owner));
                        twin.insert(id, ended(owner));
                    }
                    Step::End(id) => {
                        let found = grants.get_mut(id).map(|record| own(record, 1));
                        prop_assert_eq!(found, twin.get_mut(&id).map(|record| own(record, 1)));
                    }
                    Step::Remove(id) => prop_assert_eq!(grants.remove(id), twin.remove(&id)),
                    Step::ChangeEach(by) => {
                        grants.change_each(|record| own(record, by));
                        twin.values_mut().for_each(|record| own(record, by));
                    }
                    Step::Begin => {
                        grants.begin_checkpoint();
                        begun = Some(bytes(&twin));
                    }
                    Step::Continue(mut most) => {
                        if grants.continue_checkpoint(&mut most)
                            && let Some(begun) = begun.take()
                        {
                            prop_assert!(grants.continue_checkpoint(&mut most));
                            let mut taken = Vec::new();
                            grants.end_checkpoint().put(&mut taken);
                            prop_assert_eq!(taken, begun);
                        }
                    }
                }
                prop_assert_eq!(grants.len(), twin.len());
                prop_assert!(twin.iter().all(|(id, record)| grants.get(*id) == Some(record)));
            }
            prop_assert_eq!(bytes(&grants), bytes(&twin));
        }
    }

    /// One of every 32 grants lives on: the others' room must not.
    #[test]
    fn memory_is_given_back() {
        let mut grants = Grants::default();
        for index in 0..100u64 {
            for offset in 0..256 {
                grants.insert(GrantId { index, offset }, ended(index));
            }
            for offset in (0..256).filter(|offset| offset % 32 != 0) {
                grants.remove(GrantId { index, offset });
            }
        }
        assert_eq!(grants.len(), 800);
        let room: usize = grants.entries.values().map(Vec::capacity).sum();
        assert!(room <= 4 * grants.len(), "{room} places");
    }
}
