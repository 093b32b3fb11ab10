//! Format 1 of amounts: pairs of dimension and units.

use super::field::FieldError;
use super::list::Text;
use super::names::Names;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use weir_admission::Amounts;
use weir_admission::limits::DIMENSIONS_MAX;

/// Amounts without a heap allocation of their own. Pairs beyond [`DIMENSIONS_MAX`] are counted only.
pub(super) struct AmountsV1<'a> {
    pairs: [(Text<'a>, u64); DIMENSIONS_MAX],
    listed: usize,
}

impl<'a> AmountsV1<'a> {
    fn empty() -> Self {
        AmountsV1 {
            pairs: [(Text(&[]), 0); DIMENSIONS_MAX],
            listed: 0,
        }
    }

    fn push(&mut self, pair: (Text<'a>, u64)) {
        if let Some(place) = self.pairs.get_mut(self.listed) {
            *place = pair;
        }
        self.listed += 1;
    }

    fn kept(&self) -> impl ExactSizeIterator<Item = &(Text<'a>, u64)> {
        self.pairs.iter().take(self.listed)
    }

    pub(super) fn new(amounts: &'a Amounts) -> Self {
        let mut stored = AmountsV1::empty();
        for (dimension, units) in amounts.iter() {
            stored.push((dimension.as_str().into(), units));
        }
        stored
    }

    pub(super) fn read(
        &self,
        field: &'static str,
        names: &mut Names,
    ) -> Result<Amounts, FieldError> {
        if self.listed == 0 {
            return Ok(Amounts::default());
        }
        if self.listed > DIMENSIONS_MAX {
            let rule = format!(
                "must have at most {DIMENSIONS_MAX} dimensions, has {}",
                self.listed
            );
            return Err(FieldError::new(field, rule));
        }
        let mut list = Vec::with_capacity(self.listed);
        for (dimension, units) in self.kept() {
            list.push((names.dimensions.read(field, *dimension)?, *units));
        }
        Amounts::new(list).map_err(|rule| FieldError::new(field, rule))
    }
}

impl Serialize for AmountsV1<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.kept())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for AmountsV1<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(AmountsVisitor)
    }
}

struct AmountsVisitor;

impl<'de> Visitor<'de> for AmountsVisitor {
    type Value = AmountsV1<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pairs of dimension and units")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut stored = AmountsV1::empty();
        while let Some(pair) = seq.next_element()? {
            stored.push(pair);
        }
        Ok(stored)
    }
}
