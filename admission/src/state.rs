//! The state of one shard: every target with its policy, use, waiting tickets and grants.

mod checkpoint;
mod reads;
mod resolve;
mod targets;

use crate::codec::{Canonical, DecodeError, Reader, canonical};
use crate::hash::sip128;
use crate::limits::{LOOK_AHEAD_MAX, TARGETS_MAX};
use crate::target::{Ahead, Target, Ungated};
use crate::{
    Admit, AdmitOutcome, AskName, DeletePolicy, Extend, GrantId, Operation, Outcome, PolicyOutcome,
    PutPolicy, Refusal, Release, Report, Stamp, TargetName,
};
pub use checkpoint::{Checkpoint, CheckpointStep};
use resolve::{Digester, Digests, ask_of, check_admit, check_id, class_of, known, settled};
use std::collections::BTreeSet;
use targets::Targets;

/// Format of the canonical bytes.
const FORMAT: u32 = 1;

/// Everything one shard knows. A value: equal logs give equal states.
#[derive(Debug, Default)]
pub struct State {
    now: Stamp,
    secret: Option<u128>,
    targets: Targets,
    /// Targets without a policy, with the time after which nothing of their use counts.
    deleted: BTreeSet<(u64, TargetName)>,
    /// Target that was swept last without being asked for.
    cursor: Option<TargetName>,
    checkpoint: checkpoint::Current,
}

canonical!(State {
    now,
    secret,
    targets,
    deleted,
    cursor,
    checkpoint
});

impl State {
    /// Applies one log entry: `index` is its place in the log, `stamp` its cluster time (clamped so that
    /// it never goes back). Answers one outcome per operation. Total: no input makes it panic.
    pub fn apply(&mut self, index: u64, stamp: Stamp, batch: &[Operation]) -> Vec<Outcome> {
        self.now = self.now.max(stamp);
        self.forget_deleted();
        self.sweep_next();
        let mut outcomes = Vec::with_capacity(batch.len());
        // A seed changes what the names after it stand for.
        let runs = batch.chunk_by(|before, _| !matches!(before, Operation::Seed(_)));
        for run in runs.flat_map(|run| run.chunks(LOOK_AHEAD_MAX)) {
            let digests = self.look_ahead(run);
            for (operation, digests) in run.iter().zip(digests) {
                let offset = u32::try_from(outcomes.len()).unwrap_or(u32::MAX);
                outcomes.push(self.apply_one(GrantId { index, offset }, operation, digests));
            }
        }
        outcomes
    }

    /// Resolves the names of the next operations, and reads the records that they will ask for: most are
    /// cold, and what is read together arrives together. Changes nothing.
    fn look_ahead(&self, operations: &[Operation]) -> Vec<Digests> {
        let mut digester = Digester::new(self.secret());
        let digests = operations
            .iter()
            .map(|operation| digester.digests(operation));
        let digests: Vec<_> = digests.collect();
        let now = self.now.as_micros();
        let mut ahead = Ahead::new();
        let mut last: Option<(&TargetName, &Target)> = None;
        for (operation, digests) in operations.iter().zip(&digests) {
            let Some(name) = operation.target() else {
                continue;
            };
            if last.is_none_or(|(last, _)| last != name) {
                last = self.targets.get(name).map(|target| (name, target));
                if let Some((_, target)) = last {
                    ahead.endings(target, now);
                }
            }
            let Some((_, target)) = last else { continue };
            match operation {
                Operation::Admit(_) | Operation::Report(_) => {
                    ahead.admission(target, digests.admission);
                    ahead.queue(target, digests.queue);
                }
                Operation::Cancel(_) | Operation::Unwake(_) => {
                    ahead.admission(target, digests.admission);
                }
                Operation::Release(release) => ahead.grant(target, release.grant),
                Operation::Extend(extend) => ahead.grant(target, extend.grant),
                Operation::PutPolicy(_) | Operation::DeletePolicy(_) | Operation::Seed(_) => {}
            }
        }
        ahead.read();
        digests
    }

    fn apply_one(&mut self, id: GrantId, operation: &Operation, digests: Digests) -> Outcome {
        let outcome = match operation {
            Operation::Admit(admit) => self.admit(id, admit, digests).map(Outcome::Admit),
            Operation::Release(release) => self.release(release, digests),
            Operation::Cancel(name) => self.cancel(name, digests),
            Operation::Extend(extend) => self.extend(extend, digests),
            Operation::Unwake(name) => self.unwake(name, digests),
            Operation::Report(report) => self.report(report, digests),
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
        state.targets.restore_lines();
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
        for (name, target) in self.targets.iter() {
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
            .iter()
            .filter(|(_, target)| target.policy.is_none())
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
        let now = self.now.as_micros();
        let next = self.targets.next_mut(self.cursor.as_ref());
        self.cursor = next.map(|(name, target)| {
            let mut ahead = Ahead::new();
            ahead.endings(target, now);
            ahead.read();
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

    fn admit(
        &mut self,
        id: GrantId,
        admit: &Admit,
        digests: Digests,
    ) -> Result<AdmitOutcome, Refusal> {
        check_admit(admit)?;
        let now = self.now.as_micros();
        let target = self.target(&admit.target)?;
        let ask = ask_of(target, digests, admit)?;
        if admit.dry_run {
            return Ok(target.ask_dry(now, &ask));
        }
        Ok(target.ask(now, id, &ask))
    }

    fn release(&mut self, release: &Release, digests: Digests) -> Result<Outcome, Refusal> {
        let now = self.now.as_micros();
        let target = self.remembered(&release.target)?;
        let known = settled(target, &release.actual);
        target
            .release(now, release.grant, digests.owner, &known, release.outcome)
            .map(Outcome::Release)
    }

    fn cancel(&mut self, name: &AskName, digests: Digests) -> Result<Outcome, Refusal> {
        check_id(&name.admission_id)?;
        let now = self.now.as_micros();
        let (key, owner) = (digests.admission, digests.owner);
        let target = self.remembered(&name.target)?;
        target
            .cancel(now, key, owner, name.attempt, name.ask)
            .map(Outcome::Cancel)
    }

    fn unwake(&mut self, name: &AskName, digests: Digests) -> Result<Outcome, Refusal> {
        check_id(&name.admission_id)?;
        let now = self.now.as_micros();
        let (key, owner) = (digests.admission, digests.owner);
        let target = self.target(&name.target)?;
        target.unwake(now, key, owner, (name.attempt, name.ask));
        Ok(Outcome::Unwoken)
    }

    fn extend(&mut self, extend: &Extend, digests: Digests) -> Result<Outcome, Refusal> {
        let now = self.now.as_micros();
        let target = self.remembered(&extend.target)?;
        target
            .extend(now, extend.grant, digests.owner)
            .map(Outcome::Extend)
    }

    fn report(&mut self, report: &Report, digests: Digests) -> Result<Outcome, Refusal> {
        check_id(&report.admission_id)?;
        let now = self.now.as_micros();
        let target = self.target(&report.target)?;
        let class = class_of(target, &report.priority)?;
        let known = known(target, &report.actual)?;
        let call = Ungated {
            key: digests.admission,
            queue: digests.queue,
            class,
            owner: digests.owner,
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
        if self.targets.get(&put.target).is_none() && self.targets.len() >= TARGETS_MAX {
            return PolicyOutcome::Full;
        }
        let target = self.targets.get_or_insert(&put.target);
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
