//! What goes over the wire and what is stored: both directions, every refusal, and bytes that never
//! change.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed; its helpers fail like it"
)]

mod answer;
mod convert;
mod errors;
mod fixtures;
mod generate;
mod golden;
mod refuse;
mod session;
mod stored;
mod stored_fixtures;
mod stored_hostile;
mod wire;
