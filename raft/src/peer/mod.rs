//! What nodes say to each other.
//!
//! One HTTP/2 connection per peer carries everything. A replication session of a group is one stream on
//! it: HTTP/2 then bounds each group's bytes by a window of its own, so that a group whose peer is slow
//! to take entries holds up nobody else, and ending a session ends its stream on both sides.

mod append;
mod body;
mod client;
mod envelope;
mod link;
pub(crate) mod seam;
mod server;
mod service;
mod snapshot;
mod tap;

pub(crate) use client::{Cut, PeerAsk, PeerFactory};
pub(crate) use envelope::PeerIdentity;
pub(crate) use link::Links;
pub use server::peer_server;
pub(crate) use service::{PeerGroup, PeerHandler};
