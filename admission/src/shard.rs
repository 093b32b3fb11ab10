//! Which shard serves a target.

use crate::TargetName;

/// Number of a shard, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

/// The pool of a target: its name up to the first `/`.
pub fn pool_of(target: &TargetName) -> &str {
    let name = target.as_str();
    name.split_once('/').map_or(name, |(pool, _)| pool)
}

/// The shard of a target in a cluster of `shards` shards (0 counts as 1).
///
/// FNV-1a (64 bits) of the pool's bytes, its high half folded into the low one, modulo `shards`.
/// Clients in every language compute the same number; it is part of the wire contract.
pub fn shard_of(target: &TargetName, shards: u32) -> ShardId {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in pool_of(target).bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let folded = hash ^ (hash >> 32);
    let shard = folded.checked_rem(u64::from(shards.max(1))).unwrap_or(0);
    ShardId(u32::try_from(shard).unwrap_or(0))
}
