//! What the fleet measures of itself: latency, waiting and slot time. Who got how much is counted by the
//! provider.

use super::workload::Workload;
use hdrhistogram::{CreationError, Histogram};
use std::time::Duration;
use tokio::time::Instant;

/// Running sums of one fleet.
pub struct Tally {
    warm: Instant,
    /// When each workflow began to want the call that it waits for.
    wanted: Vec<Instant>,
    classes: Vec<ClassTally>,
}

struct ClassTally {
    latency_us: Histogram<u64>,
    slot: Duration,
    longest: Duration,
    members: std::ops::Range<usize>,
}

/// The sums of a run, from its warm-up on.
#[derive(Clone, Debug)]
pub struct Figures {
    /// One per class, highest priority first.
    pub classes: Vec<ClassFigures>,
}

/// One class.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassFigures {
    /// Calls served.
    pub done: u64,
    /// Median time from wanting a call to its answer.
    pub p50: Duration,
    /// 95th percentile of the same.
    pub p95: Duration,
    /// Longest time that a call waited, calls included that still waited at the end.
    pub longest: Duration,
    /// Slot time of all runs together.
    pub slot: Duration,
}

impl Tally {
    /// Every workflow begins to want its first call now.
    pub fn new(workload: &Workload, warm: Instant) -> Result<Tally, CreationError> {
        let mut classes = Vec::with_capacity(workload.classes.len());
        let mut first = 0;
        for class in &workload.classes {
            let members = first..first + class.workflows * class.tenants.len();
            first = members.end;
            let (latency_us, zero) = (histogram()?, Duration::ZERO);
            classes.push(ClassTally {
                latency_us,
                slot: zero,
                longest: zero,
                members,
            });
        }
        Ok(Tally {
            warm,
            wanted: vec![Instant::now(); workload.workflows()],
            classes,
        })
    }

    /// A slot was held for a call of this class.
    pub fn slot_held(&mut self, class: usize, taken: Instant, until: Instant) {
        if let Some(class) = self.classes.get_mut(class) {
            class.slot += until.saturating_duration_since(taken.max(self.warm));
        }
    }

    /// The call of a workflow was served; it wants the next one now.
    pub fn done(&mut self, workflow: usize, class: usize, now: Instant) {
        let warm = self.warm;
        if let (Some(wanted), Some(class)) =
            (self.wanted.get_mut(workflow), self.classes.get_mut(class))
        {
            if now >= warm {
                class.served(now - *wanted);
            }
            *wanted = now;
        }
    }

    /// Adds up at the end of a run.
    pub fn figures(&self, ended: Instant) -> Figures {
        let classes = self.classes.iter().map(|class| {
            let open = self.wanted.get(class.members.clone()).unwrap_or_default();
            let waiting = open
                .iter()
                .map(|wanted| ended.saturating_duration_since(*wanted))
                .max();
            let quantile = |q| Duration::from_micros(class.latency_us.value_at_quantile(q));
            ClassFigures {
                done: class.latency_us.len(),
                p50: quantile(0.5),
                p95: quantile(0.95),
                longest: class.longest.max(waiting.unwrap_or_default()),
                slot: class.slot,
            }
        });
        Figures {
            classes: classes.collect(),
        }
    }
}

impl ClassTally {
    fn served(&mut self, waited: Duration) {
        self.longest = self.longest.max(waited);
        let us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.latency_us.saturating_record(us.max(1));
    }
}

impl Figures {
    /// Calls served in all classes.
    pub fn done(&self) -> u64 {
        self.classes.iter().map(|class| class.done).sum()
    }

    /// Longest wait in all classes.
    pub fn longest(&self) -> Duration {
        self.classes
            .iter()
            .map(|class| class.longest)
            .max()
            .unwrap_or_default()
    }

    /// Slot time per call served.
    pub fn slot_per_call(&self) -> Duration {
        let slot: Duration = self.classes.iter().map(|class| class.slot).sum();
        slot.checked_div(u32::try_from(self.done()).unwrap_or(u32::MAX))
            .unwrap_or_default()
    }
}

/// 1 us to one hour, at two digits.
fn histogram() -> Result<Histogram<u64>, CreationError> {
    Histogram::new_with_bounds(1, 3_600_000_000, 2)
}
