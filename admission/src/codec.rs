//! Canonical bytes of the state: equal values give equal bytes, and only those are read back.
//!
//! Integers are little-endian and fixed in width, lists carry their length, maps and sets must be in
//! strictly rising order. No reading allocates more than the input is long.

use crate::{
    Amounts, DimensionName, GrantId, LimitName, Principal, PriorityName, Stamp, TargetName,
    TenantName,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// Why bytes are not a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Byte offset at which reading stopped.
    pub offset: usize,
    /// What was expected there.
    pub expected: &'static str,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} at byte {}", self.expected, self.offset)
    }
}

impl std::error::Error for DecodeError {}

/// Bytes not read yet.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start.
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader {
            rest: bytes,
            length: bytes.len(),
        }
    }

    /// The error of not finding something here.
    pub(crate) fn expected(&self, expected: &'static str) -> DecodeError {
        DecodeError {
            offset: self.length.saturating_sub(self.rest.len()),
            expected,
        }
    }

    /// The next bytes.
    fn bytes(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(count) else {
            return Err(self.expected(what));
        };
        self.rest = rest;
        Ok(bytes)
    }

    /// The length of a list: never more elements than bytes are left.
    pub(crate) fn count(&mut self) -> Result<usize, DecodeError> {
        let count = usize::take(self)?;
        if count > self.rest.len() {
            Err(self.expected("a list that fits"))
        } else {
            Ok(count)
        }
    }

    /// All bytes were read.
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.expected("the end"))
        }
    }
}

/// A value with canonical bytes.
pub(crate) trait Canonical: Sized {
    /// Appends the bytes.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads them back.
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Canonical for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let bytes = from.bytes(size_of::<$type>(), stringify!($type))?;
                let bytes = bytes.try_into().map_err(|_| from.expected(stringify!($type)))?;
                Ok(<$type>::from_le_bytes(bytes))
            }
        }
    )*};
}

integers!(u8, u32, u64, u128, i64, i128);

impl Canonical for usize {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64).put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let error = from.expected("a count");
        usize::try_from(u64::take(from)?).map_err(|_| error)
    }
}

impl Canonical for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let error = from.expected("0 or 1");
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            2.. => Err(error),
        }
    }
}

impl<T: Canonical> Canonical for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if bool::take(from)? {
            Ok(Some(T::take(from)?))
        } else {
            Ok(None)
        }
    }
}

impl<T: Canonical> Canonical for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        T::take(from).map(Box::new)
    }
}

impl<A: Canonical, B: Canonical> Canonical for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl<T: Canonical, const N: usize> Canonical for [T; N] {
    fn put(&self, out: &mut Vec<u8>) {
        for value in self {
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut values = Vec::with_capacity(N);
        for _ in 0..N {
            values.push(T::take(from)?);
        }
        let error = from.expected("an array");
        values.try_into().map_err(|_| error)
    }
}

impl<T: Canonical> Canonical for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for value in self {
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = from.count()?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(T::take(from)?);
        }
        Ok(values)
    }
}

impl<T: Canonical> Canonical for VecDeque<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for value in self {
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Vec::take(from).map(VecDeque::from)
    }
}

impl<T: Canonical + Ord> Canonical for BTreeSet<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for value in self {
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut set = BTreeSet::new();
        for _ in 0..from.count()? {
            let value = T::take(from)?;
            if set.last().is_some_and(|last| *last >= value) {
                return Err(from.expected("rising order"));
            }
            set.insert(value);
        }
        Ok(set)
    }
}

impl<K: Canonical + Ord, V: Canonical> Canonical for BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut map = BTreeMap::new();
        for _ in 0..from.count()? {
            let key = K::take(from)?;
            if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(from.expected("rising order"));
            }
            map.insert(key, V::take(from)?);
        }
        Ok(map)
    }
}

macro_rules! names {
    ($($type:ty),*) => {$(
        impl Canonical for $type {
            fn put(&self, out: &mut Vec<u8>) {
                self.as_str().len().put(out);
                out.extend_from_slice(self.as_str().as_bytes());
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let error = from.expected("a name");
                let count = from.count()?;
                let text = std::str::from_utf8(from.bytes(count, "a name")?);
                text.ok().and_then(|text| <$type>::new(text).ok()).ok_or(error)
            }
        }
    )*};
}

names!(
    TargetName,
    TenantName,
    PriorityName,
    DimensionName,
    LimitName,
    Principal
);

/// Canonical bytes of a struct, field by field in the order given.
macro_rules! canonical {
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Canonical for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn take(
                from: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                Ok(Self { $($field: $crate::codec::Canonical::take(from)?),* })
            }
        }
    };
}
pub(crate) use canonical;

/// Canonical bytes of an enum without fields: one byte.
macro_rules! canonical_tags {
    ($type:ty, $what:literal { $($variant:ident = $tag:literal),* $(,)? }) => {
        impl $crate::codec::Canonical for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(match self { $(<$type>::$variant => $tag),* });
            }
            fn take(
                from: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                let error = from.expected($what);
                match u8::take(from)? {
                    $($tag => Ok(<$type>::$variant),)*
                    _ => Err(error),
                }
            }
        }
    };
}
pub(crate) use canonical_tags;

canonical!(GrantId { index, offset });

impl Canonical for Stamp {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_micros().put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let error = from.expected("a stamp");
        let micros = u64::take(from)?;
        let stamp = Stamp::from_micros(micros);
        if stamp.as_micros() == micros {
            Ok(stamp)
        } else {
            Err(error)
        }
    }
}

impl Canonical for Amounts {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for (name, units) in self.iter() {
            name.put(out);
            units.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let list = Vec::<(DimensionName, u64)>::take(from)?;
        let error = from.expected("amounts");
        Amounts::new(list).map_err(|_| error)
    }
}
