//! What time does to a target: callers are late, grants end, memory fades.

use super::{Call, CallName, Grant, Holds, QueueName, Record, Target, Ticket};
use weir_admission::GrantId;

/// What ended is remembered this long: longer than clients retry.
const MEMORY: u64 = 15 * super::SECOND;
/// What did not end is remembered for the longest period, and at least this long; so is an idle tenant.
const LONG_MEMORY: u64 = 600 * super::SECOND;
/// One look takes up at most this many notes of each kind.
const NOTES_PER_LOOK: usize = 64;

impl Target {
    pub(super) fn longest_period(&self) -> u64 {
        self.meters.iter().map(|m| m.period()).max().unwrap_or(0)
    }

    fn horizon(&self) -> u64 {
        self.policy.as_ref().map_or(30_000, |policy| policy.horizon)
    }

    /// A caller this late blocks nobody.
    pub(super) fn lapse(&self) -> u64 {
        4 * self.horizon()
    }

    /// Its place is kept this long.
    pub(super) fn expire(&self) -> u64 {
        self.longest_period().max(10 * super::SECOND)
    }

    pub(super) fn grant_memory(&self) -> u64 {
        self.longest_period().max(LONG_MEMORY)
    }

    /// Until when use of a target without a policy counts.
    pub(super) fn counts_until(&self) -> u64 {
        let untils = self.former.iter().map(|(_, until)| *until);
        untils.max().unwrap_or(0)
    }

    /// Brings the target to now.
    pub(super) fn look(&mut self) {
        let now = self.now;
        for meter in self.all_meters() {
            meter.look(now);
        }
        self.former.retain(|(_, until)| *until > now);
        self.look_at_tickets();
        // In turns of one of each kind, which decides who stands where among the idle.
        for _ in 0..NOTES_PER_LOOK {
            if let Some((_, id)) = due(&mut self.to_expire, now) {
                self.look_at_grant(id);
            }
            if let Some((_, id)) = due(&mut self.to_bury, now) {
                self.bury(id);
            }
            if let Some((noted, name)) = due(&mut self.to_forget, now) {
                self.forget(noted, &name);
            }
            self.look_at_idle();
        }
    }

    /// A late caller leaves the line at first and loses its place later.
    fn look_at_tickets(&mut self) {
        let (now, lapse, expire) = (self.now, self.lapse(), self.expire());
        let late = |call: &Call| call.ticket().is_some_and(|t| t.due + lapse <= now);
        let names: Vec<CallName> = self.calls.keys().cloned().collect();
        for name in names {
            let call = &self.calls[&name];
            if !late(call) {
                continue;
            }
            if call.ticket().is_some_and(|ticket| ticket.lapsed) {
                self.drop_place(&name, false);
            } else if let Some(ticket) = self.ticket_mut(&name) {
                ticket.lapsed = true;
                ticket.due = now + expire;
            }
        }
    }

    fn look_at_grant(&mut self, id: GrantId) {
        let Some(Record::Live(grant)) = self.grants.get(&id) else {
            return;
        };
        let (grant, expires) = (grant.clone(), grant.expires);
        if expires > self.now {
            self.to_expire.push((expires, id));
            return;
        }
        // Its charge stays, and leaves the log in its time.
        self.end(id, true);
        self.leave_queue(&grant, 0, true);
    }

    fn bury(&mut self, id: GrantId) {
        let Some(Record::Ended { call, .. }) = self.grants.remove(&id) else {
            return;
        };
        let held = self.calls.get(&call).map(|call| &call.holds);
        if matches!(held, Some(Holds::Grant(held)) if *held == id) {
            self.calls.remove(&call);
        }
    }

    /// Forgets a call that held nothing since it was noted.
    fn forget(&mut self, noted: u64, name: &CallName) {
        let spent = |call: &Call| match call.holds {
            Holds::Nothing | Holds::Report => call.forget_at == noted,
            Holds::Ticket(_) | Holds::Grant(_) => false,
        };
        if self.calls.get(name).is_some_and(spent) {
            self.calls.remove(name);
        }
    }

    /// Forgets a tenant that rested long enough and is not ahead of its turn.
    fn look_at_idle(&mut self) {
        let Some(before) = self.now.checked_sub(LONG_MEMORY) else {
            return;
        };
        let Some((_, name)) = due(&mut self.idle, before) else {
            return;
        };
        let idle = self.is_idle(&name);
        let class = self.class(&name.1);
        let Some(queue) = self.queues.get(&name) else {
            return;
        };
        let (since, finish) = (queue.idle_since, queue.finish);
        let rested = since <= before
            && class.is_none_or(|class| self.next_tag(class, Some(finish)) != finish);
        if !idle {
            self.queue_mut(&name).listed = false;
        } else if rested {
            self.queues.remove(&name);
        } else {
            self.idle.push((self.now, name));
        }
    }

    fn is_idle(&self, name: &QueueName) -> bool {
        let waits =
            |call: &Call| call.ticket().is_some() && call.queue.as_ref().is_some_and(|q| q == name);
        let runs = self.queues.get(name).is_some_and(|queue| queue.grants > 0);
        !runs && !self.calls.values().any(waits)
    }

    pub(super) fn note_idle(&mut self, name: &QueueName) {
        let (now, idle) = (self.now, self.is_idle(name));
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        if idle {
            queue.idle_since = now;
            if !queue.listed {
                queue.listed = true;
                self.idle.push((now, name.clone()));
            }
        }
    }

    /// Takes a call's ticket away, if it has one, and starts to forget it. `turn`: its tenant stands
    /// where it stood before, if this was its last ticket.
    pub(super) fn drop_place(&mut self, name: &CallName, turn: bool) {
        if let Some(ticket) = self.take_ticket(name) {
            if turn && let Some(queue) = self.calls[name].queue.clone() {
                self.give_turn_back(&queue, &ticket);
            }
            self.hold_nothing(name);
        }
    }

    pub(super) fn take_ticket(&mut self, name: &CallName) -> Option<Ticket> {
        let call = self.calls.get_mut(name)?;
        let ticket = call.ticket()?.clone();
        call.holds = Holds::Nothing;
        Some(ticket)
    }

    pub(super) fn give_turn_back(&mut self, name: &QueueName, ticket: &Ticket) {
        let Some(weight) = self.queues.get(name).map(|queue| queue.weight) else {
            return;
        };
        let end = ticket.tag + self.tenant_step(weight, ticket.share);
        let queue = self.queue_mut(name);
        if queue.finish == end {
            queue.finish = ticket.tag;
        }
    }

    /// Starts to forget a call that holds nothing.
    pub(super) fn hold_nothing(&mut self, name: &CallName) {
        let forget_at = self.now + MEMORY;
        if let Some(call) = self.calls.get_mut(name) {
            call.holds = Holds::Nothing;
            call.forget_at = forget_at;
            self.to_forget.push((forget_at, name.clone()));
            if let Some(queue) = call.queue.clone() {
                self.note_idle(&queue);
            }
        }
    }

    pub(super) fn hold_report(&mut self, name: &CallName) {
        let forget_at = self.now + MEMORY;
        if let Some(call) = self.calls.get_mut(name) {
            call.holds = Holds::Report;
            call.forget_at = forget_at;
            self.to_forget.push((forget_at, name.clone()));
        }
    }

    /// Turns a live grant into the memory of one.
    pub(super) fn end(&mut self, id: GrantId, expired: bool) -> Option<Grant> {
        let Some(Record::Live(grant)) = self.grants.get(&id) else {
            return None;
        };
        let grant = grant.clone();
        let (call, owner) = (grant.call.clone(), grant.owner.clone());
        let ended = Record::Ended {
            call,
            owner,
            expired,
        };
        self.grants.insert(id, ended);
        self.to_bury.push((self.now + MEMORY, id));
        Some(grant)
    }
}

/// The first note, if its time came; later notes wait behind it.
fn due<T>(notes: &mut Vec<(u64, T)>, now: u64) -> Option<(u64, T)> {
    match notes.first() {
        Some((at, _)) if *at <= now => Some(notes.remove(0)),
        Some(_) | None => None,
    }
}
