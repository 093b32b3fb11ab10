//! A new policy over old use.

use super::meter::Meter;
use super::{Call, CallName, Class, Holds, Record, Target, Ticket, Units, of};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use weir_admission::{DimensionName, InitialUse, Limit, Policy};

/// Limits of former policies that go on counting.
const FORMER_MOST: usize = 32;

impl Target {
    /// Limits in force, then former ones.
    pub(super) fn all_meters(&mut self) -> impl Iterator<Item = &mut Meter> {
        let former = self.former.iter_mut().map(|(meter, _)| meter);
        self.meters.iter_mut().chain(former)
    }

    pub(super) fn ticket_mut(&mut self, name: &CallName) -> Option<&mut Ticket> {
        match &mut self.calls.get_mut(name)?.holds {
            Holds::Ticket(ticket) => Some(ticket),
            Holds::Nothing | Holds::Grant(_) | Holds::Report => None,
        }
    }

    fn waiting(&self) -> Vec<CallName> {
        let waits = |call: &&CallName| self.calls[call].ticket().is_some();
        self.calls.keys().filter(waits).cloned().collect()
    }

    pub(super) fn put(&mut self, policy: &Policy) {
        let limits = policy.limits.iter();
        let named = limits.map(|limit| limit.dimension.clone()).collect();
        self.forget_dimensions(&named);
        self.counted = named;
        self.put_limits(policy);
        for (name, queue) in &mut self.queues {
            if self.classes.iter().all(|class| class.name != name.1) {
                // Its priority was not in force. It starts anew, and everybody in it level.
                queue.finish = i128::from(i64::MIN);
            }
            let weight = policy.tenant_weights.get(&name.0).copied();
            queue.weight = weight.unwrap_or(policy.default_tenant_weight);
        }
        self.put_classes(policy);
        self.version += 1;
        self.held_until = self.now;
        self.policy = Some(policy.clone());
        self.line_up();
    }

    pub(super) fn delete(&mut self) {
        for name in self.waiting() {
            self.drop_place(&name, false);
        }
        let latest = self.now.max(self.last_start);
        let meters = self.meters.drain(..);
        let until = |meter: Meter| {
            let until = latest + meter.period();
            (meter, until)
        };
        self.former.extend(meters.map(until));
        self.sort_former();
        self.classes.clear();
        self.policy = None;
    }

    fn sort_former(&mut self) {
        self.former.sort_by_key(|(_, until)| Reverse(*until));
        self.former.truncate(FORMER_MOST);
    }

    /// Nothing is remembered of the cost of calls in a dimension that is no longer counted; its use is.
    fn forget_dimensions(&mut self, named: &BTreeSet<DimensionName>) {
        if self.counted.is_subset(named) {
            return;
        }
        let cut = |units: &mut Units| units.retain(|dimension, _| named.contains(dimension));
        cut(&mut self.largest);
        for record in self.grants.values_mut() {
            if let Record::Live(grant) = record {
                cut(&mut grant.charge.units);
                grant.charge.guess = None;
            }
        }
        for name in self.waiting() {
            if let Some(ticket) = self.ticket_mut(&name) {
                cut(&mut ticket.units);
            }
        }
        for class in &mut self.classes {
            class.last_ask = None;
        }
        for queue in self.queues.values_mut() {
            queue
                .learned
                .retain(|dimension, _| named.contains(dimension));
        }
    }

    fn put_limits(&mut self, policy: &Policy) {
        let now = self.now;
        // Grants may have starts that still lie ahead.
        let latest = now.max(self.last_start);
        let known: Vec<(Meter, u64)> = self
            .meters
            .drain(..)
            .map(|meter| {
                let until = latest + meter.period();
                (meter, until)
            })
            .chain(self.former.drain(..))
            .collect();
        let mut gone_on = BTreeSet::new();
        for limit in &policy.limits {
            let meter = self.meter_for(policy, limit, &known, &mut gone_on);
            self.meters.push(meter);
        }
        for (index, (meter, until)) in known.into_iter().enumerate() {
            if !gone_on.contains(&index) && until > now {
                self.former.push((meter, until));
            }
        }
        self.sort_former();
    }

    /// The same limit goes on; another of its dimension knows what was used, the longest best; of a new
    /// dimension nothing is known, and the cap counts as used up.
    fn meter_for(
        &self,
        policy: &Policy,
        limit: &Limit,
        known: &[(Meter, u64)],
        gone_on: &mut BTreeSet<usize>,
    ) -> Meter {
        let mut meter = Meter::new(limit, policy);
        let mut related: Vec<(usize, &Meter)> = known
            .iter()
            .map(|(other, _)| other)
            .enumerate()
            .filter(|(_, other)| other.dimension() == &limit.dimension)
            .collect();
        for (index, other) in &related {
            let same = other.limit.kind == limit.kind && other.period() == meter.period();
            if same && gone_on.insert(*index) {
                meter.go_on(other);
                return meter;
            }
        }
        related.sort_by_key(|(_, other)| other.period());
        for (_, other) in &related {
            meter.learn_from(other);
        }
        let lately = self.served && self.last_start + meter.period() > self.now;
        if related.is_empty() && lately && limit.initial_use == InitialUse::Full {
            meter.fill(self.now);
        }
        meter.look(self.now);
        meter
    }

    /// Priorities keep what they have by name; a new one starts level.
    fn put_classes(&mut self, policy: &Policy) {
        let mut old = std::mem::take(&mut self.classes);
        for priority in &policy.priorities {
            let place = old.iter().position(|class| class.name == priority.name);
            let mut class = match place {
                Some(place) => old.remove(place),
                None => Class {
                    name: priority.name.clone(),
                    weight: 0,
                    tag: self.virtual_time,
                    virtual_time: 0,
                    last_ask: None,
                    admitted: 0,
                    deferred: 0,
                    rejected: 0,
                    throttled: 0,
                    served_ns: 0,
                },
            };
            class.weight = priority.weight;
            self.classes.push(class);
        }
    }

    /// Whose priority is gone waits no more; whose cost no longer fits blocks nobody.
    fn line_up(&mut self) {
        for name in self.waiting() {
            let class = |call: &Call| self.class(&call.queue.as_ref()?.1);
            if class(&self.calls[&name]).is_none() {
                self.drop_place(&name, false);
                continue;
            }
            let Some(mut ticket) = self.calls[&name].ticket().cloned() else {
                continue;
            };
            ticket.share = self.share(&ticket.units);
            let fits = |meter: &Meter| of(&ticket.units, meter.dimension()) <= meter.largest();
            ticket.lapsed |= !self.meters.iter().all(fits);
            self.hold(&name, Holds::Ticket(ticket));
        }
    }
}
