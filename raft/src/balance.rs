//! When a leader gives its lead back to the node that should have it.
//!
//! Leaders are spread over the nodes by preference. After a failure somebody else leads; once the
//! preferred node is back, keeps up and has done so for a few looks in a row, the lead is moved. A move
//! that does not work is tried again ever more rarely. A lead that was handed over on purpose, by an
//! operator or by a node that stops, stays where it was put for a while, or until the preferred node
//! has gone away and come back.

use crate::limits::{MOVE_AGAIN_LOOKS, MOVE_AGAIN_LOOKS_MAX, PLACED_LOOKS, READY_LOOKS};

/// What one look at a group shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// This node leads, and another should.
    pub(crate) misplaced: bool,
    /// The node that should lead answers and keeps up.
    pub(crate) ready: bool,
    /// The lead was handed to this node since the last look.
    pub(crate) given: bool,
}

/// One group's memory of past looks.
#[derive(Debug)]
pub(crate) struct Balance {
    /// Looks in a row at which the preferred node was ready.
    ready: u32,
    /// Looks for which the lead stays.
    stay: u32,
    /// Looks to stay after the next move that does not work.
    next_stay: u32,
}

impl Balance {
    pub(crate) fn new() -> Self {
        Self {
            ready: 0,
            stay: 0,
            next_stay: MOVE_AGAIN_LOOKS,
        }
    }

    /// Takes one look; true if the lead is to be moved now.
    pub(crate) fn look(&mut self, look: Look) -> bool {
        if !look.misplaced {
            *self = Self::new();
            return false;
        }
        if look.given {
            self.stay = PLACED_LOOKS;
        }
        if !look.ready {
            self.ready = 0;
            self.stay = 0;
            return false;
        }
        self.ready = self.ready.saturating_add(1);
        if self.stay > 0 {
            self.stay -= 1;
            return false;
        }
        if self.ready < READY_LOOKS {
            return false;
        }
        // If it works, the next look finds nothing misplaced and forgets this.
        self.stay = self.next_stay;
        self.next_stay = self.next_stay.saturating_mul(2).min(MOVE_AGAIN_LOOKS_MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: Look = Look {
        misplaced: true,
        ready: true,
        given: false,
    };
    const AWAY: Look = Look {
        misplaced: true,
        ready: false,
        given: false,
    };
    const GIVEN: Look = Look {
        misplaced: true,
        ready: true,
        given: true,
    };
    const RIGHT: Look = Look {
        misplaced: false,
        ready: true,
        given: false,
    };

    fn moves(balance: &mut Balance, looks: &[Look]) -> Vec<bool> {
        looks.iter().map(|look| balance.look(*look)).collect()
    }

    #[test]
    fn the_lead_moves_only_to_a_node_that_is_ready_for_some_looks_in_a_row() {
        let mut balance = Balance::new();
        let looks = [AWAY, READY, READY, AWAY, READY, READY, READY];
        let expected = [false, false, false, false, false, false, true];
        assert_eq!(moves(&mut balance, &looks), expected);
    }

    #[test]
    fn a_move_that_does_not_work_is_tried_again_ever_more_rarely() {
        let mut balance = Balance::new();
        let tried: Vec<usize> = (0..350).filter(|_| balance.look(READY)).collect();
        let gaps: Vec<usize> = tried
            .array_windows()
            .map(|[one, next]| next - one)
            .collect();
        assert_eq!(gaps, [5, 9, 17, 33, 65, 65, 65, 65]);
    }

    #[test]
    fn a_lead_given_on_purpose_stays_until_its_owner_was_away() {
        let mut balance = Balance::new();
        assert!(!balance.look(GIVEN));
        assert!(
            moves(&mut balance, &[READY; 100])
                .iter()
                .all(|moved| !moved)
        );
        assert!(!balance.look(AWAY));
        assert_eq!(moves(&mut balance, &[READY; 3]), [false, false, true]);
    }

    #[test]
    fn a_lead_given_on_purpose_goes_back_in_the_end() {
        let mut balance = Balance::new();
        balance.look(GIVEN);
        let stayed = (0..).take_while(|_| !balance.look(READY)).count();
        assert_eq!(stayed, PLACED_LOOKS as usize - 1);
    }

    #[test]
    fn nothing_moves_while_the_right_node_leads() {
        let mut balance = Balance::new();
        assert!(moves(&mut balance, &[RIGHT; 50]).iter().all(|moved| !moved));
    }
}
