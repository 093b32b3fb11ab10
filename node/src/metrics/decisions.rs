//! What is counted of answers: decisions, throttled calls, errors.

use super::dimensions::Dimensions;
use super::series::{OTHER, Series, value_if};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use weir_admission::{AdmitOutcome, DimensionName, Micros, PriorityName, TargetName};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    target: String,
    priority: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpstreamLabels {
    target: String,
    /// Empty if the provider named none.
    dimension: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    reason: &'static str,
}

#[derive(Clone, Debug)]
pub(super) struct DecisionMetrics {
    decisions: Family<DecisionLabels, Counter>,
    decision_series: Series<(TargetName, PriorityName)>,
    duration: Histogram,
    defer_delay: Histogram,
    upstream_429: Family<UpstreamLabels, Counter>,
    upstream_series: Series<(TargetName, String)>,
    dimensions: Dimensions,
    refused: Family<RefusalLabels, Counter>,
}

impl Default for DecisionMetrics {
    fn default() -> DecisionMetrics {
        DecisionMetrics {
            decisions: Family::default(),
            decision_series: Series::default(),
            duration: Histogram::new(exponential_buckets(0.000_25, 2.0, 14)),
            defer_delay: Histogram::new(exponential_buckets(0.001, 4.0, 9)),
            upstream_429: Family::default(),
            upstream_series: Series::default(),
            dimensions: Dimensions::default(),
            refused: Family::default(),
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

impl DecisionMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "admit_decisions",
            "Answers to asks, by target, priority and outcome",
            self.decisions.clone(),
        );
        registry.register_with_unit(
            "admit_duration",
            "Time from the arrival of an ask to its answer",
            Unit::Seconds,
            self.duration.clone(),
        );
        registry.register_with_unit(
            "defer_delay",
            "Time after which deferred callers were told to come back",
            Unit::Seconds,
            self.defer_delay.clone(),
        );
        registry.register(
            "upstream_429",
            "Grants released as throttled by the provider, by target and the dimension that it named",
            self.upstream_429.clone(),
        );
        registry.register(
            "refused_calls",
            "Calls answered with an error, by reason",
            self.refused.clone(),
        );
    }

    pub(super) fn decided(
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
        self.duration.observe(after.as_secs_f64());
    }

    fn decision_counter(
        &self,
        target: &TargetName,
        priority: &PriorityName,
        outcome: &'static str,
    ) -> Counter {
        let own = self
            .decision_series
            .admits(&(target.clone(), priority.clone()));
        self.decisions.get_or_create_owned(&DecisionLabels {
            target: value_if(own, target.as_str()),
            priority: value_if(own, priority.as_str()),
            outcome,
        })
    }

    pub(super) fn throttled(
        &self,
        target: &TargetName,
        dimension: Option<&DimensionName>,
        dimensions: impl FnOnce() -> BTreeSet<DimensionName>,
    ) {
        let dimension = match dimension {
            None => "",
            Some(dimension) => {
                let known = self
                    .dimensions
                    .knows(target, dimension, Instant::now(), dimensions);
                if known { dimension.as_str() } else { OTHER }
            }
        };
        let name = (target.clone(), dimension.to_owned());
        let own = self.upstream_series.admits(&name);
        let labels = UpstreamLabels {
            target: value_if(own, target.as_str()),
            dimension: value_if(own, dimension),
        };
        self.upstream_429.get_or_create(&labels).inc();
    }

    pub(super) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&RefusalLabels { reason }).inc();
    }
}

/// Metrics are the only place where time becomes a float.
fn seconds(us: Micros) -> f64 {
    Duration::from_micros(us).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use crate::limits::METRIC_SERIES_MAX;
    use crate::metrics::Metrics;
    use std::time::Duration;
    use weir_admission::{AdmitOutcome, PriorityName, Rejected, TargetName};

    fn decide(metrics: &Metrics, target: &str) {
        let target = TargetName::new(target).unwrap();
        let priority = PriorityName::new("p1").unwrap();
        let outcome = AdmitOutcome::Rejected(Rejected::Stale);
        metrics.decided(&target, &priority, &outcome, Duration::from_millis(1));
    }

    #[test]
    fn series_are_bounded_and_the_rest_is_counted_together() {
        let metrics = Metrics::default();
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
        let metrics = Metrics::default();
        decide(&metrics, r#"a"b\c"#);
        assert!(metrics.render().unwrap().contains(r#"target="a\"b\\c""#));
    }
}
