//! What the history of use tells of itself.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// What the history of use tells of itself.
#[derive(Clone, Debug, Default)]
pub struct HistoryMetrics {
    store_up: Gauge,
    store_bytes: Gauge,
    store_errors: Counter,
    store_damaged: Counter,
    overflow: Counter,
    lost_rows: Counter,
}

impl HistoryMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "history_store_up",
            "1 if the history of use is kept on disk",
            self.store_up.clone(),
        );
        registry.register_with_unit(
            "history_store",
            "Size of the rows of the history of use",
            Unit::Bytes,
            self.store_bytes.clone(),
        );
        registry.register(
            "history_store_errors",
            "Times the store of the history of use did not work",
            self.store_errors.clone(),
        );
        registry.register(
            "history_store_damaged",
            "Times the store of the history of use was damaged and put aside",
            self.store_damaged.clone(),
        );
        registry.register(
            "history_overflow",
            "Decisions counted under (other) in the history of use",
            self.overflow.clone(),
        );
        registry.register(
            "history_lost_rows",
            "Rows of the history of use given up because they could not be written",
            self.lost_rows.clone(),
        );
    }

    /// Whether the store works, and the bytes of its rows.
    pub fn store(&self, up: bool, bytes: u64) {
        self.store_up.set(i64::from(up));
        self.store_bytes
            .set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// The store refused to work.
    pub fn store_error(&self) {
        self.store_errors.inc();
    }

    /// A damaged store was put aside.
    pub fn store_damaged(&self) {
        self.store_damaged.inc();
    }

    /// So many things were counted together for want of rows of their own.
    pub fn overflowed(&self, times: u64) {
        self.overflow.inc_by(times);
    }

    /// Whether the store works, and how many were put aside.
    #[cfg(test)]
    pub(crate) fn told(&self) -> (bool, u64) {
        (self.store_up.get() == 1, self.store_damaged.get())
    }

    /// So many rows were given up.
    pub fn lost(&self, rows: u64) {
        self.lost_rows.inc_by(rows);
    }
}
