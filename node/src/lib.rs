//! A node of Weir: services, batching, configuration and the command line around the replicated groups.
//!
//! The road of an ask: [`service::session`] (or [`service::admission`], one call at a time) decodes it, [`batch::Batcher`] puts it into a log entry with
//! others, `weir_raft::Group` replicates the entry, `weir_admission::State` decides, and the outcome
//! returns the same way.
//!
//! [`server::Server`] puts a node together from parts that are handed in; [`dev::Cluster`] is several of
//! them in one process.

pub mod batch;
pub mod cli;
mod collect;
pub mod config;
pub mod ctl;
pub mod demo;
pub mod dev;
pub mod exit;
pub mod files;
pub mod health;
pub mod history;
mod http;
pub mod limits;
pub mod listen;
mod manual;
pub mod metrics;
pub mod otlp;
mod output;
mod road;
pub mod server;
pub mod service;
pub mod shards;
pub mod signals;
pub mod trace;
pub mod traceparent;
pub mod wakes;
mod words;
