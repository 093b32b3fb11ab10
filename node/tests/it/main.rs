//! Nodes over real sockets on loopback: what callers, operators and probes see.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails the test"
)]

mod admit;
mod bad_input;
mod cluster;
mod command;
mod data_dir;
mod observe;
mod operating;
mod operator;
mod otlp;
mod overload;
mod process;
mod road;
mod session;
mod stop;
mod support;
mod usage;
