//! What a node counts, for Prometheus.
//!
//! Base units, unit last in the name. The tenant is never a label: a fleet has too many.

use crate::limits::METRIC_SERIES_MAX;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weir_admission::{AdmitOutcome, Micros, PriorityName, TargetName};

/// The label value of what has no series of its own.
const OTHER: &str = "other";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    target: String,
    priority: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TargetLabels {
    target: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    reason: &'static str,
}

/// Counters and histograms of one node. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    series: Arc<Mutex<Series>>,
    decisions: Family<DecisionLabels, Counter>,
    admit_duration: Histogram,
    defer_delay: Histogram,
    upstream_429: Family<TargetLabels, Counter>,
    refused: Family<RefusalLabels, Counter>,
    sessions: Gauge,
    session_operations: Histogram,
    session_cut_off: Counter,
    batch: BatchMetrics,
    history: HistoryMetrics,
}

/// A session counts as open until this is dropped.
#[derive(Debug)]
pub struct OpenSession(Gauge);

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// What a batcher counts.
#[derive(Clone, Debug)]
pub struct BatchMetrics {
    operations: Histogram,
    commit: Histogram,
}

impl BatchMetrics {
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

/// What the history of use tells of itself.
#[derive(Clone, Debug, Default)]
pub struct HistoryMetrics {
    store_up: Gauge,
    store_bytes: Gauge,
    store_errors: Counter,
    store_damaged: Counter,
    overflow: Counter,
    lost_rows: Counter,
}

impl HistoryMetrics {
    /// Whether the store works, and the bytes of its rows.
    pub fn store(&self, up: bool, bytes: u64) {
        self.store_up.set(i64::from(up));
        self.store_bytes
            .set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// The store refused to work.
    pub fn store_error(&self) {
        self.store_errors.inc();
    }

    /// A damaged store was put aside.
    pub fn store_damaged(&self) {
        self.store_damaged.inc();
    }

    /// So many things were counted together for want of rows of their own.
    pub fn overflowed(&self, times: u64) {
        self.overflow.inc_by(times);
    }

    /// Whether the store works, and how many were put aside.
    #[cfg(test)]
    pub(crate) fn told(&self) -> (bool, u64) {
        (self.store_up.get() == 1, self.store_damaged.get())
    }

    /// So many rows were given up.
    pub fn lost(&self, rows: u64) {
        self.lost_rows.inc_by(rows);
    }
}

impl Default for BatchMetrics {
    fn default() -> BatchMetrics {
        BatchMetrics {
            operations: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            commit: Histogram::new(exponential_buckets(0.000_25, 2.0, 14)),
        }
    }
}

/// Where the last decisions were counted. They come in batches, mostly of one target: to find the counter
/// anew for each would cost as much as to answer it.
#[derive(Debug, Default)]
pub struct LastDecisions {
    of: Option<(TargetName, PriorityName)>,
    /// By outcome.
    counters: BTreeMap<&'static str, Counter>,
}

/// The names that have a series of their own.
#[derive(Debug, Default)]
struct Series {
    decisions: BTreeSet<(TargetName, PriorityName)>,
    targets: BTreeSet<TargetName>,
}

/// Admits `name` to `known` while there is room.
fn admit_series<T: Ord>(known: &mut BTreeSet<T>, name: T) -> bool {
    known.contains(&name) || (known.len() < METRIC_SERIES_MAX && known.insert(name))
}

/// A label value as the exposition format wants it.
pub(crate) fn label_value(name: &str) -> String {
    name.replace('\\', r"\\").replace('"', "\\\"")
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// A registry with every metric of a node, all at zero.
    pub fn new() -> Metrics {
        let metrics = Metrics {
            registry: Arc::new(Mutex::new(Registry::with_prefix("weir"))),
            series: Arc::default(),
            decisions: Family::default(),
            admit_duration: Histogram::new(exponential_buckets(0.000_25, 2.0, 14)),
            defer_delay: Histogram::new(exponential_buckets(0.001, 4.0, 9)),
            upstream_429: Family::default(),
            refused: Family::default(),
            sessions: Gauge::default(),
            session_operations: Histogram::new(exponential_buckets(1.0, 2.0, 9)),
            session_cut_off: Counter::default(),
            batch: BatchMetrics::default(),
            history: HistoryMetrics::default(),
        };
        metrics.register();
        metrics.register_sessions();
        metrics.register_history();
        metrics
    }

    fn register(&self) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register(
            "build",
            "Version of this program",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        registry.register(
            "admit_decisions",
            "Answers to asks, by target, priority and outcome",
            self.decisions.clone(),
        );
        registry.register_with_unit(
            "admit_duration",
            "Time from the arrival of an ask to its answer",
            Unit::Seconds,
            self.admit_duration.clone(),
        );
        registry.register_with_unit(
            "defer_delay",
            "Time after which deferred callers were told to come back",
            Unit::Seconds,
            self.defer_delay.clone(),
        );
        registry.register(
            "upstream_429",
            "Grants released as throttled by the provider",
            self.upstream_429.clone(),
        );
        registry.register(
            "refused_calls",
            "Calls answered with an error, by reason",
            self.refused.clone(),
        );
        registry.register(
            "batch_operations",
            "Operations per log entry",
            self.batch.operations.clone(),
        );
        registry.register_with_unit(
            "batch_commit",
            "Time from proposing a log entry to its outcomes",
            Unit::Seconds,
            self.batch.commit.clone(),
        );
    }

    fn register_sessions(&self) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register("sessions", "Sessions open now", self.sessions.clone());
        registry.register(
            "session_operations",
            "Operations per frame of a session; the count is that of frames",
            self.session_operations.clone(),
        );
        registry.register(
            "session_cut_off",
            "Sessions ended because their client did not read its answers",
            self.session_cut_off.clone(),
        );
    }

    fn register_history(&self) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register(
            "history_store_up",
            "1 if the history of use is kept on disk",
            self.history.store_up.clone(),
        );
        registry.register_with_unit(
            "history_store",
            "Size of the rows of the history of use",
            Unit::Bytes,
            self.history.store_bytes.clone(),
        );
        registry.register(
            "history_store_errors",
            "Times the store of the history of use did not work",
            self.history.store_errors.clone(),
        );
        registry.register(
            "history_store_damaged",
            "Times the store of the history of use was damaged and put aside",
            self.history.store_damaged.clone(),
        );
        registry.register(
            "history_overflow",
            "Decisions counted under (other) in the history of use",
            self.history.overflow.clone(),
        );
        registry.register(
            "history_lost_rows",
            "Rows of the history of use given up because they could not be written",
            self.history.lost_rows.clone(),
        );
    }

    /// What the history of use counts into.
    pub fn history(&self) -> HistoryMetrics {
        self.history.clone()
    }

    /// Adds values that are read when somebody asks for them.
    pub fn collect(&self, collector: Box<dyn Collector>) {
        self.registry
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .register_collector(collector);
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
        self.decided_after(
            &mut LastDecisions::default(),
            target,
            priority,
            outcome,
            after,
        );
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
        let kind = match outcome {
            AdmitOutcome::Admitted(_) => "admitted",
            AdmitOutcome::Deferred(deferred) => {
                self.defer_delay.observe(seconds(deferred.retry_in));
                "deferred"
            }
            AdmitOutcome::Rejected(_) => "rejected",
        };
        let alike = |(of, at): &(TargetName, PriorityName)| of == target && at == priority;
        if !last.of.as_ref().is_some_and(alike) {
            last.of = Some((target.clone(), priority.clone()));
            last.counters.clear();
        }
        last.counters
            .entry(kind)
            .or_insert_with(|| self.decision_counter(target, priority, kind))
            .inc();
        self.admit_duration.observe(after.as_secs_f64());
    }

    fn decision_counter(
        &self,
        target: &TargetName,
        priority: &PriorityName,
        kind: &'static str,
    ) -> Counter {
        let known = {
            let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
            admit_series(&mut series.decisions, (target.clone(), priority.clone()))
        };
        let labels = DecisionLabels {
            target: if known {
                label_value(target.as_str())
            } else {
                OTHER.to_owned()
            },
            priority: if known {
                label_value(priority.as_str())
            } else {
                OTHER.to_owned()
            },
            outcome: kind,
        };
        self.decisions.get_or_create_owned(&labels)
    }

    /// A provider refused a granted call.
    pub fn throttled(&self, target: &TargetName) {
        let known = {
            let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
            admit_series(&mut series.targets, target.clone())
        };
        let target = if known {
            label_value(target.as_str())
        } else {
            OTHER.to_owned()
        };
        self.upstream_429
            .get_or_create(&TargetLabels { target })
            .inc();
    }

    /// A call was answered with an error.
    pub fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&RefusalLabels { reason }).inc();
    }

    /// A session was opened; it is open until what this returns is dropped.
    pub fn session(&self) -> OpenSession {
        self.sessions.inc();
        OpenSession(self.sessions.clone())
    }

    /// A frame with this many operations came in.
    pub fn session_frame(&self, operations: usize) {
        self.session_operations
            .observe(f64::from(u32::try_from(operations).unwrap_or(u32::MAX)));
    }

    /// A session ended because its client did not read.
    pub fn session_cut_off(&self) {
        self.session_cut_off.inc();
    }

    /// Everything in the older text format of Prometheus, which is read by more tools.
    pub fn render_classic(&self) -> Result<String, std::fmt::Error> {
        self.render().map(|text| classic(&text))
    }

    /// Everything in the OpenMetrics text format.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

/// OpenMetrics text as the older format has it: a counter is known by the name of its sample, an info is a
/// gauge, and units and the end are not told.
fn classic(open_metrics: &str) -> String {
    let (mut text, mut helps) = (String::with_capacity(open_metrics.len()), BTreeMap::new());
    for line in open_metrics.lines() {
        if let Some(told) = line.strip_prefix("# TYPE ") {
            let (name, kind) = told.split_once(' ').unwrap_or((told, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            if let Some(help) = helps.remove(name) {
                text += &format!("# HELP {name}{suffix} {help}\n");
            }
            text += &format!("# TYPE {name}{suffix} {kind}\n");
        } else if let Some(told) = line.strip_prefix("# HELP ") {
            // Its suffix is known with the type, which follows.
            if let Some((name, help)) = told.split_once(' ') {
                helps.insert(name.to_owned(), help.to_owned());
            }
        } else if !line.starts_with('#') {
            text += line;
            text.push('\n');
        }
    }
    text
}

/// Metrics are the only place where time becomes a float.
pub(crate) fn seconds(us: Micros) -> f64 {
    Duration::from_micros(us).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_admission::Rejected;

    fn decide(metrics: &Metrics, target: &str) {
        let target = TargetName::new(target).unwrap();
        let priority = PriorityName::new("p1").unwrap();
        let outcome = AdmitOutcome::Rejected(Rejected::Stale);
        metrics.decided(&target, &priority, &outcome, Duration::from_millis(1));
    }

    #[test]
    fn series_are_bounded_and_the_rest_is_counted_together() {
        let metrics = Metrics::new();
        for number in 0..METRIC_SERIES_MAX + 7 {
            decide(&metrics, &format!("pool/{number:05}"));
        }
        decide(&metrics, "pool/00000");
        let text = metrics.render().unwrap();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("weir_admit_decisions_total{"))
            .collect();
        assert_eq!(lines.len(), METRIC_SERIES_MAX + 1);
        assert!(text.contains(
            r#"weir_admit_decisions_total{target="other",priority="other",outcome="rejected"} 7"#
        ));
        assert!(text.contains(
            r#"weir_admit_decisions_total{target="pool/00000",priority="p1",outcome="rejected"} 2"#
        ));
    }

    #[test]
    fn names_cannot_break_the_format() {
        let metrics = Metrics::new();
        decide(&metrics, r#"a"b\c"#);
        assert!(metrics.render().unwrap().contains(r#"target="a\"b\\c""#));
    }
}
