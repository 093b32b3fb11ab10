//! Canonical bytes of a target. Lines are not stored: they are rebuilt from the waiting tickets.

use super::class::NO_CLASS;
use super::{
    Admission, Class, Former, Grant, GrantRecord, History, Learned, Origin, Place, Queue, Retired,
    Target, Ticket, Uncertain,
};
use crate::codec::{Canonical, DecodeError, Reader, canonical, canonical_tags};
use crate::limits::DIMENSIONS_MAX;
use crate::meter::{Guard, Meter};
use crate::order::Line;
use crate::pacer::{Mark, Pacer};
use crate::window::{Bucket, Window};
use crate::{EnforcedBy, Estimate, Headroom, InitialUse, Kind, Limit, Policy, Priority};

canonical_tags!(Kind, "a kind" { Sliding = 0, Bucket = 1 });
canonical_tags!(EnforcedBy, "who enforces" { Provider = 0, Us = 1 });
canonical_tags!(InitialUse, "an initial use" { Full = 0, Empty = 1 });
canonical_tags!(Headroom, "a headroom" { Auto = 0, On = 1, Off = 2 });
canonical_tags!(Estimate, "an estimate" { Learned = 0, Reserve = 1 });

canonical!(Priority { name, weight });
canonical!(Limit {
    name,
    dimension,
    cap,
    per,
    kind,
    enforced_by,
    burst,
    initial_use
});
canonical!(Policy {
    limits,
    priorities,
    tenant_weights,
    default_tenant_weight,
    reply_window,
    send_spread,
    horizon,
    headroom,
    estimate,
    rejected_counts,
    estimate_sigmas_milli,
});
canonical!(Origin { at, by });
canonical!(Former {
    version,
    origin,
    policy
});
canonical!(History { origin, former });
canonical!(Guard {
    reply_window,
    spread,
    drift
});
canonical!(Bucket {
    number,
    units,
    variance
});
canonical!(Meter {
    limit,
    slot,
    guard,
    pacer,
    window
});
canonical!(Mark { start, lacked });
canonical!(Retired { meter, until });
canonical!(Learned {
    mean,
    variance,
    samples
});
canonical!(Queue {
    tenant,
    priority,
    class,
    weight,
    finish,
    tickets,
    grants,
    learned,
    idle_since,
    listed,
    seen
});
canonical!(Ticket {
    serial,
    tag,
    units,
    share,
    due,
    noted,
    lapsed
});
canonical!(Uncertain {
    lower,
    slots,
    variance
});
canonical!(Grant {
    admission,
    queue,
    owner,
    start,
    units,
    share,
    uncertain,
    tag,
    serial,
    expires,
});
canonical!(Admission {
    queue,
    body,
    owner,
    attempt,
    ask,
    closed,
    place,
    forget_at,
    seen
});
canonical!(Target {
    version,
    policy,
    history,
    slots,
    meters,
    retired,
    classes,
    queues,
    admissions,
    grants,
    due,
    forgetting,
    expiring,
    ended,
    idle,
    virtual_time,
    last_start,
    held_until,
    lateness,
    largest,
    next_serial,
    tickets,
    live_grants,
    served,
    checkpoint,
});

impl Canonical for Pacer {
    fn put(&self, out: &mut Vec<u8>) {
        self.spent_until.put(out);
        self.marks.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let spent_until = Canonical::take(from)?;
        let marks = Canonical::take(from)?;
        Pacer::restore(spent_until, marks).ok_or_else(|| from.expected("marks of a pacer"))
    }
}

impl Canonical for Window {
    fn put(&self, out: &mut Vec<u8>) {
        self.period().put(out);
        self.buckets().len().put(out);
        for bucket in self.buckets() {
            bucket.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let period = u64::take(from)?;
        let buckets = Vec::take(from)?;
        Window::restore(period, buckets).ok_or_else(|| from.expected("a window log"))
    }
}

impl Canonical for GrantRecord {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            GrantRecord::Live(grant) => {
                out.push(0);
                grant.put(out);
            }
            GrantRecord::Ended {
                admission,
                owner,
                expired,
            } => {
                out.push(1);
                admission.put(out);
                owner.put(out);
                expired.put(out);
            }
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let error = from.expected("what is known of a grant");
        match u8::take(from)? {
            0 => Canonical::take(from).map(GrantRecord::Live),
            1 => Ok(GrantRecord::Ended {
                admission: Canonical::take(from)?,
                owner: Canonical::take(from)?,
                expired: Canonical::take(from)?,
            }),
            2.. => Err(error),
        }
    }
}

impl Canonical for Place {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Place::Nothing => out.push(0),
            Place::Waiting(ticket) => {
                out.push(1);
                ticket.put(out);
            }
            Place::Granted(id) => {
                out.push(2);
                id.put(out);
            }
            Place::Reported => out.push(3),
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let error = from.expected("a place");
        match u8::take(from)? {
            0 => Ok(Place::Nothing),
            1 => Canonical::take(from).map(Place::Waiting),
            2 => Canonical::take(from).map(Place::Granted),
            3 => Ok(Place::Reported),
            4.. => Err(error),
        }
    }
}

impl Canonical for Class {
    fn put(&self, out: &mut Vec<u8>) {
        self.name.put(out);
        self.weight.put(out);
        self.tag.put(out);
        self.virtual_time.put(out);
        self.last_ask.put(out);
        for count in [
            self.admitted,
            self.deferred,
            self.rejected,
            self.throttled,
            self.served_ns,
        ] {
            count.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Class {
            name: Canonical::take(from)?,
            weight: Canonical::take(from)?,
            tag: Canonical::take(from)?,
            virtual_time: Canonical::take(from)?,
            line: Line::new(DIMENSIONS_MAX),
            last_ask: Canonical::take(from)?,
            admitted: Canonical::take(from)?,
            deferred: Canonical::take(from)?,
            rejected: Canonical::take(from)?,
            throttled: Canonical::take(from)?,
            served_ns: Canonical::take(from)?,
        })
    }
}

impl Target {
    /// Puts the tickets of a target that was just read back into their lines.
    pub(crate) fn restore_lines(&mut self) {
        let dimensions = self.dimensions();
        for class in &mut self.classes {
            class.line = Line::new(dimensions);
        }
        for (_, admission) in self.admissions.sorted() {
            let Place::Waiting(ticket) = &admission.place else {
                continue;
            };
            let class = self
                .queues
                .get(admission.queue)
                .map_or(NO_CLASS, |queue| queue.class);
            if ticket.lapsed {
                continue;
            }
            if let Some(class) = self.classes.get_mut(class) {
                class.line.insert(ticket.key(), &ticket.units, ticket.share);
            }
        }
    }
}
