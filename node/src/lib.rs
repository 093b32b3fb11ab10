//! node
pub mod demo;
