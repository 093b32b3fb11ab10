//! Reads the fields of a batch from a slice, without setting memory aside.
//!
//! The encoding is bincode's standard one, by hand: a follower reads every operation of its shards, and
//! this is several times faster than going through serde. It is stricter too: every value has one
//! encoding only, so equal batches are equal bytes.

use super::fault::Fault;

/// First byte of an integer that follows in 2, 4 or 8 bytes. Smaller ones are the integer itself.
pub(super) const TWO_BYTES: u8 = 251;
/// See [`TWO_BYTES`].
pub(super) const FOUR_BYTES: u8 = 252;
/// See [`TWO_BYTES`].
pub(super) const EIGHT_BYTES: u8 = 253;

/// What is left to read.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    /// Number of bytes left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        match self.bytes.split_at_checked(length) {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(taken)
            }
            None => Err(Fault::truncated(length.saturating_sub(self.bytes.len()))),
        }
    }

    /// Bytes of a fixed number.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        match self.bytes.split_first_chunk() {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(*taken)
            }
            None => Err(Fault::truncated(N.saturating_sub(self.bytes.len()))),
        }
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        self.array().map(|[byte]| byte)
    }

    /// An unsigned integer in as few bytes as it needs.
    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, Fault> {
        let (value, above) = match self.byte()? {
            TWO_BYTES => (
                u64::from(u16::from_le_bytes(self.array()?)),
                u64::from(TWO_BYTES) - 1,
            ),
            FOUR_BYTES => (
                u64::from(u32::from_le_bytes(self.array()?)),
                u64::from(u16::MAX),
            ),
            EIGHT_BYTES => (u64::from_le_bytes(self.array()?), u64::from(u32::MAX)),
            small if small < TWO_BYTES => return Ok(u64::from(small)),
            _ => return Err(Fault::malformed(field, "is no integer of at most 64 bits")),
        };
        if value > above {
            Ok(value)
        } else {
            Err(Fault::malformed(
                field,
                "is an integer in more bytes than it needs",
            ))
        }
    }

    /// An unsigned integer of at most 32 bits.
    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, Fault> {
        let value = self.u64(field)?;
        u32::try_from(value)
            .map_err(|_| Fault::malformed(field, "is no integer of at most 32 bits"))
    }

    /// The length of a list that may have at most `max` entries.
    pub(super) fn length(&mut self, field: &'static str, max: usize) -> Result<usize, Fault> {
        let listed = self.u64(field)?;
        match usize::try_from(listed) {
            Ok(length) if length <= max => Ok(length),
            Ok(_) | Err(_) => Err(Fault::invalid(
                field,
                format!("must be at most {max}, is {listed}"),
            )),
        }
    }

    /// Bytes with their number in front.
    pub(super) fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], Fault> {
        let length = self.u64(field)?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// A truth value.
    pub(super) fn bool(&mut self, field: &'static str) -> Result<bool, Fault> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Fault::malformed(field, "is neither 0 nor 1")),
        }
    }

    /// An integer that may be missing.
    pub(super) fn optional_u64(&mut self, field: &'static str) -> Result<Option<u64>, Fault> {
        if self.bool(field)? {
            self.u64(field).map(Some)
        } else {
            Ok(None)
        }
    }
}
