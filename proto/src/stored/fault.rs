//! What is wrong at one field of a batch.

use super::StoredError;
use std::borrow::Cow;

/// Boxed, so that results on the hot path stay small.
pub(super) struct Fault(Box<Kind>);

enum Kind {
    Truncated {
        missing: usize,
    },
    Malformed {
        field: Cow<'static, str>,
        detail: &'static str,
    },
    Invalid {
        field: Cow<'static, str>,
        rule: String,
    },
}

impl Fault {
    /// The bytes end before the field does.
    pub(super) fn truncated(missing: usize) -> Fault {
        Fault(Box::new(Kind::Truncated { missing }))
    }

    /// The bytes are no encoding of the field.
    pub(super) fn malformed(field: &'static str, detail: &'static str) -> Fault {
        Fault(Box::new(Kind::Malformed {
            field: field.into(),
            detail,
        }))
    }

    /// The field has a value that the rules do not allow.
    pub(super) fn invalid(field: impl Into<Cow<'static, str>>, rule: impl ToString) -> Fault {
        Fault(Box::new(Kind::Invalid {
            field: field.into(),
            rule: rule.to_string(),
        }))
    }

    /// The same fault, seen from the value that holds the field.
    pub(super) fn within(mut self, holder: &str) -> Fault {
        match &mut *self.0 {
            Kind::Truncated { .. } => {}
            Kind::Malformed { field, .. } | Kind::Invalid { field, .. } => {
                *field = Cow::Owned(format!("{holder}.{field}"));
            }
        }
        self
    }

    /// The error of the whole value.
    pub(super) fn of(self, what: &'static str) -> StoredError {
        match *self.0 {
            Kind::Truncated { missing } => StoredError::Truncated { what, missing },
            Kind::Malformed { field, detail } => StoredError::Malformed {
                what,
                detail: format!("{field} {detail}"),
            },
            Kind::Invalid { field, rule } => StoredError::Invalid {
                what,
                field: field.into_owned(),
                rule,
            },
        }
    }
}
