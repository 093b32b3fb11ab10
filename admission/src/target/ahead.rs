//! Reading ahead: the records of operations to come, and of what the next sweep ends.
//!
//! Among many tenants nearly every record is cold, and its parts have to be waited for one after the other.
//! Reads that do not depend on each other are waited for together, if little stands between them: so a run of
//! operations has its records looked up first, then read, then what they point to. Nothing depends on whether
//! that was done.

use super::{Admission, AdmissionKey, Grant, GrantRecord, Place, Queue, QueueKey, Target, Ticket};
use crate::GrantId;
use crate::limits::LOOK_AHEAD_MAX;
use std::hint::black_box;

/// Endings of one kind that are read ahead: under load a few to an operation.
const ENDINGS_MAX: usize = 4 * LOOK_AHEAD_MAX;

/// What is to be read.
pub(crate) struct Ahead<'a> {
    admissions: Vec<&'a Admission>,
    queues: Vec<&'a Queue>,
    grants: Vec<(&'a Target, &'a Grant)>,
    /// Admissions whose tenants' queues are wanted too.
    late: Vec<(&'a Target, &'a Admission)>,
}

impl<'a> Ahead<'a> {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Ahead {
            admissions: Vec::with_capacity(LOOK_AHEAD_MAX),
            queues: Vec::with_capacity(LOOK_AHEAD_MAX),
            grants: Vec::new(),
            late: Vec::new(),
        }
    }

    /// What an operation on an admission wants.
    pub(crate) fn admission(&mut self, target: &'a Target, key: AdmissionKey) {
        self.admissions.extend(target.admissions.get(key));
    }

    /// What a tenant's operation wants.
    pub(crate) fn queue(&mut self, target: &'a Target, key: QueueKey) {
        self.queues.extend(target.queues.get(key));
    }

    /// What the end of a grant wants.
    pub(crate) fn grant(&mut self, target: &'a Target, id: GrantId) {
        let grant = target.grants.live(id);
        self.grants.extend(grant.map(|grant| (target, grant)));
    }

    /// What the next sweeps take out of their lines or forget.
    pub(crate) fn endings(&mut self, target: &'a Target, now: u64) {
        let late = target.due.iter().take(ENDINGS_MAX);
        let late = late.take_while(|(noted, _)| noted.saturating_add(target.lapse()) <= now);
        let late = late.filter_map(|(_, key)| target.admissions.get(*key));
        self.late.extend(late.map(|admission| (target, admission)));
        let over = target.ended.iter().take(ENDINGS_MAX);
        let over = over.take_while(|(at, _)| *at <= now);
        let over = over.filter_map(|(_, id)| target.grants.get(*id));
        let keys = over.map(GrantRecord::admission);
        self.admissions
            .extend(keys.filter_map(|key| target.admissions.get(key)));
    }

    /// Reads it all.
    pub(crate) fn read(mut self) {
        self.admissions
            .extend(self.late.iter().map(|(_, admission)| *admission));
        self.admissions
            .iter()
            .for_each(|admission| admission.touch());
        self.grants.iter().for_each(|(_, grant)| grant.touch());
        let of_late = self.late.iter().map(|(target, of)| (target, of.queue));
        let of_grants = self.grants.iter().map(|(target, of)| (target, of.queue));
        let queues = of_late.chain(of_grants);
        self.queues
            .extend(queues.filter_map(|(target, key)| target.queues.get(key)));
        self.queues.iter().for_each(|queue| queue.touch());
        for admission in self.admissions {
            if let Place::Waiting(ticket) = &admission.place {
                ticket.touch();
            }
        }
    }
}

// One field in each line of memory that a record covers.

impl Admission {
    fn touch(&self) {
        black_box((self.queue, self.forget_at));
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
