//! What time does to a target: logs run out, callers are late, memory ends.

use super::class::NO_CLASS;
use super::{AdmissionKey, GrantRecord, Place, QueueKey, Target, Ticket};
use crate::GrantId;
use crate::limits::{
    IDLE_TENANTS_MAX, IDS_PER_TARGET_MAX, RELEASED_MEMORY, SWEEP_PER_OPERATION_MAX, TENANT_MEMORY,
};

impl Target {
    /// Brings the target to `now`. At most a bounded number of steps of each kind, so that no operation
    /// pays for all that happened while nobody asked.
    pub(crate) fn sweep(&mut self, now: u64) {
        for meter in self.charged_meters() {
            if let Some(window) = &mut meter.window {
                window.expire(now);
            }
        }
        if self.retired.iter().any(|retired| retired.until <= now) {
            self.retired.retain(|retired| retired.until > now);
        }
        for _ in 0..SWEEP_PER_OPERATION_MAX {
            if !self.sweep_due(now) {
                break;
            }
        }
        for _ in 0..SWEEP_PER_OPERATION_MAX {
            let swept = [
                self.sweep_expiring(now),
                self.sweep_ended(now),
                self.sweep_forgetting(now),
                self.sweep_idle(now),
            ];
            if swept == [false; 4] {
                break;
            }
        }
    }

    /// One caller whose note came up: late, it is out of the line at first and loses its place later; due
    /// later than noted, it is noted anew.
    fn sweep_due(&mut self, now: u64) -> bool {
        let Some(&(noted, key)) = self.due.first() else {
            return false;
        };
        if noted.saturating_add(self.lapse()) > now {
            return false;
        }
        self.due.pop_first();
        let (lapse, expire) = (self.lapse(), self.expire());
        let Some(admission) = self.admissions.get_mut(key) else {
            return true;
        };
        let Place::Waiting(ticket) = &mut admission.place else {
            return true;
        };
        let late = ticket.due.saturating_add(lapse) <= now;
        if late && ticket.lapsed {
            self.drop_place(now, key, false);
            return true;
        }
        if late {
            ticket.lapsed = true;
            ticket.due = now.saturating_add(expire);
        }
        ticket.noted = ticket.due;
        self.due.insert((ticket.noted, key));
        if late {
            let (queue, ticket) = (admission.queue, ticket.clone());
            if let Some(class) = self.queues.get(queue).map(|queue| queue.class) {
                self.leave_line(class, &ticket);
            }
        }
        true
    }

    /// One grant whose time is over: its charge leaves with the log.
    fn sweep_expiring(&mut self, now: u64) -> bool {
        let Some(&(at, id)) = self.expiring.front() else {
            return false;
        };
        if at > now {
            return false;
        }
        self.expiring.pop_front();
        match self.grants.live(id).map(|grant| grant.expires) {
            Some(expires) if expires > now => self.expiring.push_back((expires, id)),
            Some(_) => self.expire_grant(now, id),
            None => {}
        }
        true
    }

    /// One ended grant whose memory is over, and its admission if it holds nothing else.
    fn sweep_ended(&mut self, now: u64) -> bool {
        let Some(&(at, id)) = self.ended.front() else {
            return false;
        };
        if at > now {
            return false;
        }
        self.ended.pop_front();
        self.forget_grant(id);
        true
    }

    fn forget_grant(&mut self, id: GrantId) {
        let key = match self.grants.remove(id) {
            None => return,
            Some(GrantRecord::Live(grant)) => {
                self.live_grants = self.live_grants.saturating_sub(1);
                if let Some(queue) = self.queues.get_mut(grant.queue) {
                    queue.grants = queue.grants.saturating_sub(1);
                }
                grant.admission
            }
            Some(GrantRecord::Ended { admission, .. }) => admission,
        };
        let holds = self.admissions.get(key).map(|admission| &admission.place);
        if holds == Some(&Place::Granted(id)) {
            self.admissions.remove(key);
        }
    }

    fn sweep_forgetting(&mut self, now: u64) -> bool {
        let Some(&(at, key)) = self.forgetting.front() else {
            return false;
        };
        if at > now {
            return false;
        }
        self.forgetting.pop_front();
        self.forget_admission(at, key);
        true
    }

    /// Forgets an admission that holds nothing since the time noted; a later one has a later note.
    fn forget_admission(&mut self, noted: u64, key: AdmissionKey) {
        let Some(admission) = self.admissions.get(key) else {
            return;
        };
        let empty = matches!(admission.place, Place::Nothing | Place::Reported);
        if empty && admission.forget_at == noted {
            self.admissions.remove(key);
        }
    }

    /// One idle tenant. It can go when a new start would get the same tag; otherwise it stays listed.
    fn sweep_idle(&mut self, now: u64) -> bool {
        let Some(&(since, key)) = self.idle.front() else {
            return false;
        };
        let surplus = self.idle.len() > IDLE_TENANTS_MAX;
        if !surplus && since.saturating_add(TENANT_MEMORY) > now {
            return false;
        }
        self.idle.pop_front();
        let Some(queue) = self.queues.get_mut(key) else {
            return true;
        };
        if !queue.is_idle() {
            queue.listed = false;
            return true;
        }
        let (idle_since, class, finish) = (queue.idle_since, queue.class, queue.finish);
        let rested = idle_since.saturating_add(TENANT_MEMORY) <= now
            && (class == NO_CLASS || self.next_tag(class, finish) != finish);
        if rested || surplus {
            self.queues.remove(key);
        } else {
            // As if idle since now, so that notes stand in the order of their times.
            self.idle.push_back((now, key));
        }
        true
    }

    /// Lists a queue of which nothing waits or runs.
    pub(crate) fn note_idle(&mut self, now: u64, key: QueueKey) {
        let Some(queue) = self.queues.get_mut(key) else {
            return;
        };
        if !queue.is_idle() {
            return;
        }
        queue.idle_since = now;
        if !queue.listed {
            queue.listed = true;
            self.idle.push_back((now, key));
        }
    }

    /// Holds the bound on remembered ids: the oldest that do not wait are forgotten as spent; their charge
    /// stays in the logs.
    pub(crate) fn forget_surplus(&mut self) {
        while self.admissions.len().max(self.grants.len()) > IDS_PER_TARGET_MAX {
            if let Some((at, key)) = self.forgetting.pop_front() {
                self.forget_admission(at, key);
            } else if let Some((_, id)) = self.ended.pop_front() {
                self.forget_grant(id);
            } else if let Some((_, id)) = self.expiring.pop_front() {
                self.forget_grant(id);
            } else {
                return;
            }
        }
        self.forget_surplus_notes();
    }

    /// Admissions that were cancelled and grants that ended leave their notes behind until the time noted;
    /// many in a short time are cleared early.
    fn forget_surplus_notes(&mut self) {
        if self.forgetting.len() > IDS_PER_TARGET_MAX
            && let Some((at, key)) = self.forgetting.pop_front()
        {
            self.forget_admission(at, key);
        }
        // A call that outlasts so many others keeps its grant, and is noted behind them. One that then never
        // ends is found up to a grant's memory later. Twice as many are looked at as come, so that there are
        // never more than twice as many notes as there may be live grants.
        for _ in 0..2 {
            if self.expiring.len() <= IDS_PER_TARGET_MAX {
                break;
            }
            if let Some((_, id)) = self.expiring.pop_front()
                && let Some(grant) = self.grants.live(id)
            {
                self.expiring.push_back((grant.expires, id));
            }
        }
    }

    /// Gives an admission a ticket: in `due` always, in its line unless it lapsed.
    pub(crate) fn attach(&mut self, key: AdmissionKey, class: usize, ticket: Ticket) {
        let Some(admission) = self.admissions.get_mut(key) else {
            return;
        };
        let queue = admission.queue;
        self.due.insert((ticket.noted, key));
        admission.place = Place::Waiting(Box::new(ticket.clone()));
        self.tickets = self.tickets.saturating_add(1);
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.tickets = queue.tickets.saturating_add(1);
        }
        if !ticket.lapsed {
            self.enter_line(class, &ticket);
        }
    }

    /// Notes a later time at which a caller is due back.
    pub(crate) fn move_due(&mut self, key: AdmissionKey, due: u64) {
        let Some(admission) = self.admissions.get_mut(key) else {
            return;
        };
        if let Place::Waiting(ticket) = &mut admission.place {
            ticket.due = due;
        }
    }

    /// Notes an earlier time at which a caller is due back.
    pub(crate) fn bring_due_forward(&mut self, key: AdmissionKey, due: u64) {
        let Some(admission) = self.admissions.get_mut(key) else {
            return;
        };
        if let Place::Waiting(ticket) = &mut admission.place {
            ticket.due = due;
            if ticket.noted > due {
                self.due.remove(&(ticket.noted, key));
                ticket.noted = due;
                self.due.insert((due, key));
            }
        }
    }

    /// Takes an admission's ticket away. `finish`: its tenant stands where it stood before, if this was
    /// its last ticket.
    pub(crate) fn detach(&mut self, key: AdmissionKey, finish: bool) -> bool {
        let Some(admission) = self.admissions.get_mut(key) else {
            return false;
        };
        if !matches!(admission.place, Place::Waiting(_)) {
            return false;
        }
        let place = std::mem::replace(&mut admission.place, Place::Nothing);
        let queue = admission.queue;
        let Place::Waiting(ticket) = place else {
            return false;
        };
        self.due.remove(&(ticket.noted, key));
        self.tickets = self.tickets.saturating_sub(1);
        let mut class = NO_CLASS;
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.tickets = queue.tickets.saturating_sub(1);
            class = queue.class;
        }
        if !ticket.lapsed {
            self.leave_line(class, &ticket);
        }
        if finish {
            self.give_back_finish(queue, &ticket);
        }
        true
    }

    /// A place given up unserved costs its tenant nothing, if nobody of it stands behind.
    pub(crate) fn give_back_finish(&mut self, queue: QueueKey, ticket: &Ticket) {
        let Some(weight) = self.queues.get(queue).map(|queue| queue.weight) else {
            return;
        };
        let finish = ticket
            .tag
            .saturating_add(self.tenant_advance(weight, ticket.share));
        if let Some(queue) = self.queues.get_mut(queue)
            && queue.finish == finish
        {
            queue.finish = ticket.tag;
        }
    }

    /// Drops an admission's ticket, if it has one, and starts to forget it.
    pub(crate) fn drop_place(&mut self, now: u64, key: AdmissionKey, finish: bool) {
        if self.detach(key, finish) {
            self.hold_nothing(now, key);
        }
    }

    /// Starts to forget an admission that holds nothing.
    pub(crate) fn hold_nothing(&mut self, now: u64, key: AdmissionKey) {
        let Some(admission) = self.admissions.get_mut(key) else {
            return;
        };
        admission.place = Place::Nothing;
        let queue = admission.queue;
        self.remember(now, key);
        self.forget_surplus_notes();
        self.note_idle(now, queue);
    }

    /// Remembers an admission that neither waits nor runs for a while from now on.
    pub(crate) fn remember(&mut self, now: u64, key: AdmissionKey) {
        let Some(admission) = self.admissions.get_mut(key) else {
            return;
        };
        admission.forget_at = now.saturating_add(RELEASED_MEMORY);
        self.forgetting.push_back((admission.forget_at, key));
    }
}
