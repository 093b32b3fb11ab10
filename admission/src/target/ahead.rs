//! Reading ahead: the records of operations to come, and of what the next sweep ends.
//!
//! Among many tenants nearly every record is cold, and its parts have to be waited for one after the other.
//! Reads that do not depend on each other are waited for together, so a run of operations has its records
//! read first. Nothing depends on whether that was done.

use super::{Admission, AdmissionKey, Grant, GrantRecord, Place, Queue, QueueKey, Target, Ticket};
use crate::GrantId;
use crate::limits::SWEEP_PER_OPERATION_MAX;
use std::hint::black_box;

/// Reads what the ends of grants want, each of them at a target: all grants before their tenants' queues,
/// since only the grant tells which queue that is.
pub(crate) fn touch_grants(ends: &[(&Target, GrantId)]) {
    let mut live = Vec::with_capacity(ends.len());
    for (target, id) in ends {
        if let Some(GrantRecord::Live(grant)) = target.grants.get(id) {
            live.push((*target, &**grant));
        }
    }
    live.iter().for_each(|(_, grant)| grant.touch());
    for (target, grant) in live {
        target.touch_queue(grant.queue);
    }
}

impl Target {
    /// Reads what an ask of an admission wants.
    pub(crate) fn touch(&self, key: AdmissionKey, queue: QueueKey) {
        self.touch_queue(queue);
        self.touch_admission(key);
    }

    /// Reads what the next sweep takes out of its line or forgets: all keys before all records, so that
    /// nothing stands between the reads.
    pub(super) fn touch_ending(&self, now: u64) {
        let late = self.due.iter().take(SWEEP_PER_OPERATION_MAX);
        let late = late.take_while(|(noted, _)| noted.saturating_add(self.lapse()) <= now);
        let late: Vec<_> = late.map(|(_, key)| *key).collect();
        late.iter().for_each(|key| self.touch_admission(*key));
        for key in late {
            if let Some(admission) = self.admissions.get(key) {
                self.touch_queue(admission.queue);
            }
        }
        let over = self.ended.iter().take(SWEEP_PER_OPERATION_MAX);
        let over = over.take_while(|(at, _)| *at <= now);
        let over = over.filter_map(|(_, id)| self.grants.get(id));
        let over: Vec<_> = over.map(GrantRecord::admission).collect();
        over.iter().for_each(|key| self.touch_admission(*key));
    }

    fn touch_queue(&self, key: QueueKey) {
        if let Some(queue) = self.queues.get(key) {
            queue.touch();
        }
    }

    /// Reads what is known of an admission.
    pub(crate) fn touch_admission(&self, key: AdmissionKey) {
        if let Some(admission) = self.admissions.get(key) {
            admission.touch();
        }
    }
}

// One field in each line of memory that a record covers.

impl Admission {
    fn touch(&self) {
        black_box((self.queue, self.forget_at));
        if let Place::Waiting(ticket) = &self.place {
            ticket.touch();
        }
    }
}

impl Ticket {
    fn touch(&self) {
        let [first, .., last] = self.units;
        black_box((self.tag, first, last, self.lapsed));
    }
}

impl Grant {
    fn touch(&self) {
        let [first, .., last] = self.units;
        black_box((self.admission, first, last, self.expires));
    }
}

impl Queue {
    fn touch(&self) {
        black_box((self.finish, self.tickets, self.listed));
    }
}
