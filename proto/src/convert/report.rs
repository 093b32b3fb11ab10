//! Reports of ungated calls.

use super::fields::Fields;
use super::{Caller, Violations, amounts, outcome};
use crate::error::WireError;
use crate::limits::REPORT_CALLS_MAX;
use crate::v1;
use weir_admission::{Outcome, Refusal, Report, ReportOutcome, TargetName, pool_of};

/// Reads a report: one operation per call, all of one pool, so that one shard takes them.
///
/// # Errors
/// Every field that breaks a rule.
pub fn read(request: v1::ReportRequest, caller: Caller<'_>) -> Result<Vec<Report>, Violations> {
    let mut fields = Fields::new();
    let count = request.calls.len();
    if !(1..=REPORT_CALLS_MAX).contains(&count) {
        fields.refuse(
            "calls",
            &format!("must have 1 to {REPORT_CALLS_MAX} calls, has {count}"),
        );
        return fields.finish(None);
    }
    let mut reports: Vec<Report> = Vec::with_capacity(count);
    for (i, call) in request.calls.into_iter().enumerate() {
        fields.enter(format!("calls[{i}]."));
        let Some(report) = read_call(&mut fields, call, caller) else {
            continue;
        };
        let pool = reports
            .first()
            .map_or(pool_of(&report.target), |first| pool_of(&first.target));
        if pool_of(&report.target) != pool {
            let rule = format!("must be of the pool of the calls before it, {pool:?}");
            fields.refuse("target", &rule);
        }
        reports.push(report);
    }
    fields.finish(Some(reports))
}

/// Reads one reported call by itself.
///
/// # Errors
/// Every field that breaks a rule.
pub fn read_one(call: v1::UngatedCall, caller: Caller<'_>) -> Result<Report, Violations> {
    let mut fields = Fields::new();
    let report = read_call(&mut fields, call, caller);
    fields.finish(report)
}

fn read_call(fields: &mut Fields, call: v1::UngatedCall, caller: Caller<'_>) -> Option<Report> {
    let target = fields.name("target", &call.target);
    let tenant = fields.name("tenant", &call.tenant);
    let priority = fields.name("priority", &call.priority);
    let admission_id = fields.admission_id(call.admission_id);
    let attempt = fields.attempt(call.attempt);
    let actual = amounts::read(fields, "actual", &call.actual);
    let age = fields.duration("age_us", call.age_us);
    Some(Report {
        target: target?,
        tenant: tenant?,
        principal: caller.principal.clone(),
        priority: priority?,
        admission_id: admission_id?,
        attempt,
        actual: actual?,
        age,
    })
}

/// The status of one reported call at `target`. What cannot be charged any more is dropped, not an
/// error: the other calls of the report are charged all the same.
///
/// # Errors
/// The outcome is not one of a report.
pub fn answer(outcome: Outcome, target: &TargetName) -> Result<v1::ReportStatus, WireError> {
    let outcome = match outcome {
        Outcome::Refused(refusal) => return Ok(write_refusal(&refusal)),
        Outcome::Report(outcome) => outcome,
        Outcome::Admit(_)
        | Outcome::Release(_)
        | Outcome::Cancel(_)
        | Outcome::Extend(_)
        | Outcome::Policy(_)
        | Outcome::Unwoken
        | Outcome::Seeded => return Err(outcome::error(outcome, target, "actual")),
    };
    Ok(match outcome {
        ReportOutcome::Charged => v1::ReportStatus::Charged,
        ReportOutcome::Settled => v1::ReportStatus::Settled,
        ReportOutcome::Already => v1::ReportStatus::Already,
    })
}

fn write_refusal(refusal: &Refusal) -> v1::ReportStatus {
    match refusal {
        Refusal::TargetUnknown
        | Refusal::PriorityUnknown(_)
        | Refusal::DimensionUnknown(_)
        | Refusal::Malformed { .. }
        | Refusal::NotOwner => v1::ReportStatus::Dropped,
    }
}
