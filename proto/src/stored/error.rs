//! Why bytes could not be read or written.

use bincode::error::{DecodeError, EncodeError};

/// Why stored bytes and a value do not convert into each other. `what` names the kind of value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// A later version of Weir wrote it. Nothing is wrong with the bytes; this version is too old.
    #[error("{what} has format {found}, the newest known here is {known}")]
    NewerFormat {
        /// The kind of value.
        what: &'static str,
        /// The format of the bytes.
        found: u32,
        /// The newest format that this version reads.
        known: u32,
    },
    /// A format that this version does not read any more, or that never was.
    #[error("{what} has format {found}, the oldest known here is {known}")]
    OlderFormat {
        /// The kind of value.
        what: &'static str,
        /// The format of the bytes.
        found: u32,
        /// The oldest format that this version reads.
        known: u32,
    },
    /// The bytes end before the value does.
    #[error("{what} is cut off: at least {missing} more bytes are needed")]
    Truncated {
        /// The kind of value.
        what: &'static str,
        /// Bytes missing from the field at which reading stopped.
        missing: usize,
    },
    /// The value ends before the bytes do.
    #[error("{what} is followed by {bytes} bytes that do not belong to it")]
    TrailingBytes {
        /// The kind of value.
        what: &'static str,
        /// Number of bytes left over.
        bytes: usize,
    },
    /// The value is longer than any that is allowed, stored or in memory.
    #[error("{what} is too long, at most {max} bytes are allowed")]
    TooLong {
        /// The kind of value.
        what: &'static str,
        /// Bytes allowed.
        max: usize,
    },
    /// The bytes are no encoding of such a value at all.
    #[error("{what} is malformed: {detail}")]
    Malformed {
        /// The kind of value.
        what: &'static str,
        /// What was met.
        detail: String,
    },
    /// A field has a value that the rules do not allow.
    #[error("{what} is invalid: {field} {rule}")]
    Invalid {
        /// The kind of value.
        what: &'static str,
        /// Path of the field, for example `operations[3].tenant`.
        field: String,
        /// What it must be.
        rule: String,
    },
}

impl StoredError {
    pub(super) fn from_decoder(what: &'static str, error: DecodeError) -> StoredError {
        // A list of another crate, which may grow: everything not told apart here is malformed.
        #[allow(clippy::wildcard_enum_match_arm)]
        match error {
            DecodeError::UnexpectedEnd { additional } => StoredError::Truncated {
                what,
                missing: additional,
            },
            DecodeError::LimitExceeded => StoredError::TooLong {
                what,
                max: crate::limits::DECODER_BYTES_MAX,
            },
            DecodeError::OtherString(detail) => StoredError::Malformed { what, detail },
            other => StoredError::Malformed {
                what,
                detail: other.to_string(),
            },
        }
    }

    pub(super) fn from_encoder(what: &'static str, error: &EncodeError) -> StoredError {
        StoredError::Malformed {
            what,
            detail: error.to_string(),
        }
    }
}
