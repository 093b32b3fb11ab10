//! What a cluster is made of when it is founded, and the id that follows from it.
//!
//! Members are static: every node is told the same cluster name, members and number of shards. The id
//! is a digest of exactly these, so that nodes agree on it without talking, and nodes that were told
//! different things refuse each other instead of founding two clusters under one name.

use crate::limits::{CLUSTER_NAME_BYTES, MEMBERS_MAX, SHARDS_MAX, TAIL_ENTRIES_MIN};
use crate::{Config, NodeId};
use std::collections::BTreeMap;
use weir_admission::ShardId;

/// FNV-1a with 128 bits: offset basis and prime.
const FNV_OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
/// First bytes of what is digested.
const DOMAIN: &[u8] = b"weir cluster 1";

/// The id of the cluster that this configuration founds: 32 hex digits.
///
/// FNV-1a over the domain, the name, the number of shards and each member's number and address in
/// order of number; texts go in with their length in front.
pub(crate) fn cluster_id(config: &Config) -> String {
    let mut digest = Digest(FNV_OFFSET);
    digest.text(DOMAIN);
    digest.text(config.cluster.as_bytes());
    digest.number(u64::from(config.shards));
    for (node, address) in &config.members {
        digest.number(node.0);
        digest.text(address.as_bytes());
    }
    format!("{:032x}", digest.0)
}

struct Digest(u128);

impl Digest {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(FNV_PRIME);
        }
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.bytes(text);
    }
}

/// The node that leads a shard while all are well, so that leaders are spread evenly.
pub(crate) fn preferred_leader(
    shard: ShardId,
    members: &BTreeMap<NodeId, String>,
) -> Option<NodeId> {
    let place = (shard.0 as usize).checked_rem(members.len())?;
    members.keys().nth(place).copied()
}

/// How many nodes come before this one when a shard is founded; 0 for the preferred leader.
pub(crate) fn founding_rank(
    shard: ShardId,
    node: NodeId,
    members: &BTreeMap<NodeId, String>,
) -> u32 {
    let nodes = members.len();
    let own = members
        .keys()
        .position(|member| *member == node)
        .unwrap_or(0);
    let first = (shard.0 as usize).checked_rem(nodes).unwrap_or(0);
    let rank = (own + nodes)
        .saturating_sub(first)
        .checked_rem(nodes)
        .unwrap_or(0);
    u32::try_from(rank).unwrap_or(u32::MAX)
}

/// What is wrong with a configuration, if anything.
pub(crate) fn check(config: &Config) -> Result<(), String> {
    let Config {
        cluster,
        node,
        members,
        shards,
        timing,
        retention,
        data_dir: _,
    } = config;
    if cluster.is_empty() || cluster.len() > CLUSTER_NAME_BYTES {
        return Err(format!(
            "the cluster's name must have 1 to {CLUSTER_NAME_BYTES} bytes"
        ));
    }
    if !members.contains_key(node) {
        return Err(format!("node {node} is not among the members"));
    }
    if members.len() > MEMBERS_MAX {
        return Err(format!(
            "{} members are too many, at most {MEMBERS_MAX}",
            members.len()
        ));
    }
    if let Some(zero) = members.keys().find(|member| member.0 == 0) {
        return Err(format!("node numbers start at 1, not {zero}"));
    }
    let mut addresses: Vec<&String> = members.values().collect();
    addresses.sort_unstable();
    if let Some([address, _]) = addresses.array_windows().find(|[one, other]| one == other) {
        return Err(format!("two members have the address {address}"));
    }
    if *shards == 0 || *shards > SHARDS_MAX {
        return Err(format!(
            "the number of shards must be 1 to {SHARDS_MAX}, not {shards}"
        ));
    }
    let heartbeats = timing
        .election_min_ms
        .checked_div(timing.heartbeat_ms)
        .unwrap_or(0);
    if heartbeats < 2 || timing.election_max_ms <= timing.election_min_ms {
        return Err(
            "the shortest election timeout must be at least two heartbeats and below the longest"
                .to_owned(),
        );
    }
    if retention.tail_entries < TAIL_ENTRIES_MIN {
        return Err(format!(
            "at least {TAIL_ENTRIES_MIN} entries must be kept behind a snapshot"
        ));
    }
    if retention.snapshot_entries == 0 {
        return Err("a snapshot cannot be taken after no entries".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(nodes: u64) -> BTreeMap<NodeId, String> {
        (1..=nodes)
            .map(|n| (NodeId(n), format!("10.0.0.{n}:7401")))
            .collect()
    }

    fn config() -> Config {
        Config {
            data_dir: "/nowhere".into(),
            cluster: "east".to_owned(),
            node: NodeId(2),
            members: members(3),
            shards: 16,
            timing: crate::Timing::default(),
            retention: crate::Retention::default(),
        }
    }

    #[test]
    fn the_id_depends_on_what_must_agree_and_on_nothing_else() {
        let id = cluster_id(&config());
        assert_eq!(
            id, "2019a17523af9620f749cc57a70ce7cc",
            "a frozen value: nodes of all versions agree"
        );
        let same = Config {
            node: NodeId(3),
            data_dir: "/else".into(),
            ..config()
        };
        assert_eq!(cluster_id(&same), id);
        let others = [
            Config {
                cluster: "west".to_owned(),
                ..config()
            },
            Config {
                shards: 15,
                ..config()
            },
            Config {
                members: members(4),
                ..config()
            },
        ];
        for other in others {
            assert_ne!(cluster_id(&other), id);
        }
    }

    #[test]
    fn leaders_are_spread_and_every_shard_has_one_founder() {
        let members = members(3);
        let leaders: Vec<_> = (0..6)
            .map(|s| preferred_leader(ShardId(s), &members))
            .collect();
        assert_eq!(leaders, [1, 2, 3, 1, 2, 3].map(|n| Some(NodeId(n))));
        for shard in (0..6).map(ShardId) {
            let ranks: Vec<_> = members
                .keys()
                .map(|node| founding_rank(shard, *node, &members))
                .collect();
            let mut sorted = ranks.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
            let first = ranks
                .iter()
                .position(|rank| *rank == 0)
                .and_then(|p| members.keys().nth(p));
            assert_eq!(first.copied(), preferred_leader(shard, &members));
        }
    }

    #[test]
    fn contradictions_are_refused() {
        assert_eq!(check(&config()), Ok(()));
        let timing = crate::Timing {
            heartbeat_ms: 100,
            election_min_ms: 150,
            election_max_ms: 300,
        };
        let retention = crate::Retention {
            tail_entries: 10,
            ..crate::Retention::default()
        };
        let wrong = [
            (
                Config {
                    cluster: String::new(),
                    ..config()
                },
                "name",
            ),
            (
                Config {
                    node: NodeId(9),
                    ..config()
                },
                "not among",
            ),
            (
                Config {
                    members: members(8),
                    ..config()
                },
                "too many",
            ),
            (
                Config {
                    shards: 0,
                    ..config()
                },
                "shards",
            ),
            (
                Config {
                    shards: 257,
                    ..config()
                },
                "shards",
            ),
            (Config { timing, ..config() }, "election"),
            (
                Config {
                    retention,
                    ..config()
                },
                "behind a snapshot",
            ),
        ];
        for (config, word) in wrong {
            let error = check(&config).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        let mut twice = config();
        twice.members.insert(NodeId(3), "10.0.0.1:7401".to_owned());
        assert!(check(&twice).unwrap_err().contains("address"));
    }
}
