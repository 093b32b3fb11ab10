//! How many bytes an operation takes in a log entry, near enough to bound entries and queues.

use weir_admission::{Amounts, Operation, Policy};

/// Fixed fields and length prefixes of an operation.
const FIXED_BYTES: usize = 64;
/// One dimension of a cost besides its name.
const AMOUNT_BYTES: usize = 10;
/// One limit, priority or tenant weight besides its names.
const POLICY_ITEM_BYTES: usize = 48;

/// An estimate from above of the operation's stored bytes.
pub(super) fn stored_bytes(operation: &Operation) -> usize {
    FIXED_BYTES
        + match operation {
            Operation::Admit(admit) => {
                admit.target.as_str().len()
                    + admit.tenant.as_str().len()
                    + admit.principal.as_str().len()
                    + admit.priority.as_str().len()
                    + admit.admission_id.len()
                    + amounts(&admit.cost)
                    + amounts(&admit.cost_max)
            }
            Operation::Release(release) => {
                release.target.as_str().len()
                    + release.principal.as_str().len()
                    + amounts(&release.actual)
            }
            Operation::Cancel(ask) | Operation::Unwake(ask) => {
                ask.target.as_str().len()
                    + ask.tenant.as_str().len()
                    + ask.principal.as_str().len()
                    + ask.admission_id.len()
            }
            Operation::Extend(extend) => {
                extend.target.as_str().len() + extend.principal.as_str().len()
            }
            Operation::Report(report) => {
                report.target.as_str().len()
                    + report.tenant.as_str().len()
                    + report.principal.as_str().len()
                    + report.priority.as_str().len()
                    + report.admission_id.len()
                    + amounts(&report.actual)
            }
            Operation::PutPolicy(put) => put.target.as_str().len() + policy(&put.policy),
            Operation::DeletePolicy(delete) => delete.target.as_str().len(),
            Operation::Seed(secret) => secret.len(),
        }
}

fn amounts(amounts: &Amounts) -> usize {
    amounts
        .iter()
        .map(|(name, _)| name.as_str().len() + AMOUNT_BYTES)
        .sum()
}

fn policy(policy: &Policy) -> usize {
    let limits = policy.limits.iter().map(|limit| {
        limit.name.as_str().len() + limit.dimension.as_str().len() + POLICY_ITEM_BYTES
    });
    let priorities = policy
        .priorities
        .iter()
        .map(|priority| priority.name.as_str().len() + POLICY_ITEM_BYTES);
    let tenants = policy
        .tenant_weights
        .keys()
        .map(|tenant| tenant.as_str().len() + POLICY_ITEM_BYTES);
    limits.chain(priorities).chain(tenants).sum()
}
