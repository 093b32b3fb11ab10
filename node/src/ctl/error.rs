//! What can go wrong for an operator, and how the program then ends.

use crate::exit::Exit;
use std::fmt;
use weir_proto::error::{Reason, WireError};

/// Why there is no answer.
#[derive(Debug)]
pub enum CtlError {
    /// Flags or files are wrong.
    Usage(String),
    /// It was not done, and nothing is wrong with the cluster.
    Refused(String),
    /// The client says why.
    Client(weir_client::Error),
    /// The cluster says why.
    Wire(WireError),
    /// A node could not be reached, or spoke another language.
    Call(tonic::Status),
}

impl CtlError {
    pub(super) fn usage(error: impl fmt::Display) -> CtlError {
        CtlError::Usage(error.to_string())
    }

    /// How the program ends.
    pub fn exit(&self) -> Exit {
        match self {
            CtlError::Usage(_) => Exit::Usage,
            CtlError::Refused(_) => Exit::Failed,
            CtlError::Client(error) => client_exit(error),
            CtlError::Wire(error) => reason_exit(error.reason),
            CtlError::Call(status) => code_exit(status.code()),
        }
    }
}

fn client_exit(error: &weir_client::Error) -> Exit {
    use weir_client::Error;
    match error {
        Error::Invalid { .. } => Exit::Usage,
        Error::Denied { .. } => Exit::Denied,
        Error::Unavailable { .. } | Error::Overloaded => Exit::Unavailable,
        Error::TargetUnknown { .. }
        | Error::Conflict { .. }
        | Error::Full { .. }
        | Error::Rejected(_)
        | Error::DeadlinePassed
        | Error::Internal { .. } => Exit::Failed,
    }
}

fn reason_exit(reason: Reason) -> Exit {
    match reason {
        Reason::Malformed | Reason::PriorityUnknown | Reason::DimensionUnknown => Exit::Usage,
        Reason::Unauthenticated | Reason::Forbidden | Reason::NotOwner => Exit::Denied,
        Reason::NotLeader
        | Reason::Stopping
        | Reason::NoQuorum
        | Reason::Overloaded
        | Reason::OutcomeUnknown => Exit::Unavailable,
        Reason::TargetUnknown
        | Reason::VersionConflict
        | Reason::Full
        | Reason::WrongCluster
        | Reason::DeadlineExceeded
        | Reason::Internal => Exit::Failed,
    }
}

/// Of a status that is not ours.
fn code_exit(code: tonic::Code) -> Exit {
    use tonic::Code;
    match code {
        Code::InvalidArgument | Code::OutOfRange => Exit::Usage,
        Code::Unauthenticated | Code::PermissionDenied => Exit::Denied,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Exit::Unavailable,
        Code::Ok
        | Code::Unknown
        | Code::NotFound
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss => Exit::Failed,
    }
}

impl fmt::Display for CtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CtlError::Usage(message) | CtlError::Refused(message) => f.write_str(message),
            CtlError::Client(error) => error.fmt(f),
            CtlError::Wire(error) => error.fmt(f),
            CtlError::Call(status) => write!(f, "{:?}: {}", status.code(), status.message()),
        }
    }
}

impl std::error::Error for CtlError {}

impl From<weir_client::Error> for CtlError {
    fn from(error: weir_client::Error) -> CtlError {
        CtlError::Client(error)
    }
}

impl From<tonic::Status> for CtlError {
    fn from(status: tonic::Status) -> CtlError {
        match WireError::from_status(&status) {
            Some(error) => CtlError::Wire(error),
            None => CtlError::Call(status),
        }
    }
}
