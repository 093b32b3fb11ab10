//! What an input may cost in memory. It is counted where the counting allocator is installed, which is in
//! the fuzz targets; elsewhere nothing is counted and everything is within its bound.

use peak_alloc::PeakAlloc;

/// A bound of the memory that reading an input takes, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// For each byte of the input.
    pub(crate) each: usize,
    /// For any input.
    pub(crate) base: usize,
}

/// Memory of readers that set none aside before they have read what goes there.
pub(crate) const BASE: usize = 256 * 1024;
/// Memory of readers on serde, which sets up to a mebibyte aside for a list that claims to be long.
pub(crate) const SERDE_BASE: usize = 4 * 1024 * 1024;

impl Memory {
    /// Reads an input of `length` bytes.
    ///
    /// # Panics
    /// Reading took more than the bound.
    pub(crate) fn bounds<T>(self, length: usize, read: impl FnOnce() -> T) -> T {
        PeakAlloc.reset_peak_usage();
        let before = PeakAlloc.current_usage();
        let result = read();
        let taken = PeakAlloc.peak_usage().saturating_sub(before);
        let most = length.saturating_mul(self.each).saturating_add(self.base);
        assert!(
            taken <= most,
            "{length} bytes took {taken} bytes of memory, more than {most}"
        );
        result
    }
}
