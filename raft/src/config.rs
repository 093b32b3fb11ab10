//! What a node is told when it starts.

use crate::limits;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Number of a node, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

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
    /// How much log is kept.
    pub retention: Retention,
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

impl Default for Timing {
    /// A lost leader is replaced after one lease and one election timeout, 1.2 to 1.6 s.
    fn default() -> Self {
        Self {
            heartbeat_ms: 100,
            election_min_ms: 400,
            election_max_ms: 800,
        }
    }
}

/// How much log a group keeps before and behind its snapshots. Fewer and smaller ones make restarts
/// and catching up cheaper; each snapshot costs an encode of the whole state and two syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// A snapshot is taken after this many entries ...
    pub snapshot_entries: u64,
    /// ... or after this many bytes of batches, of all groups together; each group has its share, or as many as
    /// its last snapshot had if that was larger.
    pub snapshot_bytes: u64,
    /// Entries kept behind a snapshot, for peers that were away for a moment. At least
    /// [`limits::TAIL_ENTRIES_MIN`], so that purging stays far behind applying.
    pub tail_entries: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            snapshot_entries: limits::SNAPSHOT_ENTRIES,
            snapshot_bytes: limits::SNAPSHOT_ALL_BYTES,
            tail_entries: limits::TAIL_ENTRIES,
        }
    }
}
