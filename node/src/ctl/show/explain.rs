//! Why a call would be answered as it would be.

use super::decision::grant_text;
use super::{json_text, lines, span, table, word};
use crate::ctl::Form;
use serde_json::{Value, json};
use weir_proto::v1 as wire;
use weir_proto::v1::admit_response::Decision;

/// The answer, the limits and who is ahead.
pub(in crate::ctl) fn explained(
    request: &wire::ExplainRequest,
    answer: &wire::ExplainResponse,
    form: Form,
) -> String {
    match form {
        Form::Table => text(request, answer),
        Form::Json => json_text(&json_of(request, answer)),
    }
}

fn text(request: &wire::ExplainRequest, answer: &wire::ExplainResponse) -> String {
    let decision = answer.answer.as_ref();
    let version = decision.map_or(0, |decision| decision.policy_version);
    let decision = decision.and_then(|decision| decision.decision.as_ref());
    let ahead: u64 = answer.priorities.iter().map(|one| one.ahead).sum();
    let mut rows = vec![("answer", sentence(decision))];
    rows.push(("binds", binds(decision, answer)));
    let who = if answer.waits {
        "which waits"
    } else {
        "as a new call"
    };
    rows.push((
        "place",
        format!(
            "{ahead} before {}/{}, {who}",
            request.priority, request.tenant
        ),
    ));
    if let Some(known) = &answer.known {
        rows.push(("call", known_text(known)));
    }
    if version > 0 {
        rows.push(("policy", format!("version {version}")));
    }
    let mut text: String = rows
        .iter()
        .map(|(name, value)| format!("{name:<8} {value}\n"))
        .collect();
    text.push('\n');
    text += &limits_table(answer);
    text.push('\n');
    text += &priorities_table(answer);
    text
}

fn known_text(known: &wire::KnownCall) -> String {
    let grant = known.grant.as_ref().map(grant_text).unwrap_or_default();
    let holds = match known.holds() {
        wire::Holding::Nothing => "holds nothing".to_owned(),
        wire::Holding::Place => "holds a place".to_owned(),
        wire::Holding::Grant => format!("holds grant {grant}"),
        wire::Holding::EndedGrant => format!("held grant {grant}, which ended"),
        wire::Holding::Charge => "was let through ungated and is charged".to_owned(),
        wire::Holding::Unspecified => "the cluster does not say what it holds".to_owned(),
    };
    format!("--attempt {} --ask {}, {holds}", known.attempt, known.ask)
}

fn sentence(decision: Option<&Decision>) -> String {
    match decision {
        Some(Decision::Admitted(admitted)) => {
            format!("admitted, start in {}", span(admitted.start_in_us))
        }
        Some(Decision::Deferred(deferred)) => format!(
            "deferred, earliest start in {}, come back in {}",
            span(deferred.earliest_in_us),
            span(deferred.retry_in_us)
        ),
        Some(Decision::Rejected(rejected)) => format!("rejected, {}", rejected.message),
        None => "none: the cluster is newer than this program".into(),
    }
}

fn binds(decision: Option<&Decision>, answer: &wire::ExplainResponse) -> String {
    let limit = binding_limit(decision);
    match limit {
        Some(limit) => format!("limit {limit}"),
        None if answer.held_for_us > 0 => {
            format!("held for {} after a Retry-After", span(answer.held_for_us))
        }
        None => "nothing".into(),
    }
}

fn binding_limit(decision: Option<&Decision>) -> Option<&str> {
    let limit = match decision {
        Some(Decision::Deferred(deferred)) => deferred.limit.as_str(),
        Some(Decision::Rejected(rejected)) => rejected.limit.as_str(),
        Some(Decision::Admitted(_)) | None => "",
    };
    Some(limit).filter(|limit| !limit.is_empty())
}

fn limits_table(answer: &wire::ExplainResponse) -> String {
    let mut table = table(&[
        "LIMIT",
        "DIMENSION",
        "COST",
        "AHEAD",
        "USED",
        "CAP",
        "EARLIEST IN",
    ]);
    for limit in &answer.limits {
        table.add_row([
            limit.name.clone(),
            limit.dimension.clone(),
            limit.cost.to_string(),
            limit.ahead.to_string(),
            limit.used.to_string(),
            limit.cap.to_string(),
            span(limit.earliest_in_us),
        ]);
    }
    lines(&table)
}

fn priorities_table(answer: &wire::ExplainResponse) -> String {
    let mut table = table(&["PRIORITY", "WAITING", "AHEAD", "SHARE AHEAD"]);
    for priority in &answer.priorities {
        table.add_row([
            priority.name.clone(),
            priority.waiting.to_string(),
            priority.ahead.to_string(),
            span(priority.share_ns / 1_000),
        ]);
    }
    lines(&table)
}

fn json_of(request: &wire::ExplainRequest, answer: &wire::ExplainResponse) -> Value {
    let decision = answer.answer.as_ref();
    let version = decision.map_or(0, |decision| decision.policy_version);
    let decision = decision.and_then(|decision| decision.decision.as_ref());
    let (answered, earliest_in_us, message) = match decision {
        Some(Decision::Admitted(admitted)) => ("admitted", Some(admitted.start_in_us), None),
        Some(Decision::Deferred(deferred)) => ("deferred", Some(deferred.earliest_in_us), None),
        Some(Decision::Rejected(rejected)) => ("rejected", None, Some(&rejected.message)),
        None => ("unknown", None, None),
    };
    let known = answer.known.as_ref().map(|known| {
        json!({
            // Programs whose numbers are doubles would round it.
            "attempt": known.attempt.to_string(),
            "ask": known.ask,
            "holds": word(known.holds().as_str_name(), "HOLDING_"),
            "grant": known.grant.as_ref().map(grant_text),
        })
    });
    let limits = answer.limits.iter().map(|limit| {
        json!({
            "name": limit.name,
            "dimension": limit.dimension,
            "cost": limit.cost,
            "ahead": limit.ahead,
            "used": limit.used,
            "cap": limit.cap,
            "earliest_in_us": limit.earliest_in_us,
        })
    });
    let priorities = answer.priorities.iter().map(|priority| {
        json!({
            "name": priority.name,
            "waiting": priority.waiting,
            "ahead": priority.ahead,
            "share_ns": priority.share_ns,
        })
    });
    json!({
        "target": request.target,
        "tenant": request.tenant,
        "priority": request.priority,
        "decision": answered,
        "earliest_in_us": earliest_in_us,
        "message": message,
        "limit": binding_limit(decision),
        "waits": answer.waits,
        "known": known,
        "held_for_us": answer.held_for_us,
        "policy_version": version,
        "limits": limits.collect::<Vec<_>>(),
        "priorities": priorities.collect::<Vec<_>>(),
    })
}
