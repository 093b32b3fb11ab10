//! The rules, judged from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets the unexpected should stop right there"
)]

mod differential;
mod explain;
mod fleet;
mod former;
mod frozen;
mod history;
mod laws;
mod make;
mod model;
mod near;
mod pitfalls;
mod scripts;
mod totality;
