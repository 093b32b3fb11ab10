//! What follows a try: another one, after a pause, or the end. No socket, no clock, no randomness.

use crate::limits::{
    BACKOFF_MAX, BACKOFF_MIN, HINTS_IN_A_ROW_MAX, SENDS_PER_DECISION_MAX, SENDS_PER_DELIVERY_MAX,
    STALE_IN_A_ROW_MAX,
};
use std::time::Duration;

/// How one try ended, if it did not end the matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The node does not lead the shard. Nothing happened.
    NotLeader {
        /// Whether it named a node that can be asked instead.
        hinted: bool,
    },
    /// No answer came, or a node answered that it has no quorum.
    NoAnswer {
        /// How long the node asks us to wait.
        retry_in: Option<Duration>,
        /// What the try left there.
        left: Left,
    },
    /// A grant came after its reply window: the next ask undoes it and keeps the place.
    Late,
    /// A newer ask or attempt was seen.
    Stale,
    /// The node has no room. Nothing happened.
    Overloaded {
        /// How long it asks us to wait.
        retry_in: Option<Duration>,
    },
}

impl Trouble {
    /// True if a visit that ends with it cost the node something, and was of no use.
    pub(crate) fn is_in_vain(self) -> bool {
        match self {
            Trouble::Late => true,
            // A node that names a pause knows what it can take.
            Trouble::Overloaded { retry_in } => retry_in.is_none(),
            Trouble::NoAnswer { retry_in, left } => retry_in.is_none() && left == Left::Work,
            Trouble::NotLeader { .. } | Trouble::Stale => false,
        }
    }
}

/// What a try without an answer left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing: it did not reach a node.
    Nothing,
    /// Nothing that counts: its session ended, and a node drops the asks of a session that is gone. The
    /// one call that is told of it first, for all, has [`Left::Work`].
    Session,
    /// Perhaps work: it reached a node, or took a whole try.
    Work,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Send again after this pause.
    Send(Duration),
    /// Time or patience is used up.
    Stop,
}

/// What the tries are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A decision: overload ends it and becomes a deferral, so that the caller's slot is free.
    Decision,
    /// Something that must be delivered: overload only delays it.
    Delivery,
}

/// The counts of one decision or delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    purpose: Purpose,
    sends: u32,
    pauses: u32,
    hints_in_a_row: u32,
    late: u32,
    stale: u32,
    moved: bool,
}

impl Tally {
    /// Before the first send.
    pub(crate) fn new(purpose: Purpose) -> Tally {
        Tally {
            purpose,
            sends: 1,
            pauses: 0,
            hints_in_a_row: 0,
            late: 0,
            stale: 0,
            moved: false,
        }
    }

    /// What follows `trouble`, with `remaining` time left and a `dice` of 0-1023 for the jitter.
    ///
    /// A pause that would use up the remaining time ends the matter instead.
    pub(crate) fn after(&mut self, trouble: Trouble, remaining: Duration, dice: u32) -> Next {
        let hints_in_a_row = std::mem::take(&mut self.hints_in_a_row);
        let pause = match trouble {
            Trouble::NotLeader { hinted: true } if hints_in_a_row < HINTS_IN_A_ROW_MAX => {
                self.hints_in_a_row = hints_in_a_row + 1;
                Duration::ZERO
            }
            Trouble::NotLeader { hinted: _ } => self.pause(None, dice),
            Trouble::NoAnswer { retry_in, left: _ } => self.pause(retry_in, dice),
            Trouble::Late => {
                self.late += 1;
                if self.late == 1 {
                    Duration::ZERO
                } else {
                    self.pause(None, dice)
                }
            }
            Trouble::Stale => {
                self.stale += 1;
                if self.stale > STALE_IN_A_ROW_MAX {
                    return Next::Stop;
                }
                Duration::ZERO
            }
            Trouble::Overloaded { retry_in } => match self.purpose {
                Purpose::Decision => return Next::Stop,
                Purpose::Delivery => self.pause(retry_in, dice),
            },
        };
        let sends_max = match self.purpose {
            Purpose::Decision => SENDS_PER_DECISION_MAX,
            Purpose::Delivery => SENDS_PER_DELIVERY_MAX,
        };
        if self.sends >= sends_max || pause >= remaining {
            return Next::Stop;
        }
        self.sends += 1;
        Next::Send(pause)
    }

    /// True if sending again after `trouble` costs a retry: if the try may have left work behind, so that a
    /// slow node would have to do it twice.
    ///
    /// What costs none has bounds of its own. A node that does not lead did nothing, and hints are followed
    /// three times; one that asks for a pause chose what it can take; a try that never left is backed off
    /// from; a stale answer is followed twice. The calls of a session that ended move to the next one
    /// together: the first of them pays, and so does each that it happens to again.
    pub(crate) fn costs(&mut self, trouble: Trouble) -> bool {
        match trouble {
            Trouble::NotLeader { .. } | Trouble::Stale => false,
            Trouble::NoAnswer {
                retry_in: Some(_), ..
            } => false,
            Trouble::NoAnswer {
                retry_in: None,
                left,
            } => match left {
                Left::Nothing => false,
                Left::Session => std::mem::replace(&mut self.moved, true),
                Left::Work => true,
            },
            Trouble::Late => true,
            Trouble::Overloaded { retry_in } => retry_in.is_none(),
        }
    }

    /// See [`backoff`]; never shorter than the node asked for.
    fn pause(&mut self, at_least: Option<Duration>, dice: u32) -> Duration {
        let pause = backoff(self.pauses, dice);
        self.pauses += 1;
        pause.max(at_least.unwrap_or(Duration::ZERO))
    }
}

/// The pause after so many: doubles from [`BACKOFF_MIN`] to [`BACKOFF_MAX`], half of it is jitter.
pub(crate) fn backoff(pauses: u32, dice: u32) -> Duration {
    let full = BACKOFF_MIN
        .saturating_mul(1 << pauses.min(10))
        .min(BACKOFF_MAX);
    jittered(full / 2, full, dice)
}

/// The values of a dice: 0 to one less.
pub(crate) const DICE_SIDES: u32 = 1_024;

/// A duration from `low` to `high`, by a dice of [`DICE_SIDES`].
pub(crate) fn jittered(low: Duration, high: Duration, dice: u32) -> Duration {
    low + high.saturating_sub(low) * (dice % DICE_SIDES) / DICE_SIDES
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Next = Next::Send(Duration::ZERO);
    const LONG: Duration = Duration::from_secs(60);
    const HINT: Trouble = Trouble::NotLeader { hinted: true };
    const NO_HINT: Trouble = Trouble::NotLeader { hinted: false };
    const SILENT: Trouble = no_answer(None, Left::Work);
    const FULL: Trouble = Trouble::Overloaded {
        retry_in: Some(Duration::from_millis(70)),
    };

    const fn no_answer(retry_in: Option<Duration>, left: Left) -> Trouble {
        Trouble::NoAnswer { retry_in, left }
    }

    fn ms(n: u64) -> Next {
        Next::Send(Duration::from_millis(n))
    }

    /// What is heard, one after the other, and what follows without jitter (dice 0: the low end).
    fn check(claim: &str, purpose: Purpose, steps: &[(Trouble, Next)]) {
        let mut tally = Tally::new(purpose);
        for (step, (trouble, expected)) in steps.iter().enumerate() {
            assert_eq!(
                tally.after(*trouble, LONG, 0),
                *expected,
                "{claim}: step {step}"
            );
        }
    }

    #[test]
    fn what_follows_what() {
        check(
            "hints are followed at once, but not for ever",
            Purpose::Decision,
            &[
                (HINT, NOW),
                (HINT, NOW),
                (HINT, NOW),
                (HINT, ms(5)),
                (HINT, NOW),
            ],
        );
        check(
            "silence backs off, doubling to the bound",
            Purpose::Decision,
            &[
                (SILENT, ms(5)),
                (NO_HINT, ms(10)),
                (SILENT, ms(20)),
                (SILENT, ms(40)),
                (SILENT, ms(80)),
                (SILENT, ms(100)),
                (SILENT, ms(100)),
            ],
        );
        check(
            "a node may ask for more",
            Purpose::Decision,
            &[(
                no_answer(Some(Duration::from_millis(300)), Left::Work),
                ms(300),
            )],
        );
        check(
            "the first late answer is asked again at once",
            Purpose::Decision,
            &[
                (Trouble::Late, NOW),
                (Trouble::Late, ms(5)),
                (Trouble::Late, ms(10)),
            ],
        );
        check(
            "a straggler makes one answer stale, a newer attempt all",
            Purpose::Decision,
            &[
                (Trouble::Stale, NOW),
                (Trouble::Stale, NOW),
                (Trouble::Stale, Next::Stop),
            ],
        );
        check(
            "overload ends an ask",
            Purpose::Decision,
            &[(FULL, Next::Stop)],
        );
        check(
            "overload delays a delivery",
            Purpose::Delivery,
            &[(FULL, ms(70)), (FULL, ms(70))],
        );
    }

    #[test]
    fn what_may_be_done_twice_costs_a_retry() {
        let told = Some(Duration::from_millis(70));
        let rows = [
            ("a hint", HINT, false),
            ("no hint", NO_HINT, false),
            ("a whole try without an answer", SILENT, true),
            ("no connection", no_answer(None, Left::Nothing), false),
            ("no quorum", no_answer(told, Left::Nothing), false),
            ("a pause asked for", no_answer(told, Left::Work), false),
            ("a late grant", Trouble::Late, true),
            ("a stale answer", Trouble::Stale, false),
            ("no room, with a pause", FULL, false),
            ("no room", Trouble::Overloaded { retry_in: None }, true),
        ];
        let mut tally = Tally::new(Purpose::Delivery);
        for (claim, trouble, costs) in rows {
            assert_eq!(tally.costs(trouble), costs, "{claim}");
        }
        let ended = no_answer(None, Left::Session);
        assert!(!tally.costs(ended), "it moves with its session");
        assert!(tally.costs(ended), "but not again and again");
    }

    #[test]
    fn a_pause_never_uses_up_the_time_left() {
        for dice in 0..1_024 {
            for remaining_ms in [0, 1, 5, 9, 10, 50, 99, 1_000] {
                let remaining = Duration::from_millis(remaining_ms);
                let mut tally = Tally::new(Purpose::Delivery);
                for _ in 0..10 {
                    match tally.after(SILENT, remaining, dice) {
                        Next::Send(pause) => assert!(pause < remaining && pause < BACKOFF_MAX),
                        Next::Stop => assert!(remaining <= BACKOFF_MAX),
                    }
                }
            }
        }
    }

    #[test]
    fn sends_are_bounded_whatever_is_heard() {
        let bounds = [
            (Purpose::Decision, SENDS_PER_DECISION_MAX),
            (Purpose::Delivery, SENDS_PER_DELIVERY_MAX),
        ];
        for (purpose, most) in bounds {
            for trouble in [HINT, NO_HINT, SILENT, Trouble::Late] {
                let mut tally = Tally::new(purpose);
                let goes_on = |_: &u32| tally.after(trouble, LONG, 512) != Next::Stop;
                let repeats = (0..2 * most).take_while(goes_on).count();
                assert_eq!(repeats + 1, most as usize, "{trouble:?}");
            }
        }
    }

    #[test]
    fn jitter_stays_in_its_range() {
        let (low, high) = (Duration::from_millis(100), Duration::from_millis(400));
        assert_eq!(jittered(low, high, 0), low);
        assert!(jittered(low, high, 1_023) < high);
        assert!(jittered(low, high, 512) > low);
    }
}
