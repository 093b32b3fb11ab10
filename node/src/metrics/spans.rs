//! What becomes of the spans for an OTLP collector.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// What is counted of exported spans. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct SpanMetrics {
    exported: Counter,
    failed: Counter,
    dropped: Counter,
    all: Family<Labels, Counter>,
}

impl Default for SpanMetrics {
    fn default() -> SpanMetrics {
        let all = Family::<Labels, Counter>::default();
        let of = |outcome| all.get_or_create_owned(&Labels { outcome });
        SpanMetrics {
            exported: of("exported"),
            failed: of("failed"),
            dropped: of("dropped"),
            all,
        }
    }
}

impl SpanMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "otlp_spans",
            "Spans for the OTLP collector: exported to it, lost when that failed, or dropped for want of room",
            self.all.clone(),
        );
    }

    /// The collector took so many.
    pub fn exported(&self, spans: u64) {
        self.exported.inc_by(spans);
    }

    /// The collector did not take so many.
    pub fn failed(&self, spans: u64) {
        self.failed.inc_by(spans);
    }

    /// One found no room among those that wait.
    pub fn dropped(&self) {
        self.dropped.inc();
    }

    /// How many were exported, lost and dropped.
    #[cfg(test)]
    pub(crate) fn told(&self) -> [u64; 3] {
        [&self.exported, &self.failed, &self.dropped].map(Counter::get)
    }
}
