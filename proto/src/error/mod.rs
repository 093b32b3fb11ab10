//! What is told when there is no answer. Refusals that are answers (deferred, rejected) are not errors.
//!
//! [`Reason`] is the one table; [`WireError`] is one error on its way between a node and a client.

mod reason;
mod refusal;
mod session;
mod status;

pub use reason::{Reason, Retry};
pub use status::{DOMAIN, LeaderHint, Resource, WireError};
