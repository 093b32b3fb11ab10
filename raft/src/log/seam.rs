//! What the log stores, from its bytes: a way in for the fuzz targets.

use super::record::{self, Hard};
use crate::types::Entry;

/// Reads the stored entry of an index, and writes what was read; `None` if it is refused.
pub fn rewrite_record(record: Vec<u8>, index: u64) -> Option<Vec<u8>> {
    let entry = record::decode(record, index).ok()?;
    record::encode(&entry).ok()
}

/// Stores an entry; `None` if it is refused.
pub fn record_of(entry: &Entry) -> Option<Vec<u8>> {
    record::encode(entry).ok()
}

/// Reads what a group must know besides its entries, and writes what was read; `None` if it is refused.
pub fn rewrite_hard_state(bytes: &[u8]) -> Option<Vec<u8>> {
    Hard::decode(bytes).ok()?.encode().ok()
}

/// What a group without anything must know besides its entries; `None` if it cannot be written.
pub fn hard_state() -> Option<Vec<u8>> {
    Hard::default().encode().ok()
}
