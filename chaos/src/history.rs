//! What a run leaves behind: every call as its caller and its provider saw it.
//!
//! Instants are microseconds since the run began, all read from the one monotonic clock of the
//! process that makes the calls, so that any two of them can be compared.

use std::collections::BTreeMap;

/// Units per dimension.
pub type Costs = BTreeMap<String, u64>;

/// Names one grant for ever: shard, index of its log entry, offset in the entry.
pub type GrantName = (u32, u64, u32);

/// Everything one run saw at one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Each logical call once, in any order.
    pub calls: Vec<Call>,
    /// Instants at which any answer came back from the cluster, in order.
    pub answers_us: Vec<u64>,
}

/// One logical call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its admission id: unique in the run.
    pub admission: String,
    /// When it was first asked for.
    pub asked_us: u64,
    /// Each time it reached the provider.
    pub arrivals: Vec<Arrival>,
    /// How it ended.
    pub end: End,
}

/// One arrival at the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The intention to send that it belongs to, as its caller numbers them.
    pub attempt: u64,
    /// When it arrived.
    pub at_us: u64,
    /// What let it through.
    pub pass: Pass,
    /// What the provider counts for it.
    pub costs: Costs,
}

/// What let a call through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// A grant whose name the caller was told.
    Grant(GrantName),
    /// A grant whose name the client library kept to itself.
    Granted,
    /// Nobody: it went out without a decision.
    Ungated,
}

/// How a logical call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Sent, answered and released.
    Served,
    /// The caller stopped asking by its own choice, for example at its deadline.
    GivenUp,
    /// The cluster said that it can never work.
    Rejected,
    /// Still asking when the run ended, this long after the first ask in microseconds.
    Waiting {
        /// See above.
        for_us: u64,
    },
}

impl History {
    /// All arrivals, in order of time.
    pub fn arrivals(&self) -> Vec<&Arrival> {
        let mut arrivals: Vec<_> = self.calls.iter().flat_map(|call| &call.arrivals).collect();
        arrivals.sort_by_key(|arrival| arrival.at_us);
        arrivals
    }

    /// The longest time from `since_us` to `until_us` without an answer from the cluster: when it began
    /// and how long it was, in microseconds.
    pub fn longest_silence_us(&self, since_us: u64, until_us: u64) -> (u64, u64) {
        let inside = self.answers_us.iter().copied();
        let inside = inside.filter(|at| (since_us..until_us).contains(at));
        let mut last = since_us;
        let mut longest = (since_us, 0);
        for at in inside.chain([until_us]) {
            let silence = at.saturating_sub(last);
            if silence > longest.1 {
                longest = (last, silence);
            }
            last = at;
        }
        longest
    }
}
