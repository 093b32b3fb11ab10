//! What could be said very often is said once in a while.

use crate::limits::SAY_AGAIN_AFTER;
use std::time::Instant;

/// Counts what was not said.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    said: Option<Instant>,
    missed: u64,
}

impl Seldom {
    /// How often it happened without a word since the last time, if it should be said now.
    pub(super) fn say(&mut self) -> Option<u64> {
        self.say_at(Instant::now())
    }

    fn say_at(&mut self, now: Instant) -> Option<u64> {
        if self
            .said
            .is_some_and(|said| now.duration_since(said) < SAY_AGAIN_AFTER)
        {
            self.missed += 1;
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.missed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_in_a_while_with_what_was_missed() {
        let (mut seldom, begun) = (Seldom::default(), Instant::now());
        let almost = begun + SAY_AGAIN_AFTER / 2;
        assert_eq!(seldom.say_at(begun), Some(0));
        assert_eq!(seldom.say_at(almost), None);
        assert_eq!(seldom.say_at(almost), None);
        assert_eq!(seldom.say_at(begun + SAY_AGAIN_AFTER), Some(2));
        assert_eq!(seldom.say_at(begun + SAY_AGAIN_AFTER * 2), Some(0));
    }
}
