//! Texts and lists as they are stored: borrowed from the bytes, and never longer in memory than the
//! rules allow.

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// Bytes with their length in front. Whether they are a text is checked where the field is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Text<'a>(pub(super) &'a [u8]);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Text(text.as_bytes())
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Deserialize::deserialize(deserializer).map(Text)
    }
}

/// A list of which at most `MAX` are kept. Those beyond are read, dropped and counted, so that the
/// refusal can name the field.
#[derive(Debug)]
pub(super) struct AtMost<T, const MAX: usize> {
    pub(super) kept: Vec<T>,
    pub(super) listed: usize,
}

impl<T, const MAX: usize> AtMost<T, MAX> {
    pub(super) fn new(kept: Vec<T>) -> Self {
        AtMost {
            listed: kept.len(),
            kept,
        }
    }

    pub(super) fn is_too_long(&self) -> bool {
        self.listed > MAX
    }
}

impl<T: Serialize, const MAX: usize> Serialize for AtMost<T, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.kept.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for AtMost<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(AtMostVisitor(PhantomData))
    }
}

struct AtMostVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for AtMostVisitor<T, MAX> {
    type Value = AtMost<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = AtMost {
            kept: Vec::new(),
            listed: 0,
        };
        while let Some(item) = seq.next_element()? {
            list.listed += 1;
            if list.listed <= MAX {
                list.kept.push(item);
            }
        }
        Ok(list)
    }
}
