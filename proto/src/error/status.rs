//! One error between node and client: a gRPC status with `google.rpc` details.

use super::Reason;
use std::collections::HashMap;
use std::time::Duration;
use tonic::Status;
use tonic_types::{ErrorDetails, FieldViolation, ResourceInfo, StatusExt};
use weir_admission::Violation;

/// Domain of the reasons in `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "weir.dev";

const LEADER_ID: &str = "leader_id";
const LEADER_ADDRESS: &str = "leader_address";
const VERSION: &str = "version";

/// Why a request has no answer, with all that its caller can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", .reason.as_str())]
pub struct WireError {
    /// The reason, for programs.
    pub reason: Reason,
    /// One sentence, for people.
    pub message: String,
    /// Every field that breaks a rule.
    pub violations: Vec<Violation>,
    /// Who leads the shard.
    pub leader: Option<Box<LeaderHint>>,
    /// How long to wait before asking again.
    pub retry_after: Option<Duration>,
    /// What the error is about.
    pub resource: Option<Box<Resource>>,
    /// With [`Reason::VersionConflict`]: the version in force, 0 if there is none.
    pub version: Option<u64>,
}

/// Who leads a shard, as far as the node that was asked knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderHint {
    /// Number of the node.
    pub node_id: u64,
    /// Its client port, host:port.
    pub address: String,
}

/// What an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Kind of thing: `target`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl WireError {
    /// An error without details.
    pub fn new(reason: Reason, message: impl Into<String>) -> WireError {
        WireError {
            reason,
            message: message.into(),
            violations: Vec::new(),
            leader: None,
            retry_after: None,
            resource: None,
            version: None,
        }
    }

    /// The shard is led by another node, known or not.
    pub fn not_leader(leader: Option<LeaderHint>) -> WireError {
        let message = match &leader {
            Some(leader) => format!("node {} at {} leads", leader.node_id, leader.address),
            None => "another node leads, it is not known which".into(),
        };
        WireError {
            leader: leader.map(Box::new),
            ..WireError::new(Reason::NotLeader, message)
        }
    }

    /// The target has no policy.
    pub fn target_unknown(target: &str) -> WireError {
        let message = format!("target {target:?} has no policy");
        let resource = Resource {
            kind: "target".into(),
            name: target.into(),
        };
        WireError {
            resource: Some(Box::new(resource)),
            ..WireError::new(Reason::TargetUnknown, message)
        }
    }

    /// The same error, telling how long to wait before asking again.
    pub fn retry_after(self, pause: Duration) -> WireError {
        WireError {
            retry_after: Some(pause),
            ..self
        }
    }

    /// The gRPC status: the reason's code, the message, and `google.rpc` details.
    pub fn to_status(&self) -> Status {
        let mut details = ErrorDetails::new();
        details.set_error_info(self.reason.as_str(), DOMAIN, self.metadata());
        for violation in &self.violations {
            details.add_bad_request_violation(&violation.field, &violation.description);
        }
        if let Some(pause) = self.retry_after {
            details.set_retry_info(Some(pause));
        }
        if let Some(resource) = &self.resource {
            details.set_resource_info(&resource.kind, &resource.name, "", "");
        }
        Status::with_error_details(self.reason.code(), &self.message, details)
    }

    /// Reads what [`WireError::to_status`] wrote. `None` if the status does not come from Weir, or gives
    /// a reason that this version does not know: then its gRPC code is all there is to go by.
    pub fn from_status(status: &Status) -> Option<WireError> {
        let details = status.get_error_details();
        let info = details.error_info().filter(|info| info.domain == DOMAIN)?;
        let reason = Reason::from_name(&info.reason)?;
        let violations = details
            .bad_request()
            .map(|bad| bad.field_violations.as_slice());
        Some(WireError {
            reason,
            message: status.message().to_owned(),
            violations: violations
                .unwrap_or_default()
                .iter()
                .map(read_violation)
                .collect(),
            leader: read_leader(&info.metadata),
            retry_after: details.retry_info().and_then(|retry| retry.retry_delay),
            resource: details.resource_info().map(read_resource),
            version: info
                .metadata
                .get(VERSION)
                .and_then(|version| version.parse().ok()),
        })
    }

    fn metadata(&self) -> HashMap<String, String> {
        let mut metadata = HashMap::new();
        if let Some(leader) = &self.leader {
            metadata.insert(LEADER_ID.into(), leader.node_id.to_string());
            metadata.insert(LEADER_ADDRESS.into(), leader.address.clone());
        }
        if let Some(version) = self.version {
            metadata.insert(VERSION.into(), version.to_string());
        }
        metadata
    }
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Status {
        error.to_status()
    }
}

fn read_violation(violation: &FieldViolation) -> Violation {
    Violation {
        field: violation.field.clone(),
        description: violation.description.clone(),
    }
}

fn read_resource(resource: &ResourceInfo) -> Box<Resource> {
    let kind = resource.resource_type.clone();
    Box::new(Resource {
        kind,
        name: resource.resource_name.clone(),
    })
}

fn read_leader(metadata: &HashMap<String, String>) -> Option<Box<LeaderHint>> {
    let node_id = metadata.get(LEADER_ID)?.parse().ok()?;
    let address = metadata.get(LEADER_ADDRESS)?.clone();
    Some(Box::new(LeaderHint { node_id, address }))
}
