//! One group's way to one peer, as openraft wants it.

use super::append;
use super::body;
use super::link::{Link, Links};
use super::snapshot;
use crate::NodeId;
use crate::limits::{PEER_RETRY_AFTER, PEER_SNAPSHOT_WITHIN};
use crate::types::{
    AppendAnswer, AppendRequest, RpcError, Snapshot, SnapshotResponse, StreamingError,
    TransferRequest, TransferResponse, TypeConfig, Vote, VoteRequest, VoteResponse,
};
use bytes::Bytes;
use futures::Stream;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{ReplicationClosed, Unreachable};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
};
use openraft::{BasicNode, OptionalSend, RaftNetworkFactory};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tonic::{Response, Status};
use weir_proto::peer::v1::Envelope;

/// Bytes set aside for a vote or an order before it is encoded.
const SMALL_BYTES: usize = 64;

/// Below which index the log is about to be cut, although a peer may not have it yet. Such a peer's
/// session ends, whereupon openraft purges and sends a snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut {
    below: Arc<AtomicU64>,
}

impl Cut {
    /// Ends sessions with peers that have not stored everything up to `index`; 0 ends none.
    pub(crate) fn set(&self, index: u64) {
        self.below.store(index, Ordering::Relaxed);
    }

    pub(super) fn reaches(&self, stored: u64) -> bool {
        stored < self.below.load(Ordering::Relaxed)
    }
}

/// Makes the ways of one group to its peers.
pub(crate) struct PeerFactory {
    links: Links,
    group: u32,
    answer_within: Duration,
    cut: Cut,
}

impl PeerFactory {
    /// `answer_within` bounds how long a peer may owe the answer to an append.
    pub(crate) fn new(links: Links, group: u32, answer_within: Duration, cut: Cut) -> Self {
        Self {
            links,
            group,
            answer_within,
            cut,
        }
    }

    fn client(&self, target: u64, cut: Cut) -> PeerClient {
        let link = self.links.to(NodeId(target)).cloned();
        PeerClient {
            link,
            group: self.group,
            answer_within: self.answer_within,
            cut,
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for PeerFactory {
    type Network = PeerClient;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> PeerClient {
        self.client(target, self.cut.clone())
    }

    async fn new_heartbeat_client(&mut self, target: u64, _node: &BasicNode) -> PeerClient {
        // A peer that is cut off from the log still hears that there is a leader.
        self.client(target, Cut::default())
    }
}

/// One group's way to one peer.
pub(crate) struct PeerClient {
    /// None if the peer is a member that the configuration does not name.
    link: Option<Link>,
    group: u32,
    answer_within: Duration,
    cut: Cut,
}

/// Asks peers about one group, outside of its core.
pub(crate) struct PeerAsk {
    links: Links,
    group: u32,
}

impl PeerAsk {
    pub(crate) fn new(links: Links, group: u32) -> Self {
        Self { links, group }
    }

    /// Whether a peer would take the group's lead; `None` if it does not say so in time.
    pub(crate) async fn takes_lead(&self, peer: NodeId, in_time: Duration) -> Option<bool> {
        let client = PeerClient {
            link: self.links.to(peer).cloned(),
            group: self.group,
            answer_within: in_time,
            cut: Cut::default(),
        };
        let send = |link: Link, envelope| async move { link.client().takes_lead(envelope).await };
        client.call(&(), in_time, send).await.ok()
    }
}

/// Turns a failed call into an error after which openraft waits before it tries again.
pub(super) fn unreachable(status: &Status) -> RpcError {
    RpcError::Unreachable(Unreachable::new(status))
}

/// Runs a call under a deadline.
pub(super) async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(deadline, call).await {
        Ok(result) => result,
        Err(_) => Err(Status::deadline_exceeded("no answer from the peer in time")),
    }
}

impl PeerClient {
    fn link(&self) -> Result<&Link, Status> {
        self.link
            .as_ref()
            .ok_or_else(|| Status::not_found("the configuration has no such peer"))
    }

    async fn call<Q, A, F>(
        &self,
        question: &Q,
        deadline: Duration,
        send: impl FnOnce(Link, Envelope) -> F,
    ) -> Result<A, RpcError>
    where
        Q: Serialize,
        A: DeserializeOwned,
        F: Future<Output = Result<Response<Envelope>, Status>>,
    {
        let exchange = async {
            let link = self.link()?;
            let body = body::encode(question, SMALL_BYTES)?;
            let envelope = link.sender.envelope(link.to, self.group, 0, body);
            let answer = within(deadline, send(link.clone(), envelope)).await;
            link.heard(&answer);
            let answer = answer?.into_inner();
            link.sender.check_answer(&answer, link.to)?;
            body::decode(answer.version, &answer.body)
        };
        exchange
            .await
            .map_err(|status: Status| unreachable(&status))
    }
}

impl NetStreamAppend<TypeConfig> for PeerClient {
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Result<AppendAnswer, RpcError>>, RpcError>>
    where
        S: Stream<Item = AppendRequest> + OptionalSend + Unpin + 'static,
    {
        let session = append::Session {
            group: self.group,
            open_within: option.soft_ttl(),
            answer_within: self.answer_within,
            cut: self.cut.clone(),
        };
        Box::pin(async move {
            let link = self.link().map_err(|status| unreachable(&status))?;
            append::run(link.clone(), session, input).await
        })
    }
}

impl NetVote<TypeConfig> for PeerClient {
    async fn vote(
        &mut self,
        question: VoteRequest,
        option: RPCOption,
    ) -> Result<VoteResponse, RpcError> {
        let send = |link: Link, envelope| async move { link.client().vote(envelope).await };
        self.call(&question, option.soft_ttl(), send).await
    }

    async fn pre_vote(
        &mut self,
        question: VoteRequest,
        option: RPCOption,
    ) -> Result<VoteResponse, RpcError> {
        let send = |link: Link, envelope| async move { link.client().pre_vote(envelope).await };
        self.call(&question, option.soft_ttl(), send).await
    }
}

impl NetTransferLeader<TypeConfig> for PeerClient {
    async fn transfer_leader(
        &mut self,
        order: TransferRequest,
        option: RPCOption,
    ) -> Result<TransferResponse, RpcError> {
        let send =
            |link: Link, envelope| async move { link.client().transfer_leader(envelope).await };
        self.call(&order, option.soft_ttl(), send).await
    }
}

impl NetSnapshot<TypeConfig> for PeerClient {
    type SnapshotData = Bytes;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse, StreamingError> {
        let sending = async {
            let link = self.link()?;
            let pieces = snapshot::pieces(link, self.group, vote, snapshot)?;
            let mut client = link.client();
            let answer = within(PEER_SNAPSHOT_WITHIN, client.snapshot(pieces))
                .await?
                .into_inner();
            link.sender.check_answer(&answer, link.to)?;
            body::decode(answer.version, &answer.body)
        };
        tokio::select! {
            sent = sending => sent.map_err(|status: Status| {
                StreamingError::Unreachable(Unreachable::new(&status))
            }),
            closed = cancel => Err(StreamingError::Closed(closed)),
        }
    }
}

impl NetBackoff<TypeConfig> for PeerClient {
    fn backoff(&self) -> Option<Backoff> {
        Some(Backoff::new(std::iter::repeat(PEER_RETRY_AFTER)))
    }
}
