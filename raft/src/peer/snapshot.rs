//! Snapshots on their way between peers: a header with length and checksum, then pieces.

use super::body;
use super::link::Link;
use crate::limits::{PEER_CHUNK_BYTES, PEER_CHUNK_WITHIN, SNAPSHOT_BYTES};
use crate::types::{Snapshot, SnapshotMeta, Vote};
use bytes::BytesMut;
use futures::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use tonic::Status;
use weir_proto::peer::v1::Envelope;

const HEADER_BYTES: usize = 512;
/// Bytes set aside before any piece came; what a header claims is believed as pieces arrive.
const RECEIVED_BYTES: usize = 4 * PEER_CHUNK_BYTES;

/// What comes before the pieces.
#[derive(Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) vote: Vote,
    pub(super) meta: SnapshotMeta,
    pub(super) bytes: u64,
    pub(super) crc: u32,
}

/// The envelopes that carry a snapshot.
pub(super) fn pieces(
    link: &Link,
    group: u32,
    vote: Vote,
    snapshot: Snapshot,
) -> Result<impl Stream<Item = Envelope> + Send + 'static, Status> {
    let Snapshot {
        meta,
        snapshot: state,
    } = snapshot;
    let header = Header {
        vote,
        meta,
        bytes: state.len() as u64,
        crc: crc32fast::hash(&state),
    };
    let header = body::encode(&header, HEADER_BYTES)?;
    let (sender, to) = (link.sender.clone(), link.to);
    let pieces = stream::unfold(state, |mut rest| async move {
        let piece = rest.split_to(rest.len().min(PEER_CHUNK_BYTES));
        (!piece.is_empty()).then_some((piece, rest))
    });
    let bodies = stream::iter([header]).chain(pieces).enumerate();
    Ok(bodies.map(move |(number, body)| sender.envelope(to, group, number as u64, body)))
}

/// Takes a snapshot off the wire. `first` is the envelope of the header, already checked; `check` looks
/// at each further one.
pub(super) async fn receive(
    first: &Envelope,
    mut rest: impl Stream<Item = Result<Envelope, Status>> + Unpin,
    check: impl Fn(&Envelope) -> Result<(), Status>,
) -> Result<(Vote, Snapshot), Status> {
    let header: Header = body::decode(first.version, &first.body)?;
    if header.bytes > SNAPSHOT_BYTES {
        let text = format!("a snapshot of {} bytes is too large", header.bytes);
        return Err(Status::resource_exhausted(text));
    }
    let mut state = BytesMut::with_capacity(RECEIVED_BYTES.min(header.bytes as usize));
    let mut number = 0;
    while let Some(piece) = next(&mut rest).await? {
        check(&piece)?;
        number += 1;
        if piece.sequence != number || piece.group != first.group {
            return Err(Status::data_loss("a piece of the snapshot is missing"));
        }
        if state.len() as u64 + piece.body.len() as u64 > header.bytes {
            return Err(Status::data_loss("the snapshot is longer than announced"));
        }
        state.extend_from_slice(&piece.body);
    }
    if state.len() as u64 != header.bytes || crc32fast::hash(&state) != header.crc {
        return Err(Status::data_loss("the snapshot was damaged on its way"));
    }
    Ok((
        header.vote,
        Snapshot {
            meta: header.meta,
            snapshot: state.freeze(),
        },
    ))
}

async fn next(
    pieces: &mut (impl Stream<Item = Result<Envelope, Status>> + Unpin),
) -> Result<Option<Envelope>, Status> {
    match tokio::time::timeout(PEER_CHUNK_WITHIN, pieces.next()).await {
        Ok(piece) => piece.transpose(),
        Err(_) => Err(Status::deadline_exceeded("the snapshot stopped coming")),
    }
}
