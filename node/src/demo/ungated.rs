//! The fleet without a gate: every worker retries in its slot, with exponential backoff and jitter.
//!
//! This is the retry policy of workflow engines and of most SDKs. Obeying Retry-After instead was
//! measured too. With fixed windows it is better (7 % of calls get a 429: everybody waits for the next
//! window). With sliding windows it is far worse: everybody is told the same moment, comes back together,
//! is refused together, and the refused calls count, so that after the first cap nobody is served at all.

use super::chat::{Chat, Reply};
use super::fleet::{Activity, Call, Step};
use rand::Rng;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// First wait of the exponential backoff.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// Its longest wait.
const BACKOFF_MAX: Duration = Duration::from_secs(8);

/// Sends at once; after a 429 sleeps in the slot and sends again.
#[derive(Debug)]
pub struct Ungated {
    chat: Chat,
    sends: AtomicU64,
}

impl Ungated {
    /// A fleet of this kind for one provider.
    pub fn new(chat: Chat) -> Ungated {
        Ungated {
            chat,
            sends: AtomicU64::new(0),
        }
    }

    /// Calls sent so far.
    pub fn sends(&self) -> u64 {
        self.sends.load(Ordering::Relaxed)
    }
}

impl Activity for Ungated {
    type Memory = ();

    async fn run(&self, _worker: usize, call: &mut Call<()>, stop: &CancellationToken) -> Step {
        let mut wait = BACKOFF_FIRST;
        loop {
            self.sends.fetch_add(1, Ordering::Relaxed);
            match self.chat.send(call).await {
                Reply::Served { .. } => return Step::Done,
                Reply::Throttled { .. } | Reply::Failed => {}
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Step::Again(wait),
                () = tokio::time::sleep(jittered(wait)) => {}
            }
            wait = (wait * 2).min(BACKOFF_MAX);
        }
    }
}

/// Three quarters to the whole of a wait.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(rand::rng().random_range(0.75..=1.0))
}
