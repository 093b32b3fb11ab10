//! What is wrong with a message.

use crate::error::{Reason, WireError};
use crate::limits::{VIOLATION_TEXT_BYTES_MAX, VIOLATIONS_MAX};
use weir_admission::Violation;

/// Every field of a message that breaks a rule, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    told: Vec<Violation>,
    found: usize,
}

impl Violations {
    /// The first [`VIOLATIONS_MAX`] of them.
    pub fn told(&self) -> &[Violation] {
        &self.told
    }

    /// How many there are.
    pub fn found(&self) -> usize {
        self.found
    }

    pub(super) fn push(&mut self, field: &str, description: &str) {
        self.found = self.found.saturating_add(1);
        if self.told.len() < VIOLATIONS_MAX {
            self.told.push(Violation {
                field: cut(field),
                description: cut(description),
            });
        }
    }
}

/// A text that fits into an answer, whatever the caller sent.
fn cut(text: &str) -> String {
    if text.len() <= VIOLATION_TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let start = text.get(..text.floor_char_boundary(VIOLATION_TEXT_BYTES_MAX));
    format!("{}...", start.unwrap_or_default())
}

impl std::fmt::Display for Violations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.told.first() {
            None => f.write_str("nothing is wrong")?,
            Some(first) => write!(f, "{} {}", first.field, first.description)?,
        }
        match self.found.saturating_sub(1) {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more)"),
            more => write!(f, " (and {more} more)"),
        }
    }
}

impl std::error::Error for Violations {}

impl From<Violations> for WireError {
    fn from(violations: Violations) -> WireError {
        let message = violations.to_string();
        WireError {
            violations: violations.told,
            ..WireError::new(Reason::Malformed, message)
        }
    }
}
