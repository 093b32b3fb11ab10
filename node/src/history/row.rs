//! A minute's counts of one key, as bytes.

use super::counts::{Counts, Key, Units};
use serde::{Deserialize, Serialize};
use weir_admission::{DimensionName, NameError, PriorityName, TargetName, TenantName};
use weir_proto::stored::{Kind, StoredError, decode_versioned, encode_versioned};

const COUNTS: Kind = Kind {
    name: "counts of a minute",
    format: 1,
};

/// Counts in format 1.
#[derive(Serialize, Deserialize)]
struct CountsV1 {
    admitted: u64,
    deferred: u64,
    rejected: u64,
    throttled: u64,
    ungated: u64,
    /// Dimension (empty: all others), charged, corrected.
    units: Vec<(String, u64, i64)>,
}

/// Why bytes are not a row.
#[derive(Debug, thiserror::Error)]
pub(super) enum RowError {
    #[error("a key is not what it must be")]
    Key,
    #[error("a name {0}")]
    Name(#[from] NameError),
    #[error(transparent)]
    Counts(#[from] StoredError),
}

/// The key of a row. Rows stand in order of their minute, then target, priority and tenant; an empty name
/// stands for all others.
pub(super) fn encode_key(minute: u32, key: &Key) -> Vec<u8> {
    let mut bytes = prefix(minute, key.target.as_ref());
    put(&mut bytes, key.priority.as_ref().map(PriorityName::as_str));
    put(&mut bytes, key.tenant.as_ref().map(TenantName::as_str));
    bytes
}

/// What the keys of a target's rows of one minute begin with.
pub(super) fn prefix(minute: u32, target: Option<&TargetName>) -> Vec<u8> {
    let mut bytes = minute.to_be_bytes().to_vec();
    put(&mut bytes, target.map(TargetName::as_str));
    bytes
}

fn put(bytes: &mut Vec<u8>, name: Option<&str>) {
    let name = name.unwrap_or_default();
    // Names have at most 128 bytes.
    bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    bytes.extend_from_slice(name.as_bytes());
}

/// The minute of a row.
pub(super) fn minute_of(key: &[u8]) -> Result<u32, RowError> {
    let minute = key.first_chunk().ok_or(RowError::Key)?;
    Ok(u32::from_be_bytes(*minute))
}

/// Reads what [`encode_key`] wrote.
pub(super) fn decode_key(bytes: &[u8]) -> Result<(u32, Key), RowError> {
    let minute = minute_of(bytes)?;
    let mut rest = bytes.get(4..).unwrap_or_default();
    let mut name = || -> Result<Option<&str>, RowError> {
        let (length, after) = rest.split_first().ok_or(RowError::Key)?;
        let (name, after) = after
            .split_at_checked(usize::from(*length))
            .ok_or(RowError::Key)?;
        rest = after;
        let name = std::str::from_utf8(name).map_err(|_| RowError::Key)?;
        Ok(Some(name).filter(|name| !name.is_empty()))
    };
    let key = Key {
        target: name()?.map(TargetName::new).transpose()?,
        priority: name()?.map(PriorityName::new).transpose()?,
        tenant: name()?.map(TenantName::new).transpose()?,
    };
    if rest.is_empty() {
        Ok((minute, key))
    } else {
        Err(RowError::Key)
    }
}

pub(super) fn encode_counts(counts: &Counts) -> Result<Vec<u8>, RowError> {
    let units = counts.units.iter().map(|(dimension, units)| {
        let name = dimension.as_ref().map_or("", DimensionName::as_str);
        (name.to_owned(), units.charged, units.corrected)
    });
    let stored = CountsV1 {
        admitted: counts.admitted,
        deferred: counts.deferred,
        rejected: counts.rejected,
        throttled: counts.throttled,
        ungated: counts.ungated,
        units: units.collect(),
    };
    Ok(encode_versioned(COUNTS, &stored)?.to_vec())
}

/// Reads what [`encode_counts`] wrote.
pub(super) fn decode_counts(bytes: &[u8]) -> Result<Counts, RowError> {
    let stored: CountsV1 = decode_versioned(COUNTS, bytes)?;
    let mut counts = Counts {
        admitted: stored.admitted,
        deferred: stored.deferred,
        rejected: stored.rejected,
        throttled: stored.throttled,
        ungated: stored.ungated,
        units: Default::default(),
    };
    for (name, charged, corrected) in stored.units {
        let dimension = match name.as_str() {
            "" => None,
            name => Some(DimensionName::new(name)?),
        };
        counts.units.insert(dimension, Units { charged, corrected });
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: &str = "[a-z0-9/é]{1,40}";

    fn key() -> impl Strategy<Value = Key> {
        let name = || proptest::option::of(NAME);
        (name(), name(), name()).prop_map(|(target, priority, tenant)| Key {
            target: target.map(|name| TargetName::new(&name).unwrap()),
            priority: priority.map(|name| PriorityName::new(&name).unwrap()),
            tenant: tenant.map(|name| TenantName::new(&name).unwrap()),
        })
    }

    fn counts() -> impl Strategy<Value = Counts> {
        let units = proptest::collection::btree_map(
            proptest::option::of(NAME)
                .prop_map(|name| name.map(|name| DimensionName::new(&name).unwrap())),
            any::<(u64, i64)>().prop_map(|(charged, corrected)| Units { charged, corrected }),
            0..5,
        );
        (any::<[u64; 5]>(), units).prop_map(|(numbers, units)| {
            let [admitted, deferred, rejected, throttled, ungated] = numbers;
            Counts {
                admitted,
                deferred,
                rejected,
                throttled,
                ungated,
                units,
            }
        })
    }

    proptest! {
        #[test]
        fn rows_are_read_as_they_were_written(minute: u32, key in key(), counts in counts()) {
            let bytes = encode_key(minute, &key);
            prop_assert!(bytes.starts_with(&prefix(minute, key.target.as_ref())));
            prop_assert_eq!(decode_key(&bytes).unwrap(), (minute, key));
            let bytes = encode_counts(&counts).unwrap();
            prop_assert_eq!(decode_counts(&bytes).unwrap(), counts);
        }

        #[test]
        fn rows_stand_in_order_of_time(minute: u32, later: u32, one in key(), two in key()) {
            prop_assume!(minute < later);
            prop_assert!(encode_key(minute, &one) < encode_key(later, &two));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = decode_key(&bytes);
            let _ = decode_counts(&bytes);
        }
    }

    #[test]
    fn the_bytes_of_format_1_are_frozen() {
        let key = Key::of(
            &TargetName::new("a/x").unwrap(),
            &TenantName::new("t").unwrap(),
            &PriorityName::new("p1").unwrap(),
        );
        assert_eq!(encode_key(258, &key), b"\0\0\x01\x02\x03a/x\x02p1\x01t");
        let mut counts = Counts {
            admitted: 1,
            deferred: 2,
            rejected: 3,
            throttled: 4,
            ungated: 5,
            ..Counts::default()
        };
        counts.count(&DimensionName::new("rq").unwrap(), 300, -2);
        let frozen = b"\x01\x01\x02\x03\x04\x05\x01\x02rq\xfb\x2c\x01\x03";
        assert_eq!(encode_counts(&counts).unwrap(), frozen);
    }
}
