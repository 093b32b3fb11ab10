//! What clients send: messages of a session, and every unary request.
//!
//! Reading is total and takes memory in proportion. A refusal names fields and fits into an answer. What is
//! accepted can be stored and be sent again, and reads back as the same operation.

use crate::kind;
use crate::memory::{self, Memory};
use crate::wire::{self, Request, SHARDS};
use prost::Message;
use weir_admission::{Operation, Principal, Stamp};
use weir_proto::convert::{self, Caller, Violations};
use weir_proto::error::WireError;
use weir_proto::limits::{VIOLATION_TEXT_BYTES_MAX, VIOLATIONS_MAX};
use weir_proto::stored::{decode_batch, encode_batch};
use weir_proto::v1;
use weir_proto::v1::session_operation::Operation as Wire;

/// What an input is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message of a session: hello or frame.
    Session,
    /// An ask.
    Admit,
    /// A release.
    Release,
    /// A cancel.
    Cancel,
    /// An extension.
    Extend,
    /// A report of ungated calls.
    Report,
    /// A put of a policy.
    Put,
    /// A delete of a policy.
    Delete,
    /// Which target is looked at.
    Get,
    /// Whose versions are listed.
    Versions,
    /// An ask to be explained.
    Explain,
}

/// Every kind, each at the byte that stands for it.
pub const KINDS: [Kind; 11] = [
    Kind::Session,
    Kind::Admit,
    Kind::Release,
    Kind::Cancel,
    Kind::Extend,
    Kind::Report,
    Kind::Put,
    Kind::Delete,
    Kind::Get,
    Kind::Versions,
    Kind::Explain,
];

/// Memory for a message: an operation that sets nothing takes two bytes, and a list grows by
/// doubling.
const MEMORY: Memory = Memory {
    each: 512,
    base: memory::BASE,
};
/// Bytes of a refusal's details, which travel in the trailers in base64: receivers commonly bound those at
/// 16 KiB.
const DETAILS_BYTES_MAX: usize = 12 * 1024;

/// Takes an input.
///
/// # Panics
/// A rule of the module does not hold.
pub fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = kind(&KINDS, bytes) else {
        return;
    };
    let read = MEMORY.bounds(bytes.len(), || read(kind, bytes));
    for answer in read {
        match answer {
            Ok(operation) => accepted(&operation),
            Err(violations) => refused(violations),
        }
    }
}

type Answer = Result<Operation, Violations>;

fn with_caller<T>(wakes: bool, read: impl FnOnce(Caller<'_>) -> T) -> T {
    let principal = Principal::new("anonymous").expect("a name");
    read(Caller {
        principal: &principal,
        shards: SHARDS,
        wakes,
    })
}

/// Reads an input; nothing if it is no message, or one that stands for no operation.
fn read(kind: Kind, bytes: &[u8]) -> Vec<Answer> {
    let session = |operation| vec![read_session_operation(operation, false)];
    match kind {
        Kind::Session => read_session(bytes),
        Kind::Admit => decoded(bytes, |it| session(Wire::Admit(it))),
        Kind::Release => decoded(bytes, |it| session(Wire::Release(it))),
        Kind::Cancel => decoded(bytes, |it| session(Wire::Cancel(it))),
        Kind::Extend => decoded(bytes, |it| session(Wire::Extend(it))),
        Kind::Report => decoded(bytes, read_report),
        Kind::Put => decoded(bytes, |it| vec![read_put(&it)]),
        Kind::Delete => decoded(bytes, |it| vec![read_delete(&it)]),
        Kind::Get => decoded(bytes, |it: v1::GetTargetRequest| {
            only_refused(convert::target::read_get(&it))
        }),
        Kind::Versions => decoded(bytes, |it: v1::ListVersionsRequest| {
            only_refused(convert::target::read_versions(&it))
        }),
        Kind::Explain => decoded(bytes, |it: v1::ExplainRequest| {
            let read = with_caller(false, |caller| {
                convert::explain::read(it, || "new".into(), caller)
            });
            vec![read.map(|it| Operation::Admit(Box::new(it)))]
        }),
    }
}

fn decoded<M: Message + Default>(bytes: &[u8], read: impl FnOnce(M) -> Vec<Answer>) -> Vec<Answer> {
    M::decode(bytes).map(read).unwrap_or_default()
}

fn only_refused<T>(read: Result<T, Violations>) -> Vec<Answer> {
    read.err().map(Err).into_iter().collect()
}

fn read_session(bytes: &[u8]) -> Vec<Answer> {
    use v1::session_request::Message as Said;
    decoded(bytes, |request: v1::SessionRequest| match request.message {
        Some(Said::Hello(hello)) => only_refused(convert::session::read_hello(hello)),
        Some(Said::Frame(frame)) => match convert::session::check_frame(&frame, 0) {
            Ok(last) => {
                assert!(last >= frame.operations.len() as u64, "sequences rise");
                let operations = frame.operations.into_iter();
                let read = |it: v1::SessionOperation| read_maybe(it.operation, true);
                operations.map(read).collect()
            }
            Err(violations) => vec![Err(violations)],
        },
        None => Vec::new(),
    })
}

fn read_session_operation(operation: Wire, wakes: bool) -> Answer {
    read_maybe(Some(operation), wakes)
}

fn read_maybe(operation: Option<Wire>, wakes: bool) -> Answer {
    with_caller(wakes, |caller| {
        convert::session::read_operation(operation, caller)
    })
}

fn read_report(request: v1::ReportRequest) -> Vec<Answer> {
    match with_caller(false, |caller| convert::report::read(request, caller)) {
        Ok(reports) => {
            let reports = reports.into_iter();
            reports
                .map(|it| Ok(Operation::Report(Box::new(it))))
                .collect()
        }
        Err(violations) => vec![Err(violations)],
    }
}

fn read_put(request: &v1::PutTargetRequest) -> Answer {
    let put = with_caller(false, |caller| convert::target::read_put(request, caller))?;
    Ok(Operation::PutPolicy(Box::new(put)))
}

fn read_delete(request: &v1::DeleteTargetRequest) -> Answer {
    let delete = convert::target::read_delete(request)?;
    Ok(Operation::DeletePolicy(delete))
}

/// What was accepted reads back from the log, and from the wire.
fn accepted(operation: &Operation) {
    let batch = std::slice::from_ref(operation);
    let stored = encode_batch(Stamp::ZERO, batch).expect("what is accepted can be stored");
    let (_, again) = decode_batch(&stored).expect("what was stored can be read");
    assert_eq!(again, batch, "it is stored as it is");
    let Some(request) = wire::request(operation) else {
        return;
    };
    let mut again = match request {
        Request::Session(wire) => read_session_operation(sent(wire), true),
        Request::Put(put) => read_put(&resent(&put)),
        Request::Delete(delete) => read_delete(&resent(&delete)),
    }
    .expect("what was accepted is accepted again");
    if let (Operation::Admit(again), Operation::Admit(before)) = (&mut again, operation) {
        again.labels_digest = before.labels_digest;
    }
    assert_eq!(again, *operation, "it is sent as it is");
}

fn sent(operation: Wire) -> Wire {
    let operation = v1::SessionOperation {
        operation: Some(operation),
        ..v1::SessionOperation::default()
    };
    resent(&operation).operation.expect("the operation")
}

fn resent<M: Message + Default>(message: &M) -> M {
    M::decode(&message.encode_to_vec()[..]).expect("what was written can be read")
}

/// A refusal says what is wrong, fits into an answer, and is told alike in both ways.
fn refused(violations: Violations) {
    let told = violations.told().len();
    assert!((1..=VIOLATIONS_MAX).contains(&told) && told <= violations.found());
    for violation in violations.told() {
        for text in [&violation.field, &violation.description] {
            assert!(!text.is_empty() && text.len() <= VIOLATION_TEXT_BYTES_MAX + "...".len());
        }
    }
    let error = WireError::from(violations);
    let status = error.to_status();
    assert!(status.details().len() + status.message().len() <= DETAILS_BYTES_MAX);
    assert_eq!(WireError::from_status(&status).as_ref(), Some(&error));
    let told = resent(&error.clone().to_session());
    assert_eq!(WireError::from_session(told), Some(error));
}
