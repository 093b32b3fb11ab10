//! What a node counts, for Prometheus: one file for each kind of thing that is counted.
//!
//! Base units, unit last in the name. The tenant is never a label: a fleet has too many.

mod batch;
mod classic;
mod connections;
mod decisions;
mod dimensions;
mod estimates;
mod history;
mod series;
mod sessions;
mod spans;

pub use self::batch::BatchMetrics;
pub use self::connections::{ClosedConnection, Door};
pub use self::decisions::LastDecisions;
pub use self::estimates::EstimateMetrics;
pub use self::history::HistoryMetrics;
pub(crate) use self::series::label_value;
pub use self::sessions::OpenSession;
pub use self::spans::SpanMetrics;

use self::connections::ConnectionMetrics;
use self::decisions::DecisionMetrics;
use self::sessions::SessionMetrics;
use prometheus_client::collector::Collector;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_admission::{AdmitOutcome, DimensionName, PriorityName, TargetName};

/// Counters and histograms of one node. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    decisions: DecisionMetrics,
    estimates: EstimateMetrics,
    batch: BatchMetrics,
    connections: ConnectionMetrics,
    sessions: SessionMetrics,
    history: HistoryMetrics,
    spans: SpanMetrics,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new(SpanMetrics::default())
    }
}

impl Metrics {
    /// A registry with every metric of a node, all at zero but those of spans, which belong to the process.
    pub fn new(spans: SpanMetrics) -> Metrics {
        let metrics = Metrics {
            registry: Arc::new(Mutex::new(Registry::with_prefix("weir"))),
            decisions: DecisionMetrics::default(),
            estimates: EstimateMetrics::default(),
            batch: BatchMetrics::default(),
            connections: ConnectionMetrics::default(),
            sessions: SessionMetrics::default(),
            history: HistoryMetrics::default(),
            spans,
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let mut registry = self.registry();
        registry.register(
            "build",
            "Version of this program",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        self.decisions.register(&mut registry);
        self.estimates.register(&mut registry);
        self.batch.register(&mut registry);
        self.connections.register(&mut registry);
        self.sessions.register(&mut registry);
        self.history.register(&mut registry);
        self.spans.register(&mut registry);
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the history of use counts into.
    pub fn history(&self) -> HistoryMetrics {
        self.history.clone()
    }

    /// Adds values that are read when somebody asks for them.
    pub fn collect(&self, collector: Box<dyn Collector>) {
        self.registry().register_collector(collector);
    }

    /// What releases are counted into.
    pub fn estimates(&self) -> EstimateMetrics {
        self.estimates.clone()
    }

    /// What the connections of a port count into.
    pub fn door(&self, port: &'static str) -> Door {
        self.connections.door(port)
    }

    /// What batchers count into.
    pub fn batch(&self) -> BatchMetrics {
        self.batch.clone()
    }

    /// An ask was decided this long after it arrived.
    pub fn decided(
        &self,
        target: &TargetName,
        priority: &PriorityName,
        outcome: &AdmitOutcome,
        after: Duration,
    ) {
        let mut last = LastDecisions::default();
        self.decided_after(&mut last, target, priority, outcome, after);
    }

    /// The same, after another decision.
    pub fn decided_after(
        &self,
        last: &mut LastDecisions,
        target: &TargetName,
        priority: &PriorityName,
        outcome: &AdmitOutcome,
        after: Duration,
    ) {
        self.decisions
            .decided(last, target, priority, outcome, after);
    }

    /// A provider refused a granted call, for the dimension that it named; `dimensions` tells those that the
    /// target's policy knows, and is not asked often.
    pub fn throttled(
        &self,
        target: &TargetName,
        dimension: Option<&DimensionName>,
        dimensions: impl FnOnce() -> BTreeSet<DimensionName>,
    ) {
        self.decisions.throttled(target, dimension, dimensions);
    }

    /// A call was answered with an error.
    pub fn refused(&self, reason: &'static str) {
        self.decisions.refused(reason);
    }

    /// A session was opened; it is open until what this returns is dropped.
    pub fn session(&self) -> OpenSession {
        self.sessions.open()
    }

    /// A frame with this many operations came in.
    pub fn session_frame(&self, operations: usize) {
        self.sessions.frame(operations);
    }

    /// A session ended because its client did not read.
    pub fn session_cut_off(&self) {
        self.sessions.cut_off();
    }

    /// Everything in the older text format of Prometheus, which is read by more tools.
    pub fn render_classic(&self) -> Result<String, std::fmt::Error> {
        self.render().map(|text| classic::classic(&text))
    }

    /// Everything in the OpenMetrics text format.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let registry = self.registry();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}
