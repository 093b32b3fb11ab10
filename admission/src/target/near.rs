//! Whose turn is near: for telling those who wait, and those who cannot be told any more.

use super::estimate::Charge;
use super::{AdmissionKey, Class, Place, Target};
use crate::limits::NEAR_SKIPS_MAX;
use crate::order::{Sums, Walk};

/// A priority's line on the way through all lines in order of turns.
struct Front<'a> {
    class: usize,
    /// Start tag of the priority before anything of its line.
    tag: i128,
    /// Share of the tickets passed.
    passed: i128,
    walk: std::iter::Peekable<Walk<'a>>,
}

impl Target {
    /// Tickets that could start within the horizon, in order of their turn.
    pub(crate) fn near(&self, now: u64, most: usize) -> Vec<u64> {
        let mut near = Vec::new();
        let mut ahead = Sums::default();
        let mut skipped = 0usize;
        let mut fronts = self.fronts();
        while near.len() < most && skipped <= NEAR_SKIPS_MAX {
            let Some(front) = self.next_front(&mut fronts) else {
                break;
            };
            let Some((key, own)) = front.walk.next() else {
                break;
            };
            let charge = Charge {
                units: own.units,
                uncertain: None,
            };
            let start = self.earliest(now, front.class, &charge, &ahead).start;
            if start <= now.saturating_add(self.horizon()) {
                near.push(key.serial);
            } else {
                skipped = skipped.saturating_add(1);
            }
            front.passed = front.passed.saturating_add(own.share);
            ahead.add(&own);
        }
        near
    }

    /// The caller of an attempt's ask can no longer be told of its turn, so it has to be back by the clock.
    pub(crate) fn unwake(
        &mut self,
        now: u64,
        key: AdmissionKey,
        owner: u64,
        (attempt, ask): (u64, u32),
    ) {
        let Some(admission) = self.admissions.get(key) else {
            return;
        };
        let same = (admission.owner, admission.attempt, admission.ask) == (owner, attempt, ask);
        let Place::Waiting(ticket) = &admission.place else {
            return;
        };
        let Some(class) = self.queue(admission.queue).map(|queue| queue.class) else {
            return;
        };
        if !same || ticket.lapsed {
            return;
        }
        let charge = Charge {
            units: ticket.units,
            uncertain: None,
        };
        let ahead = self.ahead(class, ticket.key());
        let start = self.earliest(now, class, &charge, &ahead).start;
        let due = now.saturating_add(self.due_by_clock(start.saturating_sub(now)));
        if due < ticket.due {
            self.bring_due_forward(key, due);
        }
    }

    fn fronts(&self) -> Vec<Front<'_>> {
        let front = |(class, of): (usize, &'_ Class)| Front {
            class,
            tag: self.class_tag(of),
            passed: 0,
            walk: self.line(class).peekable(),
        };
        self.classes.iter().enumerate().map(front).collect()
    }

    fn line(&self, class: usize) -> Walk<'_> {
        self.classes
            .get(class)
            .map_or_else(Walk::default, |class| class.line.walk_in_order())
    }

    /// The priority whose next ticket has the earliest start tag; the higher one of equals.
    fn next_front<'a, 'b>(&self, fronts: &'b mut [Front<'a>]) -> Option<&'b mut Front<'a>> {
        let waiting = fronts
            .iter_mut()
            .filter_map(|front| front.walk.peek().is_some().then_some(front));
        waiting.min_by_key(|front| {
            let passed = i64::try_from(front.passed).unwrap_or(i64::MAX);
            front
                .tag
                .saturating_add(self.class_advance(front.class, passed))
        })
    }
}
