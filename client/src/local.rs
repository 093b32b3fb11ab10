//! The share of the caps that one client may use by itself in a long outage. No socket, no clock.
//!
//! **The rule.** For every limit of the policy last seen, a client's share is `cap * local_share_ppm /
//! 1 000 000` per period (guard included). It is kept by a bucket that holds a quarter of the share,
//! starts empty when the outage begins and refills with three quarters of the share per period. A call
//! larger than the bucket may go when the bucket is full and leaves it in debt. A call is charged its
//! upper bounds, and nothing comes back before the report.
//!
//! So in any period, however aligned, one client starts at most three quarters of its share plus the
//! larger of a quarter of the share and its largest call: at most the share, if no call takes more than
//! a quarter of it. N clients with a share of 1/N each stay within the cap; in the first period of an
//! outage what the cluster had granted before it comes on top.

use crate::limits::{LOCAL_TARGETS_MAX, POLICY_REFRESH, POLICY_TRY_MIN};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use weir_admission::{TargetName, limits::UNITS_MAX};
use weir_proto::v1::Target;

/// The shares of all targets whose policy was seen.
#[derive(Debug)]
pub(crate) struct LocalShares {
    share_ppm: u32,
    targets: BTreeMap<TargetName, Shares>,
    /// Targets whose policy is to be read.
    wanted: BTreeSet<TargetName>,
}

#[derive(Debug)]
struct Shares {
    /// When the policy was last asked for.
    asked_at: Instant,
    /// `None` until the policy was read once.
    policy_version: Option<u64>,
    limits: Vec<Bucket>,
}

/// Levels are kept in parts of a unit: one unit is `4_000_000 * per_us` parts, so that the refill of a
/// microsecond, `3 * cap * share_ppm`, is a whole number of them. The largest, a full cost of 2^46
/// units over 31 days, is below 2^111.
#[derive(Debug)]
struct Bucket {
    name: String,
    dimension: String,
    cap: u64,
    per_us: u64,
    level: i128,
    /// When the level was computed; `None` before the first outage.
    at: Option<Instant>,
}

/// Whether a call fits the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// It fits and was charged.
    Go,
    /// It may fit after this.
    Wait(Duration),
    /// It never fits: a cap or the share is zero, or no policy was seen.
    Never,
}

const PARTS_PER_UNIT_AND_US: i128 = 4_000_000;

impl Bucket {
    fn parts(&self, units: u64) -> i128 {
        i128::from(units.min(UNITS_MAX)) * i128::from(self.per_us) * PARTS_PER_UNIT_AND_US
    }

    fn refill_per_us(&self, share_ppm: u32) -> i128 {
        3 * i128::from(self.cap) * i128::from(share_ppm)
    }

    fn depth(&self, share_ppm: u32) -> i128 {
        i128::from(self.cap) * i128::from(share_ppm) * i128::from(self.per_us)
    }

    /// Brings the level to `now`. Credit from before `since`, the outage's beginning, is forgotten:
    /// the cluster gave that time away.
    fn refill(&mut self, share_ppm: u32, since: Instant, now: Instant) {
        let from = match self.at {
            Some(at) if at >= since => at,
            Some(at) => {
                let restored = self.refilled(share_ppm, since.saturating_duration_since(at));
                self.level = restored.min(0);
                since
            }
            None => since,
        };
        let now = now.max(from);
        self.level = self.refilled(share_ppm, now.saturating_duration_since(from));
        self.at = Some(now);
    }

    fn refilled(&self, share_ppm: u32, time: Duration) -> i128 {
        let us = i128::try_from(time.as_micros()).unwrap_or(i128::MAX);
        let gained = self.refill_per_us(share_ppm).saturating_mul(us);
        self.level.saturating_add(gained).min(self.depth(share_ppm))
    }

    /// How long a call of `units` has to wait; `None` for ever. Zero means it fits.
    fn wait(&self, share_ppm: u32, units: u64) -> Option<Duration> {
        let needed = self.parts(units).min(self.depth(share_ppm));
        let missing = needed - self.level;
        if units == 0 || (missing <= 0 && needed > 0) {
            return Some(Duration::ZERO);
        }
        let rate = self.refill_per_us(share_ppm);
        let us = missing.checked_add(rate - 1)?.checked_div(rate)?;
        Some(Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX)))
    }
}

impl LocalShares {
    pub(crate) fn new(share_ppm: u32) -> LocalShares {
        LocalShares {
            share_ppm,
            targets: BTreeMap::new(),
            wanted: BTreeSet::new(),
        }
    }

    /// The cluster decided a call by this version of the target's policy. True if that policy is to be
    /// read now, for the next outage.
    pub(crate) fn decided_by(&mut self, target: &TargetName, version: u64, now: Instant) -> bool {
        if let Some(shares) = self.targets.get_mut(target) {
            let age = now.saturating_duration_since(shares.asked_at);
            let pause = if shares.policy_version == Some(version) {
                POLICY_REFRESH
            } else {
                POLICY_TRY_MIN
            };
            if age < pause {
                return false;
            }
            shares.asked_at = now;
        } else {
            if self.targets.len() >= LOCAL_TARGETS_MAX {
                self.forget_oldest();
            }
            let shares = Shares {
                asked_at: now,
                policy_version: None,
                limits: Vec::new(),
            };
            self.targets.insert(target.clone(), shares);
        }
        self.wanted.insert(target.clone());
        true
    }

    /// The next policy to read.
    pub(crate) fn next_wanted(&mut self) -> Option<TargetName> {
        self.wanted.pop_first()
    }

    /// A policy was read. Levels of limits that keep their name, dimension and period are kept.
    pub(crate) fn learn(&mut self, target: &TargetName, read: &Target) {
        let Some(shares) = self.targets.get_mut(target) else {
            return;
        };
        let Some(policy) = &read.policy else { return };
        let mut limits: Vec<Bucket> = Vec::with_capacity(policy.limits.len());
        for limit in &policy.limits {
            let guard_us = read
                .limits
                .iter()
                .find(|used| used.name == limit.name)
                .map_or(0, |used| used.guard_us);
            let mut bucket = Bucket {
                name: limit.name.clone(),
                dimension: limit.dimension.clone(),
                cap: limit.cap.min(UNITS_MAX),
                per_us: limit.per_us.saturating_add(guard_us).clamp(1, 1 << 42),
                level: 0,
                at: None,
            };
            let before = shares.limits.iter().find(|before| {
                before.name == bucket.name
                    && before.dimension == bucket.dimension
                    && before.per_us == bucket.per_us
            });
            if let Some(before) = before {
                (bucket.level, bucket.at) = (before.level, before.at);
            }
            limits.push(bucket);
        }
        shares.limits = limits;
        shares.policy_version = Some(read.version);
    }

    /// Takes a call's cost from all limits, or from none. `since` is when the outage began.
    pub(crate) fn take(
        &mut self,
        target: &TargetName,
        cost: &BTreeMap<String, u64>,
        since: Instant,
        now: Instant,
    ) -> Take {
        let share_ppm = self.share_ppm;
        let shares = self
            .targets
            .get_mut(target)
            .filter(|shares| shares.policy_version.is_some());
        let Some(shares) = shares else {
            return Take::Never;
        };
        let mut longest = Duration::ZERO;
        for bucket in &mut shares.limits {
            bucket.refill(share_ppm, since, now);
            let units = cost.get(&bucket.dimension).copied().unwrap_or(0);
            match bucket.wait(share_ppm, units) {
                Some(wait) => longest = longest.max(wait),
                None => return Take::Never,
            }
        }
        if longest > Duration::ZERO {
            return Take::Wait(longest);
        }
        for bucket in &mut shares.limits {
            let units = cost.get(&bucket.dimension).copied().unwrap_or(0);
            bucket.level -= bucket.parts(units);
        }
        Take::Go
    }

    fn forget_oldest(&mut self) {
        let oldest = self
            .targets
            .iter()
            .min_by_key(|(_, shares)| shares.asked_at);
        if let Some(name) = oldest.map(|(name, _)| name.clone()) {
            self.targets.remove(&name);
            self.wanted.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests;
