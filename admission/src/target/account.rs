//! What an operation would change in what is charged: read before it is applied, for those who count use.

use super::settle::settled_units;
use super::{AdmissionKey, Grant, Known, Place, Target, Units, at};
use crate::{CallOutcome, GrantId, Settlement};

impl Target {
    /// What a release would change.
    pub(crate) fn settlement_of(
        &self,
        id: GrantId,
        known: &Known,
        outcome: CallOutcome,
    ) -> Option<Settlement> {
        let grant = self.grants.live(id)?;
        let counts = self
            .policy
            .as_ref()
            .is_none_or(|policy| policy.rejected_counts);
        self.settlement(grant, &settled_units(grant, known, outcome, counts))
    }

    /// What taking back a grant would change.
    pub(crate) fn refund_of(&self, id: GrantId) -> Option<Settlement> {
        let grant = self.grants.live(id)?;
        self.settlement(grant, &Units::default())
    }

    /// The grant that an attempt was given.
    pub(crate) fn granted(&self, key: AdmissionKey, attempt: u64) -> Option<GrantId> {
        let admission = self.admissions.get(key)?;
        match admission.place {
            Place::Granted(id) if admission.attempt == attempt => Some(id),
            Place::Granted(_) | Place::Nothing | Place::Waiting(_) | Place::Reported => None,
        }
    }

    fn settlement(&self, grant: &Grant, units: &Units) -> Option<Settlement> {
        let queue = self.queue(grant.queue)?;
        let slots = || self.slots.iter().enumerate();
        let charged = slots().filter_map(|(slot, dimension)| {
            let charged = at(&grant.units, slot);
            Some((dimension.clone()?, charged)).filter(|_| charged > 0)
        });
        let change = slots().filter_map(|(slot, dimension)| {
            let units = i64::try_from(at(units, slot)).unwrap_or(i64::MAX);
            let charged = i64::try_from(at(&grant.units, slot)).unwrap_or(i64::MAX);
            let change = units.saturating_sub(charged);
            Some((dimension.clone()?, change)).filter(|_| change != 0)
        });
        Some(Settlement {
            tenant: queue.tenant.clone(),
            priority: queue.priority.clone(),
            charged: charged.collect(),
            change: change.collect(),
        })
    }
}
