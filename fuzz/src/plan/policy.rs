//! Policies in a few bytes.

use super::{DIMENSIONS, Number, PRIORITIES, TENANTS, name};
use arbitrary::{Arbitrary, Unstructured};
use weir_admission::limits::{HORIZON_DEFAULT, LIMITS_MAX, SIGMAS_MILLI_DEFAULT, WEIGHT_MAX};
use weir_admission::{
    DimensionName, EnforcedBy, Estimate, Headroom, InitialUse, Kind, Limit, LimitName, Policy,
    Priority, PriorityName, TenantName,
};

/// A limit. Not every one is valid.
#[derive(Arbitrary, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitPlan {
    /// Dimension, and what the name adds to it (four bits each).
    pub name: u8,
    /// The cap in units.
    pub cap: Number,
    /// The period.
    pub per: Number,
    /// [`LimitPlan::BUCKET`], [`LimitPlan::US`], [`LimitPlan::EMPTY`], and the burst in the upper four bits:
    /// none, or eighths of the period.
    pub shape: u8,
}

impl LimitPlan {
    /// A token bucket.
    pub const BUCKET: u8 = 1;
    /// Enforced by us.
    pub const US: u8 = 2;
    /// Nothing was used.
    pub const EMPTY: u8 = 4;

    /// The bytes that [`LimitPlan::arbitrary`] reads as this limit.
    pub fn bytes(&self) -> Vec<u8> {
        let [Number(cap), Number(per)] = [self.cap, self.per];
        let mut bytes = vec![self.name];
        bytes.extend(cap.to_le_bytes());
        bytes.extend(per.to_le_bytes());
        bytes.push(self.shape);
        bytes
    }

    fn limit(&self) -> Limit {
        let (place, suffix) = (usize::from(self.name & 0x0f), self.name >> 4);
        let dimension = DIMENSIONS[place % DIMENSIONS.len()];
        let text = match suffix {
            0 => dimension.to_owned(),
            _ => format!("{dimension} {suffix}"),
        };
        let per = self.per.span();
        let either = |bit, set, unset| if self.shape & bit != 0 { set } else { unset };
        Limit {
            name: name(LimitName::new, &text),
            dimension: name(DimensionName::new, dimension),
            cap: self.cap.units(),
            per,
            kind: match self.shape & Self::BUCKET {
                0 => Kind::Sliding,
                _ => Kind::Bucket,
            },
            enforced_by: match self.shape & Self::US {
                0 => EnforcedBy::Provider,
                _ => EnforcedBy::Us,
            },
            burst: match self.shape >> 4 {
                0 => None,
                eighths => Some((per / 8).saturating_mul(u64::from(eighths) - 1)),
            },
            initial_use: either(Self::EMPTY, InitialUse::Empty, InitialUse::Full),
        }
    }
}

/// A policy. Not every one is valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyPlan {
    /// Its limits, up to one too many.
    pub limits: Vec<LimitPlan>,
    /// Weights of the priorities of the pool, from the first on; 0 ends them.
    pub priorities: [u8; 4],
    /// Weights of the tenants of the pool; 0 names none.
    pub tenants: [u8; 4],
    /// Weight of the others; 255 is the heaviest.
    pub others: u8,
    /// Reply window and send spread: the default for 0.
    pub windows: [Number; 2],
    /// The horizon; the default for 0.
    pub horizon: Number,
    /// Headroom, estimate and whether rejected calls count (two bits each).
    pub knobs: u8,
    /// Deviations held back, in hundredths; the default for 255.
    pub sigmas: u8,
}

impl<'a> Arbitrary<'a> for PolicyPlan {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let count = usize::from(u8::arbitrary(u)?) % (LIMITS_MAX + 2);
        let limits = (0..count).map(|_| LimitPlan::arbitrary(u));
        Ok(PolicyPlan {
            limits: limits.collect::<Result<_, _>>()?,
            priorities: Arbitrary::arbitrary(u)?,
            tenants: Arbitrary::arbitrary(u)?,
            others: Arbitrary::arbitrary(u)?,
            windows: Arbitrary::arbitrary(u)?,
            horizon: Arbitrary::arbitrary(u)?,
            knobs: Arbitrary::arbitrary(u)?,
            sigmas: Arbitrary::arbitrary(u)?,
        })
    }
}

impl PolicyPlan {
    /// The bytes that [`PolicyPlan::arbitrary`] reads as this policy.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![u8::try_from(self.limits.len()).expect("few limits")];
        bytes.extend(self.limits.iter().flat_map(LimitPlan::bytes));
        bytes.extend(self.priorities);
        bytes.extend(self.tenants);
        bytes.push(self.others);
        for Number(bits) in self.windows.iter().chain([&self.horizon]) {
            bytes.extend(bits.to_le_bytes());
        }
        bytes.extend([self.knobs, self.sigmas]);
        bytes
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        let weight = |weight: u8| match weight {
            255 => WEIGHT_MAX,
            small => small.into(),
        };
        let set = |number: Number| (number != Number(0)).then(|| number.span());
        let named = self.priorities.iter().take_while(|weight| **weight > 0);
        let tenants = self.tenants.iter().zip(TENANTS);
        let tenants = tenants.filter(|(weight, _)| **weight > 0);
        Policy {
            limits: self.limits.iter().map(LimitPlan::limit).collect(),
            priorities: (named.zip(PRIORITIES))
                .map(|(of, text)| Priority {
                    name: name(PriorityName::new, text),
                    weight: weight(*of),
                })
                .collect(),
            tenant_weights: tenants
                .map(|(of, text)| (name(TenantName::new, text), weight(*of)))
                .collect(),
            default_tenant_weight: weight(self.others),
            reply_window: set(self.windows[0]),
            send_spread: set(self.windows[1]),
            horizon: set(self.horizon).unwrap_or(HORIZON_DEFAULT),
            headroom: match self.knobs & 3 {
                0 => Headroom::Auto,
                1 => Headroom::On,
                _ => Headroom::Off,
            },
            estimate: match self.knobs >> 2 & 3 {
                0 => Estimate::Learned,
                _ => Estimate::Reserve,
            },
            rejected_counts: self.knobs >> 4 & 3 == 0,
            estimate_sigmas_milli: match self.sigmas {
                255 => SIGMAS_MILLI_DEFAULT,
                hundredths => u32::from(hundredths) * 100,
            },
        }
    }
}
