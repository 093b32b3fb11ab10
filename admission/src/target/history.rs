//! Who put which policy when, so that an operator can look back and put a former one again.

use super::Target;
use crate::limits::{FORMER_POLICIES_MAX, FORMER_TENANT_WEIGHTS_MAX};
use crate::{Policy, PolicyVersion, Principal};
use std::collections::VecDeque;

/// When a policy was put, in microseconds of cluster time, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) at: u64,
    pub(crate) by: Principal,
}

/// A policy that is no longer in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Former {
    pub(crate) version: u64,
    pub(crate) origin: Origin,
    pub(crate) policy: Policy,
}

/// Where the policy of a target comes from, and those before it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// Of the policy in force; `None` without one.
    pub(crate) origin: Option<Origin>,
    /// Former policies, oldest first.
    pub(crate) former: VecDeque<Former>,
}

impl History {
    /// Keeps a policy that goes out of force, and forgets the oldest beyond the bounds.
    fn retire(&mut self, version: u64, policy: Policy) {
        let Some(origin) = self.origin.take() else {
            return;
        };
        self.former.push_back(Former {
            version,
            origin,
            policy,
        });
        while self.is_too_large() {
            self.former.pop_front();
        }
    }

    fn is_too_large(&self) -> bool {
        let weights = self
            .former
            .iter()
            .map(|former| former.policy.tenant_weights.len())
            .fold(0, usize::saturating_add);
        self.former.len() > FORMER_POLICIES_MAX || weights > FORMER_TENANT_WEIGHTS_MAX
    }

    /// The first broken invariant, beside a target's version and whether it has a policy.
    pub(super) fn check(&self, version: u64, in_force: bool) -> Result<(), &'static str> {
        let mut versions: Vec<u64> = self.former.iter().map(|former| former.version).collect();
        versions.extend(in_force.then_some(version));
        let rising = versions.array_windows().all(|[one, next]| one < next);
        let valid = |former: &Former| former.policy.violations().is_empty();
        if self.origin.is_some() != in_force {
            Err("a policy in force has an origin")
        } else if !rising || versions.last().is_some_and(|last| *last > version) {
            Err("versions rise")
        } else if self.is_too_large() {
            Err("the history is within its bounds")
        } else if !self.former.iter().all(valid) {
            Err("former policies are valid")
        } else {
            Ok(())
        }
    }
}

impl Target {
    /// Takes the policy out of force, if there is one, and remembers it.
    pub(super) fn retire_policy(&mut self) {
        if let Some(policy) = self.policy.take() {
            self.history.retire(self.version, policy);
        }
    }

    /// The policy in force and the former ones that are remembered, newest first; `None` without a policy.
    pub(crate) fn versions(&self, now: u64) -> Option<Vec<PolicyVersion>> {
        let tell = |version, origin: &Origin, policy: &Policy| PolicyVersion {
            version,
            put_by: origin.by.clone(),
            age: now.saturating_sub(origin.at),
            policy: policy.clone(),
        };
        let (policy, origin) = (self.policy.as_ref()?, self.history.origin.as_ref()?);
        let newest = std::iter::once(tell(self.version, origin, policy));
        let former = self.history.former.iter().rev();
        Some(
            newest
                .chain(former.map(|former| tell(former.version, &former.origin, &former.policy)))
                .collect(),
        )
    }
}
