//! The one codec of what this crate stores besides operations and states: votes, log positions,
//! memberships.
//!
//! Each kind of stored value is an enum with one variant per format, so that its first byte is the
//! format's number: an old value is read as what it was, a newer one is refused.

use crate::limits::STORED_META_BYTES;
use serde::{Serialize, de::DeserializeOwned};

const CONFIG: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<STORED_META_BYTES>,
> = bincode::config::standard().with_limit::<STORED_META_BYTES>();

/// Why stored bytes were refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoredError {
    /// They are not what they should be, or of a format newer than this program.
    #[error("not readable by this version: {0}")]
    Unreadable(#[from] bincode::error::DecodeError),
    /// They go on behind their end.
    #[error("{0} bytes too many")]
    Trailing(usize),
    /// The value cannot be stored.
    #[error("cannot be stored: {0}")]
    Unwritable(#[from] bincode::error::EncodeError),
}

/// Encodes a value of at most [`STORED_META_BYTES`].
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, StoredError> {
    Ok(bincode::serde::encode_to_vec(value, CONFIG)?)
}

/// Decodes exactly these bytes.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoredError> {
    let (value, read) = bincode::serde::decode_from_slice(bytes, CONFIG)?;
    match bytes.len() - read {
        0 => Ok(value),
        more => Err(StoredError::Trailing(more)),
    }
}
