//! Who speaks to whom about which group.

use crate::met::{Met, Unknown};
use crate::{Directory, NodeId};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use tonic::Status;
use weir_proto::peer::v1::Envelope;

/// Version of the bodies. They are openraft's types by position, so it goes up with each change of
/// theirs.
pub(super) const BODY_VERSION: u32 = 1;

/// What every envelope of a node says of the node.
#[derive(Clone)]
pub(crate) struct PeerIdentity {
    pub(crate) cluster_id: Arc<str>,
    pub(crate) node: NodeId,
    pub(crate) met: Arc<Met>,
}

impl PeerIdentity {
    /// An envelope to a peer.
    pub(super) fn envelope(&self, to: NodeId, group: u32, sequence: u64, body: Bytes) -> Envelope {
        Envelope {
            cluster_id: self.cluster_id.to_string(),
            from: self.node.0,
            to: to.0,
            group,
            version: BODY_VERSION,
            sequence,
            body,
            directory: self.met.own().number(),
        }
    }

    /// Refuses what is not for this node of this cluster, or not from one of `peers`.
    pub(super) fn check(
        &self,
        envelope: &Envelope,
        peers: &BTreeSet<NodeId>,
    ) -> Result<NodeId, Status> {
        if *envelope.cluster_id != *self.cluster_id {
            let text = format!(
                "this is cluster {}, not {}",
                self.cluster_id, envelope.cluster_id
            );
            return Err(Status::failed_precondition(text));
        }
        if envelope.to != self.node.0 {
            let text = format!("this is node {}, not {}", self.node, envelope.to);
            return Err(Status::failed_precondition(text));
        }
        let from = NodeId(envelope.from);
        if !peers.contains(&from) {
            let text = format!("node {from} is no peer of this node");
            return Err(Status::permission_denied(text));
        }
        self.recognise(from, envelope)?;
        Ok(from)
    }

    /// Refuses an answer that is not from `peer` to this node. Its code is none of those with which a peer
    /// refuses: here this node is the one that does.
    pub(super) fn check_answer(&self, envelope: &Envelope, peer: NodeId) -> Result<(), Status> {
        let ours = *envelope.cluster_id == *self.cluster_id
            && envelope.from == peer.0
            && envelope.to == self.node.0;
        if !ours {
            return Err(Status::aborted("answer of another node"));
        }
        self.recognise(peer, envelope)
            .map_err(|status| Status::aborted(status.message()))
    }

    /// Refuses a peer that comes with another data directory than before.
    fn recognise(&self, peer: NodeId, envelope: &Envelope) -> Result<(), Status> {
        let directory = Directory::new(envelope.directory)
            .ok_or_else(|| Status::failed_precondition("the envelope names no data directory"))?;
        self.met
            .recognise(peer, directory)
            .map_err(|unknown| match unknown {
                Unknown::Replaced { .. } => Status::failed_precondition(unknown.to_string()),
                Unknown::NotWritten { .. } => Status::unavailable(unknown.to_string()),
            })
    }
}
