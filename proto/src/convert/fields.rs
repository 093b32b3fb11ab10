//! Checks of single fields. Each tells what is wrong and goes on, so that all of it is told at once.

use super::Violations;
use crate::name::Name;
use weir_admission::Micros;
use weir_admission::limits::{ADMISSION_ID_BYTES_MAX, CALLER_DURATION_MAX};

/// Reads the fields of one message.
pub(super) struct Fields {
    violations: Violations,
    prefix: String,
}

/// Path of one entry of a map.
pub(super) fn entry(map: &str, key: &str) -> String {
    format!("{map}[{key:?}]")
}

impl Fields {
    /// Fields of the message itself.
    pub(super) fn new() -> Fields {
        Fields {
            violations: Violations::default(),
            prefix: String::new(),
        }
    }

    /// Goes into a message within: from now on paths begin with `prefix`, for example `calls[3].`.
    pub(super) fn enter(&mut self, prefix: String) {
        self.prefix = prefix;
    }

    /// Tells that a field breaks a rule.
    pub(super) fn refuse(&mut self, field: &str, rule: &str) {
        self.violations
            .push(&format!("{}{field}", self.prefix), rule);
    }

    /// The value, if all of its parts are there and nothing was refused.
    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, Violations> {
        match value {
            Some(value) if self.violations.found() == 0 => Ok(value),
            Some(_) | None => Err(self.violations),
        }
    }

    /// A name.
    pub(super) fn name<N: Name>(&mut self, field: &str, text: &str) -> Option<N> {
        match N::check(text) {
            Ok(name) => Some(name),
            Err(rule) => {
                self.refuse(field, &rule.to_string());
                None
            }
        }
    }

    /// A name, or after telling what is wrong with it a stand-in that is no one's name, so that the rest
    /// can be checked too.
    pub(super) fn name_or_stand_in<N: Name>(&mut self, field: &str, text: &str) -> Option<N> {
        self.name(field, text)
            .or_else(|| N::check(&format!("\u{fffd}{field}")).ok())
    }

    /// An admission id.
    pub(super) fn admission_id(&mut self, text: String) -> Option<Box<[u8]>> {
        let rule = if text.is_empty() {
            "must not be empty".into()
        } else if text.len() > ADMISSION_ID_BYTES_MAX {
            format!(
                "must be at most {ADMISSION_ID_BYTES_MAX} bytes, has {}",
                text.len()
            )
        } else if let Some((offset, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
            format!("must not contain control characters, has one at byte {offset}")
        } else {
            return Some(text.into_bytes().into_boxed_slice());
        };
        self.refuse("admission_id", &rule);
        None
    }

    /// An attempt. 0 is what a caller sends who forgot to choose one: all of its attempts would be one.
    pub(super) fn attempt(&mut self, attempt: u64) -> u64 {
        if attempt == 0 {
            self.refuse("attempt", "must be chosen at random and not be 0");
        }
        attempt
    }

    /// The number of an ask.
    pub(super) fn ask(&mut self, ask: u32) -> u32 {
        if ask == 0 {
            self.refuse("ask", "must be at least 1");
        }
        ask
    }

    /// A duration that callers name.
    pub(super) fn duration(&mut self, field: &str, us: Micros) -> Micros {
        if us > CALLER_DURATION_MAX {
            self.refuse(
                field,
                &format!("must be at most {CALLER_DURATION_MAX} microseconds"),
            );
        }
        us
    }
}
