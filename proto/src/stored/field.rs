//! A field whose value is not allowed.

use std::borrow::Cow;

/// Says which field, and what it must be.
#[derive(Debug)]
pub(super) struct FieldError {
    pub(super) field: Cow<'static, str>,
    pub(super) rule: String,
}

impl FieldError {
    pub(super) fn new(field: impl Into<Cow<'static, str>>, rule: impl ToString) -> FieldError {
        FieldError {
            field: field.into(),
            rule: rule.to_string(),
        }
    }

    /// The same field, seen from the value that holds it.
    pub(super) fn within(self, holder: &str) -> FieldError {
        FieldError {
            field: Cow::Owned(format!("{holder}.{}", self.field)),
            rule: self.rule,
        }
    }
}
