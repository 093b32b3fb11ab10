//! Bodies of envelopes: openraft's messages in bincode.

use super::envelope::BODY_VERSION;
use crate::limits::PEER_MESSAGE_BYTES;
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};
use tonic::Status;

/// The decoder counts what it sets aside; bytes beyond a message's length can only come from a lie.
const CONFIG: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<{ 4 * PEER_MESSAGE_BYTES }>,
> = bincode::config::standard().with_limit::<{ 4 * PEER_MESSAGE_BYTES }>();

/// Encodes a message of about `capacity` bytes.
pub(super) fn encode<T: Serialize>(value: &T, capacity: usize) -> Result<Bytes, Status> {
    let mut writer = BytesMut::with_capacity(capacity).writer();
    bincode::serde::encode_into_std_write(value, &mut writer, CONFIG)
        .map_err(|error| Status::internal(format!("message cannot be encoded: {error}")))?;
    Ok(writer.into_inner().freeze())
}

/// Decodes exactly these bytes.
pub(super) fn decode<T: DeserializeOwned>(version: u32, bytes: &[u8]) -> Result<T, Status> {
    if version != BODY_VERSION {
        let known = BODY_VERSION;
        let text = format!("message version {version}, this node speaks {known}");
        return Err(Status::failed_precondition(text));
    }
    let (value, read) = bincode::serde::decode_from_slice(bytes, CONFIG)
        .map_err(|error| Status::invalid_argument(format!("message cannot be read: {error}")))?;
    if read != bytes.len() {
        return Err(Status::invalid_argument("message goes on behind its end"));
    }
    Ok(value)
}
