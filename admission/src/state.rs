//! The state of one shard: every target with its policy, use, waiting tickets and grants.

use crate::codec::{Canonical, DecodeError, Reader, canonical};
use crate::hash::{Fold, keyed, sip128};
use crate::limits::{ADMISSION_ID_BYTES_MAX, CALLER_DURATION_MAX, DIMENSIONS_MAX, TARGETS_MAX};
use crate::target::{Ask, Bounds, Known, Target, Ungated, Units};
use crate::{
    Admit, AdmitOutcome, Amounts, CallOutcome, Cancel, DeletePolicy, Explanation, Extend, GrantId,
    Operation, Outcome, PolicyOutcome, PolicyVersion, Principal, PriorityName, PutPolicy, Refusal,
    Release, Report, Settlement, Stamp, TargetName, TargetView, TenantName, Unwake,
};
use std::collections::{BTreeMap, BTreeSet};

/// Format of the canonical bytes.
const FORMAT: u32 = 1;

/// Everything one shard knows. A value: equal logs give equal states.
#[derive(Debug, Default)]
pub struct State {
    now: Stamp,
    secret: Option<u128>,
    targets: BTreeMap<TargetName, Target>,
    /// Targets without a policy, with the time after which nothing of their use counts.
    deleted: BTreeSet<(u64, TargetName)>,
    /// Target that was swept last without being asked for.
    cursor: Option<TargetName>,
}

canonical!(State {
    now,
    secret,
    targets,
    deleted,
    cursor
});

impl State {
    /// Applies one log entry: `index` is its place in the log, `stamp` its cluster time (clamped so that
    /// it never goes back). Answers one outcome per operation. Total: no input makes it panic.
    pub fn apply(&mut self, index: u64, stamp: Stamp, batch: &[Operation]) -> Vec<Outcome> {
        self.now = self.now.max(stamp);
        self.forget_deleted();
        self.sweep_next();
        let numbered = batch.iter().enumerate();
        numbered
            .map(|(offset, operation)| {
                let offset = u32::try_from(offset).unwrap_or(u32::MAX);
                self.apply_one(GrantId { index, offset }, operation)
            })
            .collect()
    }

    fn apply_one(&mut self, id: GrantId, operation: &Operation) -> Outcome {
        let outcome = match operation {
            Operation::Admit(admit) => self.admit(id, admit).map(Outcome::Admit),
            Operation::Release(release) => self.release(release),
            Operation::Cancel(cancel) => self.cancel(cancel),
            Operation::Extend(extend) => self.extend(extend),
            Operation::Unwake(unwake) => self.unwake(unwake),
            Operation::Report(report) => self.report(report),
            Operation::PutPolicy(put) => Ok(Outcome::Policy(self.put_policy(put))),
            Operation::DeletePolicy(delete) => self.delete_policy(delete).map(Outcome::Policy),
            Operation::Seed(secret) => {
                self.secret.get_or_insert(u128::from_le_bytes(*secret));
                Ok(Outcome::Seeded)
            }
        };
        outcome.unwrap_or_else(Outcome::Refused)
    }

    /// The last stamp applied.
    pub fn now(&self) -> Stamp {
        self.now
    }

    /// True once a secret was set.
    pub fn is_seeded(&self) -> bool {
        self.secret.is_some()
    }

    /// Number of targets with a policy.
    pub fn target_count(&self) -> usize {
        self.targets.len().saturating_sub(self.deleted.len())
    }

    /// Names of all targets with a policy, in order.
    pub fn target_names(&self) -> impl Iterator<Item = &TargetName> {
        self.targets
            .iter()
            .filter(|(_, target)| target.policy.is_some())
            .map(|(name, _)| name)
    }

    /// One target as of the last stamp; `None` if it has no policy.
    pub fn view(&self, target: &TargetName) -> Option<TargetView> {
        self.targets.get(target)?.view(target, self.now.as_micros())
    }

    /// Tickets of a target whose turn is near at `now`: asked for now, their calls would probably start
    /// within the policy's horizon. In order of their turn, at most `most`.
    ///
    /// A hint that changes nothing, for telling those who wait: nothing depends on whether, when and with
    /// what time it is asked for.
    pub fn near(&self, target: &TargetName, now: Stamp, most: usize) -> Vec<u64> {
        let now = self.now.max(now).as_micros();
        self.targets
            .get(target)
            .map_or_else(Vec::new, |target| target.near(now, most))
    }

    /// The policy in force of a target and up to [`FORMER_POLICIES_MAX`](crate::limits::FORMER_POLICIES_MAX)
    /// former ones, newest first; `None` if it has no policy.
    pub fn versions(&self, target: &TargetName) -> Option<Vec<PolicyVersion>> {
        self.targets.get(target)?.versions(self.now.as_micros())
    }

    /// Why an ask would be answered as it would be, as of the last stamp. Tickets that ended by themselves
    /// since anything was last asked of the target may still be counted.
    ///
    /// # Errors
    /// What an ask would be refused for.
    pub fn explain(&self, admit: &Admit) -> Result<Explanation, Refusal> {
        check_admit(admit)?;
        let target = self.targets.get(&admit.target);
        let target = target
            .filter(|target| target.policy.is_some())
            .ok_or(Refusal::TargetUnknown)?;
        let ask = ask_of(target, self.secret(), admit)?;
        Ok(target.explain(self.now.as_micros(), &ask))
    }

    /// What an operation changes in the charge of a grant that was given before, if it is applied next and its
    /// answer says that it ended that grant or took it back: a release that was applied, a cancel that
    /// refunded, a report that settled, an ask that was granted, deferred or (but as stale or in conflict)
    /// rejected anew. Changes nothing.
    pub fn settlement(&self, operation: &Operation) -> Option<Settlement> {
        let secret = self.secret();
        match operation {
            Operation::Admit(ask) if ask.ask > 1 && !ask.dry_run => {
                let key = admission_key(secret, &ask.tenant, &ask.admission_id);
                self.targets.get(&ask.target)?.refund_of(key, ask.attempt)
            }
            Operation::Cancel(cancel) => {
                let key = admission_key(secret, &cancel.tenant, &cancel.admission_id);
                let target = self.targets.get(&cancel.target)?;
                target.refund_of(key, cancel.attempt)
            }
            Operation::Release(release) => {
                let target = self.targets.get(&release.target)?;
                let known = settled(target, &release.actual);
                target.settlement_of(release.grant, &known, release.outcome)
            }
            Operation::Report(report) => {
                let target = self.targets.get(&report.target)?;
                let key = admission_key(secret, &report.tenant, &report.admission_id);
                let grant = target.granted(key, report.attempt)?;
                let known = settled(target, &report.actual);
                target.settlement_of(grant, &known, CallOutcome::Ok)
            }
            Operation::Admit(_)
            | Operation::Extend(_)
            | Operation::Unwake(_)
            | Operation::PutPolicy(_)
            | Operation::DeletePolicy(_)
            | Operation::Seed(_) => None,
        }
    }

    /// Canonical bytes: equal states give equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        FORMAT.put(&mut out);
        self.put(&mut out);
        out
    }

    /// Reads what [`State::encode`] wrote; refuses anything else.
    pub fn decode(bytes: &[u8]) -> Result<State, DecodeError> {
        let mut reader = Reader::new(bytes);
        let start = reader.expected("format 1");
        if u32::take(&mut reader)? != FORMAT {
            return Err(start);
        }
        let mut state = State::take(&mut reader)?;
        reader.end()?;
        for target in state.targets.values_mut() {
            target.restore_lines();
        }
        state
            .check()
            .map_err(|expected| reader.expected(expected))?;
        Ok(state)
    }

    /// Digest of the canonical bytes. Linear in the size of the state.
    pub fn digest(&self) -> u128 {
        sip128(0, &self.encode())
    }

    /// The first broken invariant. Linear in the size of the state: for tests and for bytes from elsewhere.
    pub fn check(&self) -> Result<(), &'static str> {
        for (name, target) in &self.targets {
            target.check()?;
            let listed = self
                .deleted
                .contains(&(target.forgotten_after(), name.clone()));
            if listed != target.policy.is_none() {
                return Err("targets without a policy are listed as deleted");
            }
        }
        let deleted = self
            .targets
            .values()
            .filter(|target| target.policy.is_none())
            .count();
        if deleted == self.deleted.len() {
            Ok(())
        } else {
            Err("nothing else is listed")
        }
    }

    fn secret(&self) -> u128 {
        self.secret.unwrap_or(0)
    }

    /// Forgets deleted targets of whose use nothing counts any more.
    fn forget_deleted(&mut self) {
        let now = self.now.as_micros();
        while self.deleted.first().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, name)) = self.deleted.pop_first() {
                self.targets.remove(&name);
            }
        }
    }

    /// Sweeps one target in turn, so that those nobody asks for give their memory back too.
    fn sweep_next(&mut self) {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = match self.cursor.take() {
            Some(cursor) => Excluded(cursor),
            None => Unbounded,
        };
        let now = self.now.as_micros();
        self.cursor = self
            .targets
            .range_mut((after, Unbounded))
            .next()
            .map(|(name, target)| {
                target.sweep(now);
                name.clone()
            });
    }

    /// A target with a policy, brought to now.
    fn target(&mut self, name: &TargetName) -> Result<&mut Target, Refusal> {
        let now = self.now.as_micros();
        match self
            .targets
            .get_mut(name)
            .filter(|target| target.policy.is_some())
        {
            Some(target) => {
                target.sweep(now);
                Ok(target)
            }
            None => Err(Refusal::TargetUnknown),
        }
    }

    /// A target whose grants may still end, with a policy or without.
    fn remembered(&mut self, name: &TargetName) -> Result<&mut Target, Refusal> {
        let now = self.now.as_micros();
        let target = self.targets.get_mut(name).ok_or(Refusal::TargetUnknown)?;
        target.sweep(now);
        Ok(target)
    }

    fn admit(&mut self, id: GrantId, admit: &Admit) -> Result<AdmitOutcome, Refusal> {
        check_admit(admit)?;
        let (secret, now) = (self.secret(), self.now.as_micros());
        let target = self.target(&admit.target)?;
        let ask = ask_of(target, secret, admit)?;
        if admit.dry_run {
            return Ok(target.ask_dry(now, &ask));
        }
        Ok(target.ask(now, id, &ask))
    }

    fn release(&mut self, release: &Release) -> Result<Outcome, Refusal> {
        let (owner, now) = (
            owner(self.secret(), &release.principal),
            self.now.as_micros(),
        );
        let target = self.remembered(&release.target)?;
        let known = settled(target, &release.actual);
        target
            .release(now, release.grant, owner, &known, release.outcome)
            .map(Outcome::Release)
    }

    fn cancel(&mut self, cancel: &Cancel) -> Result<Outcome, Refusal> {
        check_id(&cancel.admission_id)?;
        let (secret, now) = (self.secret(), self.now.as_micros());
        let key = admission_key(secret, &cancel.tenant, &cancel.admission_id);
        let owner = owner(secret, &cancel.principal);
        let target = self.remembered(&cancel.target)?;
        target
            .cancel(now, key, owner, cancel.attempt, cancel.ask)
            .map(Outcome::Cancel)
    }

    fn unwake(&mut self, unwake: &Unwake) -> Result<Outcome, Refusal> {
        check_id(&unwake.admission_id)?;
        let (secret, now) = (self.secret(), self.now.as_micros());
        let key = admission_key(secret, &unwake.tenant, &unwake.admission_id);
        let owner = owner(secret, &unwake.principal);
        let target = self.target(&unwake.target)?;
        target.unwake(now, key, owner, (unwake.attempt, unwake.ask));
        Ok(Outcome::Unwoken)
    }

    fn extend(&mut self, extend: &Extend) -> Result<Outcome, Refusal> {
        let (owner, now) = (
            owner(self.secret(), &extend.principal),
            self.now.as_micros(),
        );
        let target = self.remembered(&extend.target)?;
        target.extend(now, extend.grant, owner).map(Outcome::Extend)
    }

    fn report(&mut self, report: &Report) -> Result<Outcome, Refusal> {
        check_id(&report.admission_id)?;
        let (secret, now) = (self.secret(), self.now.as_micros());
        let target = self.target(&report.target)?;
        let class = class_of(target, &report.priority)?;
        let known = known(target, &report.actual)?;
        let call = Ungated {
            key: admission_key(secret, &report.tenant, &report.admission_id),
            queue: queue_key(secret, &report.tenant, &report.priority),
            class,
            owner: owner(secret, &report.principal),
            attempt: report.attempt,
            actual: known.map(Option::unwrap_or_default),
            known,
            age: report.age,
        };
        target.report(now, &call).map(Outcome::Report)
    }

    fn put_policy(&mut self, put: &PutPolicy) -> PolicyOutcome {
        if let Some(violation) = put.policy.violations().first() {
            let violation = format!("{}: {}", violation.field, violation.description);
            return PolicyOutcome::Invalid { violation };
        }
        let now = self.now.as_micros();
        let in_force = self.version_in_force(&put.target);
        if put
            .expected_version
            .is_some_and(|expected| expected != in_force)
        {
            return PolicyOutcome::Conflict { version: in_force };
        }
        if !self.targets.contains_key(&put.target) && self.targets.len() >= TARGETS_MAX {
            return PolicyOutcome::Full;
        }
        let target = self
            .targets
            .entry(put.target.clone())
            .or_insert_with(Target::without_policy);
        if target.policy.as_ref() == Some(&put.policy) {
            return PolicyOutcome::Put {
                version: target.version,
                changed: false,
            };
        }
        target.sweep(now);
        self.deleted.retain(|(_, name)| *name != put.target);
        target.put(now, put.policy.clone(), &put.principal);
        PolicyOutcome::Put {
            version: target.version,
            changed: true,
        }
    }

    fn delete_policy(&mut self, delete: &DeletePolicy) -> Result<PolicyOutcome, Refusal> {
        let now = self.now.as_micros();
        let in_force = self.version_in_force(&delete.target);
        if in_force == 0 {
            return Err(Refusal::TargetUnknown);
        }
        if delete
            .expected_version
            .is_some_and(|expected| expected != in_force)
        {
            return Ok(PolicyOutcome::Conflict { version: in_force });
        }
        if let Some(target) = self.targets.get_mut(&delete.target) {
            target.sweep(now);
            target.delete(now);
            self.deleted
                .insert((target.forgotten_after(), delete.target.clone()));
        }
        Ok(PolicyOutcome::Deleted)
    }

    /// Version of the policy in force, 0 if none.
    fn version_in_force(&self, name: &TargetName) -> u64 {
        let target = self
            .targets
            .get(name)
            .filter(|target| target.policy.is_some());
        target.map_or(0, |target| target.version)
    }
}

/// What can be said of an ask before its target is known.
fn check_admit(admit: &Admit) -> Result<(), Refusal> {
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
fn ask_of<'a>(target: &Target, secret: u128, admit: &'a Admit) -> Result<Ask<'a>, Refusal> {
    let class = class_of(target, &admit.priority)?;
    let bounds = bounds(target, &admit.cost, &admit.cost_max)?;
    let ask = Ask {
        key: admission_key(secret, &admit.tenant, &admit.admission_id),
        queue: queue_key(secret, &admit.tenant, &admit.priority),
        tenant: &admit.tenant,
        priority: &admit.priority,
        class,
        owner: owner(secret, &admit.principal),
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

fn check_id(id: &[u8]) -> Result<(), Refusal> {
    ensure(
        (1..=ADMISSION_ID_BYTES_MAX).contains(&id.len()),
        "admission_id",
        "must be 1 to 128 bytes",
    )
}

fn class_of(target: &Target, priority: &PriorityName) -> Result<usize, Refusal> {
    let place = target
        .classes
        .iter()
        .position(|class| class.name == *priority);
    place.ok_or_else(|| Refusal::PriorityUnknown(priority.clone()))
}

/// Units by slot, and which dimensions were named.
fn known(target: &Target, amounts: &Amounts) -> Result<Known, Refusal> {
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
fn settled(target: &Target, actual: &Amounts) -> Known {
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

fn admission_key(secret: u128, tenant: &TenantName, id: &[u8]) -> u128 {
    keyed(secret, b'a', [tenant.as_str().as_bytes(), id])
}

fn queue_key(secret: u128, tenant: &TenantName, priority: &PriorityName) -> u128 {
    let parts = [tenant.as_str().as_bytes(), priority.as_str().as_bytes()];
    keyed(secret, b'q', parts)
}

fn owner(secret: u128, principal: &Principal) -> u64 {
    keyed(secret, b'o', [principal.as_str().as_bytes()]) as u64
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
