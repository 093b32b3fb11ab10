//! What a call will probably cost.

use super::{Queue, Target, Uncertain, Units, at};
use crate::Estimate;
use crate::limits::{DIMENSIONS_MAX, UNITS_MAX};

/// Samples over which the prior fades out.
const PRIOR_SAMPLES: u32 = 16;
/// Samples in the running mean and variance.
const WINDOW_SAMPLES: u32 = 32;

/// Running mean and variance of (actual - lower bound) in one dimension of one tenant's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Learned {
    pub(crate) mean: i64,
    pub(crate) variance: i128,
    pub(crate) samples: u32,
}

/// A cost between bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) lower: Units,
    pub(crate) upper: Units,
}

/// What is charged, and what part of it is a guess.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    pub(crate) units: Units,
    pub(crate) uncertain: Option<Box<Uncertain>>,
}

impl Charge {
    /// Variance in a slot.
    pub(crate) fn variance(&self, slot: usize) -> u128 {
        self.uncertain
            .as_ref()
            .and_then(|u| u.variance.get(slot).copied())
            .unwrap_or(0)
    }
}

impl Learned {
    /// Mean and variance over a span, the prior (half the span, a quarter of it as deviation) weighing
    /// what the samples do not yet say.
    fn over(&self, span: u64) -> (u64, u128) {
        let span = i128::from(span.min(UNITS_MAX));
        let known = i128::from(self.samples.min(PRIOR_SAMPLES));
        let unknown = i128::from(PRIOR_SAMPLES).saturating_sub(known);
        let quarter = span.checked_div(4).unwrap_or(0);
        let blend = |prior: i128, learned: i128| {
            prior
                .saturating_mul(unknown)
                .saturating_add(learned.saturating_mul(known))
                .checked_div(i128::from(PRIOR_SAMPLES))
                .unwrap_or(0)
        };
        let mean = blend(span.checked_div(2).unwrap_or(0), i128::from(self.mean)).clamp(0, span);
        let variance = blend(quarter.saturating_mul(quarter), self.variance).max(0);
        (
            u64::try_from(mean).unwrap_or(0),
            u128::try_from(variance).unwrap_or(0),
        )
    }

    fn learn(&mut self, sample: i64) {
        self.samples = self.samples.saturating_add(1).min(WINDOW_SAMPLES);
        let weight = i64::from(self.samples);
        let distance = sample.saturating_sub(self.mean);
        self.mean = self
            .mean
            .saturating_add(distance.checked_div(weight).unwrap_or(0));
        let squared = i128::from(distance).saturating_mul(i128::from(distance));
        let step = squared
            .saturating_sub(self.variance)
            .checked_div(i128::from(weight));
        self.variance = self.variance.saturating_add(step.unwrap_or(0));
    }
}

impl Target {
    /// What to charge a tenant's call, by the policy's estimate. Never more than can ever fit, so that a
    /// wide bound alone does not keep a call out.
    pub(crate) fn estimate(&self, queue: Option<&Queue>, bounds: &Bounds) -> Charge {
        let mode = self
            .policy
            .as_ref()
            .map_or(Estimate::Learned, |policy| policy.estimate);
        if bounds.lower == bounds.upper || mode == Estimate::Reserve {
            return Charge {
                units: bounds.upper,
                uncertain: None,
            };
        }
        let mut units = bounds.lower;
        let mut uncertain = Uncertain {
            lower: bounds.lower,
            slots: 0,
            variance: [0; DIMENSIONS_MAX],
        };
        for (slot, charged) in units.iter_mut().enumerate() {
            let span = at(&bounds.upper, slot).saturating_sub(*charged);
            if span == 0 {
                continue;
            }
            let learned = queue.and_then(|queue| queue.learned.get(slot).copied());
            let (mean, variance) = learned.unwrap_or_default().over(span);
            *charged = charged.saturating_add(mean).min(self.largest_fitting(slot));
            uncertain.slots |= 1u8
                .checked_shl(u32::try_from(slot).unwrap_or(u32::MAX))
                .unwrap_or(0);
            if let Some(place) = uncertain.variance.get_mut(slot) {
                *place = variance;
            }
        }
        Charge {
            units,
            uncertain: Some(Box::new(uncertain)),
        }
    }

    /// The largest cost in a slot that every limit on it can ever fit.
    fn largest_fitting(&self, slot: usize) -> u64 {
        self.meters
            .iter()
            .filter(|meter| meter.slot == slot)
            .map(crate::meter::Meter::largest_fitting)
            .min()
            .unwrap_or(UNITS_MAX)
    }
}

impl Queue {
    /// Learns from what a call used in the slots that were estimated.
    pub(crate) fn learn(&mut self, uncertain: &Uncertain, known: &[Option<u64>; DIMENSIONS_MAX]) {
        if self.learned.is_empty() {
            self.learned = vec![Learned::default(); DIMENSIONS_MAX];
        }
        for (slot, learned) in self.learned.iter_mut().enumerate() {
            let bit = 1u8
                .checked_shl(u32::try_from(slot).unwrap_or(u32::MAX))
                .unwrap_or(0);
            let Some(Some(actual)) = known.get(slot) else {
                continue;
            };
            if uncertain.slots & bit == 0 {
                continue;
            }
            let actual = i64::try_from(*actual).unwrap_or(i64::MAX);
            let lower = i64::try_from(at(&uncertain.lower, slot)).unwrap_or(i64::MAX);
            learned.learn(actual.saturating_sub(lower));
        }
    }
}
