//! What one unanswered try means: the one place where a gRPC status is read.
//!
//! Only a node of ours can say that something is wrong with a request. A status without a Weir reason
//! comes from something on the way (a proxy, another server on that port, the connection itself) and
//! counts as no answer, with one exception: what looks like a refused credential or request is never
//! taken for an outage, because an outage may let calls through.

use crate::Error;
use crate::retry::{Left, Trouble};
use crate::route::Hint;
use std::error::Error as _;
use std::time::Duration;
use tonic::{Code, ConnectError, Status};
use weir_proto::error::{Reason, WireError};
use weir_proto::v1::SessionError;

/// Why a try has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The node does not lead the shard, or stops. Nothing happened.
    NotLeader {
        /// Who leads, if it said so.
        hint: Option<Hint>,
    },
    /// Nobody answered for the shard.
    NoAnswer {
        /// What happened, for people.
        message: String,
        /// True if the request may have had an effect.
        may_have_happened: bool,
        /// How long the node asks us to wait.
        retry_in: Option<Duration>,
        /// Who was silent.
        silence: Silence,
    },
    /// The node has no room. Nothing happened.
    Overloaded {
        /// How long it asks us to wait.
        retry_in: Option<Duration>,
    },
    /// Repeating will not help.
    Fault(Error),
}

/// Who did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The node: its connection failed or broke, or what came back was nothing a node of ours says.
    Node,
    /// The node, as another call tells that broke in the same session: it is blamed once.
    Session,
    /// The node, for the whole time of a try. Asking it again costs as much again.
    Hung,
    /// The shard: a node of it said that it cannot commit, or that it does not know what became of it.
    Shard,
    /// Perhaps nobody: the caller had no time for a fair try.
    Caller,
}

impl Failure {
    /// Nothing came within `timeout`.
    pub(crate) fn timed_out(timeout: Duration) -> Failure {
        Failure::NoAnswer {
            message: format!("no answer within {} ms", timeout.as_millis()),
            may_have_happened: true,
            retry_in: None,
            silence: Silence::Hung,
        }
    }

    /// Nothing came within a `timeout` that was too short to blame anybody.
    pub(crate) fn cut_short(timeout: Duration) -> Failure {
        let message = if timeout.is_zero() {
            "no time was left to ask".to_owned()
        } else {
            format!("no answer in the {timeout:.1?} that were left")
        };
        Failure::NoAnswer {
            message,
            may_have_happened: !timeout.is_zero(),
            retry_in: None,
            silence: Silence::Caller,
        }
    }

    /// The request did not leave this process.
    pub(crate) fn unsendable(message: String) -> Failure {
        Failure::NoAnswer {
            message,
            may_have_happened: false,
            retry_in: None,
            silence: Silence::Node,
        }
    }

    /// The node did not take it up, and is not to blame: the same request may go again at once.
    pub(crate) fn not_taken_up() -> Failure {
        Failure::NoAnswer {
            message: "the session had no room for it, or ended before".to_owned(),
            may_have_happened: false,
            retry_in: None,
            silence: Silence::Caller,
        }
    }

    /// Something came back that is no answer.
    pub(crate) fn unread() -> Failure {
        Failure::NoAnswer {
            message: "an answer that says nothing".to_owned(),
            may_have_happened: true,
            retry_in: None,
            silence: Silence::Node,
        }
    }

    /// The same, of a request that was certainly not sent.
    pub(crate) fn of_unsent(mut self) -> Failure {
        if let Failure::NoAnswer {
            may_have_happened, ..
        } = &mut self
        {
            *may_have_happened = false;
        }
        self
    }

    /// What the error of a session means.
    pub(crate) fn of_session(error: SessionError) -> Failure {
        let code = Code::from_i32(error.code);
        let message = error.message.clone();
        match WireError::from_session(error) {
            Some(error) => Failure::of_reason(error),
            None => Failure::of_code(&Status::new(code, message)),
        }
    }

    /// What a status means.
    pub(crate) fn of(status: &Status) -> Failure {
        match WireError::from_status(status) {
            Some(error) => Failure::of_reason(error),
            None => Failure::of_code(status),
        }
    }

    fn of_reason(error: WireError) -> Failure {
        let silent = |error: WireError, silence| Failure::NoAnswer {
            may_have_happened: error.reason.may_have_happened(),
            retry_in: error.retry_after,
            silence,
            message: error.message,
        };
        match error.reason {
            Reason::NotLeader | Reason::Stopping => Failure::NotLeader {
                hint: error.leader.map(|leader| Hint {
                    address: leader.address.into(),
                }),
            },
            Reason::NoQuorum | Reason::OutcomeUnknown => silent(error, Silence::Shard),
            Reason::WrongCluster => silent(error, Silence::Node),
            // The node dropped what had waited too long in its queue: it has more than it can take.
            Reason::Overloaded | Reason::DeadlineExceeded => Failure::Overloaded {
                retry_in: error.retry_after,
            },
            Reason::Malformed | Reason::PriorityUnknown | Reason::DimensionUnknown => {
                Failure::Fault(Error::Invalid {
                    message: told(&error),
                })
            }
            Reason::TargetUnknown => {
                let target = error
                    .resource
                    .map_or_else(String::new, |resource| resource.name);
                Failure::Fault(Error::TargetUnknown { target })
            }
            Reason::Unauthenticated | Reason::Forbidden | Reason::NotOwner => {
                Failure::Fault(Error::Denied {
                    message: error.message,
                })
            }
            Reason::VersionConflict => Failure::Fault(Error::Conflict {
                message: error.message,
                version: error.version.unwrap_or(0),
            }),
            Reason::Full => Failure::Fault(Error::Full {
                message: error.message,
            }),
            Reason::Internal => Failure::Fault(Error::Internal {
                message: error.message,
            }),
        }
    }

    fn of_code(status: &Status) -> Failure {
        let message = || format!("{}: {}", status.code().description(), status.message());
        match status.code() {
            Code::Unauthenticated | Code::PermissionDenied => {
                Failure::Fault(Error::Denied { message: message() })
            }
            Code::InvalidArgument | Code::NotFound => {
                Failure::Fault(Error::Invalid { message: message() })
            }
            Code::ResourceExhausted => Failure::Overloaded { retry_in: None },
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss => Failure::NoAnswer {
                message: message(),
                may_have_happened: !never_connected(status),
                retry_in: None,
                silence: Silence::Node,
            },
        }
    }

    /// True if it shows that the shard works: the request was read and judged.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Failure::Overloaded { .. } => true,
            Failure::Fault(Error::Internal { .. }) => false,
            Failure::Fault(_) => true,
            Failure::NotLeader { .. } | Failure::NoAnswer { .. } => false,
        }
    }

    /// True if no node of ours said it.
    pub(crate) fn is_nobodys(&self) -> bool {
        match self {
            Failure::NoAnswer {
                silence: Silence::Node | Silence::Session | Silence::Hung,
                ..
            } => true,
            Failure::NoAnswer {
                silence: Silence::Shard | Silence::Caller,
                ..
            }
            | Failure::NotLeader { .. }
            | Failure::Overloaded { .. }
            | Failure::Fault(_) => false,
        }
    }

    /// True if it counts as a missing answer by itself. A node that does not lead counts only if no
    /// other one is found.
    pub(crate) fn is_silence(&self) -> bool {
        match self {
            Failure::NoAnswer {
                silence: Silence::Node | Silence::Session | Silence::Hung | Silence::Shard,
                ..
            } => true,
            Failure::NoAnswer {
                silence: Silence::Caller,
                ..
            }
            | Failure::NotLeader { .. }
            | Failure::Overloaded { .. }
            | Failure::Fault(_) => false,
        }
    }

    /// True if the request may have had an effect.
    pub(crate) fn may_have_happened(&self) -> bool {
        match self {
            Failure::NotLeader { .. } | Failure::Overloaded { .. } => false,
            Failure::NoAnswer {
                may_have_happened, ..
            } => *may_have_happened,
            Failure::Fault(error) => error.may_have_happened(),
        }
    }

    /// What to weigh before the next try, with a sentence for people; or the end.
    pub(crate) fn into_trouble(self) -> Result<(Trouble, String), Error> {
        match self {
            Failure::NotLeader { hint } => {
                let message = "no node leads the shard".to_owned();
                Ok((
                    Trouble::NotLeader {
                        hinted: hint.is_some(),
                    },
                    message,
                ))
            }
            Failure::NoAnswer {
                message,
                may_have_happened,
                retry_in,
                silence,
            } => {
                let left = match silence {
                    Silence::Hung => Left::Work,
                    Silence::Session if may_have_happened => Left::Session,
                    Silence::Node | Silence::Shard | Silence::Caller if may_have_happened => {
                        Left::Work
                    }
                    Silence::Session | Silence::Node | Silence::Shard | Silence::Caller => {
                        Left::Nothing
                    }
                };
                Ok((Trouble::NoAnswer { retry_in, left }, message))
            }
            Failure::Overloaded { retry_in } => {
                Ok((Trouble::Overloaded { retry_in }, "overloaded".to_owned()))
            }
            Failure::Fault(error) => Err(error),
        }
    }
}

/// The message, or field by field what is wrong.
fn told(error: &WireError) -> String {
    let fields: Vec<String> = error
        .violations
        .iter()
        .map(|violation| format!("{} {}", violation.field, violation.description))
        .collect();
    if fields.is_empty() {
        error.message.clone()
    } else {
        fields.join("; ")
    }
}

/// True if no connection was made, so that nothing can have been sent.
fn never_connected(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_proto::error::LeaderHint;

    /// What a client makes of a reason: does it repeat, is it an answer, may it have happened.
    fn check(error: WireError, repeats: bool, answer: bool, may_have_happened: bool) {
        let reason = error.reason;
        let failure = Failure::of(&error.to_status());
        let in_session = Failure::of_session(error.to_session());
        assert_eq!(
            in_session, failure,
            "{reason:?} means the same in a session"
        );
        assert_eq!(failure.is_answer(), answer, "{reason:?} is an answer");
        assert_eq!(
            failure.may_have_happened(),
            may_have_happened,
            "{reason:?} may have happened"
        );
        assert_eq!(
            failure.into_trouble().is_ok(),
            repeats,
            "{reason:?} is repeated"
        );
    }

    #[test]
    fn every_reason_has_its_meaning() {
        for reason in Reason::ALL.iter().copied() {
            let error = WireError::new(reason, "x");
            match reason {
                Reason::NotLeader | Reason::Stopping | Reason::NoQuorum | Reason::WrongCluster => {
                    check(error, true, false, false);
                }
                Reason::OutcomeUnknown => check(error, true, false, true),
                Reason::Overloaded | Reason::DeadlineExceeded => check(error, true, true, false),
                Reason::Malformed
                | Reason::TargetUnknown
                | Reason::PriorityUnknown
                | Reason::DimensionUnknown
                | Reason::Unauthenticated
                | Reason::Forbidden
                | Reason::NotOwner
                | Reason::VersionConflict
                | Reason::Full => check(error, false, true, false),
                Reason::Internal => check(error, false, false, true),
            }
        }
    }

    #[test]
    fn what_is_not_ours_is_no_answer_unless_it_refuses_the_request() {
        for code in 0..17 {
            let status = Status::new(Code::from_i32(code), "from a proxy");
            let failure = Failure::of(&status);
            let refuses = matches!(
                status.code(),
                Code::Unauthenticated
                    | Code::PermissionDenied
                    | Code::InvalidArgument
                    | Code::NotFound
                    | Code::ResourceExhausted
            );
            assert_eq!(failure.is_answer(), refuses, "{:?}", status.code());
            if !refuses {
                assert!(failure.may_have_happened(), "{:?}", status.code());
            }
        }
    }

    #[test]
    fn hints_and_pauses_are_read() {
        let leader = LeaderHint {
            node_id: 2,
            address: "b:1".into(),
        };
        let failure = Failure::of(&WireError::not_leader(Some(leader)).to_status());
        assert_eq!(
            failure,
            Failure::NotLeader {
                hint: Some(Hint {
                    address: "b:1".into()
                })
            }
        );
        let pause = Duration::from_millis(70);
        let error = WireError::new(Reason::Overloaded, "x").retry_after(pause);
        let failure = Failure::of(&error.to_status());
        assert_eq!(
            failure,
            Failure::Overloaded {
                retry_in: Some(pause)
            }
        );
    }
}
