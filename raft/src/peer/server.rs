//! Settings of the server on the peer port.

use crate::limits::{
    PEER_CONNECTION_WINDOW_BYTES, PEER_KEEP_ALIVE_EVERY, PEER_KEEP_ALIVE_WITHIN, PEER_RESETS,
    PEER_STREAM_WINDOW_BYTES, PEER_STREAMS,
};
use tonic::transport::Server;

/// A server for the peer port: small messages go out at once, dead connections are noticed, and the
/// windows keep groups apart.
pub fn peer_server() -> Server {
    Server::builder()
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(PEER_KEEP_ALIVE_EVERY))
        .http2_keepalive_timeout(Some(PEER_KEEP_ALIVE_WITHIN))
        .max_concurrent_streams(PEER_STREAMS)
        .http2_max_pending_accept_reset_streams(Some(PEER_RESETS))
        .initial_stream_window_size(PEER_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(PEER_CONNECTION_WINDOW_BYTES)
}
