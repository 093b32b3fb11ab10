//! A new policy over old use.

use super::class::{NO_CLASS, TAG_MIN};
use super::{AdmissionKey, Class, GrantRecord, Origin, Place, Retired, Target, Ticket, Units, at};
use crate::limits::{DIMENSIONS_MAX, LIMITS_MAX};
use crate::meter::Meter;
use crate::order::Line;
use crate::{InitialUse, Limit, Policy, Principal, Priority};
use std::collections::BTreeSet;

impl Target {
    /// Puts a valid policy in force, and remembers that `by` did so. Use, tags and places are kept; later charges follow the new caps; a
    /// hold after a Retry-After ends.
    pub(crate) fn put(&mut self, now: u64, policy: Policy, by: &Principal) {
        self.assign_slots(&policy);
        self.put_limits(now, &policy);
        self.put_priorities(&policy);
        self.put_tenants(&policy);
        self.retire_policy();
        self.history.origin = Some(Origin {
            at: now,
            by: by.clone(),
        });
        self.version = self.version.saturating_add(1);
        // A provider may send an absurd Retry-After; a new policy is how an operator ends the hold.
        self.held_until = now;
        self.policy = Some(policy);
        self.rebuild_lines(now);
    }

    /// Takes the policy away. Nobody waits any more; grants may still be released.
    pub(crate) fn delete(&mut self, now: u64) {
        let waiting: Vec<AdmissionKey> = self.due.iter().map(|(_, key)| *key).collect();
        for key in waiting {
            self.drop_place(now, key, false);
        }
        self.retire_policy();
        let meters = std::mem::take(&mut self.meters);
        for meter in meters {
            self.retire(now, meter);
        }
        self.classes.clear();
        self.queues.change_each(|queue| queue.class = NO_CLASS);
    }

    /// When a target without a policy can be forgotten: nothing of its use counts any more.
    pub(crate) fn forgotten_after(&self) -> u64 {
        self.retired
            .iter()
            .map(|retired| retired.until)
            .max()
            .unwrap_or(0)
    }

    /// Gives every dimension of the policy a slot. One that had a slot keeps it; the slot of one that is
    /// no longer named is wiped before somebody else gets it.
    fn assign_slots(&mut self, policy: &Policy) {
        let named: BTreeSet<_> = policy.limits.iter().map(|limit| &limit.dimension).collect();
        let mut wiped = [false; DIMENSIONS_MAX];
        for (slot, wiped) in self.slots.iter_mut().zip(&mut wiped) {
            if slot
                .as_ref()
                .is_some_and(|dimension| !named.contains(dimension))
            {
                *slot = None;
                *wiped = true;
            }
        }
        for dimension in named {
            if self.slot_of(dimension).is_none()
                && let Some(free) = self.slots.iter_mut().find(|slot| slot.is_none())
            {
                *free = Some(dimension.clone());
            }
        }
        if wiped.contains(&true) {
            self.wipe(&wiped);
        }
    }

    fn wipe(&mut self, wiped: &[bool; DIMENSIONS_MAX]) {
        let clear = |units: &mut Units| {
            for (units, wiped) in units.iter_mut().zip(wiped) {
                if *wiped {
                    *units = 0;
                }
            }
        };
        clear(&mut self.largest);
        self.grants.change_each(|record| {
            if let GrantRecord::Live(grant) = record {
                clear(&mut grant.units);
                grant.uncertain = None;
            }
        });
        self.admissions.change_each(|admission| {
            if let Place::Waiting(ticket) = &mut admission.place {
                clear(&mut ticket.units);
            }
        });
        for class in &mut self.classes {
            class.last_ask = None;
        }
        self.queues.change_each(|queue| {
            for (learned, wiped) in queue.learned.iter_mut().zip(wiped) {
                if *wiped {
                    *learned = super::Learned::default();
                }
            }
        });
    }

    /// Makes the meters of the new limits, each with what is known of its dimension.
    fn put_limits(&mut self, now: u64, policy: &Policy) {
        let mut known = std::mem::take(&mut self.meters);
        let retired = std::mem::take(&mut self.retired);
        let untils: Vec<u64> = retired.iter().map(|retired| retired.until).collect();
        let active = known.len();
        known.extend(retired.into_iter().map(|retired| retired.meter));
        let mut taken = BTreeSet::new();
        for limit in &policy.limits {
            let meter = self.meter_for(now, policy, limit, &known, &mut taken);
            self.meters.push(meter);
        }
        for (index, meter) in known.into_iter().enumerate() {
            let until = match index.checked_sub(active) {
                None => self.counts_until(now, &meter),
                Some(old) => untils.get(old).copied().unwrap_or(now),
            };
            if !taken.contains(&index) && until > now {
                self.retired.push(Retired { meter, until });
            }
        }
        self.place_retired();
    }

    fn meter_for(
        &self,
        now: u64,
        policy: &Policy,
        limit: &Limit,
        known: &[Meter],
        taken: &mut BTreeSet<usize>,
    ) -> Meter {
        let slot = self.slot_of(&limit.dimension).unwrap_or(DIMENSIONS_MAX);
        let mut meter = Meter::new(limit.clone(), slot, policy);
        let same_dimension = |other: &&(usize, &Meter)| other.1.limit.dimension == limit.dimension;
        let candidates: Vec<(usize, &Meter)> = known.iter().enumerate().collect();
        let exact = candidates
            .iter()
            .filter(same_dimension)
            .find(|(index, other)| {
                !taken.contains(index)
                    && other.limit.kind == limit.kind
                    && other.period() == meter.period()
            });
        if let Some((index, other)) = exact {
            taken.insert(*index);
            meter.window = other.window.clone();
            meter.pacer = other.pacer.clone();
            return meter;
        }
        // From all of the dimension, so that the longest log wins and no pacer is forgotten.
        let mut related: Vec<_> = candidates.iter().filter(same_dimension).collect();
        related.sort_by_key(|(_, other)| other.period());
        for (_, other) in &related {
            meter.inherit(other);
        }
        let recent = self.last_start.saturating_add(meter.period()) > now;
        if related.is_empty() && self.served && recent && limit.initial_use == InitialUse::Full {
            meter.fill(now);
        }
        if let Some(window) = &mut meter.window {
            window.expire(now);
        }
        meter
    }

    fn retire(&mut self, now: u64, meter: Meter) {
        let until = self.counts_until(now, &meter);
        self.retired.push(Retired { meter, until });
        self.place_retired();
    }

    /// When all that a meter was charged so far is over. The latest start may still lie ahead.
    fn counts_until(&self, now: u64, meter: &Meter) -> u64 {
        let latest = now.max(self.last_start);
        latest.saturating_add(meter.period())
    }

    /// Points retired meters to the slots of their dimensions, and keeps the longest-lived ones.
    fn place_retired(&mut self) {
        let slots = &self.slots;
        for retired in &mut self.retired {
            let dimension = Some(&retired.meter.limit.dimension);
            let slot = slots.iter().position(|slot| slot.as_ref() == dimension);
            retired.meter.slot = slot.unwrap_or(DIMENSIONS_MAX);
        }
        self.retired
            .sort_by_key(|retired| std::cmp::Reverse(retired.until));
        self.retired.truncate(LIMITS_MAX);
    }

    /// Priorities keep tags and counts by name.
    fn put_priorities(&mut self, policy: &Policy) {
        let mut old = std::mem::take(&mut self.classes);
        for Priority { name, weight } in &policy.priorities {
            let class = match old.iter().position(|class| class.name == *name) {
                Some(place) => Class {
                    weight: *weight,
                    ..old.swap_remove(place)
                },
                None => Class::new(name.clone(), *weight, self.virtual_time),
            };
            self.classes.push(class);
        }
    }

    fn put_tenants(&mut self, policy: &Policy) {
        self.queues.change_each(|queue| {
            let place = policy
                .priorities
                .iter()
                .position(|p| p.name == queue.priority);
            if queue.class == NO_CLASS {
                // Its priority starts anew, and everybody in it level.
                queue.finish = TAG_MIN;
            }
            queue.class = place.unwrap_or(NO_CLASS);
            let named = policy.tenant_weights.get(&queue.tenant).copied();
            queue.weight = named.unwrap_or(policy.default_tenant_weight);
        });
    }

    /// Puts every waiting ticket into the line that is now its own, with its share of the caps that are
    /// now in force. A ticket whose priority is gone is dropped; one that can no longer fit stands in no
    /// line, so that it blocks nobody until its caller comes back and is told.
    fn rebuild_lines(&mut self, now: u64) {
        let dimensions = self.dimensions();
        for class in &mut self.classes {
            class.line = Line::new(dimensions);
        }
        let waiting: Vec<(u64, AdmissionKey)> = self.due.iter().copied().collect();
        for (_, key) in waiting {
            let Some(admission) = self.admissions.get(key) else {
                continue;
            };
            let Some(queue) = self.queues.get(admission.queue) else {
                continue;
            };
            let class = queue.class;
            let Place::Waiting(ticket) = &admission.place else {
                continue;
            };
            if class == NO_CLASS {
                self.drop_place(now, key, false);
                continue;
            }
            let mut ticket: Ticket = (**ticket).clone();
            ticket.share = self.share(&ticket.units);
            let fits = self
                .meters
                .iter()
                .all(|meter| at(&ticket.units, meter.slot) <= meter.largest_fitting());
            if !ticket.lapsed && fits {
                self.enter_line(class, &ticket);
            }
            ticket.lapsed |= !fits;
            if let Some(admission) = self.admissions.get_mut(key) {
                admission.place = Place::Waiting(Box::new(ticket));
            }
        }
    }
}

impl Class {
    /// A priority that starts level with the others.
    pub(crate) fn new(name: crate::PriorityName, weight: u32, tag: i128) -> Class {
        Class {
            name,
            weight,
            tag,
            virtual_time: 0,
            line: Line::new(0),
            last_ask: None,
            admitted: 0,
            deferred: 0,
            rejected: 0,
            throttled: 0,
            served_ns: 0,
        }
    }
}
