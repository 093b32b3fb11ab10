//! What is remembered of one admission, its ticket and its grants.

use super::{AdmissionKey, QueueKey, Units};
use crate::by_digest::{Record, Seen};
use crate::limits::CLOSED_ATTEMPTS_MAX;

/// One logical call that wants to happen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Its tenant and priority; 0 until an ask came.
    pub(crate) queue: QueueKey,
    /// Digest of priority, costs and labels; 0 until an ask came.
    pub(crate) body: u64,
    /// Digest of the principal that owns it.
    pub(crate) owner: u64,
    /// The newest attempt.
    pub(crate) attempt: u64,
    /// The highest ask of it.
    pub(crate) ask: u32,
    /// Attempts that are over, the oldest first, and whether each left a charge.
    pub(crate) closed: Vec<(u64, bool)>,
    /// What it holds.
    pub(crate) place: Place,
    /// When it is forgotten, if it holds nothing.
    pub(crate) forget_at: u64,
    /// See [`Record`].
    pub(crate) seen: Seen,
}

impl Record for Admission {
    fn seen(&mut self) -> &mut Seen {
        &mut self.seen
    }
}

/// What an admission holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nothing: cancelled, dropped, or never asked.
    Nothing,
    /// A place in line. In a box, so that the many admissions that are remembered but do not wait are
    /// small.
    Waiting(Box<Ticket>),
    /// A grant, live or ended.
    Granted(crate::GrantId),
    /// Its attempt was let through ungated and is charged.
    Reported,
}

/// The waiting state of an admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Tie-break in the line.
    pub(crate) serial: u64,
    /// Start tag S: where it stands, in 1/1024 ns of cap time.
    pub(crate) tag: i128,
    /// Cost with which it stands in line.
    pub(crate) units: Units,
    /// Dominant share of that cost.
    pub(crate) share: i64,
    /// When its caller is due back; when it is dropped, if it lapsed.
    pub(crate) due: u64,
    /// The time under which it stands in the target's `due`, at most `due`.
    pub(crate) noted: u64,
    /// Out of the line: its caller is late, or its cost no longer fits. It keeps its tag.
    pub(crate) lapsed: bool,
}

/// Permission to send once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The admission it was given to.
    pub(crate) admission: AdmissionKey,
    /// Tenant and priority that it is counted against.
    pub(crate) queue: QueueKey,
    /// Digest of the principal that owns it.
    pub(crate) owner: u64,
    /// Its start in cluster time.
    pub(crate) start: u64,
    /// What is charged.
    pub(crate) units: Units,
    /// Dominant share of that.
    pub(crate) share: i64,
    /// What part of it is an estimate; `None` if all is exact.
    pub(crate) uncertain: Option<Box<Uncertain>>,
    /// Place in line to which the admission returns if the start is undone.
    pub(crate) tag: i128,
    /// See above.
    pub(crate) serial: u64,
    /// When it ends by itself.
    pub(crate) expires: u64,
}

/// What is remembered under a grant's name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GrantRecord {
    /// Neither released nor expired.
    Live(Box<Grant>),
    /// It ended; a repeated release is answered for a while.
    Ended {
        /// The admission it was given to.
        admission: AdmissionKey,
        /// Digest of the principal that owned it.
        owner: u64,
        /// Ended by itself.
        expired: bool,
    },
}

/// The uncertain part of a charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uncertain {
    /// Lower bound from which actual use is measured when learning.
    pub(crate) lower: Units,
    /// Bit per slot that was estimated.
    pub(crate) slots: u8,
    /// Variance held back per slot.
    pub(crate) variance: [u128; crate::limits::DIMENSIONS_MAX],
}

impl Admission {
    /// An admission that nothing is known of yet.
    pub(crate) fn new(owner: u64, attempt: u64, ask: u32) -> Admission {
        Admission {
            queue: 0,
            body: 0,
            owner,
            attempt,
            ask,
            closed: Vec::new(),
            place: Place::Nothing,
            forget_at: 0,
            seen: Seen::default(),
        }
    }

    /// Makes another attempt the newest; stragglers of the old one are recognised from now on.
    pub(crate) fn open_attempt(&mut self, attempt: u64, ask: u32, charged: bool) {
        self.close_attempt(self.attempt, charged);
        self.attempt = attempt;
        self.ask = ask;
    }

    /// Makes the asks of an attempt stale, whether any was seen or not.
    pub(crate) fn close_attempt(&mut self, attempt: u64, charged: bool) {
        self.closed.retain(|(closed, _)| *closed != attempt);
        if self.closed.len() >= CLOSED_ATTEMPTS_MAX {
            self.closed.remove(0);
        }
        self.closed.push((attempt, charged));
    }

    /// Whether an attempt is over, and if it left a charge.
    pub(crate) fn closed_attempt(&self, attempt: u64) -> Option<bool> {
        self.closed
            .iter()
            .find(|(closed, _)| *closed == attempt)
            .map(|(_, charged)| *charged)
    }
}

impl Grant {
    /// Variance held back in a slot.
    pub(crate) fn variance(&self, slot: usize) -> u128 {
        self.uncertain
            .as_ref()
            .and_then(|u| u.variance.get(slot).copied())
            .unwrap_or(0)
    }
}

impl GrantRecord {
    /// The admission that was granted.
    pub(crate) fn admission(&self) -> AdmissionKey {
        match self {
            GrantRecord::Live(grant) => grant.admission,
            GrantRecord::Ended { admission, .. } => *admission,
        }
    }

    /// Digest of the principal that may end it.
    pub(crate) fn owner(&self) -> u64 {
        match self {
            GrantRecord::Live(grant) => grant.owner,
            GrantRecord::Ended { owner, .. } => *owner,
        }
    }

    /// Ends the grant, whose memory stays. `Err` if it had ended: whether by itself.
    pub(crate) fn end(&mut self, expired: bool) -> Result<Box<Grant>, bool> {
        let ended = match self {
            GrantRecord::Ended { expired, .. } => return Err(*expired),
            GrantRecord::Live(grant) => GrantRecord::Ended {
                admission: grant.admission,
                owner: grant.owner,
                expired,
            },
        };
        match std::mem::replace(self, ended) {
            GrantRecord::Live(grant) => Ok(grant),
            GrantRecord::Ended { expired, .. } => Err(expired),
        }
    }

    /// The grant, while it counts.
    pub(crate) fn live(&self) -> Option<&Grant> {
        match self {
            GrantRecord::Live(grant) => Some(grant),
            GrantRecord::Ended { .. } => None,
        }
    }
}
