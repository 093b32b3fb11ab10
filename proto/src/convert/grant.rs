//! Names of grants.

use super::fields::Fields;
use crate::v1;
use weir_admission::limits::BATCH_OPERATIONS_MAX;
use weir_admission::{GrantId, ShardId, TargetName, shard_of};

/// Reads the grant of a request about `target`.
pub(super) fn read(
    fields: &mut Fields,
    grant: Option<v1::Grant>,
    target: Option<&TargetName>,
    shards: u32,
) -> Option<GrantId> {
    let Some(v1::Grant {
        shard,
        index,
        offset,
    }) = grant
    else {
        fields.refuse("grant", "must be set");
        return None;
    };
    if index == 0 {
        fields.refuse("grant.index", "must be at least 1");
    }
    if usize::try_from(offset).is_ok_and(|offset| offset >= BATCH_OPERATIONS_MAX) {
        fields.refuse(
            "grant.offset",
            &format!("must be below {BATCH_OPERATIONS_MAX}"),
        );
    }
    if let Some(ShardId(right)) = target.map(|target| shard_of(target, shards))
        && shard != right
    {
        fields.refuse(
            "grant.shard",
            &format!("must be the shard of the target, {right}"),
        );
    }
    Some(GrantId { index, offset })
}

/// The grant as a caller keeps it.
pub(super) fn write(grant: GrantId, ShardId(shard): ShardId) -> v1::Grant {
    v1::Grant {
        shard,
        index: grant.index,
        offset: grant.offset,
    }
}
