//! What is promised to hold when processes die, stop and restart; and that the judge of it can see.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod cold_start;
mod crowd;
mod deploy;
mod directory;
mod failover;
mod hostile;
mod judge;
mod moving;
mod overload;
mod pause;
mod reconnect;
mod rig;
mod slow_reader;
mod stop;
mod storm;
