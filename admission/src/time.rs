//! Cluster time and durations, in microseconds.

/// A length of time in microseconds.
pub type Micros = u64;

/// Cluster time: microseconds that never go back and never run faster than real time.
///
/// A leader writes it into each log entry; it has no relation to any wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// The first instant of a cluster.
    pub const ZERO: Stamp = Stamp(0);
    /// The last instant that arithmetic on stamps is proven for: 36 000 years.
    pub const MAX: Stamp = Stamp(1 << 60);

    /// A stamp from microseconds, clamped to [`Stamp::MAX`].
    pub const fn from_micros(us: u64) -> Stamp {
        if us > Stamp::MAX.0 {
            Stamp::MAX
        } else {
            Stamp(us)
        }
    }

    /// Microseconds since [`Stamp::ZERO`].
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The stamp `us` later, clamped to [`Stamp::MAX`].
    pub const fn after(self, us: Micros) -> Stamp {
        Stamp::from_micros(self.0.saturating_add(us))
    }
}

/// Microseconds as nanoseconds.
pub(crate) fn nanos(us: Micros) -> i128 {
    i128::from(us).saturating_mul(1_000)
}
