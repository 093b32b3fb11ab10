//! Units per dimension.

use crate::DimensionName;
use crate::limits::{DIMENSIONS_MAX, UNITS_MAX};
use std::fmt;

/// Units per dimension, in order of the dimensions' names, each at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(Box<[(DimensionName, u64)]>);

/// Why a list of units is not [`Amounts`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AmountsError {
    /// More than [`DIMENSIONS_MAX`] dimensions.
    TooMany,
    /// A dimension appears twice.
    Duplicate(DimensionName),
    /// Above [`UNITS_MAX`].
    TooLarge(DimensionName),
}

impl fmt::Display for AmountsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AmountsError::TooMany => write!(f, "must have at most {DIMENSIONS_MAX} dimensions"),
            AmountsError::Duplicate(name) => write!(f, "has dimension {name:?} twice"),
            AmountsError::TooLarge(name) => {
                write!(f, "must be at most {UNITS_MAX} units in dimension {name:?}")
            }
        }
    }
}

impl std::error::Error for AmountsError {}

impl Amounts {
    /// Checks and sorts a list. An empty list is allowed.
    pub fn new(mut list: Vec<(DimensionName, u64)>) -> Result<Amounts, AmountsError> {
        if list.len() > DIMENSIONS_MAX {
            return Err(AmountsError::TooMany);
        }
        list.sort_by(|a, b| a.0.cmp(&b.0));
        for pair in list.windows(2) {
            if let [a, b] = pair
                && a.0 == b.0
            {
                return Err(AmountsError::Duplicate(a.0.clone()));
            }
        }
        match list.iter().find(|(_, units)| *units > UNITS_MAX) {
            Some((name, _)) => Err(AmountsError::TooLarge(name.clone())),
            None => Ok(Amounts(list.into_boxed_slice())),
        }
    }

    /// The pairs in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&DimensionName, u64)> {
        self.0.iter().map(|(name, units)| (name, *units))
    }

    /// Units of one dimension; `None` if it is not listed.
    pub fn get(&self, dimension: &DimensionName) -> Option<u64> {
        self.0
            .iter()
            .find(|(name, _)| name == dimension)
            .map(|(_, units)| *units)
    }

    /// Number of dimensions listed.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no dimension is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if no dimension has a unit.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|(_, units)| *units == 0)
    }
}
