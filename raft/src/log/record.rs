//! Log entries and the hard state of a group, as bytes.
//!
//! An entry:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | index, little endian; first in every format, because the engine asks for it |
//! | 1 | format, 1 |
//! | 1 | kind: 0 blank, 1 batch, 2 membership |
//! | 8 | term, little endian |
//! | rest | the batch as it came, or the membership in stored form |
//!
//! The engine keeps a checksum over its blocks of entries, so that there is none here.

use crate::stored::{self, StoredError};
use crate::types::{Batch, Entry, LogId, Payload, Vote};
use bytes::Bytes;
use openraft::EntryPayload;
use serde::{Deserialize, Serialize};

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 18;
const BLANK: u8 = 0;
const BATCH: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// Why bytes are not an entry.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// Shorter than a header.
    #[error("{0} bytes are too few for an entry")]
    Short(usize),
    /// Another format, most likely of a newer version.
    #[error("entry format {0}; this version reads {FORMAT}")]
    Format(u8),
    /// No such kind.
    #[error("entry kind {0} is unknown")]
    Kind(u8),
    /// A blank entry that carries something.
    #[error("a blank entry with {0} bytes")]
    NotBlank(usize),
    /// Another entry than the one that was asked for.
    #[error("entry {found} stands where {expected} should")]
    Index {
        /// The index asked for.
        expected: u64,
        /// The index found.
        found: u64,
    },
    /// The membership cannot be read or written.
    #[error("membership: {0}")]
    Membership(#[from] StoredError),
}

/// Index of an encoded entry of any format; `u64::MAX` if the bytes are none.
pub(super) fn index_of(record: &[u8]) -> u64 {
    record
        .first_chunk()
        .map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

/// Bytes that an entry takes when encoded.
pub(super) fn encoded_len(entry: &Entry) -> Result<usize, RecordError> {
    let body = match &entry.payload {
        EntryPayload::Blank => 0,
        EntryPayload::Normal(Batch(bytes)) => bytes.len(),
        EntryPayload::Membership(membership) => stored::encode(membership)?.len(),
    };
    Ok(HEADER_BYTES + body)
}

/// Encodes an entry.
pub(super) fn encode(entry: &Entry) -> Result<Vec<u8>, RecordError> {
    let membership;
    let (kind, body): (u8, &[u8]) = match &entry.payload {
        EntryPayload::Blank => (BLANK, &[]),
        EntryPayload::Normal(Batch(bytes)) => (BATCH, bytes),
        EntryPayload::Membership(value) => {
            membership = stored::encode(value)?;
            (MEMBERSHIP, &membership)
        }
    };
    let mut record = Vec::with_capacity(HEADER_BYTES + body.len());
    record.extend_from_slice(&entry.log_id.index.to_le_bytes());
    record.extend_from_slice(&[FORMAT, kind]);
    record.extend_from_slice(&entry.log_id.committed_leader_id().to_le_bytes());
    record.extend_from_slice(body);
    Ok(record)
}

/// Decodes the entry of an index.
pub(super) fn decode(record: Vec<u8>, index: u64) -> Result<Entry, RecordError> {
    let short = RecordError::Short(record.len());
    let Some((header, body)) = record.split_first_chunk::<HEADER_BYTES>() else {
        return Err(short);
    };
    let [
        i0,
        i1,
        i2,
        i3,
        i4,
        i5,
        i6,
        i7,
        format,
        kind,
        t0,
        t1,
        t2,
        t3,
        t4,
        t5,
        t6,
        t7,
    ] = *header;
    if format != FORMAT {
        return Err(RecordError::Format(format));
    }
    let found = u64::from_le_bytes([i0, i1, i2, i3, i4, i5, i6, i7]);
    if found != index {
        return Err(RecordError::Index {
            expected: index,
            found,
        });
    }
    let term = u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
    let payload: Payload = match kind {
        BLANK if body.is_empty() => EntryPayload::Blank,
        BLANK => return Err(RecordError::NotBlank(body.len())),
        BATCH => EntryPayload::Normal(Batch(Bytes::from(record).slice(HEADER_BYTES..))),
        MEMBERSHIP => EntryPayload::Membership(stored::decode(body)?),
        unknown => return Err(RecordError::Kind(unknown)),
    };
    Ok(Entry {
        log_id: LogId::new_term_index(term, index),
        payload,
    })
}

/// What a group must know besides its entries. Written in one record with each change of any of it,
/// in the same write as the entries it speaks of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hard {
    /// The vote.
    pub(super) vote: Option<Vote>,
    /// The last committed position that was known; never behind the log's end.
    pub(super) committed: Option<LogId>,
    /// The last purged position.
    pub(super) purged: Option<LogId>,
    /// Index of the first entry of the log; entries before it are void, whatever the engine holds.
    pub(super) start: u64,
    /// Index behind the last entry; entries from it on are void. This is how a cut that no append
    /// followed survives a restart.
    pub(super) end: u64,
}

#[derive(Serialize, Deserialize)]
enum StoredHard {
    V1(Hard),
}

impl Hard {
    pub(super) fn encode(&self) -> Result<Vec<u8>, StoredError> {
        stored::encode(&StoredHard::V1(self.clone()))
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, StoredError> {
        let StoredHard::V1(hard) = stored::decode(bytes)?;
        Ok(hard)
    }
}
