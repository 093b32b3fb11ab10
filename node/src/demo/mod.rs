//! `weir demo`: a fleet of workers against a rate-limited API, without and with the cluster.
//!
//! [`provider`] is a mock LLM API that enforces requests and tokens per window ([`window`]) and keeps the
//! books ([`book`]); [`fleet`] runs a [`workload`] on worker slots. First the fleet retries on its own
//! ([`ungated`]), then the same fleet asks a three-node cluster before each call, and the leader is
//! killed half way. What the report says about calls is what the provider counted.

pub mod book;
pub mod chat;
pub mod cluster;
pub mod fleet;
pub mod gap;
pub mod gated;
pub mod limits;
pub mod plan;
pub mod policy;
pub mod progress;
pub mod provider;
pub mod report;
pub mod run;
pub mod tally;
pub mod ungated;
pub mod window;
pub mod workload;

pub use plan::DemoArgs;
pub use run::run;

#[cfg(test)]
mod tests;
