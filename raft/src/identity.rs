//! Which node of which cluster a data directory belongs to.

use crate::NodeId;

/// Which node of which cluster this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's id, 32 hex digits.
    pub cluster_id: String,
    /// This node.
    pub node: NodeId,
    /// Number of shards the cluster was founded with.
    pub shards: u32,
}
