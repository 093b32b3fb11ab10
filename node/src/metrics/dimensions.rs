//! Which dimensions the policies know, so that labels are theirs and not whatever callers write.

use crate::limits::{DIMENSIONS_LOOK_EVERY, METRIC_SERIES_MAX};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;
use weir_admission::{DimensionName, TargetName};

/// The dimensions of targets, as of the last look at their policies. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Dimensions(Arc<Mutex<BTreeMap<TargetName, Known>>>);

#[derive(Debug)]
struct Known {
    dimensions: BTreeSet<DimensionName>,
    looked_at: Instant,
}

impl Dimensions {
    /// Whether the target's policy knows the dimension. `look` tells all that it knows, and is not asked for
    /// each: a name that is wrong comes with every call of its caller.
    pub(super) fn knows(
        &self,
        target: &TargetName,
        dimension: &DimensionName,
        now: Instant,
        look: impl FnOnce() -> BTreeSet<DimensionName>,
    ) -> bool {
        let mut targets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |known: &&Known| {
            known.dimensions.contains(dimension) || now < known.looked_at + DIMENSIONS_LOOK_EVERY
        };
        if let Some(known) = targets.get(target).filter(fresh) {
            return known.dimensions.contains(dimension);
        }
        if targets.len() >= METRIC_SERIES_MAX && !targets.contains_key(target) {
            return false;
        }
        let dimensions = look();
        let knows = dimensions.contains(dimension);
        let looked_at = now;
        targets.insert(
            target.clone(),
            Known {
                dimensions,
                looked_at,
            },
        );
        knows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_looked_at_when_a_name_is_new_and_not_for_each_wrong_one() {
        let dimensions = Dimensions::default();
        let (start, mut looks) = (Instant::now(), 0);
        let name = |name: &str| DimensionName::new(name).unwrap();
        let mut knows = |target: &str, dimension: &str, after_ms: u64, policy: &[&str]| {
            let target = TargetName::new(target).unwrap();
            let now = start + std::time::Duration::from_millis(after_ms);
            let knows = dimensions.knows(&target, &name(dimension), now, || {
                looks += 1;
                policy.iter().map(|dimension| name(dimension)).collect()
            });
            (knows, looks)
        };
        let one = &["tokens"];
        assert_eq!(knows("a", "tokens", 0, one), (true, 1));
        assert_eq!(knows("a", "tokens", 60_000, one), (true, 1));
        assert_eq!(knows("a", "nonsense", 60_000, one), (false, 2));
        for number in 0..999 {
            assert_eq!(knows("a", "nonsense", 60_000 + number, one), (false, 2));
        }
        let two = &["tokens", "images"];
        assert_eq!(knows("a", "images", 60_999, two), (false, 2));
        assert_eq!(knows("a", "images", 61_000, two), (true, 3));
        assert_eq!(knows("gone", "tokens", 61_000, &[]), (false, 4));
        for number in 0..METRIC_SERIES_MAX {
            let _ = knows(&format!("pool/{number}"), "tokens", 61_000, one);
        }
        let (known, looked) = knows("one too many", "tokens", 61_000, one);
        assert!(!known);
        assert_eq!(looked, 4 + METRIC_SERIES_MAX - 2);
    }
}
