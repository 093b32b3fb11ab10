//! Sessions: the hello, frames, and single operations with their answers.
//!
//! What is wrong with a frame ends the session; what is wrong with an operation is its answer.

use super::fields::Fields;
use super::{Caller, Violations, admit, cancel, extend, release, report};
use crate::error::WireError;
use crate::limits::{FEATURES_MAX, FRAME_OPERATIONS_MAX};
use crate::v1;
use v1::session_answer::Answer;
use weir_admission::limits::NAME_BYTES_MAX;
use weir_admission::{Operation, Outcome, ShardId, TargetName};

/// The version of the protocol that this code speaks.
pub const PROTOCOL_VERSION: u32 = 1;

/// Who opens a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The running client.
    pub instance: u64,
    /// Its name, perhaps empty.
    pub name: String,
    /// What it understands beyond the version.
    pub features: Vec<String>,
}

/// Reads a client's hello.
///
/// # Errors
/// Every field that breaks a rule.
pub fn read_hello(hello: v1::ClientHello) -> Result<Hello, Violations> {
    let mut fields = Fields::new();
    fields.enter("hello.".into());
    if hello.protocol_version != PROTOCOL_VERSION {
        fields.refuse(
            "protocol_version",
            &format!(
                "must be {PROTOCOL_VERSION}, the only version that this node speaks, is {}",
                hello.protocol_version
            ),
        );
    }
    if hello.instance == 0 {
        fields.refuse("instance", "must be chosen at random and not be 0");
    }
    if hello.name.len() > NAME_BYTES_MAX || hello.name.contains(char::is_control) {
        fields.refuse(
            "name",
            &format!("must be at most {NAME_BYTES_MAX} bytes without control characters"),
        );
    }
    if hello.features.len() > FEATURES_MAX {
        let rule = format!(
            "must be at most {FEATURES_MAX}, are {}",
            hello.features.len()
        );
        fields.refuse("features", &rule);
    } else if let Some(at) = (hello.features.iter())
        .position(|feature| feature.is_empty() || feature.len() > NAME_BYTES_MAX)
    {
        let rule = format!("must be 1-{NAME_BYTES_MAX} bytes");
        fields.refuse(&format!("features[{at}]"), &rule);
    }
    fields.finish(Some(Hello {
        instance: hello.instance,
        name: hello.name,
        features: hello.features,
    }))
}

/// Checks a frame as a whole, after operations up to sequence `last`. Answers the last sequence now.
///
/// # Errors
/// Every field that breaks a rule.
pub fn check_frame(frame: &v1::ClientFrame, last: u64) -> Result<u64, Violations> {
    let mut fields = Fields::new();
    fields.enter("frame.".into());
    let count = frame.operations.len();
    if !(1..=FRAME_OPERATIONS_MAX).contains(&count) {
        let rule = format!("must be 1 to {FRAME_OPERATIONS_MAX}, are {count}");
        fields.refuse("operations", &rule);
    }
    let mut highest = last;
    for (at, operation) in frame.operations.iter().enumerate() {
        if operation.sequence <= highest {
            fields.refuse(
                &format!("operations[{at}].sequence"),
                &format!("must be above {highest}, the highest one before it"),
            );
        }
        highest = highest.max(operation.sequence);
    }
    fields.finish(Some(highest))
}

/// Reads one operation. Paths of fields begin inside its own message, as in the unary call.
///
/// # Errors
/// Every field that breaks a rule.
pub fn read_operation(
    operation: Option<v1::session_operation::Operation>,
    caller: Caller<'_>,
) -> Result<Operation, Violations> {
    use v1::session_operation::Operation as Wire;
    match operation {
        Some(Wire::Admit(ask)) => admit::read(ask, caller).map(|it| Operation::Admit(Box::new(it))),
        Some(Wire::Release(request)) => {
            release::read(request, caller).map(|it| Operation::Release(Box::new(it)))
        }
        Some(Wire::Cancel(request)) => {
            cancel::read(request, caller).map(|it| Operation::Cancel(Box::new(it)))
        }
        Some(Wire::Extend(request)) => extend::read(&request, caller).map(Operation::Extend),
        Some(Wire::Report(call)) => {
            report::read_one(call, caller).map(|it| Operation::Report(Box::new(it)))
        }
        None => {
            let mut fields = Fields::new();
            fields.refuse("operation", "must be one that this node knows");
            fields.finish(None)
        }
    }
}

/// The kind of an operation, which is the kind of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An ask.
    Admit,
    /// A release.
    Release,
    /// A cancel.
    Cancel,
    /// An extension.
    Extend,
    /// One reported call.
    Report,
}

/// The answer to an operation on `target`, decided by `shard`: the same message as in a unary call.
///
/// # Errors
/// The refusal, if the rules refused the operation.
pub fn answer(
    kind: Kind,
    outcome: Outcome,
    target: &TargetName,
    shard: ShardId,
) -> Result<Answer, WireError> {
    match kind {
        Kind::Admit => admit::answer(outcome, target, shard).map(Answer::Admit),
        Kind::Release => release::answer(outcome, target).map(Answer::Release),
        Kind::Cancel => cancel::answer(outcome, target).map(Answer::Cancel),
        Kind::Extend => extend::answer(outcome, target).map(Answer::Extend),
        Kind::Report => report::answer(outcome, target).map(|status| {
            Answer::Report(v1::ReportResponse {
                statuses: vec![status.into()],
            })
        }),
    }
}
