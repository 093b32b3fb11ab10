//! How good the estimates were that calls were charged by.

use super::series::{OTHER, label_value};
use crate::limits::METRIC_HISTOGRAMS_MAX;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use weir_admission::{DimensionName, TargetName};

/// Upper bounds of the ratios told apart: finer around 1, where estimates should be.
const RATIOS: [f64; 12] = [
    0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    target: String,
    dimension: String,
}

/// What is counted of estimates. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct EstimateMetrics {
    ratios: Family<Labels, Histogram, fn() -> Histogram>,
    known: Arc<Mutex<Known>>,
}

/// The histograms that there are, found without making a label: every release looks.
#[derive(Debug, Default)]
struct Known {
    own: BTreeMap<TargetName, BTreeMap<DimensionName, Histogram>>,
    count: usize,
    /// Of those that have none of their own.
    rest: Option<Histogram>,
}

impl Default for EstimateMetrics {
    fn default() -> EstimateMetrics {
        EstimateMetrics {
            ratios: Family::new_with_constructor(|| Histogram::new(RATIOS)),
            known: Arc::default(),
        }
    }
}

impl EstimateMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "estimate_error_ratio",
            "Units used by calls that went well over units charged when they were admitted, by target and dimension",
            self.ratios.clone(),
        );
    }

    /// A call of a target that was charged so many units of a dimension used so many.
    pub fn settled(&self, target: &TargetName, dimension: &DimensionName, charged: u64, used: u64) {
        // There is no ratio to nothing.
        if charged > 0 {
            let ratio = used as f64 / charged as f64;
            self.histogram(target, dimension).observe(ratio);
        }
    }

    fn histogram(&self, target: &TargetName, dimension: &DimensionName) -> Histogram {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let own = known.own.get(target).and_then(|all| all.get(dimension));
        if let Some(own) = own {
            return own.clone();
        }
        let make = |target: String, dimension: String| {
            let labels = Labels { target, dimension };
            self.ratios.get_or_create_owned(&labels)
        };
        if known.count >= METRIC_HISTOGRAMS_MAX {
            let rest = || make(OTHER.to_owned(), OTHER.to_owned());
            return known.rest.get_or_insert_with(rest).clone();
        }
        let own = make(
            label_value(target.as_str()),
            label_value(dimension.as_str()),
        );
        known.count += 1;
        let all = known.own.entry(target.clone()).or_default();
        all.insert(dimension.clone(), own.clone());
        own
    }
}

#[cfg(test)]
mod tests {
    use crate::limits::METRIC_HISTOGRAMS_MAX;
    use crate::metrics::Metrics;
    use weir_admission::{DimensionName, TargetName};

    fn settled(metrics: &Metrics, target: &str, charged: u64, used: u64) {
        let target = TargetName::new(target).unwrap();
        let dimension = DimensionName::new("tokens").unwrap();
        metrics
            .estimates()
            .settled(&target, &dimension, charged, used);
    }

    fn told(metrics: &Metrics, line: &str) {
        let text = metrics.render().unwrap();
        assert!(
            text.lines().any(|told| told == line),
            "{line}\nis not in\n{text}"
        );
    }

    #[test]
    fn the_ratio_is_that_of_use_to_charge() {
        let metrics = Metrics::default();
        for (charged, used) in [(1_000, 1_000), (1_000, 500), (1_000, 3_000), (0, 7), (8, 0)] {
            settled(&metrics, "a", charged, used);
        }
        let labels = r#"target="a",dimension="tokens""#;
        for (bound, count) in [
            ("0.1", 1),
            ("0.5", 2),
            ("0.9", 2),
            ("1.0", 3),
            ("2.0", 3),
            ("4.0", 4),
        ] {
            let name = "weir_estimate_error_ratio_bucket";
            told(
                &metrics,
                &format!(r#"{name}{{le="{bound}",{labels}}} {count}"#),
            );
        }
        told(
            &metrics,
            &format!("weir_estimate_error_ratio_sum{{{labels}}} 4.5"),
        );
        told(
            &metrics,
            &format!("weir_estimate_error_ratio_count{{{labels}}} 4"),
        );
    }

    #[test]
    fn histograms_are_bounded_and_the_rest_is_counted_together() {
        let metrics = Metrics::default();
        for number in 0..METRIC_HISTOGRAMS_MAX + 7 {
            settled(&metrics, &format!("pool/{number:05}"), 1, 1);
        }
        settled(&metrics, "pool/00000", 1, 1);
        let name = "weir_estimate_error_ratio_count";
        let text = metrics.render().unwrap();
        let counts = text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(counts, METRIC_HISTOGRAMS_MAX + 1);
        told(
            &metrics,
            &format!(r#"{name}{{target="other",dimension="other"}} 7"#),
        );
        told(
            &metrics,
            &format!(r#"{name}{{target="pool/00000",dimension="tokens"}} 2"#),
        );
    }
}
