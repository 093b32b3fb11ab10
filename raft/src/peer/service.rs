//! What a node answers its peers.

use super::append;
use super::body;
use super::envelope::PeerIdentity;
use super::snapshot;
use crate::NodeId;
use crate::duty::Duty;
use crate::limits::{PEER_MESSAGE_BYTES, PEER_SNAPSHOTS_AT_ONCE};
use crate::types::{AppendRequest, Raft, TransferRequest};
use futures::{Stream, StreamExt, stream};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};
use weir_proto::peer::v1::Envelope;
use weir_proto::peer::v1::peer_service_server::{PeerService, PeerServiceServer};

/// Bytes set aside for an answer before it is encoded.
const ANSWER_BYTES: usize = 64;

/// A group as its peers reach it.
#[derive(Clone)]
pub(crate) struct PeerGroup {
    pub(crate) raft: Raft,
    /// Set when a leader handed the lead to this node.
    pub(crate) given: Arc<AtomicBool>,
}

/// Answers peers for all groups of this node.
#[derive(Clone)]
pub(crate) struct PeerHandler {
    inner: Arc<Inner>,
}

struct Inner {
    me: PeerIdentity,
    peers: BTreeSet<NodeId>,
    groups: BTreeMap<u32, PeerGroup>,
    duty: Duty,
    snapshots: Semaphore,
}

type Answers = Pin<Box<dyn Stream<Item = Result<Envelope, Status>> + Send>>;

impl PeerHandler {
    pub(crate) fn new(
        me: PeerIdentity,
        peers: BTreeSet<NodeId>,
        groups: BTreeMap<u32, PeerGroup>,
        duty: Duty,
    ) -> Self {
        let snapshots = Semaphore::new(PEER_SNAPSHOTS_AT_ONCE);
        Self {
            inner: Arc::new(Inner {
                me,
                peers,
                groups,
                duty,
                snapshots,
            }),
        }
    }

    pub(crate) fn into_service(self) -> PeerServiceServer<impl PeerService> {
        PeerServiceServer::new(self)
            .max_decoding_message_size(PEER_MESSAGE_BYTES)
            .max_encoding_message_size(PEER_MESSAGE_BYTES)
    }

    fn group(&self, envelope: &Envelope) -> Result<(NodeId, &PeerGroup), Status> {
        let from = self.inner.me.check(envelope, &self.inner.peers)?;
        let group = self.inner.groups.get(&envelope.group);
        let group = group.ok_or_else(|| {
            Status::not_found(format!("group {} is not on this node", envelope.group))
        })?;
        Ok((from, group))
    }

    fn answer<T: serde::Serialize>(
        &self,
        to: NodeId,
        group: u32,
        value: &T,
    ) -> Result<Response<Envelope>, Status> {
        let body = body::encode(value, ANSWER_BYTES)?;
        Ok(Response::new(self.inner.me.envelope(to, group, 0, body)))
    }
}

/// The group's core is dead or stopped; the process ends soon.
fn stopped(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("group stopped: {error}"))
}

#[tonic::async_trait]
impl PeerService for PeerHandler {
    async fn vote(&self, request: Request<Envelope>) -> Result<Response<Envelope>, Status> {
        let envelope = request.into_inner();
        let (from, group) = self.group(&envelope)?;
        let question = body::decode(envelope.version, &envelope.body)?;
        let answer = group.raft.vote(question).await.map_err(stopped)?;
        self.answer(from, envelope.group, &answer)
    }

    async fn pre_vote(&self, request: Request<Envelope>) -> Result<Response<Envelope>, Status> {
        let envelope = request.into_inner();
        let (from, group) = self.group(&envelope)?;
        let question = body::decode(envelope.version, &envelope.body)?;
        let answer = group.raft.pre_vote(question).await.map_err(stopped)?;
        self.answer(from, envelope.group, &answer)
    }

    async fn takes_lead(&self, request: Request<Envelope>) -> Result<Response<Envelope>, Status> {
        let envelope = request.into_inner();
        let (from, _) = self.group(&envelope)?;
        let () = body::decode(envelope.version, &envelope.body)?;
        self.answer(from, envelope.group, &self.inner.duty.takes_leads())
    }

    async fn transfer_leader(
        &self,
        request: Request<Envelope>,
    ) -> Result<Response<Envelope>, Status> {
        let envelope = request.into_inner();
        let (from, group) = self.group(&envelope)?;
        let order: TransferRequest = body::decode(envelope.version, &envelope.body)?;
        if *order.to_node_id() == self.inner.me.node.0 {
            if !self.inner.duty.takes_leads() {
                return Err(Status::unavailable("this node takes no leads"));
            }
            group.given.store(true, Ordering::Relaxed);
        }
        let answer = group
            .raft
            .handle_transfer_leader(order)
            .await
            .map_err(stopped)?;
        self.answer(from, envelope.group, &answer)
    }

    type AppendStream = Answers;

    async fn append(
        &self,
        request: Request<Streaming<Envelope>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let session = append_session(self.clone(), request.into_inner());
        let answers = stream::once(session).map(|session| match session {
            Ok(answers) => answers,
            Err(status) => stream::iter([Err(status)]).boxed(),
        });
        Ok(Response::new(answers.flatten().boxed()))
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<Envelope>>,
    ) -> Result<Response<Envelope>, Status> {
        let mut pieces = request.into_inner();
        let first = first(&mut pieces).await?;
        let (from, group) = self.group(&first)?;
        let _room = self.inner.snapshots.acquire().await.map_err(stopped)?;
        let check = |piece: &Envelope| self.group(piece).map(|_| ());
        let (vote, snapshot) = snapshot::receive(&first, pieces, check).await?;
        let answer = group
            .raft
            .install_full_snapshot(vote, snapshot)
            .await
            .map_err(stopped)?;
        self.answer(from, first.group, &answer)
    }
}

async fn first(requests: &mut Streaming<Envelope>) -> Result<Envelope, Status> {
    requests
        .message()
        .await?
        .ok_or_else(|| Status::invalid_argument("nothing was sent"))
}

/// Runs one replication session. The first envelope says for which group.
async fn append_session(
    handler: PeerHandler,
    mut requests: Streaming<Envelope>,
) -> Result<Answers, Status> {
    let first = first(&mut requests).await?;
    let (from, group) = handler.group(&first)?;
    let (raft, id) = (group.raft.clone(), first.group);
    let refused = Refused::default();
    let appends = appends(handler.clone(), id, first, requests, refused.clone());
    let me = handler.inner.me.clone();
    let answers = raft
        .stream_append(appends)
        .enumerate()
        .map(move |(number, answer)| {
            let answer = answer.map_err(stopped)?;
            let body = body::encode(&answer, ANSWER_BYTES)?;
            Ok(me.envelope(from, id, number as u64 + 1, body))
        });
    let end = stream::iter([()]).filter_map(move |()| std::future::ready(refused.take().map(Err)));
    Ok(answers.chain(end).boxed())
}

/// The requests of a session, up to the first that is refused.
fn appends(
    handler: PeerHandler,
    group: u32,
    first: Envelope,
    rest: Streaming<Envelope>,
    refused: Refused,
) -> impl Stream<Item = AppendRequest> + Send + 'static {
    stream::iter([Ok(first)])
        .chain(rest)
        .enumerate()
        .map(move |(number, envelope)| {
            let envelope = envelope?;
            handler.group(&envelope)?;
            if envelope.group != group || envelope.sequence != number as u64 + 1 {
                return Err(Status::invalid_argument("out of order in its session"));
            }
            let request = body::decode(envelope.version, &envelope.body)?;
            append::check(&request)?;
            Ok(request)
        })
        .scan((), move |(), request| {
            let request = match request {
                Ok(request) => Some(request),
                Err(status) => {
                    refused.set(status);
                    None
                }
            };
            std::future::ready(request)
        })
}

/// Why a session ended before its requests did.
#[derive(Clone, Default)]
struct Refused {
    status: Arc<Mutex<Option<Status>>>,
}

impl Refused {
    fn set(&self, status: Status) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    }

    fn take(&self) -> Option<Status> {
        self.status
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}
