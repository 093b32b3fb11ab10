//! One limit at work: its guard, its pacer and, if it slides, its log.

use crate::limits::{BUSY_BURST_HORIZONS, UNITS_MAX};
use crate::pacer::Pacer;
use crate::time::nanos;
use crate::window::Window;
use crate::{EnforcedBy, Kind, Limit, Micros, Policy};

/// Relative error of two clocks' rates that the guard covers, in parts per million.
const CLOCK_RATE_PPM: u64 = 200;

/// The parts of a guard (ALGORITHM: G = R + J + T * rho).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    /// R: longest ask-to-answer time after which a grant may be used.
    pub(crate) reply_window: Micros,
    /// J: spread of the fleet's send-to-provider latency.
    pub(crate) spread: Micros,
    /// Allowance for clocks that run at different rates.
    pub(crate) drift: Micros,
}

impl Guard {
    /// The guard of a limit under a policy.
    pub(crate) fn of(policy: &Policy, limit: &Limit) -> Guard {
        let share = limit.per.checked_div(600).unwrap_or(0);
        let reply_window = policy.reply_window.unwrap_or(share.clamp(12_000, 250_000));
        match limit.enforced_by {
            EnforcedBy::Us => Guard {
                reply_window,
                spread: 0,
                drift: 0,
            },
            EnforcedBy::Provider => Guard {
                reply_window,
                spread: policy.send_spread.unwrap_or(share.clamp(10_000, 100_000)),
                drift: limit.per.saturating_mul(CLOCK_RATE_PPM).div_ceil(1_000_000),
            },
        }
    }

    /// What is added to the period. Nothing where starts are what counts.
    pub(crate) fn total(self, enforced_by: EnforcedBy) -> Micros {
        match enforced_by {
            EnforcedBy::Us => 0,
            EnforcedBy::Provider => self
                .reply_window
                .saturating_add(self.spread)
                .saturating_add(self.drift),
        }
    }
}

/// A limit with what was used of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meter {
    /// The limit.
    pub(crate) limit: Limit,
    /// Where its dimension stands in every list of units.
    pub(crate) slot: usize,
    /// Its guard.
    pub(crate) guard: Guard,
    /// Cap time that is spent.
    pub(crate) pacer: Pacer,
    /// Starts that still count; only for a sliding limit.
    pub(crate) window: Option<Window>,
}

/// What a decision asks of one limit, in units of its dimension.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    /// The call itself.
    pub(crate) cost: u64,
    /// Calls that go first.
    pub(crate) ahead: u64,
    /// Room left for a higher priority.
    pub(crate) room: u64,
    /// Variance of the call's own estimate.
    pub(crate) variance: u128,
    /// Standard deviations held back, in thousandths.
    pub(crate) sigmas_milli: u32,
    /// True for a priority that is behind its share and alone: it need not wait for the pacer.
    pub(crate) skip_pacer: bool,
}

impl Meter {
    /// A limit of which nothing is used.
    pub(crate) fn new(limit: Limit, slot: usize, policy: &Policy) -> Meter {
        let guard = Guard::of(policy, &limit);
        let window = match limit.kind {
            Kind::Sliding => Some(Window::new(
                limit.per.saturating_add(guard.total(limit.enforced_by)),
            )),
            Kind::Bucket => None,
        };
        Meter {
            limit,
            slot,
            guard,
            pacer: Pacer::new(),
            window,
        }
    }

    /// The guarded period: what the log holds and the pacer spreads a cap over.
    pub(crate) fn period(&self) -> Micros {
        match &self.window {
            Some(window) => window.period(),
            None => self.limit.per.saturating_add(self.guard.drift),
        }
    }

    /// Cap time of `units`, in nanoseconds, rounded up.
    pub(crate) fn cap_time(&self, units: u64) -> i128 {
        let (period, cap) = (self.period(), self.limit.cap.max(1));
        // Almost always; and what fits 64 bits is divided by one instruction.
        if let Some(time) = in_64_bits(units, period) {
            return i128::from(time.div_ceil(cap));
        }
        let time = u128::from(units)
            .saturating_mul(u128::from(period))
            .saturating_mul(1_000)
            .div_ceil(u128::from(cap));
        i128::try_from(time).unwrap_or(i128::MAX)
    }

    /// Part of the cap that `units` take, as nanoseconds of the unguarded period.
    pub(crate) fn share(&self, units: u64) -> i64 {
        if let Some(share) = in_64_bits(units, self.limit.per) {
            let share = share.checked_div(self.limit.cap).unwrap_or(0);
            return i64::try_from(share).unwrap_or(i64::MAX);
        }
        let share = u128::from(units)
            .saturating_mul(u128::from(self.limit.per))
            .saturating_mul(1_000)
            .checked_div(u128::from(self.limit.cap))
            .unwrap_or(0);
        i64::try_from(share).unwrap_or(i64::MAX)
    }

    /// The largest single cost that can ever start.
    pub(crate) fn largest_fitting(&self) -> u64 {
        match self.limit.kind {
            Kind::Sliding => self.limit.cap,
            Kind::Bucket => {
                let burst = self.limit.burst.unwrap_or(self.limit.per);
                let depth = u128::from(self.limit.cap)
                    .saturating_mul(u128::from(burst))
                    .checked_div(u128::from(self.limit.per))
                    .unwrap_or(0);
                u64::try_from(depth)
                    .unwrap_or(UNITS_MAX)
                    .min(self.limit.cap)
            }
        }
    }

    /// Cap time that may start at once from idle, in nanoseconds. A bucket's depth is cut by the guard:
    /// starts that arrive bunched up by that much must still find it filled.
    fn burst(&self, largest_call: u64, busy: Option<Micros>) -> i128 {
        let burst = match (self.limit.kind, self.limit.burst) {
            (Kind::Sliding, Some(burst)) => nanos(burst),
            (Kind::Sliding, None) => {
                let tenth = nanos(self.limit.per.checked_div(10).unwrap_or(0));
                tenth
                    .max(self.cap_time(largest_call).saturating_mul(10))
                    .min(nanos(self.limit.per))
            }
            (Kind::Bucket, burst) => {
                let guard = self.guard.total(self.limit.enforced_by);
                nanos(burst.unwrap_or(self.limit.per))
                    .saturating_sub(nanos(guard))
                    .max(0)
            }
        };
        match (self.limit.kind, busy) {
            // Credit builds only while nobody waits; otherwise a first burst comes back every period.
            (Kind::Sliding, Some(horizon)) => {
                burst.min(nanos(horizon).saturating_mul(i128::from(BUSY_BURST_HORIZONS)))
            }
            (Kind::Sliding, None) | (Kind::Bucket, _) => burst,
        }
    }

    /// First legal start at or after `now`.
    pub(crate) fn earliest(&self, now: u64, need: Need) -> u64 {
        if need.cost == 0 && need.variance == 0 {
            // What a call does not use does not hold it, whoever waits for it.
            return now;
        }
        match &self.window {
            Some(window) => self.earliest_sliding(now, need, window),
            None => self.earliest_bucket(now, need),
        }
    }

    fn earliest_sliding(&self, now: u64, need: Need, window: &Window) -> u64 {
        let cap = self.limit.cap.max(1);
        let paced = if need.skip_pacer {
            now
        } else {
            stamp_at(
                self.pacer
                    .spent_until
                    .saturating_add(self.cap_time(need.ahead)),
            )
        };
        let quarter = cap.checked_div(4).unwrap_or(0);
        let margin = margin(window.variance(), need, quarter);
        let full = need
            .cost
            .min(cap.saturating_sub(margin))
            .saturating_add(need.ahead)
            .saturating_add(need.room.min(quarter));
        // Whole caps ahead take a period each. A last one that is exactly full needs no further period,
        // and an empty log fits whatever fits at all.
        let cycles = full.saturating_sub(1).checked_div(cap).unwrap_or(0);
        let rest = full
            .saturating_sub(cycles.saturating_mul(cap))
            .saturating_add(margin)
            .min(cap);
        let over = window.units().saturating_add(rest).saturating_sub(cap);
        let fits = if over == 0 {
            now
        } else {
            window.left(over).unwrap_or(now)
        };
        let logged = fits.saturating_add(cycles.saturating_mul(self.period()));
        now.max(paced).max(logged)
    }

    /// A bucket must hold the whole cost at the start; what goes beyond the guarded depth waits for it.
    fn earliest_bucket(&self, now: u64, need: Need) -> u64 {
        let cost = self.cap_time(need.cost);
        let beyond = cost.saturating_sub(self.burst(0, None)).max(0);
        let start = self
            .pacer
            .spent_until
            .saturating_add(self.cap_time(need.ahead))
            .saturating_add(cost)
            .saturating_add(beyond);
        now.max(stamp_at(start))
    }

    /// Charges a start. `busy` is the horizon if somebody waits behind it.
    pub(crate) fn charge(
        &mut self,
        start: u64,
        units: u64,
        variance: u128,
        largest_call: u64,
        busy: Option<Micros>,
    ) {
        if units == 0 && variance == 0 {
            return;
        }
        let floor = nanos(start).saturating_sub(self.burst(largest_call, busy));
        self.pacer.spend(start, floor, self.cap_time(units));
        if let Some(window) = &mut self.window {
            window.add(start, units, variance);
        }
    }

    /// Replaces the cost of an earlier start: in the log if it still counts; in the pacer, as far as its
    /// credit had room since.
    pub(crate) fn correct(&mut self, now: u64, start: u64, old: (u64, u128), new: (u64, u128)) {
        if old == new {
            return;
        }
        if let Some(window) = &mut self.window {
            window.correct(now, start, old, new);
        }
        let (before, after) = (self.cap_time(old.0), self.cap_time(new.0));
        self.pacer.correct(start, after.saturating_sub(before));
    }

    /// Units that count against the cap now.
    pub(crate) fn used(&self, now: u64) -> u64 {
        match &self.window {
            Some(window) => window.units_at(now),
            None => {
                let full = nanos(now).saturating_sub(self.burst(0, None));
                let spent = self.pacer.spent_until.saturating_sub(full).max(0);
                let units = u128::try_from(spent)
                    .unwrap_or(0)
                    .saturating_mul(u128::from(self.limit.cap))
                    .checked_div(u128::from(self.period()).saturating_mul(1_000))
                    .unwrap_or(0);
                u64::try_from(units).unwrap_or(u64::MAX).min(self.limit.cap)
            }
        }
    }

    /// Takes over what is known of the use in the same dimension under another limit.
    pub(crate) fn inherit(&mut self, other: &Meter) {
        if let (Some(mine), Some(theirs)) = (&self.window, &other.window) {
            self.window = Some(theirs.with_period(mine.period()));
        }
        self.pacer.inherit(&other.pacer);
    }

    /// Assumes the whole cap was used just now.
    pub(crate) fn fill(&mut self, now: u64) {
        let cap = self.limit.cap;
        if let Some(window) = &mut self.window {
            window.add(now, cap.saturating_sub(window.units()), 0);
        }
        self.pacer.exhaust(now);
    }
}

/// Units times a period in nanoseconds, if it fits.
fn in_64_bits(units: u64, period: Micros) -> Option<u64> {
    units.checked_mul(period)?.checked_mul(1_000)
}

/// z standard deviations of what is still an estimate, in units, at most a quarter of the cap.
fn margin(logged: u128, need: Need, most: u64) -> u64 {
    let deviation = logged.saturating_add(need.variance).isqrt();
    let held = deviation
        .saturating_mul(u128::from(need.sigmas_milli))
        .div_ceil(1_000);
    u64::try_from(held).unwrap_or(most).min(most)
}

/// The first whole microsecond at or after a nanosecond; 0 for the past before time began.
pub(crate) fn stamp_at(ns: i128) -> u64 {
    u64::try_from(
        ns.max(0)
            .saturating_add(999)
            .checked_div(1_000)
            .unwrap_or(0),
    )
    .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PERIOD_MAX;
    use crate::{DimensionName, InitialUse, LimitName};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn short_products_are_divided_like_long_ones(
            units in (0..=UNITS_MAX, 0..47u32).prop_map(|(units, shift)| units >> shift),
            cap in (1..=UNITS_MAX, 0..46u32).prop_map(|(cap, shift)| (cap >> shift).max(1)),
            per in 1_000_000..=PERIOD_MAX,
        ) {
            let limit = Limit {
                name: LimitName::new("limit").unwrap(),
                dimension: DimensionName::new("tokens").unwrap(),
                cap,
                per,
                kind: Kind::Sliding,
                enforced_by: EnforcedBy::Us,
                burst: None,
                initial_use: InitialUse::Empty,
            };
            let meter = Meter::new(limit, 0, &Policy::default());
            let long = u128::from(units) * u128::from(per) * 1_000;
            prop_assert_eq!(meter.cap_time(units), long.div_ceil(u128::from(cap)) as i128);
            let share = i64::try_from(long / u128::from(cap)).unwrap_or(i64::MAX);
            prop_assert_eq!(meter.share(units), share);
        }
    }
}
