//! What an operator says about a target.

use crate::limits::{
    DIMENSIONS_MAX, HORIZON_DEFAULT, HORIZON_MAX, HORIZON_MIN, LIMITS_MAX, PERIOD_MAX, PERIOD_MIN,
    PRIORITIES_MAX, SIGMAS_MILLI_DEFAULT, SIGMAS_MILLI_MAX, TENANT_WEIGHT_DEFAULT,
    TENANT_WEIGHTS_MAX, UNITS_MAX, WEIGHT_MAX, WINDOW_KNOB_MAX,
};
use crate::{DimensionName, LimitName, Micros, PriorityName, TenantName};
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// The limits of a target and who shares them how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// 1 to [`LIMITS_MAX`] limits with unique names, over at most [`DIMENSIONS_MAX`] dimensions.
    pub limits: Vec<Limit>,
    /// 1 to [`PRIORITIES_MAX`] priorities, highest first.
    pub priorities: Vec<Priority>,
    /// Weights of tenants inside a priority, 1 to [`WEIGHT_MAX`].
    pub tenant_weights: BTreeMap<TenantName, u32>,
    /// Weight of every other tenant.
    pub default_tenant_weight: u32,
    /// Longest ask-to-answer time after which a grant may be used; `None` is the default of each limit.
    pub reply_window: Option<Micros>,
    /// Spread of the fleet's send-to-provider latency; `None` is the default of each limit.
    pub send_spread: Option<Micros>,
    /// A slot that starts within this is granted at once.
    pub horizon: Micros,
    /// Room for an intermittent higher priority.
    pub headroom: Headroom,
    /// What is charged between ask and release.
    pub estimate: Estimate,
    /// True if the provider counts calls that it answers with 429.
    pub rejected_counts: bool,
    /// Standard deviations of estimated cost held back, in thousandths.
    pub estimate_sigmas_milli: u32,
}

impl Default for Policy {
    /// No limits and no priorities yet (so not valid), everything else at its default.
    fn default() -> Self {
        Policy {
            limits: Vec::new(),
            priorities: Vec::new(),
            tenant_weights: BTreeMap::new(),
            default_tenant_weight: TENANT_WEIGHT_DEFAULT,
            reply_window: None,
            send_spread: None,
            horizon: HORIZON_DEFAULT,
            headroom: Headroom::Auto,
            estimate: Estimate::Learned,
            rejected_counts: true,
            estimate_sigmas_milli: SIGMAS_MILLI_DEFAULT,
        }
    }
}

/// At most `cap` units of `dimension` per `per`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Unique in the policy.
    pub name: LimitName,
    /// What is counted.
    pub dimension: DimensionName,
    /// Units per period, up to [`UNITS_MAX`]. 0 closes the target to any cost in this dimension.
    pub cap: u64,
    /// [`PERIOD_MIN`] to [`PERIOD_MAX`].
    pub per: Micros,
    /// How use comes back.
    pub kind: Kind,
    /// Who counts.
    pub enforced_by: EnforcedBy,
    /// Cap time that may start at once from idle, up to `per`. `None`: for a sliding limit a tenth of
    /// `per`, or ten times the largest call seen if that is more; for a bucket its full depth, `per`.
    pub burst: Option<Micros>,
    /// Use assumed when the limit joins a target whose earlier use it cannot know.
    pub initial_use: InitialUse,
}

/// How use comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// At most `cap` in every window of `per`, whatever its alignment.
    Sliding,
    /// A token bucket that refills `cap` per `per`; its depth is the burst.
    Bucket,
}

/// Who counts use against the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforcedBy {
    /// A provider counts arrivals: a guard is added to the period.
    Provider,
    /// We count starts: no guard.
    Us,
}

/// Use assumed where none is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialUse {
    /// The cap is used up.
    Full,
    /// Nothing was used.
    Empty,
}

/// Whether a priority leaves room for one call of a higher one that asked lately and does not wait now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headroom {
    /// Where that costs at most 1/200 of the cap.
    Auto,
    /// Always (still at most a quarter of the cap).
    On,
    /// Never.
    Off,
}

/// What is charged between ask and release when a cost has a lower and an upper bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    /// A learned mean, with a margin for its variance.
    Learned,
    /// The upper bound.
    Reserve,
}

/// A priority and its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Unique in the policy.
    pub name: PriorityName,
    /// 1 to [`WEIGHT_MAX`]; a priority's share is its weight over the sum of the busy ones.
    pub weight: u32,
}

/// One thing wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, for example `limits[1].per_us`.
    pub field: String,
    /// What it must be.
    pub description: String,
}

struct Report(Vec<Violation>);

impl Report {
    fn check(
        &mut self,
        holds: bool,
        field: impl FnOnce() -> String,
        rule: impl FnOnce() -> String,
    ) {
        if !holds {
            self.0.push(Violation {
                field: field(),
                description: rule(),
            });
        }
    }
}

impl Policy {
    /// Every rule that the policy breaks; a policy without violations is valid.
    pub fn violations(&self) -> Vec<Violation> {
        let mut report = Report(Vec::new());
        self.check_limits(&mut report);
        self.check_priorities(&mut report);
        self.check_tenants(&mut report);
        self.check_knobs(&mut report);
        report.0
    }

    fn check_limits(&self, report: &mut Report) {
        report.check(
            (1..=LIMITS_MAX).contains(&self.limits.len()),
            || "limits".into(),
            || {
                format!(
                    "must have 1 to {LIMITS_MAX} limits, has {}",
                    self.limits.len()
                )
            },
        );
        let dimensions: BTreeSet<_> = self.limits.iter().map(|l| &l.dimension).collect();
        report.check(
            dimensions.len() <= DIMENSIONS_MAX,
            || "limits".into(),
            || {
                format!(
                    "must name at most {DIMENSIONS_MAX} dimensions, has {}",
                    dimensions.len()
                )
            },
        );
        let mut names = BTreeSet::new();
        for (i, limit) in self.limits.iter().enumerate() {
            report.check(
                names.insert(&limit.name),
                || format!("limits[{i}].name"),
                || format!("must be unique, {:?} appears twice", limit.name),
            );
            report.check(
                limit.cap <= UNITS_MAX,
                || format!("limits[{i}].cap"),
                || format!("must be at most {UNITS_MAX} units"),
            );
            report.check(
                (PERIOD_MIN..=PERIOD_MAX).contains(&limit.per),
                || format!("limits[{i}].per_us"),
                || format!("must be {PERIOD_MIN} to {PERIOD_MAX} microseconds"),
            );
            report.check(
                limit.burst.is_none_or(|burst| burst <= limit.per),
                || format!("limits[{i}].burst_us"),
                || "must be at most per_us".into(),
            );
        }
    }

    fn check_priorities(&self, report: &mut Report) {
        report.check(
            (1..=PRIORITIES_MAX).contains(&self.priorities.len()),
            || "priorities".into(),
            || {
                format!(
                    "must have 1 to {PRIORITIES_MAX} priorities, has {}",
                    self.priorities.len()
                )
            },
        );
        let mut names = BTreeSet::new();
        for (i, priority) in self.priorities.iter().enumerate() {
            report.check(
                names.insert(&priority.name),
                || format!("priorities[{i}].name"),
                || format!("must be unique, {:?} appears twice", priority.name),
            );
            report.check(
                (1..=WEIGHT_MAX).contains(&priority.weight),
                || format!("priorities[{i}].weight"),
                || format!("must be 1 to {WEIGHT_MAX}"),
            );
        }
    }

    fn check_tenants(&self, report: &mut Report) {
        report.check(
            self.tenant_weights.len() <= TENANT_WEIGHTS_MAX,
            || "tenant_weights".into(),
            || format!("must name at most {TENANT_WEIGHTS_MAX} tenants"),
        );
        for (tenant, weight) in &self.tenant_weights {
            report.check(
                (1..=WEIGHT_MAX).contains(weight),
                || format!("tenant_weights[{tenant:?}]"),
                || format!("must be 1 to {WEIGHT_MAX}"),
            );
        }
        report.check(
            (1..=WEIGHT_MAX).contains(&self.default_tenant_weight),
            || "default_tenant_weight".into(),
            || format!("must be 1 to {WEIGHT_MAX}"),
        );
    }

    fn check_knobs(&self, report: &mut Report) {
        for (field, knob) in [
            ("reply_window_us", self.reply_window),
            ("send_spread_us", self.send_spread),
        ] {
            report.check(
                knob.is_none_or(|us| us <= WINDOW_KNOB_MAX),
                || field.into(),
                || format!("must be at most {WINDOW_KNOB_MAX} microseconds"),
            );
        }
        report.check(
            (HORIZON_MIN..=HORIZON_MAX).contains(&self.horizon),
            || "horizon_us".into(),
            || format!("must be {HORIZON_MIN} to {HORIZON_MAX} microseconds"),
        );
        report.check(
            self.estimate_sigmas_milli <= SIGMAS_MILLI_MAX,
            || "estimate_sigmas_milli".into(),
            || format!("must be at most {SIGMAS_MILLI_MAX}"),
        );
    }
}
