//! The rows on disk. The one file that names sled.
//!
//! What sled writes is not synced: a power cut loses the last moments, and it may find its file damaged.
//! Neither matters here, where everything may be lost; so nothing else is ever kept in it.

use super::counts::{Counts, Key};
use super::row::{
    RowError, decode_counts, decode_key, encode_counts, encode_key, minute_of, prefix,
};
use crate::limits::{HISTORY_BATCH_MAX, HISTORY_CACHE_BYTES};
use std::path::Path;
use weir_admission::TargetName;

/// Where the store says what it is: a file that cannot be read at all is taken for a new one.
const ABOUT: &str = "about";
const FORMAT: &str = "format";

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// Its bytes are not what was written.
    #[error("damaged: {0}")]
    Damaged(String),
    /// The store of this directory is still open in this process: another node of it is ending.
    #[error("in use")]
    InUse,
    /// The disk or its rights do not let it work now.
    #[error("{0}")]
    Unavailable(String),
}

impl From<sled::Error> for StoreError {
    fn from(error: sled::Error) -> StoreError {
        match error {
            sled::Error::Io(error) => {
                let text = error.to_string();
                // The library has no other sign of it.
                if text.starts_with("could not acquire lock") {
                    StoreError::InUse
                } else {
                    StoreError::Unavailable(text)
                }
            }
            sled::Error::Corruption { .. }
            | sled::Error::CollectionNotFound(_)
            | sled::Error::Unsupported(_)
            | sled::Error::ReportableBug(_) => StoreError::Damaged(error.to_string()),
        }
    }
}

impl From<RowError> for StoreError {
    fn from(error: RowError) -> StoreError {
        StoreError::Damaged(error.to_string())
    }
}

/// An open store.
pub(super) struct Store {
    db: sled::Db,
    /// Bytes of all rows, keys included.
    bytes: u64,
}

impl Store {
    /// Opens or creates a store, and reads all of it: damage is found here and not in the middle of work.
    pub(super) fn open(dir: &Path) -> Result<Store, StoreError> {
        let known = dir.join("db").exists();
        let db = sled::Config::default()
            .path(dir)
            .cache_capacity(HISTORY_CACHE_BYTES)
            .flush_every_ms(Some(1_000))
            .open()?;
        let about = db.open_tree(ABOUT)?;
        if known && about.get(FORMAT)?.is_none() {
            return Err(StoreError::Damaged("what was in it is gone".into()));
        }
        about.insert(FORMAT, &[1])?;
        db.flush()?;
        let mut store = Store { db, bytes: 0 };
        for row in store.db.iter() {
            let (key, counts) = row?;
            decode_key(&key)?;
            decode_counts(&counts)?;
            store.bytes += size(&key, &counts);
        }
        Ok(store)
    }

    /// Bytes of all rows. The files of the store take more, see the runbook.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds counts to their rows. At most [`HISTORY_BATCH_MAX`] at once.
    pub(super) fn add(&mut self, rows: &[(u32, Key, Counts)]) -> Result<(), StoreError> {
        debug_assert!(rows.len() <= HISTORY_BATCH_MAX);
        let mut batch = sled::Batch::default();
        let mut bytes = self.bytes;
        for (minute, key, counts) in rows {
            let key = encode_key(*minute, key);
            let mut sum = counts.clone();
            if let Some(before) = self.db.get(&key)? {
                bytes = bytes.saturating_sub(size(&key, &before));
                sum.add(&decode_counts(&before)?);
            }
            let value = encode_counts(&sum)?;
            bytes += size(&key, &value);
            batch.insert(key, value);
        }
        self.db.apply_batch(batch)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Removes the oldest rows, at most [`HISTORY_BATCH_MAX`]: those before `first`, and as many as it takes
    /// to keep `bytes_max`. True if there may be more to remove.
    pub(super) fn trim(&mut self, first: u32, bytes_max: u64) -> Result<bool, StoreError> {
        let mut batch = sled::Batch::default();
        let (mut bytes, mut removed) = (self.bytes, 0);
        for row in self.db.iter().take(HISTORY_BATCH_MAX) {
            let (key, counts) = row?;
            if minute_of(&key)? >= first && bytes <= bytes_max {
                break;
            }
            bytes = bytes.saturating_sub(size(&key, &counts));
            removed += 1;
            batch.remove(key);
        }
        if removed > 0 {
            self.db.apply_batch(batch)?;
            self.bytes = bytes;
        }
        Ok(removed == HISTORY_BATCH_MAX)
    }

    /// First and last minute of which anything is kept.
    pub(super) fn span(&self) -> Result<Option<(u32, u32)>, StoreError> {
        match (self.db.first()?, self.db.last()?) {
            (Some((first, _)), Some((last, _))) => {
                Ok(Some((minute_of(&first)?, minute_of(&last)?)))
            }
            (None, _) | (_, None) => Ok(None),
        }
    }

    /// The rows of a target in one minute.
    pub(super) fn rows(
        &self,
        minute: u32,
        target: &TargetName,
    ) -> impl Iterator<Item = Result<(Key, Counts), StoreError>> + use<> {
        let rows = self.db.scan_prefix(prefix(minute, Some(target)));
        rows.map(|row| {
            let (key, counts) = row?;
            let (_, key) = decode_key(&key)?;
            Ok((key, decode_counts(&counts)?))
        })
    }

    /// Writes what is still in memory.
    pub(super) fn flush(&self) -> Result<(), StoreError> {
        self.db.flush()?;
        Ok(())
    }
}

fn size(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_cannot_be_read_is_damage() {
        for (key, value) in [(&b"\0\0"[..], &b""[..]), (b"\0\0\0\x01\0\0\0", b"\x01\x02")] {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path()).unwrap();
            store.db.insert(key, value).unwrap();
            drop(store);
            let Err(StoreError::Damaged(_)) = Store::open(dir.path()) else {
                panic!("{key:?} was read");
            };
        }
    }
}
