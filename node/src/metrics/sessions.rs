//! What is counted of sessions.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug)]
pub(super) struct SessionMetrics {
    open: Gauge,
    operations: Histogram,
    cut_off: Counter,
}

impl Default for SessionMetrics {
    fn default() -> SessionMetrics {
        SessionMetrics {
            open: Gauge::default(),
            operations: Histogram::new(exponential_buckets(1.0, 2.0, 9)),
            cut_off: Counter::default(),
        }
    }
}

impl SessionMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("sessions", "Sessions open now", self.open.clone());
        registry.register(
            "session_operations",
            "Operations per frame of a session; the count is that of frames",
            self.operations.clone(),
        );
        registry.register(
            "session_cut_off",
            "Sessions ended because their client did not read its answers",
            self.cut_off.clone(),
        );
    }

    pub(super) fn open(&self) -> OpenSession {
        self.open.inc();
        OpenSession(self.open.clone())
    }

    pub(super) fn frame(&self, operations: usize) {
        self.operations
            .observe(f64::from(u32::try_from(operations).unwrap_or(u32::MAX)));
    }

    pub(super) fn cut_off(&self) {
        self.cut_off.inc();
    }
}

/// A session counts as open until this is dropped.
#[derive(Debug)]
pub struct OpenSession(Gauge);

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.dec();
    }
}
