//! The one codec of stored bytes: a format number, then the value.
//!
//! bincode's standard configuration, read from slices only: its other readers set memory aside before
//! they know that the bytes are there.

use super::StoredError;
use crate::limits::{DECODER_BYTES_MAX, STORED_VALUE_BYTES_MAX};
use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

type Config = Configuration<LittleEndian, Varint, Limit<DECODER_BYTES_MAX>>;

const CONFIG: Config = bincode::config::standard().with_limit::<DECODER_BYTES_MAX>();

/// Bytes set aside for a value before it is encoded; it grows from there.
const CAPACITY: usize = 256;

/// A kind of stored value and the format in which it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// What an error calls it: "snapshot meta".
    pub name: &'static str,
    /// Its format, from 1. It goes up by one whenever the bytes change.
    pub format: u32,
}

/// The format number in front of stored bytes.
pub fn format_of(kind: Kind, bytes: &[u8]) -> Result<u32, StoredError> {
    read(kind.name, &mut &*bytes)
}

/// Stores a value in the format of its kind.
///
/// # Errors
/// [`StoredError::TooLong`] above [`STORED_VALUE_BYTES_MAX`]; [`StoredError::Malformed`] if the value
/// refuses to be serialized.
pub fn encode_versioned<T: Serialize>(kind: Kind, value: &T) -> Result<Bytes, StoredError> {
    let mut bytes = Vec::with_capacity(CAPACITY);
    write(kind.name, &mut bytes, &kind.format)?;
    write(kind.name, &mut bytes, value)?;
    if bytes.len() > STORED_VALUE_BYTES_MAX {
        return Err(StoredError::TooLong {
            what: kind.name,
            max: STORED_VALUE_BYTES_MAX,
        });
    }
    Ok(Bytes::from(bytes))
}

/// Reads what [`encode_versioned`] wrote in the same format.
///
/// Hostile bytes give an error: no more than a small multiple of [`STORED_VALUE_BYTES_MAX`] is set
/// aside for them. `T` must not hold lists of types without a size, whose length costs no bytes.
///
/// # Errors
/// All of [`StoredError`] except [`StoredError::Invalid`].
pub fn decode_versioned<'de, T: Deserialize<'de>>(
    kind: Kind,
    mut bytes: &'de [u8],
) -> Result<T, StoredError> {
    let what = kind.name;
    if bytes.len() > STORED_VALUE_BYTES_MAX {
        return Err(StoredError::TooLong {
            what,
            max: STORED_VALUE_BYTES_MAX,
        });
    }
    let found: u32 = read(what, &mut bytes)?;
    check_format(what, found, kind.format, kind.format)?;
    let value = read(what, &mut bytes)?;
    finish(what, bytes)?;
    Ok(value)
}

/// Refuses a format outside `oldest..=newest`.
pub(super) fn check_format(
    what: &'static str,
    found: u32,
    oldest: u32,
    newest: u32,
) -> Result<(), StoredError> {
    if found > newest {
        return Err(StoredError::NewerFormat {
            what,
            found,
            known: newest,
        });
    }
    if found < oldest {
        return Err(StoredError::OlderFormat {
            what,
            found,
            known: oldest,
        });
    }
    Ok(())
}

/// Appends a value.
pub(super) fn write<T: Serialize>(
    what: &'static str,
    bytes: &mut Vec<u8>,
    value: &T,
) -> Result<(), StoredError> {
    match bincode::serde::encode_into_std_write(value, bytes, CONFIG) {
        Ok(_) => Ok(()),
        Err(error) => Err(StoredError::from_encoder(what, &error)),
    }
}

/// Takes a value off the front.
pub(super) fn read<'de, T: Deserialize<'de>>(
    what: &'static str,
    bytes: &mut &'de [u8],
) -> Result<T, StoredError> {
    let (value, length) = bincode::serde::borrow_decode_from_slice(bytes, CONFIG)
        .map_err(|error| StoredError::from_decoder(what, error))?;
    *bytes = bytes.get(length..).unwrap_or_default();
    Ok(value)
}

/// Refuses bytes left over.
pub(super) fn finish(what: &'static str, bytes: &[u8]) -> Result<(), StoredError> {
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(StoredError::TrailingBytes {
            what,
            bytes: bytes.len(),
        })
    }
}
