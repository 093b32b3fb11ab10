//! Format 1 of a batch: the operations as they were first stored.
//!
//! Fields and variants are written in the order in which they stand here. Nothing in this file may
//! change once a release has written it; a change is a new format beside it.

use super::amounts_v1::AmountsV1;
use super::field::FieldError;
use super::list::Text;
use super::names::Names;
use super::policy_v1::PolicyV1;
use serde::{Deserialize, Serialize};
use weir_admission::limits::ADMISSION_ID_BYTES_MAX;
use weir_admission::{
    Admit, CallOutcome, Cancel, DeletePolicy, Extend, GrantId, Operation, PutPolicy, Release,
    Report,
};

/// An operation, its texts borrowed.
#[derive(Serialize, Deserialize)]
#[allow(
    clippy::large_enum_variant,
    reason = "lives on the stack, for the time of one conversion"
)]
pub(super) enum OperationV1<'a> {
    #[serde(borrow)]
    Admit(AdmitV1<'a>),
    Release(ReleaseV1<'a>),
    Cancel(CancelV1<'a>),
    Extend(ExtendV1<'a>),
    Report(ReportV1<'a>),
    PutPolicy(PutPolicyV1<'a>),
    DeletePolicy(DeletePolicyV1<'a>),
    Seed([u8; 16]),
}

#[derive(Serialize, Deserialize)]
pub(super) struct AdmitV1<'a> {
    #[serde(borrow)]
    target: Text<'a>,
    tenant: Text<'a>,
    principal: Text<'a>,
    priority: Text<'a>,
    admission_id: Text<'a>,
    attempt: u64,
    ask: u32,
    cost: AmountsV1<'a>,
    cost_max: AmountsV1<'a>,
    labels_digest: u64,
    deadline_us: Option<u64>,
    dry_run: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ReleaseV1<'a> {
    #[serde(borrow)]
    target: Text<'a>,
    principal: Text<'a>,
    grant: GrantV1,
    actual: AmountsV1<'a>,
    outcome: CallOutcomeV1,
}

#[derive(Serialize, Deserialize)]
pub(super) struct CancelV1<'a> {
    #[serde(borrow)]
    target: Text<'a>,
    tenant: Text<'a>,
    principal: Text<'a>,
    admission_id: Text<'a>,
    attempt: u64,
    ask: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ExtendV1<'a> {
    #[serde(borrow)]
    target: Text<'a>,
    principal: Text<'a>,
    grant: GrantV1,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ReportV1<'a> {
    #[serde(borrow)]
    target: Text<'a>,
    tenant: Text<'a>,
    principal: Text<'a>,
    priority: Text<'a>,
    admission_id: Text<'a>,
    attempt: u64,
    actual: AmountsV1<'a>,
    age_us: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct PutPolicyV1<'a> {
    #[serde(borrow)]
    target: Text<'a>,
    policy: PolicyV1<'a>,
    expected_version: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct DeletePolicyV1<'a> {
    #[serde(borrow)]
    target: Text<'a>,
    expected_version: Option<u64>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct GrantV1 {
    index: u64,
    offset: u32,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum CallOutcomeV1 {
    Ok,
    Throttled { retry_after_us: u64 },
    Failed,
    NotSent,
}

impl<'a> OperationV1<'a> {
    /// The stored form; refuses what could not be read back.
    pub(super) fn new(operation: &'a Operation) -> Result<Self, FieldError> {
        Ok(match operation {
            Operation::Admit(admit) => OperationV1::Admit(AdmitV1::new(admit)?),
            Operation::Release(release) => OperationV1::Release(ReleaseV1::new(release)),
            Operation::Cancel(cancel) => OperationV1::Cancel(CancelV1::new(cancel)?),
            Operation::Extend(extend) => OperationV1::Extend(ExtendV1::new(extend)),
            Operation::Report(report) => OperationV1::Report(ReportV1::new(report)?),
            Operation::PutPolicy(put) => OperationV1::PutPolicy(PutPolicyV1::new(put)?),
            Operation::DeletePolicy(delete) => {
                OperationV1::DeletePolicy(DeletePolicyV1::new(delete))
            }
            Operation::Seed(secret) => OperationV1::Seed(*secret),
        })
    }

    /// The operation; refuses values that the rules do not allow.
    pub(super) fn into_operation(self, names: &mut Names) -> Result<Operation, FieldError> {
        Ok(match self {
            OperationV1::Admit(admit) => Operation::Admit(Box::new(admit.read(names)?)),
            OperationV1::Release(release) => Operation::Release(Box::new(release.read(names)?)),
            OperationV1::Cancel(cancel) => Operation::Cancel(Box::new(cancel.read(names)?)),
            OperationV1::Extend(extend) => Operation::Extend(extend.read(names)?),
            OperationV1::Report(report) => Operation::Report(Box::new(report.read(names)?)),
            OperationV1::PutPolicy(put) => Operation::PutPolicy(Box::new(put.read(names)?)),
            OperationV1::DeletePolicy(delete) => Operation::DeletePolicy(delete.read(names)?),
            OperationV1::Seed(secret) => Operation::Seed(secret),
        })
    }
}

impl<'a> AdmitV1<'a> {
    fn new(admit: &'a Admit) -> Result<Self, FieldError> {
        Ok(AdmitV1 {
            target: admit.target.as_str().into(),
            tenant: admit.tenant.as_str().into(),
            principal: admit.principal.as_str().into(),
            priority: admit.priority.as_str().into(),
            admission_id: checked_id(&admit.admission_id)?,
            attempt: admit.attempt,
            ask: admit.ask,
            cost: AmountsV1::new(&admit.cost),
            cost_max: AmountsV1::new(&admit.cost_max),
            labels_digest: admit.labels_digest,
            deadline_us: admit.deadline,
            dry_run: admit.dry_run,
        })
    }

    fn read(self, names: &mut Names) -> Result<Admit, FieldError> {
        Ok(Admit {
            target: names.targets.read("target", self.target)?,
            tenant: names.tenants.read("tenant", self.tenant)?,
            principal: names.principals.read("principal", self.principal)?,
            priority: names.priorities.read("priority", self.priority)?,
            admission_id: checked_id(self.admission_id.0)?.0.into(),
            attempt: self.attempt,
            ask: self.ask,
            cost: self.cost.read("cost", names)?,
            cost_max: self.cost_max.read("cost_max", names)?,
            labels_digest: self.labels_digest,
            deadline: self.deadline_us,
            dry_run: self.dry_run,
        })
    }
}

impl<'a> ReleaseV1<'a> {
    fn new(release: &'a Release) -> Self {
        ReleaseV1 {
            target: release.target.as_str().into(),
            principal: release.principal.as_str().into(),
            grant: release.grant.into(),
            actual: AmountsV1::new(&release.actual),
            outcome: release.outcome.into(),
        }
    }

    fn read(self, names: &mut Names) -> Result<Release, FieldError> {
        Ok(Release {
            target: names.targets.read("target", self.target)?,
            principal: names.principals.read("principal", self.principal)?,
            grant: self.grant.into(),
            actual: self.actual.read("actual", names)?,
            outcome: self.outcome.into(),
        })
    }
}

impl<'a> CancelV1<'a> {
    fn new(cancel: &'a Cancel) -> Result<Self, FieldError> {
        Ok(CancelV1 {
            target: cancel.target.as_str().into(),
            tenant: cancel.tenant.as_str().into(),
            principal: cancel.principal.as_str().into(),
            admission_id: checked_id(&cancel.admission_id)?,
            attempt: cancel.attempt,
            ask: cancel.ask,
        })
    }

    fn read(self, names: &mut Names) -> Result<Cancel, FieldError> {
        Ok(Cancel {
            target: names.targets.read("target", self.target)?,
            tenant: names.tenants.read("tenant", self.tenant)?,
            principal: names.principals.read("principal", self.principal)?,
            admission_id: checked_id(self.admission_id.0)?.0.into(),
            attempt: self.attempt,
            ask: self.ask,
        })
    }
}

impl<'a> ExtendV1<'a> {
    fn new(extend: &'a Extend) -> Self {
        ExtendV1 {
            target: extend.target.as_str().into(),
            principal: extend.principal.as_str().into(),
            grant: extend.grant.into(),
        }
    }

    fn read(self, names: &mut Names) -> Result<Extend, FieldError> {
        Ok(Extend {
            target: names.targets.read("target", self.target)?,
            principal: names.principals.read("principal", self.principal)?,
            grant: self.grant.into(),
        })
    }
}

impl<'a> ReportV1<'a> {
    fn new(report: &'a Report) -> Result<Self, FieldError> {
        Ok(ReportV1 {
            target: report.target.as_str().into(),
            tenant: report.tenant.as_str().into(),
            principal: report.principal.as_str().into(),
            priority: report.priority.as_str().into(),
            admission_id: checked_id(&report.admission_id)?,
            attempt: report.attempt,
            actual: AmountsV1::new(&report.actual),
            age_us: report.age,
        })
    }

    fn read(self, names: &mut Names) -> Result<Report, FieldError> {
        Ok(Report {
            target: names.targets.read("target", self.target)?,
            tenant: names.tenants.read("tenant", self.tenant)?,
            principal: names.principals.read("principal", self.principal)?,
            priority: names.priorities.read("priority", self.priority)?,
            admission_id: checked_id(self.admission_id.0)?.0.into(),
            attempt: self.attempt,
            actual: self.actual.read("actual", names)?,
            age: self.age_us,
        })
    }
}

impl<'a> PutPolicyV1<'a> {
    fn new(put: &'a PutPolicy) -> Result<Self, FieldError> {
        Ok(PutPolicyV1 {
            target: put.target.as_str().into(),
            policy: PolicyV1::new(&put.policy).map_err(|e| e.within("policy"))?,
            expected_version: put.expected_version,
        })
    }

    fn read(self, names: &mut Names) -> Result<PutPolicy, FieldError> {
        Ok(PutPolicy {
            target: names.targets.read("target", self.target)?,
            policy: self.policy.read(names).map_err(|e| e.within("policy"))?,
            expected_version: self.expected_version,
        })
    }
}

impl<'a> DeletePolicyV1<'a> {
    fn new(delete: &'a DeletePolicy) -> Self {
        DeletePolicyV1 {
            target: delete.target.as_str().into(),
            expected_version: delete.expected_version,
        }
    }

    fn read(self, names: &mut Names) -> Result<DeletePolicy, FieldError> {
        Ok(DeletePolicy {
            target: names.targets.read("target", self.target)?,
            expected_version: self.expected_version,
        })
    }
}

impl From<GrantId> for GrantV1 {
    fn from(grant: GrantId) -> Self {
        GrantV1 {
            index: grant.index,
            offset: grant.offset,
        }
    }
}

impl From<GrantV1> for GrantId {
    fn from(grant: GrantV1) -> Self {
        GrantId {
            index: grant.index,
            offset: grant.offset,
        }
    }
}

impl From<CallOutcome> for CallOutcomeV1 {
    fn from(outcome: CallOutcome) -> Self {
        match outcome {
            CallOutcome::Ok => CallOutcomeV1::Ok,
            CallOutcome::Throttled { retry_after } => CallOutcomeV1::Throttled {
                retry_after_us: retry_after,
            },
            CallOutcome::Failed => CallOutcomeV1::Failed,
            CallOutcome::NotSent => CallOutcomeV1::NotSent,
        }
    }
}

impl From<CallOutcomeV1> for CallOutcome {
    fn from(outcome: CallOutcomeV1) -> Self {
        match outcome {
            CallOutcomeV1::Ok => CallOutcome::Ok,
            CallOutcomeV1::Throttled { retry_after_us } => CallOutcome::Throttled {
                retry_after: retry_after_us,
            },
            CallOutcomeV1::Failed => CallOutcome::Failed,
            CallOutcomeV1::NotSent => CallOutcome::NotSent,
        }
    }
}

fn checked_id(id: &[u8]) -> Result<Text<'_>, FieldError> {
    if (1..=ADMISSION_ID_BYTES_MAX).contains(&id.len()) {
        Ok(Text(id))
    } else {
        let rule = format!(
            "must have 1 to {ADMISSION_ID_BYTES_MAX} bytes, has {}",
            id.len()
        );
        Err(FieldError::new("admission_id", rule))
    }
}
