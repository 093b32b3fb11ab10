//! openraft's generics spelled once; the rest of the crate uses the names of this page.

use bytes::Bytes;
use openraft::type_config::alias;
use openraft_rt_tokio::TokioRuntime;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use weir_admission::{Outcome, Stamp};

openraft::declare_raft_types!(
    /// What a group of Weir replicates. A term has one leader, so that term and leader agree wherever
    /// both are shown.
    pub TypeConfig:
        D = Batch,
        R = Applied,
        NodeId = u64,
        Node = openraft::BasicNode,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = TokioRuntime,
);

/// A vote of a term.
pub type Vote = alias::VoteOf<TypeConfig>;
/// Position in a log with the leader that wrote it.
pub type LogId = alias::LogIdOf<TypeConfig>;
/// A log entry.
pub type Entry = alias::EntryOf<TypeConfig>;
/// What a log entry carries.
pub type Payload = alias::EntryPayloadOf<TypeConfig>;
/// A membership with the log position that set it.
pub type StoredMembership = alias::StoredMembershipOf<TypeConfig>;
/// Position and membership of a snapshot.
pub type SnapshotMeta = alias::SnapshotMetaOf<TypeConfig>;
/// A snapshot: meta and the state's bytes.
pub type Snapshot = alias::SnapshotOf<TypeConfig, Bytes>;

/// One log entry's operations with their stamp, encoded once: the same bytes go to the log and to
/// every peer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch(pub Bytes);

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({} bytes)", self.0.len())
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What applying one entry came to; empty for entries that carry no batch.
#[derive(Debug, Default)]
pub struct Applied {
    /// The entry's stamp.
    pub stamp: Stamp,
    /// One outcome per operation.
    pub outcomes: Vec<Outcome>,
}

// openraft asks that results can be sent to other nodes. Ours stay where they were asked for, so both
// directions refuse.
impl Serialize for Applied {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom(
            "results stay on the node that asked",
        ))
    }
}

impl<'de> Deserialize<'de> for Applied {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom(
            "results stay on the node that asked",
        ))
    }
}
