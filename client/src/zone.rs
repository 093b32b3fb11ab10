//! The breakers, retry budgets and strain of all shards, what is logged about them, and what the background has to do
//! for each.
//!
//! A *zone* is a shard, or `None` for the cluster as a whole while its shards are not known.

use crate::Mode;
use crate::breaker::{Breaker, Ended, Verdict};
use crate::budget::Budget;
use crate::dice::Dice;
use crate::limits::{
    LATE_WARNING_EVERY, LOCAL_RETRY_MAX, LOCAL_RETRY_MIN, OUTAGE_NEAR, PROBE_IDLE,
    PROBE_IDLE_SLOWDOWN, PROBE_MAX, PROBE_MIN, RELIEF_CALLS,
};
use crate::lock::lock;
use crate::retry::backoff;
use crate::strain::Strain;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;
use weir_admission::ShardId;
use weir_proto::v1::AdmitRequest;

/// See the module.
pub(crate) type ZoneKey = Option<ShardId>;

/// All zones that a client met; never more than the cluster has shards, and one.
pub(crate) struct Zones {
    ungated_after: Duration,
    mode: Mode,
    dice: Arc<Dice>,
    born_at: Instant,
    outages: AtomicU64,
    zones: Mutex<BTreeMap<ZoneKey, Zone>>,
    /// Told when a zone answers that was in doubt.
    settled: Notify,
}

struct Zone {
    breaker: Breaker,
    budget: Budget,
    strain: Strain,
    /// Callers in a pause of the client's own, and how answers of use call them back.
    resting: usize,
    relief: Arc<Notify>,
    /// Set while asks are in vain.
    doubt: Option<Doubt>,
    /// The last ask that went unanswered, as a dry run: the probe.
    probe: Option<AdmitRequest>,
    probe_at: Instant,
    probing: bool,
    /// No report before this.
    report_at: Instant,
    late_warned_at: Option<Instant>,
    dropped_warned: bool,
}

/// A zone for which one call asks at a time, for all.
#[derive(Clone, Copy)]
struct Doubt {
    /// Nobody asks before this.
    next_at: Instant,
    asks: u32,
}

/// A caller counts as resting until this is dropped.
struct Resting<'a> {
    zones: &'a Zones,
    key: ZoneKey,
}

impl Drop for Resting<'_> {
    fn drop(&mut self) {
        self.zones.with(self.key, |zone| {
            zone.resting = zone.resting.saturating_sub(1)
        });
    }
}

/// A probe to be sent.
pub(crate) struct Probe {
    pub(crate) zone: ZoneKey,
    /// `None` asks for the routes instead.
    pub(crate) ask: Option<AdmitRequest>,
}

impl Zone {
    fn new(now: Instant) -> Zone {
        Zone {
            breaker: Breaker::new(now),
            budget: Budget::new(),
            strain: Strain::default(),
            resting: 0,
            relief: Arc::default(),
            doubt: None,
            probe: None,
            probe_at: now,
            probing: false,
            report_at: now,
            late_warned_at: None,
            dropped_warned: false,
        }
    }

    fn ended(&mut self, key: ZoneKey, ended: Option<Ended>) {
        let Some(ended) = ended else { return };
        self.dropped_warned = false;
        tracing::info!(
            shard = shard_number(key),
            lasted_ms = ended.lasted.as_millis(),
            ungated = ended.ungated,
            "the cluster answers again"
        );
    }
}

/// For the log: -1 is the cluster as a whole.
fn shard_number(key: ZoneKey) -> i64 {
    key.map_or(-1, |shard| i64::from(shard.0))
}

impl Zones {
    pub(crate) fn new(ungated_after: Duration, mode: Mode, dice: Arc<Dice>, now: Instant) -> Zones {
        Zones {
            ungated_after,
            mode,
            dice,
            born_at: now,
            outages: AtomicU64::new(0),
            zones: Mutex::new(BTreeMap::new()),
            settled: Notify::new(),
        }
    }

    fn with<T>(&self, key: ZoneKey, act: impl FnOnce(&mut Zone) -> T) -> T {
        let mut zones = lock(&self.zones);
        act(zones.entry(key).or_insert_with(|| Zone::new(self.born_at)))
    }

    /// Something new is sent to the zone.
    pub(crate) fn tries(&self, key: ZoneKey) {
        self.with(key, |zone| zone.budget.earn());
    }

    /// True if the zone may be sent something again, which is then paid for.
    pub(crate) fn pays_retry(&self, key: ZoneKey) -> bool {
        self.with(key, |zone| zone.budget.spend())
    }

    /// A visit that began at `begun_at` was in vain.
    pub(crate) fn in_vain(&self, key: ZoneKey, begun_at: Instant, now: Instant) {
        self.with(key, |zone| zone.strain.in_vain(begun_at, now));
    }

    /// True if what is in vain is not repeated now.
    pub(crate) fn is_strained(&self, key: ZoneKey, now: Instant) -> bool {
        self.with(key, |zone| zone.strain.is_strained(now))
    }

    /// An answer was of use: some of those who rest may ask again.
    pub(crate) fn relieve(&self, key: ZoneKey) {
        self.with(key, |zone| {
            zone.strain.relieve();
            for _ in 0..zone.resting.min(RELIEF_CALLS) {
                zone.relief.notify_one();
            }
        });
    }

    /// Resolves when an answer of use calls this caller back.
    pub(crate) async fn relieved(&self, key: ZoneKey) {
        let relief = self.with(key, |zone| {
            zone.resting += 1;
            zone.relief.clone()
        });
        let _resting = Resting { zones: self, key };
        relief.notified().await;
    }

    /// How long a caller rests that was not answered.
    ///
    /// As long as silence is an outage soon, pauses are the usual ones, and none hides it: then the mode has to
    /// decide, and no later than without strain.
    pub(crate) fn pause(&self, key: ZoneKey, now: Instant) -> Duration {
        let usual = self.dice.between(LOCAL_RETRY_MIN, LOCAL_RETRY_MAX);
        let ((shortest, longest), since) = self.with(key, |zone| {
            (zone.strain.pause(now), zone.breaker.silent_since())
        });
        let pause = self.dice.between(shortest, longest);
        match since {
            None => pause,
            Some(since) => {
                let silent = now.saturating_duration_since(since);
                let left = self.ungated_after.saturating_sub(silent);
                if left <= OUTAGE_NEAR {
                    usual
                } else {
                    pause.min(left)
                }
            }
        }
    }

    /// A call wants the zone now.
    pub(crate) fn wanted(&self, key: ZoneKey, now: Instant) -> Verdict {
        self.with(key, |zone| zone.breaker.wanted(now))
    }

    /// An ask was in vain: nobody leads the zone, or nobody answers for it. Nobody asks before `next_at`.
    ///
    /// A fleet whose leader is gone need not ask in chorus until there is another: from now on one call
    /// asks at a time, at growing intervals, until an answer comes.
    pub(crate) fn doubt(&self, key: ZoneKey, next_at: Instant) {
        self.with(key, |zone| {
            zone.doubt.get_or_insert(Doubt { next_at, asks: 0 });
        });
    }

    /// Whether a call may ask now; otherwise when it should look again, unless [`Zones::settled`] comes
    /// first.
    pub(crate) fn may_ask(&self, key: ZoneKey, now: Instant) -> Result<(), Instant> {
        self.with(key, |zone| match &mut zone.doubt {
            None => Ok(()),
            Some(doubt) if doubt.next_at > now => Err(doubt.next_at),
            Some(doubt) => {
                doubt.next_at = now + backoff(doubt.asks, self.dice.roll());
                doubt.asks = doubt.asks.saturating_add(1);
                Ok(())
            }
        })
    }

    /// Resolves when some zone answers again that was in doubt.
    pub(crate) fn settled(&self) -> Notified<'_> {
        self.settled.notified()
    }

    /// An ask sent at `asked_at` went unanswered. True if the mode decides from now on.
    pub(crate) fn missed(
        &self,
        key: ZoneKey,
        asked_at: Instant,
        now: Instant,
        ask: &AdmitRequest,
    ) -> bool {
        self.with(key, |zone| {
            if let Some(since) = zone.breaker.missed(asked_at, now, self.ungated_after) {
                self.outages.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    shard = shard_number(key),
                    silent_ms = now.saturating_duration_since(since).as_millis(),
                    mode = ?self.mode,
                    "the cluster does not answer; calls are decided by the mode until it does"
                );
                zone.probe = Some(AdmitRequest {
                    dry_run: true,
                    ..ask.clone()
                });
                zone.probe_at = now + self.dice.between(PROBE_MIN, PROBE_MAX);
            }
            zone.breaker.is_out()
        })
    }

    /// The zone answered something that was meant.
    pub(crate) fn answered(&self, key: ZoneKey, now: Instant) {
        let settled = self.with(key, |zone| {
            let ended = zone.breaker.answered(now);
            zone.ended(key, ended);
            zone.doubt.take().is_some()
        });
        if settled {
            self.settled.notify_waiters();
        }
    }

    /// A probe ended.
    pub(crate) fn probed(&self, key: ZoneKey, answered: bool, now: Instant) {
        let settled = self.with(key, |zone| {
            zone.probing = false;
            let ended = if answered {
                zone.breaker.probe_answered(now)
            } else {
                zone.breaker.probe_missed();
                None
            };
            let is_over = ended.is_some();
            zone.ended(key, ended);
            is_over && zone.doubt.take().is_some()
        });
        if settled {
            self.settled.notify_waiters();
        }
    }

    /// A call was let through without a decision. True if a dropped report of it is worth a warning:
    /// the first of this outage.
    pub(crate) fn let_through(&self, key: ZoneKey, dropped: bool) -> bool {
        self.with(key, |zone| {
            zone.breaker.let_through();
            dropped && !std::mem::replace(&mut zone.dropped_warned, true)
        })
    }

    /// True if late answers of this zone are worth a warning now.
    pub(crate) fn warns_of_late(&self, key: ZoneKey, now: Instant) -> bool {
        self.with(key, |zone| {
            let due = zone
                .late_warned_at
                .is_none_or(|at| now.saturating_duration_since(at) >= LATE_WARNING_EVERY);
            if due {
                zone.late_warned_at = Some(now);
            }
            due
        })
    }

    /// Probes that are due, each marked as under way. Zones that nobody wants any more are given up,
    /// unless something is left to report.
    pub(crate) fn due_probes(&self, reports_left: bool, now: Instant) -> Vec<Probe> {
        let mut due = Vec::new();
        for (key, zone) in lock(&self.zones).iter_mut() {
            if !reports_left && let Some(ended) = zone.breaker.forget_if_idle(now) {
                tracing::debug!(
                    shard = shard_number(*key),
                    ungated = ended.ungated,
                    "stopped probing"
                );
            }
            if zone.breaker.is_out() && !zone.probing && zone.probe_at <= now {
                let slowdown = if zone.breaker.is_idle(now) {
                    PROBE_IDLE_SLOWDOWN
                } else {
                    1
                };
                zone.probing = true;
                zone.probe_at = now + self.dice.between(PROBE_MIN, PROBE_MAX) * slowdown;
                due.push(Probe {
                    zone: *key,
                    ask: zone.probe.clone().filter(|_| key.is_some()),
                });
            }
        }
        due
    }

    /// True if reports may be sent to the zone now.
    pub(crate) fn reports_open(&self, key: ZoneKey, now: Instant) -> bool {
        self.with(key, |zone| !zone.breaker.is_out() && zone.report_at <= now)
    }

    /// A report went unanswered: the next one waits a little.
    pub(crate) fn delay_reports(&self, key: ZoneKey, now: Instant) {
        self.with(key, |zone| {
            zone.report_at = now + self.dice.between(PROBE_MIN, PROBE_MAX)
        });
    }

    /// True while the zone is out.
    pub(crate) fn is_out(&self, key: ZoneKey) -> bool {
        lock(&self.zones)
            .get(&key)
            .is_some_and(|zone| zone.breaker.is_out())
    }

    /// Zones that are out now.
    pub(crate) fn out_count(&self) -> u64 {
        lock(&self.zones)
            .values()
            .filter(|zone| zone.breaker.is_out())
            .count() as u64
    }

    /// Outages so far.
    pub(crate) fn outages(&self) -> u64 {
        self.outages.load(Ordering::Relaxed)
    }
}

const _: () = assert!(PROBE_IDLE.as_millis() > PROBE_MAX.as_millis());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PROBES_TO_CLOSE;
    use std::pin::pin;

    /// Those who wait for their turn to ask learn of it from probes too.
    #[test]
    fn an_outage_that_probes_end_leaves_nobody_in_doubt() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let zones = Zones::new(second, Mode::Open, Arc::new(Dice::new(Some(1))), now);
        zones.wanted(None, now);
        let later = now + second * 2;
        assert!(zones.missed(None, now, later, &AdmitRequest::default()));
        zones.doubt(None, later + second);
        assert!(zones.may_ask(None, later).is_err());
        let mut settled = pin!(zones.settled());
        for _ in 1..PROBES_TO_CLOSE {
            zones.probed(None, true, later);
            assert!(!settled.as_mut().enable(), "not yet");
        }
        zones.probed(None, true, later);
        assert!(!zones.is_out(None));
        assert!(settled.as_mut().enable(), "they are told");
        assert_eq!(zones.may_ask(None, later), Ok(()));
    }
}
