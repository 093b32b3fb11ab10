//! What an operation names, against the state: digests under its secret, and places and slots of the
//! target's policy.

use crate::hash::{Fold, keyed};
use crate::limits::{ADMISSION_ID_BYTES_MAX, CALLER_DURATION_MAX, DIMENSIONS_MAX};
use crate::target::{AdmissionKey, Ask, Bounds, Known, QueueKey, Target, Units};
use crate::{Admit, Amounts, Operation, Principal, PriorityName, Refusal, TenantName};

/// What can be said of an ask before its target is known.
pub(super) fn check_admit(admit: &Admit) -> Result<(), Refusal> {
    check_id(&admit.admission_id)?;
    ensure(admit.ask > 0, "ask", "must be at least 1")?;
    ensure(
        !admit.cost.is_zero(),
        "cost",
        "must have a unit in at least one dimension",
    )?;
    ensure(
        admit
            .deadline
            .is_none_or(|deadline| deadline <= CALLER_DURATION_MAX),
        "deadline_us",
        "must be at most 31 days",
    )
}

/// Resolves an ask against a target's policy.
pub(super) fn ask_of<'a>(
    target: &Target,
    digests: Digests,
    admit: &'a Admit,
) -> Result<Ask<'a>, Refusal> {
    let class = class_of(target, &admit.priority)?;
    let bounds = bounds(target, &admit.cost, &admit.cost_max)?;
    let ask = Ask {
        key: digests.admission,
        queue: digests.queue,
        tenant: &admit.tenant,
        priority: &admit.priority,
        class,
        owner: digests.owner,
        body: body(admit),
        attempt: admit.attempt,
        ask: admit.ask,
        bounds,
        deadline: admit.deadline,
        wake: admit.wake,
    };
    target.check_owner(ask.key, ask.owner)?;
    Ok(ask)
}

fn ensure(holds: bool, field: &'static str, rule: &'static str) -> Result<(), Refusal> {
    if holds {
        Ok(())
    } else {
        Err(Refusal::Malformed { field, rule })
    }
}

pub(super) fn check_id(id: &[u8]) -> Result<(), Refusal> {
    ensure(
        (1..=ADMISSION_ID_BYTES_MAX).contains(&id.len()),
        "admission_id",
        "must be 1 to 128 bytes",
    )
}

pub(super) fn class_of(target: &Target, priority: &PriorityName) -> Result<usize, Refusal> {
    let place = target
        .classes
        .iter()
        .position(|class| class.name == *priority);
    place.ok_or_else(|| Refusal::PriorityUnknown(priority.clone()))
}

/// Units by slot, and which dimensions were named.
pub(super) fn known(target: &Target, amounts: &Amounts) -> Result<Known, Refusal> {
    let mut known = [None; DIMENSIONS_MAX];
    for (dimension, units) in amounts.iter() {
        let slot = target.slot_of(dimension);
        match slot.and_then(|slot| known.get_mut(slot)) {
            Some(place) => *place = Some(units),
            None => return Err(Refusal::DimensionUnknown(dimension.clone())),
        }
    }
    Ok(known)
}

/// Units by slot of a call that is over. A dimension that no limit counts any more is left out: the caller
/// cannot know of the change, and the grant must end all the same.
pub(super) fn settled(target: &Target, actual: &Amounts) -> Known {
    let mut known = [None; DIMENSIONS_MAX];
    for (dimension, units) in actual.iter() {
        let slot = target.slot_of(dimension);
        if let Some(place) = slot.and_then(|slot| known.get_mut(slot)) {
            *place = Some(units);
        }
    }
    known
}

fn bounds(target: &Target, cost: &Amounts, cost_max: &Amounts) -> Result<Bounds, Refusal> {
    let lower: Units = known(target, cost)?.map(Option::unwrap_or_default);
    let mut upper = lower;
    for (most, named) in upper.iter_mut().zip(known(target, cost_max)?) {
        let Some(named) = named else { continue };
        ensure(named >= *most, "cost_max", "must not be below cost")?;
        *most = named;
    }
    Ok(Bounds { lower, upper })
}

/// Digests of what an operation names; 0 for what it does not name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Digests {
    pub(super) admission: AdmissionKey,
    pub(super) queue: QueueKey,
    pub(super) owner: u64,
}

/// Makes digests, and remembers that of the last principal: operations that follow each other are often of
/// one.
pub(super) struct Digester<'a> {
    secret: u128,
    last: Option<(&'a Principal, u64)>,
}

impl<'a> Digester<'a> {
    pub(super) fn new(secret: u128) -> Self {
        Digester { secret, last: None }
    }

    /// What any operation names.
    pub(super) fn digests(&mut self, operation: &'a Operation) -> Digests {
        match operation {
            Operation::Admit(ask) => self.of_ask(ask),
            Operation::Report(report) => Digests {
                admission: admission_key(self.secret, &report.tenant, &report.admission_id),
                queue: queue_key(self.secret, &report.tenant, &report.priority),
                owner: self.owner(&report.principal),
            },
            Operation::Cancel(ask) | Operation::Unwake(ask) => Digests {
                admission: admission_key(self.secret, &ask.tenant, &ask.admission_id),
                queue: 0,
                owner: self.owner(&ask.principal),
            },
            Operation::Release(release) => Digests {
                owner: self.owner(&release.principal),
                ..Digests::default()
            },
            Operation::Extend(extend) => Digests {
                owner: self.owner(&extend.principal),
                ..Digests::default()
            },
            Operation::PutPolicy(_) | Operation::DeletePolicy(_) | Operation::Seed(_) => {
                Digests::default()
            }
        }
    }

    /// What an ask names.
    pub(super) fn of_ask(&mut self, ask: &'a Admit) -> Digests {
        Digests {
            admission: admission_key(self.secret, &ask.tenant, &ask.admission_id),
            queue: queue_key(self.secret, &ask.tenant, &ask.priority),
            owner: self.owner(&ask.principal),
        }
    }

    fn owner(&mut self, principal: &'a Principal) -> u64 {
        match self.last {
            Some((last, digest)) if last == principal => digest,
            Some(_) | None => {
                let digest = keyed(self.secret, b'o', [principal.as_str().as_bytes()]) as u64;
                self.last = Some((principal, digest));
                digest
            }
        }
    }
}

pub(super) fn admission_key(secret: u128, tenant: &TenantName, id: &[u8]) -> u128 {
    keyed(secret, b'a', [tenant.as_str().as_bytes(), id])
}

fn queue_key(secret: u128, tenant: &TenantName, priority: &PriorityName) -> u128 {
    let parts = [tenant.as_str().as_bytes(), priority.as_str().as_bytes()];
    keyed(secret, b'q', parts)
}

/// What an id stands for. Never 0, which stands for an id of which only a cancel was seen.
fn body(admit: &Admit) -> u64 {
    let mut fold = Fold::new().text(admit.priority.as_str());
    for amounts in [&admit.cost, &admit.cost_max] {
        fold = fold.number(amounts.len() as u64);
        for (dimension, units) in amounts.iter() {
            fold = fold.text(dimension.as_str()).number(units);
        }
    }
    fold.number(admit.labels_digest).finish().max(1)
}
