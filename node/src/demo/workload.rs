//! The load: six tenants in three priorities, every one of them always wanting more than its part.
//!
//! It is the cross-priority workload of the Backpressure paper (priorities 5:3:2, twice and four times
//! as many workflows in the lower ones, 60 calls a second) with a 10 s window instead of 1 s, three times
//! the workflows so that no queue runs dry, and completions of random length.

use std::time::Duration;

/// Everything about the fleet that does not depend on how it asks.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Priorities, highest first.
    pub classes: Vec<Class>,
    /// Worker processes.
    pub workers: usize,
    /// Slots of one worker process.
    pub slots: usize,
    /// Least and most tokens of a prompt.
    pub prompt_tokens: (u64, u64),
    /// Upper bound of a completion, sent with every call.
    pub max_tokens: u64,
    /// How late the engine's durable timers and signals are, at least and at most.
    pub engine_late: (Duration, Duration),
    /// Seed of prompts and timers.
    pub seed: u64,
}

/// One priority.
#[derive(Clone, Debug)]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// Its weight.
    pub weight: u32,
    /// Its tenants, who share it equally.
    pub tenants: [&'static str; 2],
    /// Workflows of each tenant: each wants one call after the other, without a pause.
    pub workflows: usize,
}

impl Workload {
    /// The demo's load.
    pub fn cross_priority(seed: u64) -> Workload {
        let class = |name, weight, tenants, workflows| Class {
            name,
            weight,
            tenants,
            workflows,
        };
        Workload {
            classes: vec![
                class("p1", 5, ["aster", "birch"], 12),
                class("p2", 3, ["cedar", "daisy"], 24),
                class("p3", 2, ["elder", "fern"], 48),
            ],
            workers: 4,
            slots: 12,
            prompt_tokens: (40, 120),
            max_tokens: 200,
            engine_late: (Duration::from_millis(5), Duration::from_millis(40)),
            seed,
        }
    }

    /// Workflows of all tenants.
    pub fn workflows(&self) -> usize {
        self.classes
            .iter()
            .map(|class| class.workflows * class.tenants.len())
            .sum()
    }

    /// The part of the whole that each class may have, from 0 to 1, while all of them want more.
    pub fn entitlements(&self) -> Vec<f64> {
        let weights: u32 = self.classes.iter().map(|class| class.weight).sum();
        let part = |class: &Class| f64::from(class.weight) / f64::from(weights.max(1));
        self.classes.iter().map(part).collect()
    }
}

/// The largest relative error of a part against what it was entitled to. `served` are amounts in any
/// unit; a whole of nothing is an error of 1.
pub fn largest_error(served: &[f64], entitlements: &[f64]) -> f64 {
    let whole: f64 = served.iter().sum();
    if whole <= 0.0 {
        return 1.0;
    }
    let error = |(part, entitled): (&f64, &f64)| (part / whole / entitled - 1.0).abs();
    served
        .iter()
        .zip(entitlements)
        .map(error)
        .fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entitlements_follow_the_weights() {
        assert_eq!(
            Workload::cross_priority(1).entitlements(),
            vec![0.5, 0.3, 0.2]
        );
    }

    proptest! {
        #[test]
        fn entitlements_are_parts_of_one(weights in prop::collection::vec(1u32..10_000, 1..8)) {
            let mut workload = Workload::cross_priority(1);
            let class = workload.classes[0].clone();
            workload.classes =
                weights.iter().map(|weight| Class { weight: *weight, ..class.clone() }).collect();
            let parts = workload.entitlements();
            prop_assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            for (i, j) in (0..parts.len()).zip(1..parts.len()) {
                let ratio = f64::from(weights[i]) / f64::from(weights[j]);
                prop_assert!((parts[i] / parts[j] / ratio - 1.0).abs() < 1e-9);
            }
        }

        #[test]
        fn no_error_if_and_only_if_served_as_entitled(scale in 0.1f64..1e6, off in 0.01f64..0.5) {
            let parts = [0.5, 0.3, 0.2];
            let served: Vec<f64> = parts.iter().map(|part| part * scale).collect();
            prop_assert!(largest_error(&served, &parts) < 1e-9);
            let skewed = [served[0], served[1], served[2] * (1.0 - off)];
            prop_assert!(largest_error(&skewed, &parts) > off * 0.7);
        }
    }

    #[test]
    fn nothing_served_is_no_fairness() {
        assert_eq!(largest_error(&[0.0, 0.0], &[0.5, 0.5]), 1.0);
    }
}
