//! How often a client may repeat: one retry for ten tries. No socket, no clock.
//!
//! A server that got slow is asked more by clients that repeat what they gave up waiting for, and so stays
//! slow after its load has fallen. The budget bounds that: a shard meets at most a tenth more than what was
//! asked of it, and [`RETRY_RESERVE`]. Each shard has its own, because its leader is who has to bear the
//! retries: what other leaders answer well must not pay for them.
//!
//! A *try* is the first send of something new: of a new attempt, of a call that comes back because the
//! cluster told it to, of a release, cancel, extension, report or question. A call that comes back from a
//! deferral of the client's own earns nothing: that deferral is what paces it. What costs a *retry* is
//! told by [`crate::retry::Tally::costs`].

use crate::limits::{RETRY_RESERVE, RETRY_SAVED_MAX, TRIES_PER_RETRY};

/// What one client may still repeat at one shard.
#[derive(Debug)]
pub(crate) struct Budget {
    /// In parts of a retry, of which a try earns one: [`TRIES_PER_RETRY`] are a retry.
    parts: u32,
}

impl Budget {
    /// With nothing but the reserve.
    pub(crate) fn new() -> Budget {
        Budget {
            parts: RETRY_RESERVE * TRIES_PER_RETRY,
        }
    }

    /// Something new is sent.
    pub(crate) fn earn(&mut self) {
        self.parts = (self.parts + 1).min(RETRY_SAVED_MAX * TRIES_PER_RETRY);
    }

    /// True if a retry may go, which is then paid for.
    pub(crate) fn spend(&mut self) -> bool {
        let left = self.parts.checked_sub(TRIES_PER_RETRY);
        self.parts = left.unwrap_or(self.parts);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A history: whether each step is a try (otherwise a retry is wanted).
    fn history() -> impl Strategy<Value = Vec<bool>> {
        (0.0..1.0_f64)
            .prop_flat_map(|tries| prop::collection::vec(prop::bool::weighted(tries), 0..5_000))
    }

    proptest! {
        #[test]
        fn retries_are_a_tenth_of_the_tries_and_the_reserve(history in history()) {
            let mut budget = Budget::new();
            let (mut tries, mut retries, mut denied) = (0_u32, 0_u32, 0_u32);
            for is_try in history {
                if is_try {
                    budget.earn();
                    tries += 1;
                } else if budget.spend() {
                    retries += 1;
                } else {
                    denied += 1;
                }
                prop_assert!(retries <= RETRY_RESERVE + tries / TRIES_PER_RETRY);
            }
            // It is no stricter either, as long as nothing was saved in vain.
            if denied > 0 && tries <= (RETRY_SAVED_MAX - RETRY_RESERVE) * TRIES_PER_RETRY {
                prop_assert!(retries >= RETRY_RESERVE);
            }
        }

        #[test]
        fn what_was_saved_is_bounded_in_any_part_of_a_history(
            before in 0..100_000_u32,
            part in history(),
        ) {
            let mut budget = Budget::new();
            for _ in 0..before {
                budget.earn();
            }
            let (mut tries, mut retries) = (0, 0);
            for is_try in part {
                if is_try {
                    budget.earn();
                    tries += 1;
                } else {
                    retries += u32::from(budget.spend());
                }
            }
            prop_assert!(retries <= RETRY_SAVED_MAX + tries / TRIES_PER_RETRY);
        }
    }

    #[test]
    fn a_quiet_client_has_its_reserve_and_then_a_tenth() {
        let mut budget = Budget::new();
        for _ in 0..RETRY_RESERVE {
            assert!(budget.spend());
        }
        assert!(!budget.spend());
        for _ in 0..TRIES_PER_RETRY - 1 {
            budget.earn();
            assert!(!budget.spend());
        }
        budget.earn();
        assert!(budget.spend());
        assert!(!budget.spend());
    }
}
