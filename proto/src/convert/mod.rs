//! From the wire to the domain and back, one file per family of messages.
//!
//! `read` takes a request apart and checks **everything** that can be checked without the state, so that
//! nothing behind it checks again; a refusal names every field that breaks a rule. `answer` turns what
//! the rules decided into a response, or into the one error there is for it.

pub mod admit;
mod amounts;
pub mod cancel;
pub mod explain;
pub mod extend;
mod fields;
mod grant;
pub mod history;
mod labels;
mod outcome;
pub mod policy;
pub mod release;
pub mod report;
pub mod session;
pub mod target;
mod violations;
mod weights;

pub use labels::labels_digest;
pub use violations::Violations;

use weir_admission::Principal;

/// What the edge knows of a call apart from its message.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Whose credential made the call.
    pub principal: &'a Principal,
    /// Number of shards of the cluster.
    pub shards: u32,
    /// True if the caller stays connected, so that it can be woken.
    pub wakes: bool,
}
