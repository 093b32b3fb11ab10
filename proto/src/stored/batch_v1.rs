//! Format 1 of a batch: the operations as they were first stored.
//!
//! Every kind is written and read field by field, in one order. Nothing in this file may change once a
//! release has written it; a change is a new format beside it.

use super::fault::Fault;
use super::names::Names;
use super::reader::Reader;
use super::writer::Writer;
use super::{amounts_v1, policy_v1};
use weir_admission::limits::ADMISSION_ID_BYTES_MAX;
use weir_admission::{
    Admit, AskName, CallOutcome, DeletePolicy, Extend, GrantId, Operation, PutPolicy, Release,
    Report,
};

const ADMIT: u32 = 0;
const RELEASE: u32 = 1;
const CANCEL: u32 = 2;
const EXTEND: u32 = 3;
const REPORT: u32 = 4;
const PUT_POLICY: u32 = 5;
const DELETE_POLICY: u32 = 6;
const SEED: u32 = 7;
const UNWAKE: u32 = 8;

const OK: u32 = 0;
const THROTTLED: u32 = 1;
const FAILED: u32 = 2;
const NOT_SENT: u32 = 3;

/// Writes an operation; refuses one that could not be read back.
pub(super) fn write(w: &mut Writer, operation: &Operation) -> Result<(), Fault> {
    match operation {
        Operation::Admit(admit) => write_admit(w, admit)?,
        Operation::Release(release) => write_release(w, release),
        Operation::Cancel(ask) => {
            w.u32(CANCEL);
            write_ask_name(w, ask)?;
        }
        Operation::Extend(extend) => write_extend(w, extend),
        Operation::Unwake(ask) => {
            w.u32(UNWAKE);
            write_ask_name(w, ask)?;
        }
        Operation::Report(report) => write_report(w, report)?,
        Operation::PutPolicy(put) => write_put(w, put)?,
        Operation::DeletePolicy(delete) => write_delete(w, delete),
        Operation::Seed(secret) => {
            w.u32(SEED);
            w.array(secret);
        }
    }
    Ok(())
}

/// Reads an operation; refuses values that the rules do not allow.
pub(super) fn read(r: &mut Reader<'_>, names: &mut Names) -> Result<Operation, Fault> {
    Ok(match r.u32("kind")? {
        ADMIT => Operation::Admit(Box::new(read_admit(r, names)?)),
        RELEASE => Operation::Release(Box::new(read_release(r, names)?)),
        CANCEL => Operation::Cancel(Box::new(read_ask_name(r, names)?)),
        EXTEND => Operation::Extend(read_extend(r, names)?),
        REPORT => Operation::Report(Box::new(read_report(r, names)?)),
        PUT_POLICY => Operation::PutPolicy(Box::new(read_put(r, names)?)),
        DELETE_POLICY => Operation::DeletePolicy(read_delete(r, names)?),
        SEED => Operation::Seed(r.array()?),
        UNWAKE => Operation::Unwake(Box::new(read_ask_name(r, names)?)),
        _ => return Err(Fault::malformed("kind", "is no kind of operation")),
    })
}

fn write_admit(w: &mut Writer, admit: &Admit) -> Result<(), Fault> {
    w.u32(ADMIT);
    w.text(admit.target.as_str());
    w.text(admit.tenant.as_str());
    w.text(admit.principal.as_str());
    w.text(admit.priority.as_str());
    w.bytes(checked_id(&admit.admission_id)?);
    w.u64(admit.attempt);
    w.u32(admit.ask);
    amounts_v1::write(w, &admit.cost);
    amounts_v1::write(w, &admit.cost_max);
    w.u64(admit.labels_digest);
    w.optional_u64(admit.deadline);
    w.bool(admit.dry_run);
    w.bool(admit.wake);
    Ok(())
}

fn read_admit(r: &mut Reader<'_>, names: &mut Names) -> Result<Admit, Fault> {
    Ok(Admit {
        target: names.targets.read(r, "target")?,
        tenant: names.tenants.read(r, "tenant")?,
        principal: names.principals.read(r, "principal")?,
        priority: names.priorities.read(r, "priority")?,
        admission_id: checked_id(r.bytes("admission_id")?)?.into(),
        attempt: r.u64("attempt")?,
        ask: r.u32("ask")?,
        cost: amounts_v1::read(r, "cost", names)?,
        cost_max: amounts_v1::read(r, "cost_max", names)?,
        labels_digest: r.u64("labels_digest")?,
        deadline: r.optional_u64("deadline")?,
        dry_run: r.bool("dry_run")?,
        wake: r.bool("wake")?,
    })
}

fn write_release(w: &mut Writer, release: &Release) {
    w.u32(RELEASE);
    w.text(release.target.as_str());
    w.text(release.principal.as_str());
    write_grant(w, release.grant);
    amounts_v1::write(w, &release.actual);
    match release.outcome {
        CallOutcome::Ok => w.u32(OK),
        CallOutcome::Throttled { retry_after } => {
            w.u32(THROTTLED);
            w.u64(retry_after);
        }
        CallOutcome::Failed => w.u32(FAILED),
        CallOutcome::NotSent => w.u32(NOT_SENT),
    }
}

fn read_release(r: &mut Reader<'_>, names: &mut Names) -> Result<Release, Fault> {
    Ok(Release {
        target: names.targets.read(r, "target")?,
        principal: names.principals.read(r, "principal")?,
        grant: read_grant(r)?,
        actual: amounts_v1::read(r, "actual", names)?,
        outcome: match r.u32("outcome")? {
            OK => CallOutcome::Ok,
            THROTTLED => CallOutcome::Throttled {
                retry_after: r.u64("retry_after")?,
            },
            FAILED => CallOutcome::Failed,
            NOT_SENT => CallOutcome::NotSent,
            _ => {
                return Err(Fault::malformed(
                    "outcome",
                    "is no way in which a call ends",
                ));
            }
        },
    })
}

fn write_ask_name(w: &mut Writer, ask: &AskName) -> Result<(), Fault> {
    w.text(ask.target.as_str());
    w.text(ask.tenant.as_str());
    w.text(ask.principal.as_str());
    w.bytes(checked_id(&ask.admission_id)?);
    w.u64(ask.attempt);
    w.u32(ask.ask);
    Ok(())
}

fn read_ask_name(r: &mut Reader<'_>, names: &mut Names) -> Result<AskName, Fault> {
    Ok(AskName {
        target: names.targets.read(r, "target")?,
        tenant: names.tenants.read(r, "tenant")?,
        principal: names.principals.read(r, "principal")?,
        admission_id: checked_id(r.bytes("admission_id")?)?.into(),
        attempt: r.u64("attempt")?,
        ask: r.u32("ask")?,
    })
}

fn write_extend(w: &mut Writer, extend: &Extend) {
    w.u32(EXTEND);
    w.text(extend.target.as_str());
    w.text(extend.principal.as_str());
    write_grant(w, extend.grant);
}

fn read_extend(r: &mut Reader<'_>, names: &mut Names) -> Result<Extend, Fault> {
    Ok(Extend {
        target: names.targets.read(r, "target")?,
        principal: names.principals.read(r, "principal")?,
        grant: read_grant(r)?,
    })
}

fn write_report(w: &mut Writer, report: &Report) -> Result<(), Fault> {
    w.u32(REPORT);
    w.text(report.target.as_str());
    w.text(report.tenant.as_str());
    w.text(report.principal.as_str());
    w.text(report.priority.as_str());
    w.bytes(checked_id(&report.admission_id)?);
    w.u64(report.attempt);
    amounts_v1::write(w, &report.actual);
    w.u64(report.age);
    Ok(())
}

fn read_report(r: &mut Reader<'_>, names: &mut Names) -> Result<Report, Fault> {
    Ok(Report {
        target: names.targets.read(r, "target")?,
        tenant: names.tenants.read(r, "tenant")?,
        principal: names.principals.read(r, "principal")?,
        priority: names.priorities.read(r, "priority")?,
        admission_id: checked_id(r.bytes("admission_id")?)?.into(),
        attempt: r.u64("attempt")?,
        actual: amounts_v1::read(r, "actual", names)?,
        age: r.u64("age")?,
    })
}

fn write_put(w: &mut Writer, put: &PutPolicy) -> Result<(), Fault> {
    w.u32(PUT_POLICY);
    w.text(put.target.as_str());
    w.text(put.principal.as_str());
    policy_v1::write(w, &put.policy).map_err(|fault| fault.within("policy"))?;
    w.optional_u64(put.expected_version);
    Ok(())
}

fn read_put(r: &mut Reader<'_>, names: &mut Names) -> Result<PutPolicy, Fault> {
    Ok(PutPolicy {
        target: names.targets.read(r, "target")?,
        principal: names.principals.read(r, "principal")?,
        policy: policy_v1::read(r, names).map_err(|fault| fault.within("policy"))?,
        expected_version: r.optional_u64("expected_version")?,
    })
}

fn write_delete(w: &mut Writer, delete: &DeletePolicy) {
    w.u32(DELETE_POLICY);
    w.text(delete.target.as_str());
    w.optional_u64(delete.expected_version);
}

fn read_delete(r: &mut Reader<'_>, names: &mut Names) -> Result<DeletePolicy, Fault> {
    Ok(DeletePolicy {
        target: names.targets.read(r, "target")?,
        expected_version: r.optional_u64("expected_version")?,
    })
}

fn write_grant(w: &mut Writer, grant: GrantId) {
    w.u64(grant.index);
    w.u32(grant.offset);
}

fn read_grant(r: &mut Reader<'_>) -> Result<GrantId, Fault> {
    Ok(GrantId {
        index: r.u64("grant.index")?,
        offset: r.u32("grant.offset")?,
    })
}

fn checked_id(id: &[u8]) -> Result<&[u8], Fault> {
    if (1..=ADMISSION_ID_BYTES_MAX).contains(&id.len()) {
        Ok(id)
    } else {
        let rule = format!(
            "must have 1 to {ADMISSION_ID_BYTES_MAX} bytes, has {}",
            id.len()
        );
        Err(Fault::invalid("admission_id", rule))
    }
}
