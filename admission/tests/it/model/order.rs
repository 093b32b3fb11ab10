//! Whose turn it is, and when a turn can come.
//!
//! Tags count 1/1024 ns of cap time. A priority's tag moves by its calls' shares over its part of the
//! weights; a tenant's, inside its priority, by shares over its weight, the usual weight being 1.

use super::meter::Need;
use super::{Charge, Class, Target, Ticket, Units, of};
use weir_admission::{Headroom, LimitName, PriorityName, TenantName};

pub(super) const LATENESS_AT_FIRST: u64 = 35_000;
const LATENESS_MOST: u64 = 200_000;

/// A priority that idled saves 200 ms of cap time, a tenant 100 ms.
const CLASS_CREDIT: i128 = 200_000_000 * 1_024;
const TENANT_CREDIT: i128 = 100_000_000 * 1_024;

/// Who goes first.
#[derive(Default)]
pub(super) struct Ahead {
    pub(super) units: Units,
    share: i128,
    pub(super) tickets: u64,
}

impl Ahead {
    fn add(&mut self, ticket: &Ticket) {
        for (dimension, units) in &ticket.units {
            *self.units.entry(dimension.clone()).or_default() += units;
        }
        self.share += ticket.share;
        self.tickets += 1;
    }
}

/// When an ask may start, and which limit is to blame if that is later than now.
pub(super) struct Slot {
    pub(super) start: u64,
    pub(super) limit: Option<LimitName>,
}

impl Target {
    pub(super) fn class(&self, name: &PriorityName) -> Option<usize> {
        self.classes.iter().position(|class| class.name == *name)
    }

    /// The dominant share: the largest part of any cap, at least a nanosecond.
    pub(super) fn share(&self, units: &Units) -> i128 {
        let shares = self
            .meters
            .iter()
            .map(|m| m.share(of(units, m.dimension())));
        shares.max().unwrap_or(1).max(1)
    }

    fn weights(&self) -> i128 {
        self.classes.iter().map(|c| i128::from(c.weight)).sum()
    }

    pub(super) fn class_step(&self, class: usize, share: i128) -> i128 {
        share * 1_024 * self.weights() / i128::from(self.classes[class].weight)
    }

    pub(super) fn tenant_step(&self, weight: u32, share: i128) -> i128 {
        let usual = self.policy.as_ref().map_or(1, |p| p.default_tenant_weight);
        share * 1_024 * i128::from(usual) / i128::from(weight)
    }

    pub(super) fn tenant_weight(&self, tenant: &TenantName) -> u32 {
        let policy = self.policy();
        let named = policy.tenant_weights.get(tenant).copied();
        named.unwrap_or(policy.default_tenant_weight)
    }

    /// A priority's tag, never further back than its credit.
    pub(super) fn class_start(&self, class: &Class) -> i128 {
        class.tag.max(self.virtual_time - CLASS_CREDIT)
    }

    /// The tag of a tenant's next ticket.
    pub(super) fn next_tag(&self, class: usize, finish: Option<i128>) -> i128 {
        let floor = self.classes[class].virtual_time - TENANT_CREDIT;
        finish.unwrap_or(floor).max(floor)
    }

    /// The tickets in a priority's line, in its order.
    pub(super) fn line(&self, class: usize) -> Vec<&Ticket> {
        let name = &self.classes[class].name;
        let mut line: Vec<&Ticket> = self
            .calls
            .values()
            .filter(|call| call.queue.as_ref().is_some_and(|queue| queue.1 == *name))
            .filter_map(|call| call.ticket())
            .filter(|ticket| !ticket.lapsed)
            .collect();
        line.sort_by_key(|ticket| (ticket.tag, ticket.serial));
        line
    }

    pub(super) fn anybody_waits(&self) -> bool {
        (0..self.classes.len()).any(|class| !self.line(class).is_empty())
    }

    /// Those before a place in its own line, and of every other line whole tickets while they start
    /// before that place does; at a tie the higher priority starts first.
    pub(super) fn ahead(&self, class: usize, place: (i128, u64)) -> Ahead {
        let mut ahead = Ahead::default();
        for ticket in self.line(class) {
            if (ticket.tag, ticket.serial) < place {
                ahead.add(ticket);
            }
        }
        let start = self.class_start(&self.classes[class]) + self.class_step(class, ahead.share);
        for other in (0..self.classes.len()).filter(|other| *other != class) {
            let weight = i128::from(self.classes[other].weight);
            let first = self.class_start(&self.classes[other]);
            let mut before = 0;
            for ticket in self.line(other) {
                // first + before * 1024 * weights / weight against start, without rounding.
                let theirs = before * 1_024 * self.weights();
                let ours = (start - first) * weight;
                if theirs > ours || (theirs == ours && other > class) {
                    break;
                }
                before += ticket.share;
                ahead.add(ticket);
            }
        }
        ahead
    }

    /// Room for one call of the highest priority above this one that asked lately and does not wait.
    fn room(&self, class: usize) -> Units {
        let headroom = self.policy().headroom;
        let memory = self.longest_period().max(10 * super::SECOND);
        let absent = (0..class).find_map(|higher| {
            let (asked, units) = self.classes[higher].last_ask.as_ref()?;
            let absent = self.line(higher).is_empty() && self.now < asked + memory;
            absent.then_some(units)
        });
        let Some(call) = absent else {
            return Units::new();
        };
        let cheap = |meter: &super::Meter| of(call, meter.dimension()) * 200 <= meter.limit.cap;
        let leaves = match headroom {
            Headroom::Off => false,
            Headroom::On => true,
            Headroom::Auto => self.meters.iter().all(cheap),
        };
        if leaves { call.clone() } else { Units::new() }
    }

    /// First start of a call after what is ahead of it.
    pub(super) fn earliest(&self, class: usize, charge: &Charge, ahead: &Ahead) -> Slot {
        let room = self.room(class);
        let newcomer = self.policy().headroom != Headroom::Off
            && ahead.tickets == 0
            && room.is_empty()
            && self.classes[class].tag < self.virtual_time;
        let mut start = self.now.max(self.held_until);
        if !newcomer {
            start = start.max(self.last_start);
        }
        let mut slot = Slot { start, limit: None };
        for meter in &self.meters {
            let dimension = meter.dimension();
            let need = Need {
                cost: of(&charge.units, dimension),
                ahead: of(&ahead.units, dimension),
                room: of(&room, dimension),
                variance: charge.variance(dimension),
                sigmas_milli: self.policy().estimate_sigmas_milli,
                newcomer,
            };
            let start = meter.earliest(self.now, &need);
            if start > slot.start {
                let limit = Some(meter.limit.name.clone());
                slot = Slot { start, limit };
            }
        }
        slot
    }

    /// Charges a start in every limit, in force or not.
    pub(super) fn charge(&mut self, start: u64, charge: &Charge) {
        let waiting = self.anybody_waits().then(|| self.policy().horizon);
        for (dimension, units) in &charge.units {
            let largest = self.largest.entry(dimension.clone()).or_default();
            *largest = (*largest).max(*units);
        }
        self.served = true;
        let largest = self.largest.clone();
        for meter in self.all_meters() {
            let dimension = meter.dimension().clone();
            let (units, variance) = (of(&charge.units, &dimension), charge.variance(&dimension));
            meter.charge(start, units, variance, of(&largest, &dimension), waiting);
        }
    }

    /// Moves the tags of a priority when a share of it is served.
    pub(super) fn serve(&mut self, class: usize, share: i128) {
        let start = self.class_start(&self.classes[class]);
        let step = self.class_step(class, share);
        self.virtual_time = self.virtual_time.max(start);
        let class = &mut self.classes[class];
        class.tag = start + step;
        class.served_ns += share;
    }

    /// Averages how late callers come back: the newest counts 1/32.
    pub(super) fn note_lateness(&mut self, due: u64) {
        if self.now >= due {
            let late = (self.now - due).min(LATENESS_MOST);
            self.lateness = (31 * self.lateness + late).div_ceil(32);
        }
    }
}
