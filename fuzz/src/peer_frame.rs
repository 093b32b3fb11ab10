//! What nodes send each other: envelopes, every kind of body, and snapshots in pieces.
//!
//! Reading is total and takes memory in proportion. What was read is written as bytes that read back the
//! same; entries that a peer may send can be stored, and read again from the log.

use crate::memory::{self, Memory};
use crate::{kind, stored};
use bytes::Bytes;
use prost::Message;
use weir_proto::peer::v1::Envelope;
use weir_raft::limits::PEER_MESSAGE_BYTES;
use weir_raft::seam::{self, PeerBody, VERSION};
use weir_raft::types::{Entry, Payload};

/// What an input is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A body of one kind.
    Body(PeerBody),
    /// An envelope, whose sequence says of which kind its body is.
    Envelope,
    /// A snapshot: the length of its header in a byte, the header, and pieces with their lengths in front.
    Snapshot,
}

/// Every kind, each at the byte that stands for it.
pub const KINDS: [Kind; 12] = [
    Kind::Body(PeerBody::Vote),
    Kind::Body(PeerBody::VoteAnswer),
    Kind::Body(PeerBody::Append),
    Kind::Body(PeerBody::AppendAnswer),
    Kind::Body(PeerBody::Transfer),
    Kind::Body(PeerBody::TransferAnswer),
    Kind::Body(PeerBody::TakesLead),
    Kind::Body(PeerBody::TakesLeadAnswer),
    Kind::Body(PeerBody::SnapshotHeader),
    Kind::Body(PeerBody::SnapshotAnswer),
    Kind::Envelope,
    Kind::Snapshot,
];

/// Memory for a body: an entry or a member takes a few bytes on the wire, and the decoder sets up to four of
/// the longest messages aside for bytes that are only claimed.
const MEMORY: Memory = Memory {
    each: 256,
    base: memory::SERDE_BASE + 4 * PEER_MESSAGE_BYTES,
};
/// Memory for a snapshot, which is held twice while it grows, and for its header.
const SNAPSHOT_MEMORY: Memory = Memory {
    each: 32,
    base: MEMORY.base,
};

/// Takes an input.
///
/// # Panics
/// A rule of the module does not hold.
pub fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = kind(&KINDS, bytes) else {
        return;
    };
    match kind {
        Kind::Body(kind) => body(kind, VERSION, bytes),
        Kind::Envelope => envelope(bytes),
        Kind::Snapshot => snapshot(bytes),
    }
}

fn body(kind: PeerBody, version: u32, bytes: &[u8]) {
    let read = MEMORY.bounds(bytes.len(), || kind.rewrite(version, bytes));
    let written = match read {
        Ok(written) => written,
        Err(status) => {
            assert!(!status.message().is_empty(), "a refusal says why");
            return;
        }
    };
    let again = kind.rewrite(version, &written);
    assert_eq!(again.ok(), Some(written), "what was written reads back");
    if kind == PeerBody::Append
        && let Ok(entries) = seam::appended(version, bytes)
    {
        entries.iter().for_each(entry);
    }
}

/// An entry from a peer can be stored, and its batch is read as any other.
fn entry(entry: &Entry) {
    // A membership above the log's bound is refused, which ends the group, not the process.
    if let Some(record) = seam::record_of(entry) {
        let again = seam::rewrite_record(record.clone(), entry.log_id.index);
        assert_eq!(again, Some(record), "what was stored reads back");
    }
    match &entry.payload {
        Payload::Normal(batch) => {
            stored::batch(&batch.0);
        }
        Payload::Blank | Payload::Membership(_) => {}
    }
}

fn envelope(bytes: &[u8]) {
    let Ok(envelope) = Envelope::decode(bytes) else {
        return;
    };
    let again = Envelope::decode(&envelope.encode_to_vec()[..]);
    assert_eq!(again.as_ref(), Ok(&envelope));
    if seam::check_envelope(&envelope).is_ok() {
        assert_eq!((envelope.cluster_id.as_str(), envelope.to), ("c", 1));
        assert_eq!(envelope.directory, 1);
    }
    let kind = u8::try_from(envelope.sequence).map(|kind| [kind]);
    if let Ok(byte) = kind
        && let Some((kind, _)) = self::kind(&PeerBody::ALL, &byte)
    {
        body(kind, envelope.version, &envelope.body);
    }
}

/// The envelopes that carry a snapshot, in the form of [`Kind::Snapshot`].
fn pieces(mut bytes: &[u8]) -> Vec<Envelope> {
    let mut envelopes = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (body, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        envelopes.push(Envelope {
            cluster_id: "c".into(),
            from: 2,
            to: 1,
            group: 0,
            version: VERSION,
            sequence: envelopes.len() as u64,
            body: Bytes::copy_from_slice(body),
            directory: 1,
        });
        bytes = rest;
    }
    envelopes
}

fn snapshot(bytes: &[u8]) {
    let mut envelopes = pieces(bytes);
    if envelopes.is_empty() {
        return;
    }
    let first = envelopes.remove(0);
    let sent: Vec<u8> = envelopes
        .iter()
        .flat_map(|piece| piece.body.to_vec())
        .collect();
    let received = SNAPSHOT_MEMORY.bounds(bytes.len(), || {
        wait_for(seam::receive_snapshot(&first, envelopes))
    });
    if let Ok(received) = received {
        assert_eq!(received, sent, "what is taken is what was sent");
    }
}

/// Waits as a node does, on a runtime with timers.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}
