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

/// Records by digest. Each stands in a box of its own: growing the table moves pointers, not records.
#[derive(PartialEq, Eq)]
pub(crate) struct ByDigest<V>(HashMap<u128, Box<V>, BuildHasherDefault<Digest>>);

impl<V> Default for ByDigest<V> {
    fn default() -> Self {
        ByDigest(HashMap::default())
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
        self.0.len()
    }

    /// One record.
    pub(crate) fn get(&self, digest: u128) -> Option<&V> {
        self.0.get(&digest).map(|record| &**record)
    }

    /// One record, to be changed.
    pub(crate) fn get_mut(&mut self, digest: u128) -> Option<&mut V> {
        self.0.get_mut(&digest).map(|record| &mut **record)
    }

    /// One record, made if it is not there.
    pub(crate) fn get_or_insert_with(&mut self, digest: u128, new: impl FnOnce() -> V) -> &mut V {
        match self.0.entry(digest) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Box::new(new())),
        }
    }

    /// Takes a record away.
    pub(crate) fn remove(&mut self, digest: u128) {
        if self.0.remove(&digest).is_none() {
            return;
        }
        let (records, places) = (self.0.len(), self.0.capacity());
        if places > SHRINK_PLACES_MIN && records.saturating_mul(SHRINK_PLACES_PER_RECORD) < places {
            self.0.shrink_to(records.saturating_mul(2));
        }
    }

    /// All records, in rising order of digest. Sorts, so not for every operation.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = (u128, &V)> {
        let mut records: Vec<_> = self.0.iter().map(|(digest, v)| (*digest, &**v)).collect();
        records.sort_unstable_by_key(|(digest, _)| *digest);
        records.into_iter()
    }

    /// True if `holds` holds for every record.
    pub(crate) fn all(&self, mut holds: impl FnMut(u128, &V) -> bool) -> bool {
        self.0.iter().all(|(digest, record)| holds(*digest, record))
    }

    /// Changes all records. What is done to one must not depend on another.
    pub(crate) fn change_each(&mut self, mut change: impl FnMut(&mut V)) {
        for record in self.0.values_mut() {
            change(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Digests that differ in their upper half only fall into one place of the table.
        #[test]
        fn answers_like_an_ordered_map(steps in prop::collection::vec((0..3u8, 0..9u64, 0..40u64), 1..300)) {
            let (mut table, mut twin) = (ByDigest::default(), BTreeMap::new());
            for (value, (step, high, low)) in steps.into_iter().enumerate() {
                let digest = (u128::from(high) << 64) | u128::from(low);
                match step {
                    0 => {
                        let made = *table.get_or_insert_with(digest, || value);
                        prop_assert_eq!(made, *twin.entry(digest).or_insert(value));
                    }
                    1 => {
                        table.remove(digest);
                        twin.remove(&digest);
                    }
                    _ => prop_assert_eq!(table.get(digest), twin.get(&digest)),
                }
                prop_assert_eq!(table.len(), twin.len());
            }
            let sorted: Vec<_> = table.sorted().collect();
            prop_assert_eq!(sorted, twin.iter().map(|(k, v)| (*k, v)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn memory_is_given_back() {
        let mut table = ByDigest::default();
        for digest in 0..100_000u64 {
            let digest = u128::from(digest.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            table.get_or_insert_with(digest, || 0u8);
        }
        for digest in 0..99_000u64 {
            table.remove(u128::from(digest.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        }
        assert_eq!(table.len(), 1_000);
        let places = table.0.capacity();
        assert!(places <= 8 * 1_024, "{places} places");
    }
}
