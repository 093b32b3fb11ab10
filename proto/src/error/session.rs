//! One error as the answer to an operation of a session: the same table, without a gRPC status.

use super::{LeaderHint, Reason, Resource, WireError};
use crate::v1;
use std::time::Duration;
use weir_admission::Violation;

impl WireError {
    /// The answer of a session that tells this error. A version is not told: no operation of a session
    /// is about one.
    pub fn to_session(self) -> v1::SessionError {
        let leader = self.leader.map(|leader| v1::LeaderHint {
            node_id: leader.node_id,
            address: leader.address,
        });
        let violations = self.violations.into_iter().map(|it| v1::FieldViolation {
            field: it.field,
            description: it.description,
        });
        let resource = self.resource.map(|resource| v1::ErrorResource {
            kind: resource.kind,
            name: resource.name,
        });
        v1::SessionError {
            code: self.reason.code().into(),
            reason: self.reason.as_str().to_owned(),
            message: self.message,
            retry_in_us: self
                .retry_after
                .map(|pause| u64::try_from(pause.as_micros()).unwrap_or(u64::MAX)),
            leader,
            violations: violations.collect(),
            resource,
        }
    }

    /// Reads what [`WireError::to_session`] wrote. `None` if it gives a reason that this version does
    /// not know: then its code is all there is to go by.
    pub fn from_session(error: v1::SessionError) -> Option<WireError> {
        let leader = error.leader.map(|leader| {
            Box::new(LeaderHint {
                node_id: leader.node_id,
                address: leader.address,
            })
        });
        let violations = error.violations.into_iter().map(|it| Violation {
            field: it.field,
            description: it.description,
        });
        let resource = error.resource.map(|resource| {
            Box::new(Resource {
                kind: resource.kind,
                name: resource.name,
            })
        });
        Some(WireError {
            reason: Reason::from_name(&error.reason)?,
            message: error.message,
            violations: violations.collect(),
            leader,
            retry_after: error.retry_in_us.map(Duration::from_micros),
            resource,
            version: None,
        })
    }
}
