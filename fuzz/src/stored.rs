//! Bytes of the log: batches, whole entries, and what a group must know besides them.
//!
//! Reading is total. A batch has one encoding, so what is read is written as the same bytes; the other
//! values are written as bytes that read back the same.

use crate::kind;
use crate::memory::{self, Memory};
use weir_admission::{Operation, Stamp};
use weir_proto::stored::{decode_batch, encode_batch};
use weir_raft::seam;

/// What an input is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The batch of an entry.
    Batch,
    /// A whole entry, with its index in front.
    Record,
    /// Vote and positions of a group.
    HardState,
}

/// Every kind, each at the byte that stands for it.
pub const KINDS: [Kind; 3] = [Kind::Batch, Kind::Record, Kind::HardState];

/// Kinds of an entry that hold nothing which could be written in two ways.
const BLANK_OR_BATCH: [u8; 2] = [0, 1];
/// Where the kind stands in an entry.
const RECORD_KIND_AT: usize = 9;
/// Memory for a record. An operation of a few bytes keeps its names and amounts.
const MEMORY: Memory = Memory {
    each: 128,
    base: memory::SERDE_BASE,
};

/// Memory for a batch, which is read by hand.
const BATCH_MEMORY: Memory = Memory {
    base: memory::BASE,
    ..MEMORY
};

/// Takes an input.
///
/// # Panics
/// A rule of the module does not hold.
pub fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = kind(&KINDS, bytes) else {
        return;
    };
    match kind {
        Kind::Batch => {
            batch(bytes);
        }
        Kind::Record => record(bytes),
        Kind::HardState => hard_state(bytes),
    }
}

/// Reads a batch; what is read is written as the same bytes.
pub(crate) fn batch(bytes: &[u8]) -> Option<(Stamp, Vec<Operation>)> {
    let read = BATCH_MEMORY.bounds(bytes.len(), || decode_batch(bytes));
    match read {
        Ok((stamp, operations)) => {
            let again = encode_batch(stamp, &operations);
            assert_eq!(again.as_deref(), Ok(bytes), "a batch has one encoding");
            Some((stamp, operations))
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fn record(bytes: &[u8]) {
    let Some(index) = bytes.first_chunk().map(|index| u64::from_le_bytes(*index)) else {
        return;
    };
    let read = MEMORY.bounds(bytes.len(), || seam::rewrite_record(bytes.to_vec(), index));
    let Some(written) = read else { return };
    let exact = bytes.get(RECORD_KIND_AT);
    if exact.is_some_and(|kind| BLANK_OR_BATCH.contains(kind)) {
        assert_eq!(written, bytes, "an entry is written as it was read");
    }
    let again = seam::rewrite_record(written.clone(), index);
    assert_eq!(again, Some(written), "what was written reads back");
}

fn hard_state(bytes: &[u8]) {
    let read = MEMORY.bounds(bytes.len(), || seam::rewrite_hard_state(bytes));
    let Some(written) = read else { return };
    let again = seam::rewrite_hard_state(&written);
    assert_eq!(again, Some(written), "what was written reads back");
}
