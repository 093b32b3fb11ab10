//! What batchers count.

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// What a batcher counts.
#[derive(Clone, Debug)]
pub struct BatchMetrics {
    operations: Histogram,
    commit: Histogram,
}

impl Default for BatchMetrics {
    fn default() -> BatchMetrics {
        BatchMetrics {
            operations: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            commit: Histogram::new(exponential_buckets(0.000_25, 2.0, 14)),
        }
    }
}

impl BatchMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "batch_operations",
            "Operations per log entry",
            self.operations.clone(),
        );
        registry.register_with_unit(
            "batch_commit",
            "Time from proposing a log entry to its outcomes",
            Unit::Seconds,
            self.commit.clone(),
        );
    }

    /// An entry with this many operations was proposed.
    pub fn entry(&self, operations: usize) {
        self.operations
            .observe(f64::from(u32::try_from(operations).unwrap_or(u32::MAX)));
    }

    /// An entry was committed and applied this long after it was proposed.
    pub fn committed(&self, after: Duration) {
        self.commit.observe(after.as_secs_f64());
    }
}
