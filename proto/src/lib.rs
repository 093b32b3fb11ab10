//! Everything Weir says or stores, in bytes.
//!
//! [`v1`] is what clients speak and [`peer::v1`] what nodes speak to each other; both are generated
//! from `schema/`. [`convert`] is the one place where requests are checked,
//! [`error`] the one table of errors, and [`stored`] what outlives a process.

pub mod convert;
pub mod error;
pub mod limits;
mod name;
pub mod stored;

/// The client API, generated from `schema/weir/v1`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated"
)]
pub mod v1 {
    tonic::include_proto!("weir.v1");
}

/// What nodes say to each other.
pub mod peer {
    /// Generated from `schema/weir/peer/v1`.
    #[allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        reason = "generated"
    )]
    pub mod v1 {
        tonic::include_proto!("weir.peer.v1");
    }
}

/// The encoded descriptors of all of the schema, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/weir.binpb"));
