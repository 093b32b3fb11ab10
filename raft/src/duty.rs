//! Whether a node takes leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by everything of a node that gives leads away or takes them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Duty {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    stopping: AtomicBool,
    drained: AtomicBool,
}

impl Duty {
    /// The node ends soon, for good.
    pub(crate) fn stop(&self) {
        self.inner.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.inner.stopping.load(Ordering::Relaxed)
    }

    /// An operator wants the node without leads, or with them again.
    pub(crate) fn set_drained(&self, drained: bool) {
        self.inner.drained.store(drained, Ordering::Relaxed);
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.inner.drained.load(Ordering::Relaxed)
    }

    pub(crate) fn takes_leads(&self) -> bool {
        !self.is_stopping() && !self.is_drained()
    }
}
