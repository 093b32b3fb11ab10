//! Bytes that outlive a process: log entries, snapshots, and what nodes send each other.
//!
//! Every stored value begins with the number of its format. A format never changes once a release has
//! written it: its fixtures are read by the tests of every later version. A new format is written only
//! when every voter can read it.

mod amounts_v1;
mod batch;
mod batch_v1;
mod codec;
mod error;
mod fault;
mod names;
mod policy_v1;
mod reader;
mod writer;

pub use batch::{BATCH_FORMAT, decode_batch, encode_batch};
pub use codec::{Kind, decode_versioned, encode_versioned, format_of};
pub use error::StoredError;
