//! openraft made ours: groups that replicate [`weir_admission::State`], one durable log for all of
//! them, one connection per peer, and cluster time.
//!
//! [`Groups`] is a node's share of the cluster, [`Group`] one shard of it; openraft's types stop
//! inside the crate.

mod balance;
mod clock;
mod cluster_time;
mod config;
pub mod disk;
mod duty;
mod failure;
mod founding;
mod group;
mod groups;
mod identity;
mod keeper;
pub mod limits;
pub mod log;
mod machine;
mod met;
mod offload;
mod peer;
mod propose;
mod replica;
mod reply;
pub mod snapshot;
mod start;
mod status;
mod stored;
pub mod types;

/// Ways in for the fuzz targets: bytes of peers and of the disk. Not part of the API.
#[doc(hidden)]
pub mod seam {
    pub use crate::log::seam::{hard_state, record_of, rewrite_hard_state, rewrite_record};
    pub use crate::peer::seam::{
        PeerBody, VERSION, appended, check_envelope, receive_snapshot, samples,
    };
    pub use crate::snapshot::seam::{file_of, meta_of, read_file};
}

pub use clock::{Clock, MonotonicClock};
pub use config::{Config, NodeId, Retention, Timing};
pub use failure::Failure;
pub use group::Group;
pub use groups::{Connector, Groups};
pub use identity::{DataDir, Directory, Identity, IdentityError};
pub use peer::peer_server;
pub use propose::{Committed, Pending, ProposeError};
pub use start::StartError;
pub use status::{GroupStatus, Leadership, Positions, Role, TransferError};
