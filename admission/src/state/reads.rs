//! What can be read of a state between two entries. Nothing here changes anything.

use super::State;
use super::resolve::{Digester, admission_key, ask_of, check_admit, settled};
use crate::{
    Admit, CallOutcome, Explanation, Operation, PolicyVersion, Refusal, Settlement, Stamp,
    TargetName, TargetView,
};

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
}
