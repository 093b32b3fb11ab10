//! Reads of the history of use.

use super::Violations;
use super::fields::Fields;
use crate::limits::HISTORY_STEPS_MAX;
use crate::v1;
use weir_admission::{PriorityName, TargetName, TenantName};

/// Seconds of a minute, the finest step of a history.
const MINUTE_S: u64 = 60;
/// Nothing is asked for beyond this second, the end of the year 9999.
const UNIX_S_MAX: u64 = 253_402_300_800;

/// What points of a history are told apart by, besides their step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryBy {
    /// Nothing: everything together.
    Nothing,
    /// The tenant.
    Tenant,
    /// The priority.
    Priority,
}

/// A checked read of the history of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadHistory {
    /// Of which target.
    pub target: TargetName,
    /// Only of this tenant.
    pub tenant: Option<TenantName>,
    /// Only of this priority.
    pub priority: Option<PriorityName>,
    /// First minute, counted from 1970.
    pub from_minute: u64,
    /// First minute after the range, above the first.
    pub to_minute: u64,
    /// Minutes of one step, at least 1; the range has at most [`HISTORY_STEPS_MAX`] of them.
    pub step_minutes: u64,
    /// What points are told apart by.
    pub by: HistoryBy,
}

/// Reads a read.
///
/// # Errors
/// Every field that breaks a rule.
pub fn read(request: &v1::ReadHistoryRequest) -> Result<ReadHistory, Violations> {
    let mut fields = Fields::new();
    let target = fields.name("target", &request.target);
    let tenant = match request.tenant.as_str() {
        "" => Some(None),
        tenant => fields.name("tenant", tenant).map(Some),
    };
    let priority = match request.priority.as_str() {
        "" => Some(None),
        priority => fields.name("priority", priority).map(Some),
    };
    let from = instant(&mut fields, "from_unix_s", request.from_unix_s);
    let to = instant(&mut fields, "to_unix_s", request.to_unix_s);
    if let (Some(from), Some(to)) = (from, to)
        && to <= from
    {
        fields.refuse("to_unix_s", "must be above from_unix_s");
    }
    let step = step(&mut fields, request.step_s, from.zip(to));
    let by = by(&mut fields, request.by);
    let read = || {
        Some(ReadHistory {
            target: target?,
            tenant: tenant?,
            priority: priority?,
            from_minute: from?,
            to_minute: to?,
            step_minutes: step?,
            by: by?,
        })
    };
    fields.finish(read())
}

/// Minutes of a second that begins one.
fn instant(fields: &mut Fields, field: &str, unix_s: u64) -> Option<u64> {
    if !unix_s.is_multiple_of(MINUTE_S) {
        fields.refuse(field, "must be a multiple of 60");
        None
    } else if unix_s > UNIX_S_MAX {
        fields.refuse(field, &format!("must be at most {UNIX_S_MAX}"));
        None
    } else {
        Some(unix_s / MINUTE_S)
    }
}

fn step(fields: &mut Fields, step_s: u64, range: Option<(u64, u64)>) -> Option<u64> {
    if step_s == 0 || !step_s.is_multiple_of(MINUTE_S) {
        fields.refuse("step_s", "must be a multiple of 60, at least 60");
        return None;
    }
    let step = step_s / MINUTE_S;
    let minutes = range.map_or(0, |(from, to)| to.saturating_sub(from));
    if minutes.div_ceil(step) > HISTORY_STEPS_MAX {
        let least = minutes.div_ceil(HISTORY_STEPS_MAX) * MINUTE_S;
        let rule =
            format!("must be at least {least}: a range has at most {HISTORY_STEPS_MAX} steps");
        fields.refuse("step_s", &rule);
        return None;
    }
    Some(step)
}

fn by(fields: &mut Fields, by: i32) -> Option<HistoryBy> {
    match v1::HistoryBy::try_from(by) {
        Ok(v1::HistoryBy::Unspecified) => Some(HistoryBy::Nothing),
        Ok(v1::HistoryBy::Tenant) => Some(HistoryBy::Tenant),
        Ok(v1::HistoryBy::Priority) => Some(HistoryBy::Priority),
        Err(_) => {
            fields.refuse("by", "must be one that this node knows");
            None
        }
    }
}

/// The refusal of a read whose answer has more points than `most`.
pub fn too_many_points(most: usize) -> Violations {
    let mut violations = Violations::default();
    let rule =
        format!("must be longer, or the range shorter: the answer has more than {most} points");
    violations.push("step_s", &rule);
    violations
}
