//! Sessions whose asks found no room are read more slowly.
//!
//! To refuse an ask costs a good part of what it costs to decide it. At ten times what a node can do, refusals
//! at full speed would leave no processor for what was taken up. So all of them together get a small share of
//! one processor ([`REFUSING_SHARE`]), in equal parts for the sessions that are refused: who asks for little
//! hardly waits, and who sends much is held back by HTTP/2's flow control.

use crate::limits::{CROWDED_PAUSE_MAX, REFUSING_SHARE};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The sessions of one node that pause. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd(Arc<AtomicU32>);

/// Nothing is read from a session before its end. It counts until it is dropped.
#[derive(Debug)]
pub(super) struct Pause {
    pub(super) until: Instant,
    crowd: Crowd,
}

impl Crowd {
    /// A pause for a session whose last frame, with asks for which there was no room, took so long to refuse.
    pub(super) fn pause(&self, now: Instant, took: Duration) -> Pause {
        let all = self.0.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let pause = took.saturating_mul(REFUSING_SHARE).saturating_mul(all);
        Pause {
            until: now + pause.min(CROWDED_PAUSE_MAX),
            crowd: self.clone(),
        }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.crowd.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_its_cause_and_its_company_make_it() {
        let (crowd, now) = (Crowd::default(), Instant::now());
        let took = Duration::from_micros(50);
        let alone = crowd.pause(now, took);
        assert_eq!(alone.until, now + took * REFUSING_SHARE);
        let second = crowd.pause(now, took);
        assert_eq!(second.until, now + took * REFUSING_SHARE * 2);
        let small = crowd.pause(now, took / 10);
        assert!(small.until < alone.until);
        let long = crowd.pause(now, Duration::MAX);
        assert_eq!(long.until, now + CROWDED_PAUSE_MAX);
        drop((alone, second, small, long));
        assert_eq!(crowd.pause(now, took).until, now + took * REFUSING_SHARE);
    }
}
