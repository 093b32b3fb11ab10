//! Writes the fields of a batch as [`super::reader`] reads them.

use super::reader::{EIGHT_BYTES, FOUR_BYTES, TWO_BYTES};

/// What was written so far.
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn with_capacity(bytes: usize) -> Writer {
        Writer {
            bytes: Vec::with_capacity(bytes),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn into_bytes(self) -> bytes::Bytes {
        self.bytes.into()
    }

    pub(super) fn array(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn u64(&mut self, value: u64) {
        if let Ok(two) = u16::try_from(value) {
            match u8::try_from(two) {
                Ok(small) if small < TWO_BYTES => self.bytes.push(small),
                Ok(_) | Err(_) => self.wide(TWO_BYTES, &two.to_le_bytes()),
            }
        } else if let Ok(four) = u32::try_from(value) {
            self.wide(FOUR_BYTES, &four.to_le_bytes());
        } else {
            self.wide(EIGHT_BYTES, &value.to_le_bytes());
        }
    }

    fn wide(&mut self, width: u8, bytes: &[u8]) {
        self.bytes.push(width);
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.u64(u64::from(value));
    }

    pub(super) fn length(&mut self, length: usize) {
        // No target of Rust has a usize above 64 bits.
        self.u64(u64::try_from(length).unwrap_or(u64::MAX));
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.array(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.bytes.push(u8::from(value));
    }

    pub(super) fn optional_u64(&mut self, value: Option<u64>) {
        self.bool(value.is_some());
        if let Some(value) = value {
            self.u64(value);
        }
    }
}
