//! What can be read of a state between two entries. Nothing here changes anything.

use super::State;
use super::resolve::{Digester, admission_key, ask_of, check_admit, settled};
use crate::limits::LOOK_AHEAD_MAX;
use crate::target::{AdmissionKey, Ahead, Target};
use crate::{
    Admit, CallOutcome, Explanation, GrantId, Operation, PolicyVersion, Refusal, Settlement, Stamp,
    TargetName, TargetView,
};

/// What an operation names of earlier grants.
#[derive(Clone, Copy)]
enum Named {
    Grant(GrantId),
    /// What an attempt of an admission was given.
    Attempt(AdmissionKey, u64),
}

fn read_named<'a>(named: impl Iterator<Item = &'a (&'a Target, Named)>) {
    let mut ahead = Ahead::new();
    for (target, named) in named {
        match named {
            Named::Grant(grant) => ahead.grant(target, *grant),
            Named::Attempt(key, _) => ahead.admission(target, *key),
        }
    }
    ahead.read();
}

impl State {
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
        let digests = Digester::new(self.secret()).of_ask(admit);
        let ask = ask_of(target, digests, admit)?;
        Ok(target.explain(self.now.as_micros(), &ask))
    }

    /// What an operation changes in the charge of a grant that was given before, if it is applied next and its
    /// answer says that it ended that grant or took it back: a release that was applied, a cancel that
    /// refunded, a report that settled, an ask that was granted, deferred or (but as stale or in conflict)
    /// rejected anew. Changes nothing.
    ///
    /// One answer for each operation of a batch, as if each of them were the next.
    pub fn settlements(&self, batch: &[Operation]) -> Vec<Option<Settlement>> {
        let mut settlements = Vec::with_capacity(batch.len());
        for run in batch.chunks(LOOK_AHEAD_MAX) {
            let named: Vec<_> = run.iter().map(|operation| self.named(operation)).collect();
            read_named(named.iter().flatten());
            let settled = |(operation, named): (_, Option<_>)| self.settlement(operation, named?);
            settlements.extend(run.iter().zip(named).map(settled));
        }
        settlements
    }

    /// What an operation says of a grant that may have been given before.
    fn named(&self, operation: &Operation) -> Option<(&Target, Named)> {
        let secret = self.secret();
        let (target, named) = match operation {
            Operation::Admit(ask) if ask.ask > 1 && !ask.dry_run => {
                let key = admission_key(secret, &ask.tenant, &ask.admission_id);
                (&ask.target, Named::Attempt(key, ask.attempt))
            }
            Operation::Cancel(ask) => {
                let key = admission_key(secret, &ask.tenant, &ask.admission_id);
                (&ask.target, Named::Attempt(key, ask.attempt))
            }
            Operation::Report(report) => {
                let key = admission_key(secret, &report.tenant, &report.admission_id);
                (&report.target, Named::Attempt(key, report.attempt))
            }
            Operation::Release(release) => (&release.target, Named::Grant(release.grant)),
            Operation::Admit(_)
            | Operation::Extend(_)
            | Operation::Unwake(_)
            | Operation::PutPolicy(_)
            | Operation::DeletePolicy(_)
            | Operation::Seed(_) => return None,
        };
        Some((self.targets.get(target)?, named))
    }

    fn settlement(
        &self,
        operation: &Operation,
        (target, named): (&Target, Named),
    ) -> Option<Settlement> {
        let grant = match named {
            Named::Grant(grant) => grant,
            Named::Attempt(key, attempt) => target.granted(key, attempt)?,
        };
        match operation {
            Operation::Release(release) => {
                let known = settled(target, &release.actual);
                target.settlement_of(grant, &known, release.outcome)
            }
            Operation::Report(report) => {
                let known = settled(target, &report.actual);
                target.settlement_of(grant, &known, CallOutcome::Ok)
            }
            Operation::Admit(_) | Operation::Cancel(_) => target.refund_of(grant),
            Operation::Extend(_)
            | Operation::Unwake(_)
            | Operation::PutPolicy(_)
            | Operation::DeletePolicy(_)
            | Operation::Seed(_) => None,
        }
    }
}
