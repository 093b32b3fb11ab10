//! Checkpoints: the canonical bytes of a state as of one moment, written while it goes on changing.
//!
//! Writing down half a gibibyte takes a second, and for so long nothing could be decided. So a checkpoint only
//! begins at its moment. Then it takes some records at a time, and between that entries are applied; who changes
//! or removes a record that was not taken yet takes it first ("copy on update": M. Vaz Salles and others, "An
//! Evaluation of Checkpoint Recovery for Massively Multiplayer Online Games", 2009, by record and not by page).
//! Each record is written once, as it would be anyway.
//!
//! Records are taken in any order and sorted at the end, for which the state is needed no more.

use crate::codec::Canonical;

/// Bytes of a piece. One block for all would stop everything each time it outgrew its place.
const PIECE_BYTES: usize = 256 << 10;

/// Records that were written down, by key.
#[derive(Debug)]
pub(crate) struct Written<K> {
    pieces: Vec<Vec<u8>>,
    places: Vec<Place<K>>,
}

/// Where a record stands.
#[derive(Debug)]
struct Place<K> {
    key: K,
    piece: u32,
    from: u32,
    to: u32,
}

impl<K> Default for Written<K> {
    fn default() -> Self {
        Written {
            pieces: Vec::new(),
            places: Vec::new(),
        }
    }
}

impl<K: Copy + Ord + Canonical> Written<K> {
    /// Room for so many records.
    pub(crate) fn with_capacity(records: usize) -> Written<K> {
        Written {
            pieces: Vec::new(),
            places: Vec::with_capacity(records),
        }
    }

    /// Writes one record down.
    pub(crate) fn add(&mut self, key: K, value: &impl Canonical) {
        if self
            .pieces
            .last()
            .is_none_or(|piece| piece.len() >= PIECE_BYTES)
        {
            // The last record of a piece goes beyond.
            let room = PIECE_BYTES.saturating_add(PIECE_BYTES / 8);
            self.pieces.push(Vec::with_capacity(room));
        }
        let piece = count(self.pieces.len().saturating_sub(1));
        if let Some(bytes) = self.pieces.last_mut() {
            let from = count(bytes.len());
            value.put(bytes);
            let to = count(bytes.len());
            self.places.push(Place {
                key,
                piece,
                from,
                to,
            });
        }
    }

    /// Appends all records as a map has them.
    pub(crate) fn put(mut self, out: &mut Vec<u8>) {
        self.places.sort_unstable_by_key(|place| place.key);
        self.places.len().put(out);
        for place in &self.places {
            place.key.put(out);
            let piece = self.pieces.get(place.piece as usize);
            let bytes = piece.and_then(|piece| piece.get(place.from as usize..place.to as usize));
            out.extend_from_slice(bytes.unwrap_or_default());
        }
    }

    /// Bytes that [`Self::put`] appends, a little too many.
    pub(crate) fn size(&self) -> usize {
        let bytes = self.pieces.iter().map(Vec::len);
        let keys = self.places.len().saturating_mul(size_of::<K>());
        bytes
            .fold(keys, usize::saturating_add)
            .saturating_add(size_of::<u64>())
    }
}

/// Pieces and what is in one are far from four billion.
fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}
