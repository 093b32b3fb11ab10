//! The gRPC services: decode, call, encode, and nothing else.

pub mod admission;
pub mod cluster;
mod deadline;
mod error;
pub mod history;
pub mod session;
pub mod targets;
pub mod unread;

pub(crate) use self::error::wire_error;

use tonic::{Request, Status};
use weir_admission::Principal;

/// Whose credential made this call. Every call passes here, and nowhere else.
fn principal_of<T>(_request: &Request<T>) -> Result<Principal, Status> {
    Principal::new("anonymous").map_err(|error| Status::internal(error.to_string()))
}
