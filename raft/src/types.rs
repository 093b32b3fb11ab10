//! openraft's generics spelled once; the rest of the crate uses the names of this page.

use crate::machine::Machine;
use crate::reply::Reply;
use bytes::Bytes;
use openraft::type_config::alias;
use openraft::vote::RaftLeaderId;
use openraft::{OptionalSend, RaftTypeConfig};
use openraft_rt_tokio::TokioRuntime;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use weir_admission::{Outcome, Stamp};

/// What a group of Weir replicates.
///
/// A term has at most one leader (`leader_id_std`), so that a term alone says which of two leaderships
/// is the newer one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeConfig;

impl RaftTypeConfig for TypeConfig {
    type D = Batch;
    type R = Applied;
    type NodeId = u64;
    type Node = openraft::BasicNode;
    type Term = u64;
    type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Batch, u64, openraft::BasicNode>;
    type Entry = openraft::Entry<<Self::LeaderId as RaftLeaderId>::Committed, Self::Payload>;
    type AsyncRuntime = TokioRuntime;
    type Responder<T>
        = Reply<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

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

pub(crate) type Raft = openraft::Raft<TypeConfig, Machine>;
pub(crate) type WriteResult = openraft::raft::ClientWriteResult<TypeConfig>;
pub(crate) type WriteError = openraft::errors::ClientWriteError<TypeConfig>;
pub(crate) type ForwardToLeader = openraft::errors::ForwardToLeader<TypeConfig>;
pub(crate) type ReadError = openraft::errors::LinearizableReadError<TypeConfig>;
pub(crate) type RaftError<E> = openraft::errors::RaftError<TypeConfig, E>;
pub(crate) type CommittedLeaderId = alias::CommittedLeaderIdOf<TypeConfig>;
pub(crate) type Metrics = openraft::RaftMetrics<TypeConfig>;
pub(crate) type ServerMetrics = openraft::metrics::RaftServerMetrics<TypeConfig>;

pub(crate) type AppendRequest = openraft::raft::AppendEntriesRequest<TypeConfig>;
pub(crate) type AppendAnswer = openraft::raft::StreamAppendResult<TypeConfig>;
pub(crate) type VoteRequest = openraft::raft::VoteRequest<TypeConfig>;
pub(crate) type VoteResponse = openraft::raft::VoteResponse<TypeConfig>;
pub(crate) type TransferRequest = openraft::raft::TransferLeaderRequest<TypeConfig>;
pub(crate) type TransferResponse = openraft::raft::TransferLeaderResponse<TypeConfig>;
pub(crate) type SnapshotResponse = openraft::raft::SnapshotResponse<TypeConfig>;
pub(crate) type RpcError = openraft::errors::RPCError<TypeConfig>;
pub(crate) type StreamingError = openraft::errors::StreamingError<TypeConfig>;

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
