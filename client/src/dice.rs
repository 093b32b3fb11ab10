//! All randomness of one client.

use crate::lock::lock;
use crate::retry::{DICE_SIDES, jittered};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use std::sync::Mutex;
use std::time::Duration;

/// Where a client's jitter and attempt numbers come from: the system, or a seed, with which a simulation
/// repeats itself.
pub(crate) struct Dice(Mutex<StdRng>);

impl Dice {
    pub(crate) fn new(seed: Option<u64>) -> Dice {
        Dice(Mutex::new(
            seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64),
        ))
    }

    /// A number that nobody else has.
    pub(crate) fn name(&self) -> u64 {
        lock(&self.0).next_u64()
    }

    /// A number below [`DICE_SIDES`].
    pub(crate) fn roll(&self) -> u32 {
        lock(&self.0).next_u32() % DICE_SIDES
    }

    /// A duration from `low` to `high`.
    pub(crate) fn between(&self, low: Duration, high: Duration) -> Duration {
        jittered(low, high, self.roll())
    }
}
