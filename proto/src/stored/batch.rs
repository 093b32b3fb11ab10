//! Batches of operations: what a log entry carries.

use super::batch_v1::OperationV1;
use super::field::FieldError;
use super::names::Names;
use super::{StoredError, codec};
use crate::limits::STORED_BATCH_BYTES_MAX;
use bytes::Bytes;
use weir_admission::limits::BATCH_OPERATIONS_MAX;
use weir_admission::{Operation, Stamp};

const WHAT: &str = "batch";

/// The newest format of batches that this version reads.
pub const BATCH_FORMAT: u32 = BatchFormat::NEWEST.number();

/// Bytes set aside for each operation of a batch before it is encoded: a usual ask.
const OPERATION_CAPACITY: usize = 192;

/// Every format of a batch that was ever written.
#[derive(Clone, Copy, Debug)]
enum BatchFormat {
    V1,
}

impl BatchFormat {
    const OLDEST: BatchFormat = BatchFormat::V1;
    const NEWEST: BatchFormat = BatchFormat::V1;

    const fn number(self) -> u32 {
        match self {
            BatchFormat::V1 => 1,
        }
    }

    fn from_number(found: u32) -> Result<BatchFormat, StoredError> {
        codec::check_format(WHAT, found, Self::OLDEST.number(), Self::NEWEST.number())?;
        Ok(BatchFormat::V1)
    }
}

/// Stores a batch with its stamp.
///
/// # Errors
/// [`StoredError::Invalid`] for more than [`BATCH_OPERATIONS_MAX`] operations and for everything else
/// that [`decode_batch`] would refuse, so that no entry enters a log that replicas cannot read;
/// [`StoredError::TooLong`] above [`STORED_BATCH_BYTES_MAX`].
pub fn encode_batch(stamp: Stamp, operations: &[Operation]) -> Result<Bytes, StoredError> {
    if operations.len() > BATCH_OPERATIONS_MAX {
        return Err(too_many());
    }
    let capacity = OPERATION_CAPACITY.saturating_mul(operations.len().saturating_add(1));
    let mut bytes = Vec::with_capacity(capacity);
    codec::write(WHAT, &mut bytes, &BatchFormat::NEWEST.number())?;
    codec::write(WHAT, &mut bytes, &stamp.as_micros())?;
    codec::write(WHAT, &mut bytes, &operations.len())?;
    for (i, operation) in operations.iter().enumerate() {
        let stored = OperationV1::new(operation).map_err(|e| at(i, e))?;
        codec::write(WHAT, &mut bytes, &stored)?;
        if bytes.len() > STORED_BATCH_BYTES_MAX {
            return Err(StoredError::TooLong {
                what: WHAT,
                max: STORED_BATCH_BYTES_MAX,
            });
        }
    }
    Ok(Bytes::from(bytes))
}

/// Reads what [`encode_batch`] of this or any earlier version wrote.
///
/// Total: hostile bytes give an error, and set aside no more memory than a full batch takes. Names,
/// amounts and policies are checked again, so the operations hold valid values only.
///
/// # Errors
/// All of [`StoredError`].
pub fn decode_batch(mut bytes: &[u8]) -> Result<(Stamp, Vec<Operation>), StoredError> {
    if bytes.len() > STORED_BATCH_BYTES_MAX {
        return Err(StoredError::TooLong {
            what: WHAT,
            max: STORED_BATCH_BYTES_MAX,
        });
    }
    let found: u32 = codec::read(WHAT, &mut bytes)?;
    match BatchFormat::from_number(found)? {
        BatchFormat::V1 => decode_v1(bytes),
    }
}

fn decode_v1(mut bytes: &[u8]) -> Result<(Stamp, Vec<Operation>), StoredError> {
    let stamp_us: u64 = codec::read(WHAT, &mut bytes)?;
    let stamp = Stamp::from_micros(stamp_us);
    if stamp.as_micros() != stamp_us {
        let rule = format!("must be at most {}", Stamp::MAX.as_micros());
        return Err(StoredError::Invalid {
            what: WHAT,
            field: "stamp".into(),
            rule,
        });
    }
    let count: usize = codec::read(WHAT, &mut bytes)?;
    if count > BATCH_OPERATIONS_MAX {
        return Err(too_many());
    }
    let mut names = Names::default();
    let mut operations = Vec::with_capacity(count);
    for i in 0..count {
        let stored: OperationV1<'_> = codec::read(WHAT, &mut bytes)?;
        operations.push(stored.into_operation(&mut names).map_err(|e| at(i, e))?);
    }
    codec::finish(WHAT, bytes)?;
    Ok((stamp, operations))
}

fn at(index: usize, error: FieldError) -> StoredError {
    let FieldError { field, rule } = error.within(&format!("operations[{index}]"));
    StoredError::Invalid {
        what: WHAT,
        field: field.into_owned(),
        rule,
    }
}

fn too_many() -> StoredError {
    StoredError::Invalid {
        what: WHAT,
        field: "operations".into(),
        rule: format!("must be at most {BATCH_OPERATIONS_MAX}"),
    }
}
