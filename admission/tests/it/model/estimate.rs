//! What a call will probably cost: the mean and variance of a tenant's last calls above their lower bound,
//! mixed with a first guess (half the span, with a quarter of it as deviation) until 16 calls were seen.

use super::{Charge, QueueName, Target, Units, of};
use std::collections::BTreeMap;
use weir_admission::{Amounts, DimensionName, Estimate, Refusal};

#[derive(Clone, Copy, Default)]
pub(super) struct Learned {
    mean: i128,
    variance: i128,
    seen: i128,
}

impl Learned {
    fn learn(&mut self, sample: i128) {
        self.seen = (self.seen + 1).min(32);
        let distance = sample - self.mean;
        self.mean += distance / self.seen;
        self.variance += (distance * distance - self.variance) / self.seen;
    }

    fn mixed(&self, first: i128, learned: i128) -> i128 {
        let known = self.seen.min(16);
        (first * (16 - known) + learned * known) / 16
    }

    /// Mean and variance over a span.
    fn over(&self, span: u64) -> (u64, u128) {
        let span = i128::from(span);
        let mean = self.mixed(span / 2, self.mean).clamp(0, span);
        let variance = self.mixed((span / 4) * (span / 4), self.variance).max(0);
        (mean as u64, variance as u128)
    }
}

/// Lower and upper bounds of a cost.
pub(super) struct Bounds {
    pub(super) lower: Units,
    pub(super) upper: Units,
}

impl Target {
    /// Every dimension named, zeros too, if the policy counts them all.
    pub(super) fn named(&self, amounts: &Amounts) -> Result<Units, Refusal> {
        let mut units = Units::new();
        for (dimension, number) in amounts.iter() {
            if !self.counted.contains(dimension) {
                return Err(Refusal::DimensionUnknown(dimension.clone()));
            }
            units.insert(dimension.clone(), number);
        }
        Ok(units)
    }

    pub(super) fn bounds(&self, cost: &Amounts, most: &Amounts) -> Result<Bounds, Refusal> {
        let lower = self.named(cost)?;
        let mut upper = lower.clone();
        let most = self.named(most)?;
        let fits = |(dimension, units): (&DimensionName, &u64)| *units >= of(&lower, dimension);
        super::rule(most.iter().all(fits), "cost_max", "must not be below cost")?;
        upper.extend(most);
        Ok(Bounds {
            lower: without_zeros(lower),
            upper: without_zeros(upper),
        })
    }

    pub(super) fn estimate(&self, queue: &QueueName, bounds: &Bounds) -> Charge {
        let reserve = self.policy().estimate == Estimate::Reserve;
        if reserve || bounds.lower == bounds.upper {
            return Charge::exact(bounds.upper.clone());
        }
        let mut units = bounds.lower.clone();
        let mut variances = BTreeMap::new();
        for (dimension, most) in &bounds.upper {
            let least = of(&bounds.lower, dimension);
            if *most == least {
                continue;
            }
            let learned = self
                .queues
                .get(queue)
                .and_then(|queue| queue.learned.get(dimension));
            let (mean, variance) = learned.copied().unwrap_or_default().over(most - least);
            // What can never fit is not guessed.
            let limits = self.meters.iter().filter(|m| m.dimension() == dimension);
            let largest = limits.map(|meter| meter.largest()).min();
            units.insert(
                dimension.clone(),
                (least + mean).min(largest.unwrap_or(u64::MAX)),
            );
            variances.insert(dimension.clone(), variance);
        }
        Charge {
            units: without_zeros(units),
            guess: Some((bounds.lower.clone(), variances)),
        }
    }

    /// Learns from what a call used where it was a guess.
    pub(super) fn learn(&mut self, name: &QueueName, charge: &Charge, known: &Units) {
        let (Some(queue), Some((lower, variances))) = (self.queues.get_mut(name), &charge.guess)
        else {
            return;
        };
        for dimension in variances.keys() {
            if let Some(actual) = known.get(dimension) {
                let sample = i128::from(*actual) - i128::from(of(lower, dimension));
                let learned = queue.learned.entry(dimension.clone()).or_default();
                learned.learn(sample);
            }
        }
    }
}

pub(super) fn without_zeros(mut units: Units) -> Units {
    units.retain(|_, units| *units > 0);
    units
}
