//! Names that cannot be malformed.

use crate::limits::NAME_BYTES_MAX;
use std::fmt;
use std::sync::Arc;

/// Why a text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The text is empty.
    Empty,
    /// The text has more than [`NAME_BYTES_MAX`] bytes.
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The text has a control character.
    Control {
        /// Byte offset of the first one.
        offset: usize,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Empty => write!(f, "must not be empty"),
            NameError::TooLong { bytes } => {
                write!(f, "must be at most {NAME_BYTES_MAX} bytes, has {bytes}")
            }
            NameError::Control { offset } => {
                write!(
                    f,
                    "must not contain control characters, has one at byte {offset}"
                )
            }
        }
    }
}

impl std::error::Error for NameError {}

fn check(text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { bytes: text.len() });
    }
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((offset, _)) => Err(NameError::Control { offset }),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// 1-128 bytes of UTF-8 without control characters, compared byte by byte: names that look
        /// alike but are encoded differently are different names.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a text and makes it a name.
            pub fn new(text: &str) -> Result<Self, NameError> {
                check(text)?;
                Ok(Self(Arc::from(text)))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name!(
    /// What is called: `openai/gpt-5`. The part up to the first `/` is its pool.
    TargetName
);
name!(
    /// Who use is counted against.
    TenantName
);
name!(
    /// A priority of a policy.
    PriorityName
);
name!(
    /// What a limit counts: `requests`, `tokens`.
    DimensionName
);
name!(
    /// A limit of a policy.
    LimitName
);
name!(
    /// Whose credential made a call; `anonymous` where nobody is identified.
    Principal
);
