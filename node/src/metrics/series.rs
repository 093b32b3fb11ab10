//! Bounded sets of label values.

use crate::limits::METRIC_SERIES_MAX;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The label value of what has no series of its own.
pub(super) const OTHER: &str = "other";

/// The names that have series of their own, as many as a scrape may hold. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Series<T>(Arc<Mutex<BTreeSet<T>>>);

impl<T> Default for Series<T> {
    fn default() -> Series<T> {
        Series(Arc::default())
    }
}

impl<T: Ord + Clone> Series<T> {
    /// Whether `name` has a series of its own. It gets one while there is room.
    pub(super) fn admits(&self, name: &T) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(name) || (known.len() < METRIC_SERIES_MAX && known.insert(name.clone()))
    }
}

/// The label value of `name`, or that of all that have no series of their own.
pub(super) fn value_if(own: bool, name: &str) -> String {
    if own {
        label_value(name)
    } else {
        OTHER.to_owned()
    }
}

/// A label value as the exposition format wants it.
pub(crate) fn label_value(name: &str) -> String {
    name.replace('\\', r"\\").replace('"', "\\\"")
}
