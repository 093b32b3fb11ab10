//! The client against a cluster that misbehaves on purpose.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that panics has failed, helpers included"
)]

mod admin;
mod client_rule;
mod fake;
mod guards;
mod local_share;
mod logs;
mod net;
mod outage;
mod property;
mod retries;
mod routing;
mod tcp;
