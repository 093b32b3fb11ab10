//! Batches of operations: what a log entry carries.

use super::fault::Fault;
use super::names::Names;
use super::reader::Reader;
use super::writer::Writer;
use super::{StoredError, batch_v1, codec};
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
    let count = operations.len();
    if count > BATCH_OPERATIONS_MAX {
        let rule = format!("must be at most {BATCH_OPERATIONS_MAX}, is {count}");
        return Err(Fault::invalid("operations", rule).of(WHAT));
    }
    let mut w = Writer::with_capacity(OPERATION_CAPACITY.saturating_mul(count.saturating_add(1)));
    w.u32(BatchFormat::NEWEST.number());
    w.u64(stamp.as_micros());
    w.length(count);
    for (i, operation) in operations.iter().enumerate() {
        batch_v1::write(&mut w, operation).map_err(|fault| at(i, fault))?;
        if w.len() > STORED_BATCH_BYTES_MAX {
            return Err(StoredError::TooLong {
                what: WHAT,
                max: STORED_BATCH_BYTES_MAX,
            });
        }
    }
    Ok(w.into_bytes())
}

/// Reads what [`encode_batch`] of this or any earlier version wrote.
///
/// Total: hostile bytes give an error, and set aside no more memory than a full batch takes. Names,
/// amounts and policies are checked again, so the operations hold valid values only. Every batch has one
/// encoding: bytes that are read are the bytes that the same batch would be written as.
///
/// # Errors
/// All of [`StoredError`].
pub fn decode_batch(bytes: &[u8]) -> Result<(Stamp, Vec<Operation>), StoredError> {
    if bytes.len() > STORED_BATCH_BYTES_MAX {
        return Err(StoredError::TooLong {
            what: WHAT,
            max: STORED_BATCH_BYTES_MAX,
        });
    }
    let mut r = Reader::new(bytes);
    let found = r.u32("format").map_err(|fault| fault.of(WHAT))?;
    match BatchFormat::from_number(found)? {
        BatchFormat::V1 => read_v1(&mut r),
    }
}

fn read_v1(r: &mut Reader<'_>) -> Result<(Stamp, Vec<Operation>), StoredError> {
    let (stamp, count) = read_head(r).map_err(|fault| fault.of(WHAT))?;
    let mut names = Names::default();
    let mut operations = Vec::with_capacity(count);
    for i in 0..count {
        operations.push(batch_v1::read(r, &mut names).map_err(|fault| at(i, fault))?);
    }
    match r.left() {
        0 => Ok((stamp, operations)),
        bytes => Err(StoredError::TrailingBytes { what: WHAT, bytes }),
    }
}

fn read_head(r: &mut Reader<'_>) -> Result<(Stamp, usize), Fault> {
    let us = r.u64("stamp")?;
    let stamp = Stamp::from_micros(us);
    if stamp.as_micros() != us {
        let rule = format!("must be at most {}", Stamp::MAX.as_micros());
        return Err(Fault::invalid("stamp", rule));
    }
    Ok((stamp, r.length("operations", BATCH_OPERATIONS_MAX)?))
}

fn at(index: usize, fault: Fault) -> StoredError {
    fault.within(&format!("operations[{index}]")).of(WHAT)
}
