//! Decides whether a run kept its promises, from what callers and provider saw.
//!
//! Written apart from the admission rules: it shares no type and no arithmetic with them, knows
//! nothing of guards, places or logs, and adds up plainly what it is given. A rule that is wrong in
//! both places would have to be invented twice.

use crate::history::{Arrival, End, GrantName, History, Pass};
use std::collections::BTreeMap;
use std::fmt;

/// A cap as its provider counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cap {
    /// The limit's name in the policy.
    pub limit: String,
    /// What it counts.
    pub dimension: String,
    /// Units that may arrive in any window.
    pub cap: u64,
    /// Length of a window in microseconds; it holds `[t, t + per)` for every `t`.
    pub per_us: u64,
}

/// What a run is held against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// The caps that hold in every window.
    pub caps: Vec<Cap>,
    /// True if no call may be let through without a decision.
    pub no_ungated: bool,
    /// True if every call that kept asking has to be served.
    pub all_served: bool,
}

/// One broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// More arrived in one window than the provider allows.
    OverCap {
        /// The limit.
        limit: String,
        /// The window's first instant.
        from_us: u64,
        /// Units that arrived in it.
        sum: u64,
        /// Units that may.
        cap: u64,
    },
    /// One attempt reached the provider more than once.
    SentTwice {
        /// The call.
        admission: String,
        /// Its attempt.
        attempt: u64,
    },
    /// One grant let two attempts through.
    GrantShared {
        /// The grant.
        grant: GrantName,
        /// The admissions it served.
        admissions: [String; 2],
    },
    /// A call was sent without a decision.
    Ungated {
        /// The call.
        admission: String,
    },
    /// A call that is said to be served was never sent, or the reverse.
    EndUntrue {
        /// The call.
        admission: String,
    },
    /// One id was used for two calls of the run, so nothing can be said of either.
    IdReused {
        /// The id.
        admission: String,
    },
    /// A call kept asking and was not served.
    NeverServed {
        /// The call.
        admission: String,
        /// How long it asked, in microseconds.
        for_us: u64,
    },
    /// The cluster counts other use than what was sent: more means that something was charged twice,
    /// less that a charge was lost.
    UseDiffers {
        /// The limit.
        limit: String,
        /// What the cluster counts.
        counted: u64,
        /// What was sent.
        sent: u64,
    },
    /// The cluster was asked for a limit that it does not show.
    UseMissing {
        /// The limit.
        limit: String,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::OverCap {
                limit,
                from_us,
                sum,
                cap,
            } => {
                write!(
                    f,
                    "{limit}: {sum} units in the window from {from_us} us, cap {cap}"
                )
            }
            Violation::SentTwice { admission, attempt } => {
                write!(
                    f,
                    "{admission}: attempt {attempt:016x} was sent more than once"
                )
            }
            Violation::GrantShared {
                grant,
                admissions: [first, second],
            } => {
                write!(f, "grant {grant:?} let both {first} and {second} through")
            }
            Violation::Ungated { admission } => write!(f, "{admission}: sent without a decision"),
            Violation::EndUntrue { admission } => {
                write!(f, "{admission}: its end does not fit what was sent")
            }
            Violation::IdReused { admission } => write!(f, "{admission}: used for two calls"),
            Violation::NeverServed { admission, for_us } => {
                write!(f, "{admission}: asked for {for_us} us and was not served")
            }
            Violation::UseDiffers {
                limit,
                counted,
                sent,
            } => {
                write!(
                    f,
                    "{limit}: the cluster counts {counted} units, {sent} were sent"
                )
            }
            Violation::UseMissing { limit } => write!(f, "{limit}: the cluster does not show it"),
        }
    }
}

/// Every promise that the run broke; none means it kept them all.
pub fn judge(history: &History, promises: &Promises) -> Vec<Violation> {
    let mut found = Vec::new();
    for cap in &promises.caps {
        found.extend(over_cap(history, cap));
    }
    found.extend(identities(history));
    found.extend(ends(history, promises));
    found
}

/// The largest sum of units in any window of the cap, with the window's first instant.
///
/// The worst window can be moved right until an arrival stands at its left edge, so that windows
/// which begin at arrivals are all there is to look at.
pub fn worst_window(history: &History, cap: &Cap) -> (u64, u64) {
    let arrivals: Vec<(u64, u64)> = history
        .arrivals()
        .iter()
        .map(|arrival| {
            (
                arrival.at_us,
                arrival.costs.get(&cap.dimension).copied().unwrap_or(0),
            )
        })
        .collect();
    let mut worst = (0, 0);
    let mut sum = 0_u64;
    let mut ahead = arrivals.iter().peekable();
    for (from_us, units) in &arrivals {
        while let Some((_, more)) = ahead.next_if(|(at, _)| at - from_us < cap.per_us) {
            sum += more;
        }
        if sum > worst.0 {
            worst = (sum, *from_us);
        }
        sum -= units;
    }
    worst
}

fn over_cap(history: &History, cap: &Cap) -> Option<Violation> {
    let (sum, from_us) = worst_window(history, cap);
    (sum > cap.cap).then(|| Violation::OverCap {
        limit: cap.limit.clone(),
        from_us,
        sum,
        cap: cap.cap,
    })
}

fn identities(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut calls = BTreeMap::new();
    let mut grants: BTreeMap<GrantName, &str> = BTreeMap::new();
    for call in &history.calls {
        if calls.insert(call.admission.as_str(), ()).is_some() {
            found.push(Violation::IdReused {
                admission: call.admission.clone(),
            });
        }
        let mut attempts = BTreeMap::new();
        for arrival in &call.arrivals {
            if attempts.insert(arrival.attempt, ()).is_some() {
                let admission = call.admission.clone();
                found.push(Violation::SentTwice {
                    admission,
                    attempt: arrival.attempt,
                });
            }
            let Pass::Grant(grant) = arrival.pass else {
                continue;
            };
            if let Some(other) = grants.insert(grant, &call.admission) {
                let admissions = [other.to_owned(), call.admission.clone()];
                found.push(Violation::GrantShared { grant, admissions });
            }
        }
    }
    found
}

fn ends(history: &History, promises: &Promises) -> Vec<Violation> {
    let mut found = Vec::new();
    for call in &history.calls {
        let admission = || call.admission.clone();
        if promises.no_ungated
            && call
                .arrivals
                .iter()
                .any(|arrival| arrival.pass == Pass::Ungated)
        {
            found.push(Violation::Ungated {
                admission: admission(),
            });
        }
        match call.end {
            End::Served if call.arrivals.is_empty() => {
                found.push(Violation::EndUntrue {
                    admission: admission(),
                });
            }
            End::Rejected if !call.arrivals.is_empty() => {
                found.push(Violation::EndUntrue {
                    admission: admission(),
                });
            }
            End::Waiting { for_us } if promises.all_served => {
                found.push(Violation::NeverServed {
                    admission: admission(),
                    for_us,
                });
            }
            End::Served | End::Rejected | End::GivenUp | End::Waiting { .. } => {}
        }
    }
    found
}

/// Holds what the cluster counts at each limit, `counted`, against what arrived at the provider.
///
/// Only meaningful when everything is settled and the limit's period is longer than the run: then the
/// two are equal, or an attempt was charged twice or not at all.
pub fn audit(history: &History, caps: &[Cap], counted: &BTreeMap<String, u64>) -> Vec<Violation> {
    let mut found = Vec::new();
    for cap in caps {
        let units = |arrival: &&Arrival| arrival.costs.get(&cap.dimension).copied();
        let sent: u64 = history.arrivals().iter().filter_map(units).sum();
        match counted.get(&cap.limit) {
            None => found.push(Violation::UseMissing {
                limit: cap.limit.clone(),
            }),
            Some(&counted) if counted != sent => {
                found.push(Violation::UseDiffers {
                    limit: cap.limit.clone(),
                    counted,
                    sent,
                });
            }
            Some(_) => {}
        }
    }
    found
}
