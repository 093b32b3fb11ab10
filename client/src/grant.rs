//! The name of a grant, for those who settle a call elsewhere than where it was admitted.

use std::fmt;
use std::str::FromStr;
use weir_proto::v1;

/// Names one grant for ever. Written as text (`Display`, `FromStr`) it can be stored and settled by
/// another process: [`crate::Guard::detach`], [`crate::Client::settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    shard: u32,
    index: u64,
    offset: u32,
}

impl From<v1::Grant> for Grant {
    fn from(grant: v1::Grant) -> Grant {
        Grant {
            shard: grant.shard,
            index: grant.index,
            offset: grant.offset,
        }
    }
}

impl From<Grant> for v1::Grant {
    fn from(grant: Grant) -> v1::Grant {
        v1::Grant {
            shard: grant.shard,
            index: grant.index,
            offset: grant.offset,
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.shard, self.index, self.offset)
    }
}

/// The text is not a [`Grant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a grant")]
pub struct GrantError;

impl FromStr for Grant {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Grant, GrantError> {
        if !text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
        {
            return Err(GrantError);
        }
        let mut parts = text.split('.');
        let (shard, index, offset) = (parts.next(), parts.next(), parts.next());
        let (Some(shard), Some(index), Some(offset), None) = (shard, index, offset, parts.next())
        else {
            return Err(GrantError);
        };
        Ok(Grant {
            shard: shard.parse().map_err(|_| GrantError)?,
            index: index.parse().map_err(|_| GrantError)?,
            offset: offset.parse().map_err(|_| GrantError)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let grant = Grant {
            shard: 15,
            index: u64::MAX,
            offset: u32::MAX,
        };
        assert_eq!(grant.to_string().parse(), Ok(grant));
        let none = Grant {
            shard: 0,
            index: 0,
            offset: 0,
        };
        assert_eq!(none.to_string().parse(), Ok(none));
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "1.2.",
            "1..3",
            "+1.2.3",
            " 1.2.3",
            "1.2.4294967296",
        ] {
            assert_eq!(text.parse::<Grant>(), Err(GrantError), "{text:?}");
        }
    }
}
