//! Names of a batch, each kept once where they repeat.
//!
//! Operations of one batch come for few targets, priorities and dimensions. A name met again costs a
//! comparison instead of a check and an allocation.

use super::fault::Fault;
use super::reader::Reader;
use crate::name::Name;
use weir_admission::limits::DIMENSIONS_MAX;
use weir_admission::{DimensionName, LimitName, Principal, PriorityName, TargetName, TenantName};

/// The names met lately, by kind.
#[derive(Default)]
pub(super) struct Names {
    pub(super) targets: Recent<TargetName, 4>,
    pub(super) tenants: Recent<TenantName, 2>,
    pub(super) principals: Recent<Principal, 2>,
    pub(super) priorities: Recent<PriorityName, 4>,
    pub(super) dimensions: Recent<DimensionName, DIMENSIONS_MAX>,
    pub(super) limits: Recent<LimitName, 1>,
}

/// The last `SLOTS` different names of one kind.
pub(super) struct Recent<N, const SLOTS: usize> {
    slots: [Option<N>; SLOTS],
    oldest: usize,
}

impl<N, const SLOTS: usize> Default for Recent<N, SLOTS> {
    fn default() -> Self {
        Recent {
            slots: [const { None }; SLOTS],
            oldest: 0,
        }
    }
}

impl<N: Name, const SLOTS: usize> Recent<N, SLOTS> {
    /// Reads the name that stands at `field`.
    pub(super) fn read(&mut self, r: &mut Reader<'_>, field: &'static str) -> Result<N, Fault> {
        let text = r.bytes(field)?;
        let known = self
            .slots
            .iter()
            .flatten()
            .find(|name| name.text().as_bytes() == text);
        match known {
            Some(name) => Ok(name.clone()),
            None => self.check(field, text),
        }
    }

    fn check(&mut self, field: &'static str, text: &[u8]) -> Result<N, Fault> {
        let text = std::str::from_utf8(text).map_err(|_| Fault::invalid(field, "must be UTF-8"))?;
        let name = N::check(text).map_err(|rule| Fault::invalid(field, rule))?;
        if let Some(slot) = self.slots.get_mut(self.oldest) {
            *slot = Some(name.clone());
            self.oldest = (self.oldest + 1) % SLOTS;
        }
        Ok(name)
    }
}
