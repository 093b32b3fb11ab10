//! What peers send, from its bytes: a way in for the fuzz targets.

use super::envelope::{BODY_VERSION, PeerIdentity};
use super::snapshot::{Header, receive};
use super::{append, body};
use crate::NodeId;
use crate::met::Met;
use crate::types::{
    AppendAnswer, AppendRequest, Batch, Entry, LogId, Payload, SnapshotMeta, SnapshotResponse,
    StoredMembership, TransferRequest, TransferResponse, Vote, VoteRequest, VoteResponse,
};
use bytes::Bytes;
use futures::stream;
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeSet;
use std::sync::Arc;
use tonic::Status;
use weir_proto::peer::v1::Envelope;

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerBody {
    /// A question for a vote or a pre-vote.
    Vote,
    /// Its answer.
    VoteAnswer,
    /// A request of a replication session.
    Append,
    /// Its answer.
    AppendAnswer,
    /// The order to campaign.
    Transfer,
    /// Its answer.
    TransferAnswer,
    /// The question whether a node takes leads, which has no body.
    TakesLead,
    /// Its answer.
    TakesLeadAnswer,
    /// What comes before the pieces of a snapshot.
    SnapshotHeader,
    /// The answer to a snapshot.
    SnapshotAnswer,
}

impl PeerBody {
    /// Every kind.
    pub const ALL: [PeerBody; 10] = [
        PeerBody::Vote,
        PeerBody::VoteAnswer,
        PeerBody::Append,
        PeerBody::AppendAnswer,
        PeerBody::Transfer,
        PeerBody::TransferAnswer,
        PeerBody::TakesLead,
        PeerBody::TakesLeadAnswer,
        PeerBody::SnapshotHeader,
        PeerBody::SnapshotAnswer,
    ];

    /// Reads a body of this kind, and writes what was read.
    ///
    /// # Errors
    ///
    /// What the peer is told.
    pub fn rewrite(self, version: u32, bytes: &[u8]) -> Result<Bytes, Status> {
        fn again<T: Serialize + DeserializeOwned>(v: u32, bytes: &[u8]) -> Result<Bytes, Status> {
            body::encode(&body::decode::<T>(v, bytes)?, bytes.len())
        }
        match self {
            PeerBody::Vote => again::<VoteRequest>(version, bytes),
            PeerBody::VoteAnswer => again::<VoteResponse>(version, bytes),
            PeerBody::Append => {
                let request: AppendRequest = body::decode(version, bytes)?;
                append::check(&request)?;
                body::encode(&request, bytes.len())
            }
            PeerBody::AppendAnswer => again::<AppendAnswer>(version, bytes),
            PeerBody::Transfer => again::<TransferRequest>(version, bytes),
            PeerBody::TransferAnswer => again::<TransferResponse>(version, bytes),
            PeerBody::TakesLead => again::<()>(version, bytes),
            PeerBody::TakesLeadAnswer => again::<bool>(version, bytes),
            PeerBody::SnapshotHeader => again::<Header>(version, bytes),
            PeerBody::SnapshotAnswer => again::<SnapshotResponse>(version, bytes),
        }
    }
}

/// The entries of a request of a replication session, each with its index.
///
/// # Errors
///
/// What the peer is told.
pub fn appended(version: u32, bytes: &[u8]) -> Result<Vec<Entry>, Status> {
    let request: AppendRequest = body::decode(version, bytes)?;
    append::check(&request)?;
    Ok(request.entries)
}

/// Checks an envelope as node 1 of a cluster `c` of three does, the directories of which have the number 1.
///
/// # Errors
///
/// What the peer is told.
pub fn check_envelope(envelope: &Envelope) -> Result<NodeId, Status> {
    let me = PeerIdentity {
        cluster_id: Arc::from("c"),
        node: NodeId(1),
        met: Arc::new(Met::seam()),
    };
    let peers = BTreeSet::from([NodeId(2), NodeId(3)]);
    let _ = me.check_answer(envelope, NodeId(2));
    me.check(envelope, &peers)
}

/// Takes a snapshot in pieces; the first envelope holds its header. Answers the state's bytes.
///
/// # Errors
///
/// What the peer is told.
pub async fn receive_snapshot(first: &Envelope, pieces: Vec<Envelope>) -> Result<Bytes, Status> {
    let pieces = stream::iter(pieces.into_iter().map(Ok));
    let check = |piece: &Envelope| check_envelope(piece).map(|_| ());
    let (_, snapshot) = receive(first, pieces, check).await?;
    Ok(snapshot.snapshot)
}

/// A body of each kind, as nodes write them. `batch` is what the entries carry, `state` what a snapshot
/// does.
///
/// # Errors
///
/// A body cannot be written.
pub fn samples(batch: Bytes, state: &[u8]) -> Result<Vec<(PeerBody, Bytes)>, Status> {
    let id = |index| LogId::new_term_index(3, index);
    let vote = Vote::new_committed(3, 2);
    let members = || openraft::Membership::new_with_defaults(vec![[1, 2, 3].into()], []);
    let entry = |index, payload| Entry {
        log_id: id(index),
        payload,
    };
    let append = AppendRequest {
        vote,
        prev_log_id: Some(id(6)),
        entries: vec![
            entry(7, Payload::Normal(Batch(batch))),
            entry(8, Payload::Blank),
            entry(9, Payload::Membership(members())),
        ],
        leader_commit: Some(id(7)),
    };
    let header = Header {
        vote,
        meta: SnapshotMeta {
            last_log_id: Some(id(9)),
            last_membership: StoredMembership::new(Some(id(1)), members()),
        },
        bytes: state.len() as u64,
        crc: crc32fast::hash(state),
    };
    Ok(vec![
        (
            PeerBody::Vote,
            body::encode(&VoteRequest::new(vote, Some(id(9))), 0)?,
        ),
        (
            PeerBody::VoteAnswer,
            body::encode(&VoteResponse::new(vote, Some(id(9)), true), 0)?,
        ),
        (PeerBody::Append, body::encode(&append, 0)?),
        (
            PeerBody::AppendAnswer,
            body::encode::<AppendAnswer>(&Ok(Some(id(9))), 0)?,
        ),
        (
            PeerBody::Transfer,
            body::encode(&TransferRequest::new(vote, 2, Some(id(9))), 0)?,
        ),
        (PeerBody::TakesLeadAnswer, body::encode(&true, 0)?),
        (PeerBody::SnapshotHeader, body::encode(&header, 0)?),
        (
            PeerBody::SnapshotAnswer,
            body::encode(&SnapshotResponse::new(vote), 0)?,
        ),
    ])
}

/// The version of the bodies that [`samples`] writes.
pub const VERSION: u32 = BODY_VERSION;
