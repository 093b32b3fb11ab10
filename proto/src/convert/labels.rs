//! Labels: facts about a call, of which the rules keep a digest.

use super::fields::{Fields, entry};
use crate::limits::LABEL_VALUE_BYTES_MAX;
use std::collections::BTreeMap;
use weir_admission::DimensionName;
use weir_admission::limits::LABELS_MAX;

/// Checks the labels and answers their digest.
pub(super) fn read(fields: &mut Fields, labels: &BTreeMap<String, String>) -> u64 {
    if labels.len() > LABELS_MAX {
        let rule = format!(
            "must have at most {LABELS_MAX} labels, has {}",
            labels.len()
        );
        fields.refuse("labels", &rule);
        return 0;
    }
    for (key, value) in labels {
        // A label's name follows the rule of all names.
        if let Err(rule) = DimensionName::new(key) {
            fields.refuse(&entry("labels", key), &format!("the name {rule}"));
        }
        check_value(fields, key, value);
    }
    labels_digest(labels)
}

fn check_value(fields: &mut Fields, key: &str, value: &str) {
    if value.len() > LABEL_VALUE_BYTES_MAX {
        let rule = format!(
            "must be at most {LABEL_VALUE_BYTES_MAX} bytes, has {}",
            value.len()
        );
        fields.refuse(&entry("labels", key), &rule);
    } else if value.contains(char::is_control) {
        fields.refuse(&entry("labels", key), "must not contain control characters");
    }
}

/// Digest of labels, 0 without any: FNV-1a (64 bits) over each name and value in order of the names,
/// every text with its length (32 bits, little-endian) in front. It is kept in replicated state, so it
/// never changes.
pub fn labels_digest(labels: &BTreeMap<String, String>) -> u64 {
    if labels.is_empty() {
        return 0;
    }
    let mut hash = FNV_OFFSET;
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        hash = fnv(hash, &length.to_le_bytes());
        hash = fnv(hash, text.as_bytes());
    }
    hash
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)
    })
}
