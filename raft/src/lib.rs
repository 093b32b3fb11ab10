//! openraft made ours: groups that replicate [`weir_admission::State`], one durable log for all of
//! them, one stream per peer, and cluster time.
//!
//! What a caller sees is this page; openraft's types stop inside the crate.

use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_admission::{Operation, Outcome, ShardId, Stamp};

/// Number of a node, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// Who this node is and whom it shares its groups with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of log, snapshots and identity; belongs to one node of one cluster.
    pub data_dir: PathBuf,
    /// The cluster's name; every node's must be equal. Its first start derives the cluster id from it.
    pub cluster: String,
    /// This node.
    pub node: NodeId,
    /// All members with the address (host:port) of their peer port, this node included.
    pub members: BTreeMap<NodeId, String>,
    /// Number of shards, fixed when the cluster is founded.
    pub shards: u32,
    /// Timing of elections.
    pub timing: Timing,
}

/// Timing of elections, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How often a leader shows it is alive.
    pub heartbeat_ms: u64,
    /// A follower campaigns after hearing nothing for between this ...
    pub election_min_ms: u64,
    /// ... and this; also the leader's lease.
    pub election_max_ms: u64,
}

/// What one committed batch came to.
#[derive(Debug)]
pub struct Committed {
    /// Index of its log entry: with the offset, the name of each grant in it.
    pub index: u64,
    /// The entry's stamp.
    pub stamp: Stamp,
    /// One outcome per operation.
    pub outcomes: Vec<Outcome>,
}

/// Why a batch has no outcome.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProposeError {
    /// Another node leads, or none that we know. Nothing happened.
    #[error("not the leader of this shard")]
    NotLeader {
        /// Who leads, as far as we know.
        leader: Option<NodeId>,
    },
    /// We led, but lost touch with the quorum before the batch entered the log. Nothing happened.
    #[error("no quorum")]
    NoQuorum,
    /// The batch entered the log, but its outcome is not known here.
    #[error("outcome unknown")]
    Unknown,
    /// The node stops. Nothing happened.
    #[error("node is stopping")]
    Stopped,
}

/// The shard and who answers for it.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// The shard.
    pub shard: ShardId,
    /// What this node is in the group.
    pub role: Role,
    /// Who leads, as far as this node knows.
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
