//! Numbers in two bytes.

use arbitrary::Arbitrary;
use weir_admission::limits::{PERIOD_MAX, UNITS_MAX};

/// A number in two bytes: 12 bits, and what they count.
#[derive(Arbitrary, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Number(pub u16);

const MAGNITUDE: u16 = 0x0fff;

impl Number {
    /// What the bits of magnitude count, in microseconds, up to the last two: those are special.
    const SPANS: [u64; 14] = [
        1,
        10,
        1_000,
        10_000,
        100_000,
        500_000,
        1_000_000,
        10_000_000,
        60_000_000,
        600_000_000,
        3_600_000_000,
        86_400_000_000,
        1 << 40,
        1 << 49,
    ];
    const UNITS: [u64; 14] = [
        1,
        2,
        3,
        10,
        100,
        1_000,
        10_000,
        1_000_000,
        1_000_000_000,
        1 << 20,
        1 << 30,
        1 << 35,
        1 << 40,
        1 << 51,
    ];

    pub(super) fn parts(self) -> (u64, usize) {
        let Number(bits) = self;
        (u64::from(bits & MAGNITUDE), usize::from(bits >> 12))
    }

    fn scaled(self, scales: [u64; 14], edge: u64) -> u64 {
        let (magnitude, unit) = self.parts();
        match scales.get(unit) {
            Some(scale) => magnitude.saturating_mul(*scale),
            None if unit == 14 => edge.saturating_add(8).saturating_sub(magnitude),
            None => u64::MAX.saturating_sub(magnitude),
        }
    }

    /// A length of time in microseconds; with the last units around the longest that is allowed, and the
    /// longest that there is.
    pub fn span(self) -> u64 {
        self.scaled(Self::SPANS, PERIOD_MAX)
    }

    /// A number of units, likewise.
    pub fn units(self) -> u64 {
        self.scaled(Self::UNITS, UNITS_MAX)
    }

    fn nearest(value: u64, scales: [u64; 14]) -> Number {
        let fits = |scale: &u64| value.is_multiple_of(*scale) && value / scale <= 0x0fff;
        let unit = scales.iter().rposition(fits);
        let unit = unit.or_else(|| scales.iter().position(|scale| value / scale <= 0x0fff));
        let unit = unit.unwrap_or(scales.len() - 1);
        let magnitude = (value / scales[unit]).min(0x0fff);
        Number((unit as u16) << 12 | magnitude as u16)
    }

    /// The form of a length of time, or of one near it.
    pub fn of_span(us: u64) -> Number {
        Self::nearest(us, Self::SPANS)
    }

    /// The form of a number of units, or of one near it.
    pub fn of_units(units: u64) -> Number {
        Self::nearest(units, Self::UNITS)
    }
}
