//! The provider of a run, and the notebook of everybody in it.

use crate::history::{Arrival, Call, Costs, End, History, Pass};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// Counts arrivals as a provider would, on one clock, and keeps the history. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    begun: Instant,
    history: Arc<Mutex<History>>,
}

/// One call in the notebook, made by [`Recorder::asks`].
#[derive(Clone, Copy, Debug)]
pub struct Entry(usize);

impl Default for Recorder {
    fn default() -> Self {
        Recorder::new()
    }
}

impl Recorder {
    /// An empty notebook; its clock starts now.
    pub fn new() -> Recorder {
        Recorder {
            begun: Instant::now(),
            history: Arc::default(),
        }
    }

    /// Microseconds since the run began.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// A caller begins to ask for a call.
    pub fn asks(&self, admission: &str) -> Entry {
        let asked_us = self.now_us();
        let mut history = self.history();
        history.calls.push(Call {
            admission: admission.to_owned(),
            asked_us,
            arrivals: Vec::new(),
            end: End::Waiting { for_us: 0 },
        });
        Entry(history.calls.len() - 1)
    }

    /// An answer came back from the cluster.
    pub fn answered(&self) {
        let mut history = self.history();
        let now_us = self.now_us();
        history.answers_us.push(now_us);
    }

    /// A call arrives at the provider.
    pub fn arrives(&self, entry: Entry, attempt: u64, pass: Pass, costs: &Costs) {
        let mut history = self.history();
        let at_us = self.now_us();
        if let Some(call) = history.calls.get_mut(entry.0) {
            call.arrivals.push(Arrival {
                attempt,
                at_us,
                pass,
                costs: costs.clone(),
            });
        }
    }

    /// A call ends.
    pub fn ends(&self, entry: Entry, end: End) {
        if let Some(call) = self.history().calls.get_mut(entry.0) {
            call.end = end;
        }
    }

    /// Everything so far. A call that has not ended is waiting since its first ask.
    pub fn snapshot(&self) -> History {
        let now_us = self.now_us();
        let mut history = self.history().clone();
        for call in &mut history.calls {
            if let End::Waiting { for_us } = &mut call.end {
                *for_us = now_us.saturating_sub(call.asked_us);
            }
        }
        history
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
