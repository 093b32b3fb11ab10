//! What a client counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the client was made. Each only grows, except those said to be a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls that the cluster admitted.
    pub admitted: u64,
    /// Deferrals, the client's own included.
    pub deferred: u64,
    /// Deferrals that the client decided itself.
    pub deferred_locally: u64,
    /// Rejections.
    pub rejected: u64,
    /// Times that a waiting call was woken before its deferral had passed.
    pub woken: u64,
    /// Asks sent; over `admitted` it tells what an admission costs.
    pub asks: u64,
    /// Sends repeated, of any kind.
    pub retries: u64,
    /// Times that a call was not sent again because the shard's retry budget was used up (a tenth of the
    /// tries, and [`crate::limits::RETRY_RESERVE`]) or nothing of use was heard from it: it
    /// became a deferral, an error, or was left to the mode.
    /// Releases, cancels and reports are sent all the same, with twice the patience.
    pub retries_withheld: u64,
    /// Grants not used because their answer came after the reply window, or this process stalled.
    pub late_answers: u64,
    /// Answers that a newer ask or attempt had made stale.
    pub stale_answers: u64,
    /// Calls let through without a decision in [`crate::Mode::Open`].
    pub ungated_open: u64,
    /// Calls let through without a decision in [`crate::Mode::Local`].
    pub ungated_local: u64,
    /// Calls refused because the cluster did not answer ([`crate::Mode::Closed`], or
    /// [`crate::Mode::Local`] without a policy or a share).
    pub refused: u64,
    /// Outages: times that a shard did not answer for [`crate::Options::ungated_after`].
    pub outages: u64,
    /// Level: shards that do not answer now.
    pub shards_out: u64,
    /// Level: ungated calls not yet reported.
    pub reports_pending: u64,
    /// Ungated calls reported and answered.
    pub reports_done: u64,
    /// Ungated calls never charged: the queue was full, their report's outcome stayed unknown for
    /// longer than it may be repeated, or the cluster no longer knows their target.
    pub reports_lost: u64,
    /// Level: releases and cancels that the background still has to send.
    pub releases_pending: u64,
    /// Releases and cancels given up: the queue was full or no answer came in time. Their charge leaves
    /// the cap by itself.
    pub releases_lost: u64,
}
/// The live counters behind [`Stats`]; levels are computed when asked for.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) admitted: Counter,
    pub(crate) deferred: Counter,
    pub(crate) deferred_locally: Counter,
    pub(crate) rejected: Counter,
    pub(crate) woken: Counter,
    pub(crate) asks: Counter,
    pub(crate) retries: Counter,
    pub(crate) retries_withheld: Counter,
    pub(crate) late_answers: Counter,
    pub(crate) stale_answers: Counter,
    pub(crate) ungated_open: Counter,
    pub(crate) ungated_local: Counter,
    pub(crate) refused: Counter,
    pub(crate) reports_done: Counter,
    pub(crate) reports_lost: Counter,
    pub(crate) releases_lost: Counter,
}

/// A count that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
