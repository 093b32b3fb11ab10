//! The kinds of names, alike for reading.

use weir_admission::{
    DimensionName, LimitName, NameError, Principal, PriorityName, TargetName, TenantName,
};

/// A kind of name.
pub(crate) trait Name: Clone {
    /// Checks a text.
    fn check(text: &str) -> Result<Self, NameError>;
    /// The text.
    fn text(&self) -> &str;
}

macro_rules! name {
    ($($kind:ident),+) => {$(
        impl Name for $kind {
            fn check(text: &str) -> Result<Self, NameError> {
                $kind::new(text)
            }

            fn text(&self) -> &str {
                self.as_str()
            }
        }
    )+};
}

name!(
    TargetName,
    TenantName,
    PriorityName,
    DimensionName,
    LimitName,
    Principal
);
