//! Breaks a cluster on purpose and decides whether it kept its promises.
//!
//! A *run* starts real `weir server` processes, lets a fleet of callers work against them, and
//! meanwhile kills, stops or restarts processes. What callers and provider saw is the [`history`];
//! the [`judge`] holds it against the promises, without knowing any rule of admission.

pub mod cluster;
pub mod crowd;
pub mod fleet;
pub mod frames;
pub mod guests;
pub mod history;
pub mod judge;
pub mod overload;
pub mod process;
pub mod recorder;
pub mod repeater;
