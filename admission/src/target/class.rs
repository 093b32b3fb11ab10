//! Priorities and tenants: whose turn it is.
//!
//! Start-time fair queueing on two levels (P. Goyal, H. Vin, H. Cheng, "Start-time Fair Queuing", 1996),
//! with the dominant share of a call as its length. Tags count 1/1024 ns of cap time: a priority's tag
//! advances by its share of the cap over its share of the weights, so that all busy priorities advance
//! with real time when the cap is used up.

use super::estimate::Learned;
use super::{Target, Ticket, Units};
use crate::PriorityName;
use crate::TenantName;
use crate::by_digest::{Record, Seen};
use crate::limits::{PRIORITY_CREDIT_NS, TENANT_CREDIT_NS};
use crate::order::{Key, Line, Sums};

/// Fractions of a nanosecond in a tag: keeps weights up to 10 000 from rounding a small call to nothing.
pub(crate) const TAG_SCALE: i128 = 1_024;
/// Tag of a tenant that was never served: before every virtual time.
pub(crate) const TAG_MIN: i128 = i64::MIN as i128;

/// Place of a priority that the policy does not name. No list is that long, so every look-up misses.
pub(crate) const NO_CLASS: usize = usize::MAX;

/// A priority at work.
#[derive(Debug)]
pub(crate) struct Class {
    /// Its name.
    pub(crate) name: PriorityName,
    /// Its weight.
    pub(crate) weight: u32,
    /// Start tag of its next call.
    pub(crate) tag: i128,
    /// Largest tag of a tenant's call served in it.
    pub(crate) virtual_time: i128,
    /// Its waiting tickets, lapsed ones left out.
    pub(crate) line: Line,
    /// When it last asked, and for what.
    pub(crate) last_ask: Option<(u64, Units)>,
    /// Asks answered and calls throttled since the policy first named it.
    pub(crate) admitted: u64,
    /// See above.
    pub(crate) deferred: u64,
    /// See above.
    pub(crate) rejected: u64,
    /// See above.
    pub(crate) throttled: u64,
    /// Dominant share served, in nanoseconds.
    pub(crate) served_ns: u64,
}

/// One tenant in one priority.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    /// The tenant.
    pub(crate) tenant: TenantName,
    /// Its priority.
    pub(crate) priority: PriorityName,
    /// The priority's place in the policy; [`NO_CLASS`] while no policy names it.
    pub(crate) class: usize,
    /// Its weight.
    pub(crate) weight: u32,
    /// Finish tag of its last call.
    pub(crate) finish: i128,
    /// Its waiting tickets.
    pub(crate) tickets: u32,
    /// Its live grants.
    pub(crate) grants: u32,
    /// What was learned of its costs, per slot; empty until a bounded cost was settled.
    pub(crate) learned: Vec<Learned>,
    /// When it became idle.
    pub(crate) idle_since: u64,
    /// True while it stands in the list of idle queues.
    pub(crate) listed: bool,
    /// See [`Record`].
    pub(crate) seen: Seen,
}

impl Record for Queue {
    fn seen(&mut self) -> &mut Seen {
        &mut self.seen
    }
}

impl Queue {
    /// True if nothing of the tenant waits or runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.tickets == 0 && self.grants == 0
    }
}

/// `share * scale / weight` in tag units, rounded towards zero.
pub(crate) fn advance(share: i64, scale: u64, weight: u32) -> i128 {
    scaled(
        i128::from(share).saturating_mul(TAG_SCALE),
        scale,
        i128::from(weight.max(1)),
    )
    .0
}

/// `value * by / over` and what is left, both rounded towards zero; 0 for nothing to divide by.
fn scaled(value: i128, by: u64, over: i128) -> (i128, i128) {
    // Almost always: what fits 64 bits is divided by one instruction.
    if let (Ok(value), Ok(by), Ok(over)) =
        (i64::try_from(value), i64::try_from(by), i64::try_from(over))
        && let Some(product) = value.checked_mul(by)
        && let (Some(whole), Some(rest)) = (product.checked_div(over), product.checked_rem(over))
    {
        return (i128::from(whole), i128::from(rest));
    }
    let product = value.saturating_mul(i128::from(by));
    (
        product.checked_div(over).unwrap_or(0),
        product.checked_rem(over).unwrap_or(0),
    )
}

impl Target {
    /// Sum of the priorities' weights.
    fn weights(&self) -> u64 {
        self.classes
            .iter()
            .map(|class| u64::from(class.weight))
            .fold(0, u64::saturating_add)
    }

    /// How far serving a share moves a priority's tag.
    pub(crate) fn class_advance(&self, class: usize, share: i64) -> i128 {
        let weight = self.classes.get(class).map_or(1, |class| class.weight);
        advance(share, self.weights(), weight)
    }

    /// How far serving a share moves a tenant's tag.
    pub(crate) fn tenant_advance(&self, weight: u32, share: i64) -> i128 {
        advance(share, self.normal_weight(), weight)
    }

    /// The weight of a tenant that the policy does not name: its tag moves with its share.
    pub(crate) fn normal_weight(&self) -> u64 {
        self.policy
            .as_ref()
            .map_or(1, |policy| u64::from(policy.default_tenant_weight))
    }

    /// A priority's tag, lifted to the credit that idling may save.
    pub(crate) fn class_tag(&self, class: &Class) -> i128 {
        let floor = self
            .virtual_time
            .saturating_sub(PRIORITY_CREDIT_NS.saturating_mul(TAG_SCALE));
        class.tag.max(floor)
    }

    /// The start tag of a tenant's next ticket.
    pub(crate) fn next_tag(&self, class: usize, finish: i128) -> i128 {
        let virtual_time = self
            .classes
            .get(class)
            .map_or(0, |class| class.virtual_time);
        finish.max(virtual_time.saturating_sub(TENANT_CREDIT_NS.saturating_mul(TAG_SCALE)))
    }

    /// Everything that is served before a place in the line of `class`.
    pub(crate) fn ahead(&self, class: usize, key: Key) -> Sums {
        let mut ahead = Sums::default();
        for sums in self.ahead_by_class(class, key) {
            ahead.add(&sums);
        }
        ahead
    }

    /// The same, priority by priority: those before it in its own line, and from every other priority
    /// whole tickets while their start tag is below its own. Nothing if there is no such priority.
    pub(super) fn ahead_by_class(&self, class: usize, key: Key) -> impl Iterator<Item = Sums> {
        let own = self.classes.get(class).map(|own| {
            let before = own.line.before(key);
            let share = i64::try_from(before.share).unwrap_or(i64::MAX);
            let tag = self.class_tag(own);
            (before, tag.saturating_add(self.class_advance(class, share)))
        });
        own.into_iter().flat_map(move |(before, start)| {
            let classes = self.classes.iter().enumerate();
            classes.map(move |(index, other)| {
                if index == class {
                    before
                } else {
                    self.served_before(other, start, index < class)
                }
            })
        })
    }

    /// Tickets of a priority whose start tag is below `start`, or equal to it where `tie` is its.
    fn served_before(&self, class: &Class, start: i128, tie: bool) -> Sums {
        if class.line.is_empty() {
            return Sums::default();
        }
        let distance = start.saturating_sub(self.class_tag(class));
        if distance < 0 {
            return Sums::default();
        }
        let scale = TAG_SCALE.saturating_mul(i128::from(self.weights().max(1)));
        let (limit, rest) = scaled(distance, u64::from(class.weight), scale);
        class.line.upto(limit, tie || rest != 0)
    }

    /// Room for one call of the highest priority above that asked lately and does not wait.
    pub(crate) fn headroom(&self, class: usize, now: u64) -> Units {
        let mode = self
            .policy
            .as_ref()
            .map_or(crate::Headroom::Off, |policy| policy.headroom);
        if mode == crate::Headroom::Off {
            return Units::default();
        }
        let memory = self
            .longest_period()
            .max(crate::limits::HEADROOM_MEMORY_MIN);
        let absent = |class: &&Class| {
            class.line.is_empty()
                && class
                    .last_ask
                    .is_some_and(|(asked, _)| now < asked.saturating_add(memory))
        };
        let call = self
            .classes
            .iter()
            .take(class)
            .find(absent)
            .and_then(|class| class.last_ask);
        let Some((_, call)) = call else {
            return Units::default();
        };
        let cheap = self.meters.iter().all(|meter| {
            super::at(&call, meter.slot).saturating_mul(crate::limits::HEADROOM_AUTO_PART)
                <= meter.limit.cap
        });
        if mode == crate::Headroom::On || cheap {
            call
        } else {
            Units::default()
        }
    }

    /// Puts a ticket into its line. Credit is cut where the tag is read: to keep the cut tag here would
    /// make a priority's turn depend on how often its tickets were put back.
    pub(crate) fn enter_line(&mut self, class: usize, ticket: &Ticket) {
        if let Some(class) = self.classes.get_mut(class) {
            class.line.insert(ticket.key(), &ticket.units, ticket.share);
        }
    }

    /// Takes a ticket out of its line.
    pub(crate) fn leave_line(&mut self, class: usize, ticket: &Ticket) {
        if let Some(class) = self.classes.get_mut(class) {
            class.line.remove(ticket.key());
        }
    }

    /// Moves the tags when a call of a share is served from a place.
    pub(crate) fn serve(&mut self, class: usize, tag: i128, share: i64) {
        let advance = self.class_advance(class, share);
        let start = self
            .classes
            .get(class)
            .map_or(0, |class| self.class_tag(class));
        self.virtual_time = self.virtual_time.max(start);
        if let Some(class) = self.classes.get_mut(class) {
            class.tag = start.saturating_add(advance);
            class.virtual_time = class.virtual_time.max(tag);
            class.served_ns = class.served_ns.saturating_add(share.unsigned_abs());
        }
    }
}

impl Ticket {
    /// Where it stands in its line.
    pub(crate) fn key(&self) -> Key {
        Key {
            tag: self.tag,
            serial: self.serial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers of every length.
    fn any_length() -> impl Strategy<Value = i128> {
        (any::<i128>(), 0..128u32).prop_map(|(value, shift)| value >> shift)
    }

    proptest! {
        #[test]
        fn short_numbers_are_divided_like_long_ones(
            value in any_length(),
            by in any_length(),
            over in any_length(),
        ) {
            let by = by as u64;
            let product = value.saturating_mul(i128::from(by));
            let long = (product.checked_div(over), product.checked_rem(over));
            let long = (long.0.unwrap_or(0), long.1.unwrap_or(0));
            prop_assert_eq!(scaled(value, by, over), long);
        }
    }
}
