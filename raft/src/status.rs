//! What a group shows of itself.

use crate::NodeId;
use weir_admission::ShardId;

/// The shard and who answers for it.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// The shard.
    pub shard: ShardId,
    /// What this node is in the group.
    pub role: Role,
    /// Who leads, as in [`Leadership`].
    pub leader: Option<NodeId>,
    /// The term.
    pub term: u64,
    /// Index of the last log entry, the last applied, the snapshot's last, the last purged; 0 if none.
    pub last_log_index: u64,
    /// See above.
    pub applied_index: u64,
    /// See above.
    pub snapshot_index: u64,
    /// See above.
    pub purged_index: u64,
    /// The voters.
    pub voters: Vec<NodeId>,
    /// Digest of the state at `applied_index`.
    pub digest: u128,
    /// Targets with a policy.
    pub targets: u64,
}

/// Where a group stands on this node, without what is costly to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// What this node is in the group.
    pub role: Role,
    /// Who leads, as in [`Leadership`].
    pub leader: Option<NodeId>,
    /// The term.
    pub term: u64,
    /// Index of the last log entry; 0 if none.
    pub last_log_index: u64,
    /// Index of the last entry that this node knows a quorum to have; 0 if none.
    pub commit_index: u64,
    /// Index of the last applied entry; 0 if none.
    pub applied_index: u64,
}

/// What a node is in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Answers.
    Leader,
    /// Follows.
    Follower,
    /// Campaigns.
    Candidate,
    /// Receives the log without a vote.
    Learner,
}

/// Who leads a group, as far as this node knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The leader, if one is known and gave a sign of life lately.
    pub leader: Option<NodeId>,
    /// The term it leads, or the last one seen.
    pub term: u64,
}

/// Why leadership was not handed over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// This node does not lead the group.
    #[error("not the leader of this shard")]
    NotLeader {
        /// Who leads, as far as we know.
        leader: Option<NodeId>,
    },
    /// The other node does not vote in this group.
    #[error("node {0} is not a voter of this shard")]
    NotVoter(NodeId),
    /// The other node does not answer or is too far behind. Nothing happened.
    #[error("node {0} is not ready to lead")]
    NotReady(NodeId),
    /// The other node takes no leads: it stops, or an operator drained it. Nothing happened.
    #[error("node {0} takes no leads: it is drained, or stops")]
    Declined(NodeId),
    /// The other node did not take over in time, or a third one did; who leads may have changed.
    #[error("node {0} did not take over in time")]
    Timeout(NodeId),
    /// The node stops.
    #[error("node is stopping")]
    Stopped,
}
