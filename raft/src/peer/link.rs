//! The connections to the peers.

use super::envelope::PeerIdentity;
use crate::limits::{
    PEER_CONNECT_WITHIN, PEER_CONNECTION_WINDOW_BYTES, PEER_KEEP_ALIVE_EVERY,
    PEER_KEEP_ALIVE_WITHIN, PEER_MESSAGE_BYTES, PEER_STREAM_WINDOW_BYTES,
};
use crate::{Connector, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use weir_proto::peer::v1::peer_service_client::PeerServiceClient;

/// The way to one peer: one connection, made again by the next request whenever it was lost.
#[derive(Clone)]
pub(crate) struct Link {
    pub(super) to: NodeId,
    pub(super) sender: PeerIdentity,
    channel: Channel,
    /// How the peer answered last, see [`Manner`].
    manner: Arc<AtomicU8>,
    /// Peers that refuse this node, of all links.
    refusing: Arc<watch::Sender<BTreeSet<NodeId>>>,
}

/// How a peer answers. Every change is said once, not every failed call of every group.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Manner {
    Answers = 0,
    /// It is not there.
    Silent = 1,
    /// It does not let this node in.
    Refuses = 2,
}

impl Link {
    /// Notes how the peer answered.
    pub(super) fn heard<T>(&self, answer: &Result<T, Status>) {
        let manner = match answer.as_ref().map_err(Status::code) {
            Ok(_) => Manner::Answers,
            Err(Code::FailedPrecondition) => Manner::Refuses,
            Err(Code::Unavailable | Code::DeadlineExceeded | Code::Unknown) => Manner::Silent,
            // Whatever else it says, it is there.
            Err(_) => return,
        };
        let last = self.manner.swap(manner as u8, Ordering::Relaxed);
        if last == manner as u8 {
            return;
        }
        let why = answer.as_ref().err().map_or("", Status::message);
        match manner {
            Manner::Answers => tracing::info!(peer = %self.to, "a peer answers again"),
            Manner::Silent => tracing::warn!(peer = %self.to, why, "a peer does not answer"),
            Manner::Refuses => tracing::error!(peer = %self.to, "a peer refuses this node: {why}"),
        }
        self.refusing.send_if_modified(|refusing| {
            // As it is by now: another call may have heard something else meanwhile.
            if self.refuses() {
                refusing.insert(self.to)
            } else {
                refusing.remove(&self.to)
            }
        });
    }

    fn refuses(&self) -> bool {
        self.manner.load(Ordering::Relaxed) == Manner::Refuses as u8
    }

    pub(super) fn client(&self) -> PeerServiceClient<Channel> {
        PeerServiceClient::new(self.channel.clone())
            .max_decoding_message_size(PEER_MESSAGE_BYTES)
            .max_encoding_message_size(PEER_MESSAGE_BYTES)
    }
}

/// The ways to all peers.
#[derive(Clone)]
pub(crate) struct Links {
    by_node: BTreeMap<NodeId, Link>,
    refusing: Arc<watch::Sender<BTreeSet<NodeId>>>,
}

impl Links {
    /// Prepares the ways to the peers; nothing is dialled before the first request.
    pub(crate) fn new(
        sender: &PeerIdentity,
        peers: &BTreeMap<NodeId, String>,
        connector: &Connector,
    ) -> Result<Self, tonic::transport::Error> {
        let mut by_node = BTreeMap::new();
        let refusing = Arc::new(watch::Sender::default());
        for (&to, address) in peers {
            let channel = connector(endpoint(address)?);
            by_node.insert(
                to,
                Link {
                    to,
                    sender: sender.clone(),
                    channel,
                    manner: Arc::default(),
                    refusing: Arc::clone(&refusing),
                },
            );
        }
        Ok(Self { by_node, refusing })
    }

    /// Peers that do not let this node in, as it changes.
    pub(crate) fn refusing(&self) -> watch::Receiver<BTreeSet<NodeId>> {
        self.refusing.subscribe()
    }

    /// True if this node is alone.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    /// Whether all peers have addresses that can be dialled.
    pub(crate) fn check(peers: &BTreeMap<NodeId, String>) -> Result<(), tonic::transport::Error> {
        peers
            .values()
            .try_for_each(|address| endpoint(address).map(drop))
    }

    pub(super) fn to(&self, node: NodeId) -> Option<&Link> {
        self.by_node.get(&node)
    }
}

fn endpoint(address: &str) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(PEER_CONNECT_WITHIN)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PEER_KEEP_ALIVE_EVERY)
        .keep_alive_timeout(PEER_KEEP_ALIVE_WITHIN)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(PEER_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(PEER_CONNECTION_WINDOW_BYTES))
}
