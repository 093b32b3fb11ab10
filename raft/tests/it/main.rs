//! What groups and their durable half promise to those who build on them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod clock;
mod cluster;
mod crash;
mod faulty;
mod gate;
mod identity;
mod log_suite;
mod network;
mod simulated;
mod snapshots;
mod store;
mod world;
