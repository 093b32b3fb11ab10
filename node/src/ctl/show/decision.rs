//! Answers to asks and releases.

use super::{json_text, span, units};
use crate::ctl::Form;
use serde_json::{Value, json};
use weir_proto::v1 as wire;
use weir_proto::v1::admit_response::Decision;

/// A grant as `release` takes it.
pub(super) fn grant_text(grant: &wire::Grant) -> String {
    format!("{}:{}:{}", grant.shard, grant.index, grant.offset)
}

/// Nothing but the grant; empty if there is none.
pub(in crate::ctl) fn grant_only(answer: &wire::AdmitResponse) -> String {
    match &answer.decision {
        Some(Decision::Admitted(admitted)) => admitted
            .grant
            .as_ref()
            .map(|g| format!("{}\n", grant_text(g)))
            .unwrap_or_default(),
        Some(Decision::Deferred(_) | Decision::Rejected(_)) | None => String::new(),
    }
}

/// The answer to an ask, and with what to ask again.
pub(in crate::ctl) fn decision(
    request: &wire::AdmitRequest,
    answer: &wire::AdmitResponse,
    form: Form,
) -> String {
    match form {
        Form::Table => text(request, answer),
        Form::Json => json_text(&json_of(request, answer)),
    }
}

fn text(request: &wire::AdmitRequest, answer: &wire::AdmitResponse) -> String {
    let mut lines = Vec::new();
    match &answer.decision {
        Some(Decision::Admitted(admitted)) => {
            lines.push(format!(
                "admitted     start in {}",
                span(admitted.start_in_us)
            ));
            let grant = admitted
                .grant
                .as_ref()
                .map_or("none (dry run)".into(), grant_text);
            lines.push(format!("grant        {grant}"));
            lines.push(format!("charged      {}", units(&admitted.charged)));
            let window = span(admitted.reply_window_us);
            lines.push(format!("use within   {window} of asking, or ask again"));
        }
        Some(Decision::Deferred(deferred)) => {
            lines.push(format!(
                "deferred     come back in {}",
                span(deferred.retry_in_us)
            ));
            lines.push(format!("earliest in  {}", span(deferred.earliest_in_us)));
            lines.push(format!("place        {} before this one", deferred.place));
            if !deferred.limit.is_empty() {
                lines.push(format!("limit        {}", deferred.limit));
            }
            lines.push(format!("kept for     {}", span(deferred.place_until_us)));
            lines.push(format!(
                "ask again    --id {} --attempt {} --ask {}",
                request.admission_id,
                request.attempt,
                request.ask.saturating_add(1)
            ));
        }
        Some(Decision::Rejected(rejected)) => {
            lines.push(format!("rejected     {}", rejected.message));
            if rejected.reason() == wire::RejectReason::Deadline {
                lines.push(format!("earliest in  {}", span(rejected.earliest_in_us)));
            }
        }
        None => lines.push("no decision: the cluster is newer than this program".into()),
    }
    // Not every rejection is the policy's doing.
    if answer.policy_version > 0 {
        lines.push(format!("policy       version {}", answer.policy_version));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn json_of(request: &wire::AdmitRequest, answer: &wire::AdmitResponse) -> Value {
    let mut object = match &answer.decision {
        Some(Decision::Admitted(admitted)) => json!({
            "decision": "admitted",
            "start_in_us": admitted.start_in_us,
            "reply_window_us": admitted.reply_window_us,
            "grant": admitted.grant.as_ref().map(grant_text),
            "charged": admitted.charged,
        }),
        Some(Decision::Deferred(deferred)) => json!({
            "decision": "deferred",
            "retry_in_us": deferred.retry_in_us,
            "earliest_in_us": deferred.earliest_in_us,
            "place": deferred.place,
            "limit": deferred.limit,
            "place_until_us": deferred.place_until_us,
        }),
        Some(Decision::Rejected(rejected)) => json!({
            "decision": "rejected",
            "reason": rejected.reason().as_str_name(),
            "limit": rejected.limit,
            "cap": rejected.cap,
            "cost": rejected.cost,
            "earliest_in_us": rejected.earliest_in_us,
            "message": rejected.message,
        }),
        None => json!({ "decision": Value::Null }),
    };
    if let Value::Object(map) = &mut object {
        map.insert("policy_version".into(), answer.policy_version.into());
        map.insert("admission_id".into(), request.admission_id.clone().into());
        // Programs whose numbers are doubles would round it.
        map.insert("attempt".into(), request.attempt.to_string().into());
        map.insert("ask".into(), request.ask.into());
    }
    object
}

/// The answer to a release.
pub(in crate::ctl) fn released(answer: &wire::ReleaseResponse, form: Form) -> String {
    let (word, sentence) = match answer.status() {
        wire::ReleaseStatus::Applied => ("applied", "released"),
        wire::ReleaseStatus::Already => ("already", "released before, nothing changed"),
        wire::ReleaseStatus::Expired => ("expired", "the grant ended by itself, its charge stayed"),
        wire::ReleaseStatus::Unknown => ("unknown", "no such grant is remembered"),
        wire::ReleaseStatus::Unspecified => ("unspecified", "the cluster did not say"),
    };
    match form {
        Form::Table => format!("{sentence}\n"),
        Form::Json => json_text(&json!({ "status": word })),
    }
}

/// The answer to a cancel.
pub(in crate::ctl) fn cancelled(answer: &wire::CancelResponse, form: Form) -> String {
    let (word, sentence) = match answer.status() {
        wire::CancelStatus::PlaceDropped => ("place_dropped", "the place in line is given up"),
        wire::CancelStatus::GrantRefunded => {
            ("grant_refunded", "the grant is given back with its charge")
        }
        wire::CancelStatus::Nothing => ("nothing", "nothing was there under this attempt"),
        wire::CancelStatus::Stale => ("stale", "a newer ask or attempt was seen, nothing changed"),
        wire::CancelStatus::Unspecified => ("unspecified", "the cluster did not say"),
    };
    match form {
        Form::Table => format!("{sentence}\n"),
        Form::Json => json_text(&json!({ "status": word })),
    }
}
