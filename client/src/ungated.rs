//! Calls that went out without a decision, until they are reported. No socket, no clock.
//!
//! A call is kept under (target, admission id, attempt), so one that goes out twice under the same
//! attempt is one call. It is reported once: as soon as its shard answers again, with what it used if
//! it ended before that, otherwise with its estimate. A report whose outcome is unknown is repeated for
//! as long as the cluster surely remembers the first one, then given up, so that it is never charged
//! twice.

use crate::limits::{REPORT_CALLS_MAX, RETRY_MAX, UNGATED_MAX};
use std::collections::BTreeMap;
use tokio::time::Instant;
use weir_admission::{TargetName, limits::CALLER_DURATION_MAX, pool_of};
use weir_proto::v1::{ReportStatus, UngatedCall};

/// Names one ungated call. A report carries calls of one pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UngatedKey {
    pool: String,
    target: String,
    id: String,
    attempt: u64,
}

impl UngatedKey {
    pub(crate) fn new(target: &TargetName, id: &str, attempt: u64) -> UngatedKey {
        UngatedKey {
            pool: pool_of(target).to_owned(),
            target: target.as_str().to_owned(),
            id: id.to_owned(),
            attempt,
        }
    }
}

/// What is said about one ungated call.
#[derive(Clone, Debug)]
pub(crate) struct UngatedUse {
    pub(crate) tenant: String,
    pub(crate) priority: String,
    /// The estimate, replaced by what was used when the call ends.
    pub(crate) actual: BTreeMap<String, u64>,
    pub(crate) sent_at: Instant,
}

#[derive(Debug)]
struct Record {
    call: UngatedUse,
    /// In a report that is under way.
    in_flight: bool,
    /// When a report of it first went out that may have been charged.
    maybe_charged: Option<Instant>,
}

/// The calls not yet reported, at most [`UNGATED_MAX`]. A pool has one report under way at a time, and is
/// here only while it has calls.
#[derive(Debug, Default)]
pub(crate) struct Ungated {
    pools: BTreeMap<String, Pool>,
    len: usize,
}

#[derive(Debug, Default)]
struct Pool {
    calls: BTreeMap<UngatedKey, Record>,
    reporting: bool,
}

/// Whether a call is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It will be reported.
    Yes,
    /// The queue is full: it never will.
    Full,
}

/// One report, ready to send.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) target: TargetName,
    pub(crate) keys: Vec<UngatedKey>,
    pub(crate) calls: Vec<UngatedCall>,
}

/// What became of the calls of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) done: u64,
    pub(crate) lost: u64,
}

impl Ungated {
    /// Keeps a call. One that is kept already stays as it is.
    pub(crate) fn keep(&mut self, key: UngatedKey, call: UngatedUse) -> Kept {
        if self.record(&key).is_some() {
            return Kept::Yes;
        }
        if self.len >= UNGATED_MAX {
            return Kept::Full;
        }
        let pool = self.pools.entry(key.pool.clone()).or_default();
        pool.calls.insert(
            key,
            Record {
                call,
                in_flight: false,
                maybe_charged: None,
            },
        );
        self.len += 1;
        Kept::Yes
    }

    fn record(&mut self, key: &UngatedKey) -> Option<&mut Record> {
        self.pools.get_mut(&key.pool)?.calls.get_mut(key)
    }

    fn remove(&mut self, key: &UngatedKey) -> bool {
        let Some(pool) = self.pools.get_mut(&key.pool) else {
            return false;
        };
        let removed = pool.calls.remove(key).is_some();
        if pool.calls.is_empty() {
            self.pools.remove(&key.pool);
        }
        self.len -= usize::from(removed);
        removed
    }

    /// The call ended and used this; dimensions that are not given keep their estimate. False if it was
    /// reported before.
    pub(crate) fn settle(&mut self, key: &UngatedKey, actual: &BTreeMap<String, u64>) -> bool {
        let Some(record) = self.record(key) else {
            return false;
        };
        record
            .call
            .actual
            .extend(actual.iter().map(|(name, units)| (name.clone(), *units)));
        true
    }

    /// The call was not sent after all. False if it is being reported or was.
    pub(crate) fn forget(&mut self, key: &UngatedKey) -> bool {
        match self.record(key) {
            Some(record) if !record.in_flight && record.maybe_charged.is_none() => self.remove(key),
            Some(_) | None => false,
        }
    }

    /// Calls not yet reported.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One target of every pool that has no report under way.
    pub(crate) fn due_targets(&self) -> Vec<TargetName> {
        self.pools
            .values()
            .filter(|pool| !pool.reporting)
            .filter_map(|pool| pool.calls.first_key_value())
            .filter_map(|(key, _)| TargetName::new(&key.target).ok())
            .collect()
    }

    /// The next report for the pool of a target, at most [`REPORT_CALLS_MAX`] calls. `None` if one is
    /// under way.
    pub(crate) fn next_report(&mut self, target: &TargetName, now: Instant) -> Option<Batch> {
        let pool = self
            .pools
            .get_mut(pool_of(target))
            .filter(|pool| !pool.reporting)?;
        pool.reporting = true;
        let mut batch = Batch {
            target: target.clone(),
            keys: Vec::new(),
            calls: Vec::new(),
        };
        for (key, record) in pool.calls.iter_mut().take(REPORT_CALLS_MAX) {
            record.in_flight = true;
            let age = now
                .saturating_duration_since(record.call.sent_at)
                .as_micros();
            batch.calls.push(UngatedCall {
                target: key.target.clone(),
                tenant: record.call.tenant.clone(),
                priority: record.call.priority.clone(),
                admission_id: key.id.clone(),
                attempt: key.attempt,
                actual: record.call.actual.clone(),
                age_us: u64::try_from(age)
                    .unwrap_or(u64::MAX)
                    .min(CALLER_DURATION_MAX),
            });
            batch.keys.push(key.clone());
        }
        Some(batch)
    }

    /// The cluster answered a report.
    pub(crate) fn answered(&mut self, batch: &[UngatedKey], statuses: &[ReportStatus]) -> Reported {
        self.report_ended(batch);
        let mut reported = Reported::default();
        for (at, key) in batch.iter().enumerate() {
            if !self.remove(key) {
                continue;
            }
            match statuses.get(at) {
                Some(ReportStatus::Charged | ReportStatus::Settled | ReportStatus::Already) => {
                    reported.done += 1;
                }
                Some(ReportStatus::Dropped | ReportStatus::Unspecified) | None => {
                    reported.lost += 1;
                }
            }
        }
        reported
    }

    /// A report went unanswered. Its calls go into the next one, unless it may have been charged so
    /// long ago that the cluster may have forgotten it.
    pub(crate) fn unanswered(
        &mut self,
        batch: &[UngatedKey],
        may_have_happened: bool,
        sent_at: Instant,
        now: Instant,
    ) -> Reported {
        self.report_ended(batch);
        let mut reported = Reported::default();
        for key in batch {
            let Some(record) = self.record(key) else {
                continue;
            };
            record.in_flight = false;
            if may_have_happened && record.maybe_charged.is_none() {
                record.maybe_charged = Some(sent_at);
            }
            let expired = record
                .maybe_charged
                .is_some_and(|first| now.saturating_duration_since(first) >= RETRY_MAX);
            if expired {
                reported.lost += u64::from(self.remove(key));
            }
        }
        reported
    }

    fn report_ended(&mut self, batch: &[UngatedKey]) {
        let pool = batch.first().and_then(|key| self.pools.get_mut(&key.pool));
        if let Some(pool) = pool {
            pool.reporting = false;
        }
    }
}

#[cfg(test)]
mod tests;
