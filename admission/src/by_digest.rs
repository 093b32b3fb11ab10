//! Records under keyed digests of their names.
//!
//! Ids and tenants come in by the hundred thousand and are asked for at random, so what a look-up costs
//! is the memory it touches: a hash table reads two or three lines where a search tree reads ten. The
//! keys are digests under a secret already, so they need no second hash and nobody can make them
//! collide.
//!
//! The order of a hash table must never show in replicated state. That is why the table is shut in here:
//! records are looked up one by one, listed in order of digest, or all treated alike.
#![expect(
    clippy::disallowed_types,
    reason = "this module is what keeps the table's order from showing"
)]

use crate::checkpoint::Written;
use crate::codec::{Canonical, DecodeError, Reader};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

/// Tables of fewer places are never shrunk.
const SHRINK_PLACES_MIN: usize = 1024;
/// A table is halved when at most one place in this many is in use, so that moving the records is paid
/// for by the removals before.
const SHRINK_PLACES_PER_RECORD: usize = 8;

/// Takes a digest for its own hash.
#[derive(Clone, Copy, Debug, Default)]
struct Digest(u64);

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Digests arrive by `write_u128`; whatever else is hashed one day is at least told apart.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }
}

/// A record that knows which checkpoint has it.
pub(crate) trait Record: Canonical {
    /// The last checkpoint that need not take it.
    fn seen(&mut self) -> &mut Seen;
}

/// Number of a checkpoint. Not part of what a record says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen(u32);

impl PartialEq for Seen {
    fn eq(&self, _: &Seen) -> bool {
        true
    }
}

impl Eq for Seen {}

impl Canonical for Seen {
    fn put(&self, _: &mut Vec<u8>) {}
    fn take(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Seen::default())
    }
}

/// Records by digest. Each stands in a box of its own: growing the table moves pointers, not records.
///
/// A [checkpoint](crate::checkpoint) takes them as of one moment, some at a time. Every change goes through
/// the functions here, which take a record before it changes for the first time.
pub(crate) struct ByDigest<V> {
    records: HashMap<u128, Box<V>, BuildHasherDefault<Digest>>,
    /// Number of the last checkpoint. A record would have to rest for four billion of them to be mistaken.
    checkpoint: u32,
    taking: Option<Box<Taking>>,
}

/// A checkpoint under way.
struct Taking {
    number: u32,
    /// Records of the beginning that may still have to be taken.
    left: Vec<u128>,
    written: Written<u128>,
}

impl<V> Default for ByDigest<V> {
    fn default() -> Self {
        ByDigest {
            records: HashMap::default(),
            checkpoint: 0,
            taking: None,
        }
    }
}

impl<V: fmt::Debug> fmt::Debug for ByDigest<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.sorted()).finish()
    }
}

impl<V> ByDigest<V> {
    /// Number of records.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// One record.
    pub(crate) fn get(&self, digest: u128) -> Option<&V> {
        self.records.get(&digest).map(|record| &**record)
    }

    /// All records, in rising order of digest. Sorts, so not for every operation.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = (u128, &V)> {
        let records = self.records.iter();
        let mut records: Vec<_> = records.map(|(digest, v)| (*digest, &**v)).collect();
        records.sort_unstable_by_key(|(digest, _)| *digest);
        records.into_iter()
    }

    /// True if `holds` holds for every record.
    pub(crate) fn all(&self, mut holds: impl FnMut(u128, &V) -> bool) -> bool {
        let mut records = self.records.iter();
        records.all(|(digest, record)| holds(*digest, record))
    }
}

impl<V: Record> ByDigest<V> {
    /// One record, to be changed.
    pub(crate) fn get_mut(&mut self, digest: u128) -> Option<&mut V> {
        let record = self.records.get_mut(&digest)?;
        if let Some(taking) = &mut self.taking {
            taking.take(digest, &mut **record);
        }
        Some(record)
    }

    /// One record, made if it is not there.
    pub(crate) fn get_or_insert_with(&mut self, digest: u128, new: impl FnOnce() -> V) -> &mut V {
        match self.records.entry(digest) {
            Entry::Occupied(entry) => {
                let record = entry.into_mut();
                if let Some(taking) = &mut self.taking {
                    taking.take(digest, &mut **record);
                }
                record
            }
            Entry::Vacant(entry) => {
                let mut record = Box::new(new());
                *record.seen() = Seen(self.checkpoint);
                entry.insert(record)
            }
        }
    }

    /// Takes a record away.
    pub(crate) fn remove(&mut self, digest: u128) {
        let Some(mut record) = self.records.remove(&digest) else {
            return;
        };
        if let Some(taking) = &mut self.taking {
            taking.take(digest, &mut *record);
        }
        let (records, places) = (self.records.len(), self.records.capacity());
        if places > SHRINK_PLACES_MIN && records.saturating_mul(SHRINK_PLACES_PER_RECORD) < places {
            self.records.shrink_to(records.saturating_mul(2));
        }
    }

    /// Changes all records. What is done to one must not depend on another.
    pub(crate) fn change_each(&mut self, mut change: impl FnMut(&mut V)) {
        for (digest, record) in &mut self.records {
            if let Some(taking) = &mut self.taking {
                taking.take(*digest, &mut **record);
            }
            change(record);
        }
    }

    /// Begins to take all records as they are now. Any other checkpoint under way ends.
    pub(crate) fn begin_checkpoint(&mut self) {
        self.checkpoint = self.checkpoint.wrapping_add(1);
        self.taking = Some(Box::new(Taking {
            number: self.checkpoint,
            left: self.records.keys().copied().collect(),
            written: Written::with_capacity(self.len()),
        }));
    }

    /// Takes some more. `most` is the number of records that may be looked at, and counts down. True if there
    /// are none left.
    pub(crate) fn continue_checkpoint(&mut self, most: &mut usize) -> bool {
        let Some(taking) = &mut self.taking else {
            return true;
        };
        while *most > 0
            && let Some(digest) = taking.left.pop()
        {
            *most = most.saturating_sub(1);
            if let Some(record) = self.records.get_mut(&digest) {
                taking.take(digest, &mut **record);
            }
        }
        taking.left.is_empty()
    }

    /// Ends the checkpoint under way. What was taken is all there was at its beginning if
    /// [`Self::continue_checkpoint`] said so.
    pub(crate) fn end_checkpoint(&mut self) -> Written<u128> {
        let taken = self.taking.take();
        taken.map_or_else(Written::default, |taking| taking.written)
    }
}

impl Taking {
    /// Takes a record, unless that was done or it came later.
    fn take<V: Record>(&mut self, digest: u128, record: &mut V) {
        let seen = record.seen();
        if seen.0 != self.number {
            *seen = Seen(self.number);
            self.written.add(digest, record);
        }
    }
}

impl<V: Record> Canonical for ByDigest<V> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for (digest, record) in self.sorted() {
            digest.put(out);
            record.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut records = ByDigest::default();
        let mut last = None;
        for _ in 0..from.count()? {
            let digest = u128::take(from)?;
            if last.is_some_and(|last| last >= digest) {
                return Err(from.expected("rising order"));
            }
            last = Some(digest);
            let record = V::take(from)?;
            records.get_or_insert_with(digest, || record);
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Default)]
    struct Number {
        value: u64,
        seen: Seen,
    }

    crate::codec::canonical!(Number { value, seen });

    impl Record for Number {
        fn seen(&mut self) -> &mut Seen {
            &mut self.seen
        }
    }

    impl From<u64> for Number {
        fn from(value: u64) -> Self {
            let seen = Seen::default();
            Number { value, seen }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u128, u64),
        Change(u128, u64),
        Remove(u128),
        ChangeEach(u64),
        Begin,
        Continue(usize),
    }

    /// Digests that differ in their upper half only fall into one place of the table.
    fn digest() -> impl Strategy<Value = u128> {
        (0..9u64, 0..40u64).prop_map(|(high, low)| (u128::from(high) << 64) | u128::from(low))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (digest(), any::<u64>()).prop_map(|(digest, value)| Step::Insert(digest, value)),
            6 => (digest(), any::<u64>()).prop_map(|(digest, by)| Step::Change(digest, by)),
            6 => digest().prop_map(Step::Remove),
            1 => any::<u64>().prop_map(Step::ChangeEach),
            2 => Just(Step::Begin),
            4 => (0..40usize).prop_map(Step::Continue),
        ]
    }

    fn bytes(of: &impl Canonical) -> Vec<u8> {
        let mut bytes = Vec::new();
        of.put(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn is_an_ordered_map_and_a_checkpoint_what_it_was(
            steps in prop::collection::vec(step(), 1..400),
        ) {
            let (mut table, mut twin) = (ByDigest::<Number>::default(), BTreeMap::new());
            let mut begun = None;
            for step in steps {
                match step {
                    Step::Insert(digest, value) => {
                        let made = table.get_or_insert_with(digest, || Number::from(value));
                        prop_assert_eq!(made.value, *twin.entry(digest).or_insert(value));
                        made.value ^= 1;
                        twin.entry(digest).and_modify(|value| *value ^= 1);
                    }
                    Step::Change(digest, by) => {
                        let found = table.get_mut(digest).map(|number| number.value ^= by);
                        prop_assert_eq!(found, twin.get_mut(&digest).map(|value| *value ^= by));
                    }
                    Step::Remove(digest) => {
                        table.remove(digest);
                        twin.remove(&digest);
                    }
                    Step::ChangeEach(by) => {
                        table.change_each(|number| number.value ^= by);
                        twin.values_mut().for_each(|value| *value ^= by);
                    }
                    Step::Begin => {
                        table.begin_checkpoint();
                        begun = Some(bytes(&twin));
                    }
                    Step::Continue(mut most) => {
                        if table.continue_checkpoint(&mut most)
                            && let Some(begun) = begun.take()
                        {
                            prop_assert!(table.continue_checkpoint(&mut most));
                            let mut taken = Vec::new();
                            table.end_checkpoint().put(&mut taken);
                            prop_assert_eq!(taken, begun);
                        }
                    }
                }
                prop_assert_eq!(table.len(), twin.len());
            }
            prop_assert_eq!(bytes(&table), bytes(&twin));
        }
    }

    #[test]
    fn memory_is_given_back() {
        let mut table = ByDigest::default();
        let digest = |number: u64| u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for number in 0..100_000u64 {
            table.get_or_insert_with(digest(number), Number::default);
        }
        for number in 0..99_000u64 {
            table.remove(digest(number));
        }
        assert_eq!(table.len(), 1_000);
        let places = table.records.capacity();
        assert!(places <= 8 * 1_024, "{places} places");
    }
}
