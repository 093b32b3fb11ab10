//! One limit and what was used of it.

use weir_admission::{DimensionName, EnforcedBy, Kind, Limit, Policy};

/// A sliding limit forgets in steps: a period has 256 of them, and a start counts until the whole step in
/// which it lies is a period old.
const STEPS: u64 = 256;

/// Starts that were charged: step, units and variance of each. Corrections are further lines.
#[derive(Clone)]
pub(super) struct Ledger {
    period: u64,
    lines: Vec<(u64, i128, i128)>,
}

impl Ledger {
    fn new(period: u64) -> Ledger {
        Ledger {
            period,
            lines: Vec::new(),
        }
    }

    fn step(&self) -> u64 {
        self.period.div_ceil(STEPS)
    }

    /// When the starts of a step stop to count.
    fn ends(&self, step: u64) -> u64 {
        (step + 1) * self.step() + self.period
    }

    pub(super) fn look(&mut self, now: u64) {
        let (width, period) = (self.step(), self.period);
        self.lines
            .retain(|(step, _, _)| (step + 1) * width + period > now);
    }

    fn sum(&self, now: u64) -> (u64, u128) {
        let counting = self.lines.iter().filter(|line| self.ends(line.0) > now);
        let (units, variance) = counting.fold((0, 0), |sum, line| (sum.0 + line.1, sum.1 + line.2));
        (units as u64, variance as u128)
    }

    fn add(&mut self, start: u64, units: i128, variance: i128) {
        let step = start / self.step();
        self.lines.push((step, units, variance));
    }

    /// The first moment at which `units` of what is there now have stopped to count.
    fn gone(&self, units: u64) -> Option<u64> {
        let mut ends: Vec<u64> = self.lines.iter().map(|line| self.ends(line.0)).collect();
        ends.sort();
        let gone_by = |end: u64| -> i128 {
            let lines = self.lines.iter().filter(|line| self.ends(line.0) <= end);
            lines.map(|line| line.1).sum()
        };
        ends.into_iter()
            .find(|end| gone_by(*end) >= i128::from(units))
    }

    /// Replaces the charge of a start. What is no longer found in its step stays where it went.
    fn correct(&mut self, now: u64, start: u64, old: (u64, u128), new: (u64, u128)) {
        let step = start / self.step();
        if self.ends(step) <= now {
            return;
        }
        let there = self.lines.iter().filter(|line| line.0 == step);
        let (units, variance) = there.fold((0, 0), |sum, line| (sum.0 + line.1, sum.1 + line.2));
        let replace = |found: i128, old: i128, new: i128| {
            let found = found.min(old);
            (new - (old - found)).max(0) - found
        };
        let units = replace(units, i128::from(old.0), i128::from(new.0));
        let variance = replace(variance, old.1 as i128, new.1 as i128);
        self.lines.push((step, units, variance));
    }

    /// The same starts under another period, each as late as it may have been.
    fn with_period(&self, period: u64) -> Ledger {
        let mut other = Ledger::new(period);
        for (step, units, variance) in &self.lines {
            other.add((step + 1) * self.step() - 1, *units, *variance);
        }
        other
    }
}

/// A limit at work.
#[derive(Clone)]
pub(super) struct Meter {
    pub(super) limit: Limit,
    pub(super) reply_window: u64,
    pub(super) guard: u64,
    drift: u64,
    /// Cap time is spent up to here, in nanoseconds.
    spent: i128,
    /// All starts, none before an earlier one, and how much cap time each lacked to whole credit.
    lacked: Vec<(u64, i128)>,
    ledger: Option<Ledger>,
}

/// What an ask wants of a limit.
pub(super) struct Need {
    pub(super) cost: u64,
    pub(super) ahead: u64,
    pub(super) room: u64,
    pub(super) variance: u128,
    pub(super) sigmas_milli: u32,
    pub(super) newcomer: bool,
}

fn ns(us: u64) -> i128 {
    i128::from(us) * 1_000
}

/// The first microsecond that is not before a time in nanoseconds.
fn us(ns: i128) -> u64 {
    let us = ns / 1_000 + i128::from(ns % 1_000 > 0);
    us.max(0) as u64
}

impl Meter {
    /// A limit of which nothing was used since long before time began.
    pub(super) fn new(limit: &Limit, policy: &Policy) -> Meter {
        let part = limit.per / 600;
        let reply_window = policy.reply_window.unwrap_or(part.clamp(12_000, 250_000));
        let spread = policy.send_spread.unwrap_or(part.clamp(10_000, 100_000));
        // 200 parts per million, rounded up.
        let (guard, drift) = match limit.enforced_by {
            EnforcedBy::Us => (0, 0),
            EnforcedBy::Provider => {
                let drift = (limit.per * 200).div_ceil(1_000_000);
                (reply_window + spread + drift, drift)
            }
        };
        let ledger = match limit.kind {
            Kind::Sliding => Some(Ledger::new(limit.per + guard)),
            Kind::Bucket => None,
        };
        Meter {
            limit: limit.clone(),
            reply_window,
            guard,
            drift,
            spent: -ns(31 * 24 * 3_600 * super::SECOND),
            lacked: Vec::new(),
            ledger,
        }
    }

    pub(super) fn dimension(&self) -> &DimensionName {
        &self.limit.dimension
    }

    /// A sliding cap is spread over the guarded period, a bucket's over the period of a slow clock.
    pub(super) fn period(&self) -> u64 {
        match self.limit.kind {
            Kind::Sliding => self.limit.per + self.guard,
            Kind::Bucket => self.limit.per + self.drift,
        }
    }

    /// Cap time of units, in nanoseconds, rounded up.
    fn cap_time(&self, units: u64) -> i128 {
        let cap = i128::from(self.limit.cap.max(1));
        (i128::from(units) * ns(self.period()) + cap - 1) / cap
    }

    /// Part of the cap, in nanoseconds of the period, rounded down.
    pub(super) fn share(&self, units: u64) -> i128 {
        match self.limit.cap {
            0 => 0,
            cap => i128::from(units) * ns(self.limit.per) / i128::from(cap),
        }
    }

    /// The largest single cost that can ever start.
    pub(super) fn largest(&self) -> u64 {
        let cap = u128::from(self.limit.cap);
        let depth = match (self.limit.kind, self.limit.burst) {
            (Kind::Sliding, _) | (Kind::Bucket, None) => cap,
            (Kind::Bucket, Some(burst)) => cap * u128::from(burst) / u128::from(self.limit.per),
        };
        depth.min(cap) as u64
    }

    /// A provider's bucket is as deep as its burst, less what may arrive bunched up.
    fn depth(&self) -> i128 {
        let burst = self.limit.burst.unwrap_or(self.limit.per);
        ns(burst.saturating_sub(self.guard))
    }

    /// Credit in nanoseconds at a start; `waiting` is the horizon if anybody waits behind it.
    fn credit(&self, largest_call: u64, waiting: Option<u64>) -> i128 {
        if self.limit.kind == Kind::Bucket {
            return self.depth();
        }
        let credit = match self.limit.burst {
            Some(burst) => ns(burst),
            None => {
                let call = 10 * self.cap_time(largest_call);
                ns(self.limit.per / 10).max(call).min(ns(self.limit.per))
            }
        };
        match waiting {
            Some(horizon) => credit.min(4 * ns(horizon)),
            None => credit,
        }
    }

    pub(super) fn earliest(&self, now: u64, need: &Need) -> u64 {
        if need.cost == 0 && need.variance == 0 {
            return now;
        }
        match &self.ledger {
            Some(ledger) => {
                let paced = us(self.spent + self.cap_time(need.ahead));
                let paced = if need.newcomer { now } else { paced };
                now.max(paced).max(self.logged(now, need, ledger))
            }
            None => {
                // What the bucket can never hold at once has to flow in while the call waits.
                let cost = self.cap_time(need.cost);
                let beyond = (cost - self.depth()).max(0);
                let start = self.spent + self.cap_time(need.ahead) + cost + beyond;
                now.max(us(start))
            }
        }
    }

    /// The first moment from which the log has room for a call after what goes first.
    fn logged(&self, now: u64, need: &Need, ledger: &Ledger) -> u64 {
        let cap = self.limit.cap.max(1);
        let (used, variance) = ledger.sum(now);
        let deviation = (variance + need.variance).isqrt();
        let margin = (deviation * u128::from(need.sigmas_milli)).div_ceil(1_000);
        let margin = margin.min(u128::from(cap / 4)) as u64;
        // A margin never keeps out what fits by itself.
        let cost = need.cost.min(cap - margin);
        let total = cost + need.ahead + need.room.min(cap / 4);
        // Each whole cap before the last part takes a period.
        let rounds = total.saturating_sub(1) / cap;
        let part = (total - rounds * cap + margin).min(cap);
        let over = (used + part).saturating_sub(cap);
        let fits = match over {
            0 => now,
            over => ledger.gone(over).unwrap_or(now),
        };
        fits + rounds * self.period()
    }

    pub(super) fn charge(
        &mut self,
        start: u64,
        units: u64,
        variance: u128,
        largest_call: u64,
        waiting: Option<u64>,
    ) {
        if units == 0 && variance == 0 {
            return;
        }
        let floor = ns(start) - self.credit(largest_call, waiting);
        let last = self.lacked.last().map_or(0, |(start, _)| *start);
        let lacked = (self.spent - floor).max(0);
        self.lacked.push((start.max(last), lacked));
        self.spent = self.spent.max(floor) + self.cap_time(units);
        if let Some(ledger) = &mut self.ledger {
            ledger.add(start, i128::from(units), variance as i128);
        }
    }

    /// Replaces the cost of a start. What would have overflowed at a later start is not given back.
    pub(super) fn correct(&mut self, now: u64, start: u64, old: (u64, u128), new: (u64, u128)) {
        if let Some(ledger) = &mut self.ledger {
            ledger.correct(now, start, old, new);
        }
        let mut change = self.cap_time(new.0) - self.cap_time(old.0);
        if change < 0 {
            let later = self.lacked.iter().filter(|mark| mark.0 > start);
            let room = later.map(|mark| mark.1).min();
            change = change.max(room.map_or(change, |room| -room));
            for mark in self.lacked.iter_mut().filter(|mark| mark.0 > start) {
                mark.1 += change;
            }
        }
        self.spent += change;
    }

    pub(super) fn look(&mut self, now: u64) {
        if let Some(ledger) = &mut self.ledger {
            ledger.look(now);
        }
    }

    /// Units that count now.
    pub(super) fn used(&self, now: u64) -> u64 {
        match &self.ledger {
            Some(ledger) => ledger.sum(now).0,
            None => {
                let taken = (self.spent - (ns(now) - self.depth())).max(0);
                let units = taken * i128::from(self.limit.cap) / ns(self.period());
                units.min(i128::from(self.limit.cap)) as u64
            }
        }
    }

    /// Goes on where the same limit stood, whatever its cap and burst.
    pub(super) fn go_on(&mut self, other: &Meter) {
        self.ledger.clone_from(&other.ledger);
        self.spent = other.spent;
        self.lacked.clone_from(&other.lacked);
    }

    /// Takes over what another limit knows of the dimension.
    pub(super) fn learn_from(&mut self, other: &Meter) {
        if let (Some(_), Some(theirs)) = (&self.ledger, &other.ledger) {
            self.ledger = Some(theirs.with_period(self.period()));
        }
        if other.spent > self.spent {
            self.spent = other.spent;
            self.lacked.clone_from(&other.lacked);
        }
    }

    /// Counts as used up just now.
    pub(super) fn fill(&mut self, now: u64) {
        let cap = i128::from(self.limit.cap);
        if let Some(ledger) = &mut self.ledger {
            ledger.add(now, cap, 0);
        }
        self.spent = self.spent.max(ns(now));
    }
}
