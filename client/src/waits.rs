//! Calls that wait for their turn, and how they hear that it is near.

use crate::lock::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// All calls of a client that can be woken, by their attempt.
#[derive(Default)]
pub(crate) struct Waits {
    waiting: Mutex<BTreeMap<u64, Entry>>,
}

struct Entry {
    /// The session that carried the last ask, 0 before the first.
    session: u64,
    bell: Arc<Bell>,
}

/// Rings once for all wakes since it was last heard.
#[derive(Default)]
struct Bell {
    rung: Notify,
    spread_us: AtomicU64,
    /// True if nobody said that a turn is near: only the session ended that would have said it.
    unheard: AtomicBool,
}

/// Why a call comes back before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    /// The cluster says that its turn is near.
    Turn(Duration),
    /// Its session ended: it will not be told.
    Unheard(Duration),
}

impl Bell {
    fn ring(&self, spread: Duration, unheard: bool) {
        self.unheard.store(unheard, Ordering::Relaxed);
        let spread_us = u64::try_from(spread.as_micros()).unwrap_or(u64::MAX);
        self.spread_us.store(spread_us, Ordering::Relaxed);
        self.rung.notify_one();
    }
}

impl Waits {
    /// The attempt can be woken until this is dropped, or begins to wait elsewhere. A wake that comes at
    /// any time from now on is remembered, also one that overtakes its deferral.
    pub(crate) fn begin(self: &Arc<Self>, attempt: u64) -> Waiting {
        let bell = Arc::new(Bell::default());
        let entry = Entry {
            session: 0,
            bell: bell.clone(),
        };
        lock(&self.waiting).insert(attempt, entry);
        Waiting {
            waits: self.clone(),
            attempt,
            bell,
        }
    }

    /// The attempt asks, in this session.
    pub(crate) fn asks_in(&self, attempt: u64, session: u64) {
        if let Some(entry) = lock(&self.waiting).get_mut(&attempt) {
            entry.session = session;
        }
    }

    /// The attempt's turn is near. True if it still waits.
    pub(crate) fn wake(&self, attempt: u64, spread: Duration) -> bool {
        let bell = lock(&self.waiting)
            .get(&attempt)
            .map(|entry| entry.bell.clone());
        bell.inspect(|bell| bell.ring(spread, false)).is_some()
    }

    /// The session ended: those who asked in it hear no wake any more and should ask again within
    /// `spread`.
    pub(crate) fn session_ended(&self, session: u64, spread: Duration) {
        for entry in lock(&self.waiting).values() {
            if entry.session == session {
                entry.bell.ring(spread, true);
            }
        }
    }
}

/// One call that waits.
pub(crate) struct Waiting {
    waits: Arc<Waits>,
    attempt: u64,
    bell: Arc<Bell>,
}

impl Waiting {
    /// Resolves at the next wake, with the time within which to come back.
    pub(crate) async fn woken(&self) -> Ring {
        self.bell.rung.notified().await;
        let spread = Duration::from_micros(self.bell.spread_us.load(Ordering::Relaxed));
        if self.bell.unheard.load(Ordering::Relaxed) {
            Ring::Unheard(spread)
        } else {
            Ring::Turn(spread)
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waits.waiting);
        let own = |entry: &Entry| Arc::ptr_eq(&entry.bell, &self.bell);
        if waiting.get(&self.attempt).is_some_and(own) {
            waiting.remove(&self.attempt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn heard(waiting: &Waiting) -> Option<Ring> {
        match pin!(waiting.woken()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ring) => Some(ring),
            Poll::Pending => None,
        }
    }

    const NOW: Duration = Duration::ZERO;
    const SPREAD: Duration = Duration::from_millis(5);
    const TURN: Option<Ring> = Some(Ring::Turn(NOW));

    #[test]
    fn a_wake_is_heard_once_and_remembered_until_then() {
        let waits = Arc::new(Waits::default());
        let (one, two) = (waits.begin(1), waits.begin(2));
        assert!(waits.wake(1, SPREAD) && waits.wake(1, NOW));
        assert_eq!((heard(&one), heard(&one)), (TURN, None));
        assert_eq!(heard(&two), None);
        drop(one);
        assert!(!waits.wake(1, NOW));
    }

    #[test]
    fn who_begins_to_wait_last_is_woken() {
        let waits = Arc::new(Waits::default());
        let (former, newer) = (waits.begin(1), waits.begin(1));
        assert!(waits.wake(1, NOW));
        assert_eq!((heard(&former), heard(&newer)), (None, TURN));
        drop(former);
        assert!(waits.wake(1, NOW));
        drop(newer);
        assert!(!waits.wake(1, NOW));
    }

    #[test]
    fn who_asked_in_a_session_hears_of_its_end() {
        let waits = Arc::new(Waits::default());
        let calls = [waits.begin(1), waits.begin(2), waits.begin(3)];
        waits.asks_in(1, 7);
        waits.asks_in(2, 7);
        waits.asks_in(2, 8);
        waits.session_ended(7, SPREAD);
        assert_eq!(
            calls.each_ref().map(heard),
            [Some(Ring::Unheard(SPREAD)), None, None]
        );
    }
}
