//! openraft made ours: groups that replicate [`weir_admission::State`], one durable log for all of
//! them, one connection per peer, and cluster time.
//!
//! [`Groups`] is a node's share of the cluster, [`Group`] one shard of it; openraft's types stop
//! inside the crate.

mod clock;
mod config;
pub mod disk;
mod failure;
mod group;
mod groups;
mod identity;
pub mod limits;
pub mod log;
mod propose;
mod status;
mod stored;
pub mod types;

pub use clock::{Clock, MonotonicClock};
pub use config::{Config, NodeId, Timing};
pub use failure::Failure;
pub use group::Group;
pub use groups::{Connector, Groups, StartError};
pub use identity::Identity;
pub use propose::{Committed, Pending, ProposeError};
pub use status::{GroupStatus, Leadership, Role, TransferError};
