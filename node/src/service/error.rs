//! Every way in which a call gets no answer, as the one table of errors tells it.

use crate::batch::SubmitError;
use crate::shards::Shards;
use std::time::Duration;
use weir_proto::error::{LeaderHint, Reason, WireError};
use weir_raft::NodeId;

/// When a shard without quorum is worth asking again: about one election.
const NO_QUORUM_RETRY: Duration = Duration::from_millis(500);

/// What a caller is told if its operations have no outcome.
pub(crate) fn wire_error(error: SubmitError, shards: &Shards) -> WireError {
    match error {
        SubmitError::Overloaded { retry_in } => {
            WireError::new(Reason::Overloaded, "the shard's queue is full").retry_after(retry_in)
        }
        SubmitError::Expired => WireError::new(
            Reason::DeadlineExceeded,
            "the deadline passed before the request was taken up; nothing happened",
        ),
        SubmitError::NotLeader { leader } => WireError::not_leader(hint(leader, shards)),
        SubmitError::NoQuorum => WireError::new(
            Reason::NoQuorum,
            "too few nodes of the shard answer; nothing happened",
        )
        .retry_after(NO_QUORUM_RETRY),
        SubmitError::Unknown => WireError::new(
            Reason::OutcomeUnknown,
            "the request was taken up and its outcome is not known here",
        ),
        SubmitError::NotAnEntry(why) => {
            let message = format!("the request cannot be a log entry: {why}; nothing happened");
            WireError::new(Reason::Malformed, message)
        }
        SubmitError::Stopped => WireError::new(Reason::Stopping, "the node stops"),
    }
}

/// Where the leader is reached, if it is known and another node than this one.
pub(super) fn hint(leader: Option<NodeId>, shards: &Shards) -> Option<LeaderHint> {
    let leader = leader.filter(|leader| *leader != shards.identity().node)?;
    let address = shards.client_address(leader)?.to_owned();
    Some(LeaderHint {
        node_id: leader.0,
        address,
    })
}
