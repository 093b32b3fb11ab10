//! The connections to the peers.

use super::envelope::PeerIdentity;
use crate::limits::{
    PEER_CONNECT_WITHIN, PEER_CONNECTION_WINDOW_BYTES, PEER_KEEP_ALIVE_EVERY,
    PEER_KEEP_ALIVE_WITHIN, PEER_MESSAGE_BYTES, PEER_STREAM_WINDOW_BYTES,
};
use crate::{Connector, NodeId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use weir_proto::peer::v1::peer_service_client::PeerServiceClient;

/// The way to one peer: one connection, made again by the next request whenever it was lost.
#[derive(Clone)]
pub(crate) struct Link {
    pub(super) to: NodeId,
    pub(super) sender: PeerIdentity,
    channel: Channel,
    /// The peer said that it does not let this node in, and that was said.
    refused: Arc<AtomicBool>,
}

impl Link {
    /// Says why a peer does not let this node in, once until it does.
    pub(super) fn heard<T>(&self, answer: &Result<T, Status>) {
        let refused = answer
            .as_ref()
            .err()
            .filter(|status| status.code() == Code::FailedPrecondition);
        if self.refused.swap(refused.is_some(), Ordering::Relaxed) {
            return;
        }
        if let Some(status) = refused {
            tracing::error!(peer = %self.to, "a peer refuses this node: {}", status.message());
        }
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
}

impl Links {
    /// Prepares the ways to the peers; nothing is dialled before the first request.
    pub(crate) fn new(
        sender: &PeerIdentity,
        peers: &BTreeMap<NodeId, String>,
        connector: &Connector,
    ) -> Result<Self, tonic::transport::Error> {
        let mut by_node = BTreeMap::new();
        for (&to, address) in peers {
            let channel = connector(endpoint(address)?);
            by_node.insert(
                to,
                Link {
                    to,
                    sender: sender.clone(),
                    channel,
                    refused: Arc::default(),
                },
            );
        }
        Ok(Self { by_node })
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
