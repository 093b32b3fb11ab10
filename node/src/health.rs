//! What the node says of itself to those who route traffic.

use crate::shards::Shards;
use crate::words::{counted, named};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use weir_admission::ShardId;
use weir_raft::{Leadership, NodeId};

/// The service whose health says whether asks are answered.
pub const ADMISSION_SERVICE: &str = "weir.v1.AdmissionService";

/// Whether this node should get traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Every shard of this node knows its leader.
    Ready,
    /// These shards know none.
    Leaderless(Vec<ShardId>),
    /// So many peers do not let this node in that it can be part of no quorum: what it knows of leaders is
    /// hearsay.
    ShutOut(BTreeSet<NodeId>),
    /// The node was asked to stop.
    Stopping,
}

impl std::fmt::Display for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Readiness::Ready => f.write_str("ready"),
            Readiness::Leaderless(shards) => {
                let count = counted(shards.len(), "shard");
                write!(f, "no leader known for {count}:")?;
                shards
                    .iter()
                    .take(16)
                    .try_for_each(|shard| write!(f, " {}", shard.0))?;
                if shards.len() > 16 {
                    f.write_str(" ...")
                } else {
                    Ok(())
                }
            }
            Readiness::ShutOut(peers) => {
                let peers: Vec<&NodeId> = peers.iter().collect();
                write!(
                    f,
                    "refused by {}: this node came back without its data directory, or was told another cluster",
                    named("node", &peers)
                )
            }
            Readiness::Stopping => f.write_str("stopping"),
        }
    }
}

/// True if the other members are too few for a quorum with this node. One peer that refuses says less: it may be
/// the one that has a wrong configuration.
pub(crate) fn is_shut_out(refused_by: usize, members: usize) -> bool {
    let quorum = members / 2 + 1;
    members.saturating_sub(refused_by) < quorum
}

/// Follows the leaders of every shard and tells whoever asks for health.
#[derive(Clone)]
pub struct Health {
    reporter: HealthReporter,
    readiness: Arc<watch::Sender<Readiness>>,
}

impl Health {
    /// Health of a node that has just started: alive, not yet ready.
    pub async fn new(reporter: HealthReporter) -> Health {
        reporter
            .set_service_status("", ServingStatus::Serving)
            .await;
        reporter
            .set_service_status(ADMISSION_SERVICE, ServingStatus::NotServing)
            .await;
        let (readiness, _) = watch::channel(Readiness::Leaderless(Vec::new()));
        Health {
            reporter,
            readiness: Arc::new(readiness),
        }
    }

    /// Whether the node should get traffic, as it changes.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    /// From now on the node says that it stops.
    pub async fn stopping(&self) {
        self.readiness.send_replace(Readiness::Stopping);
        self.reporter
            .set_service_status(ADMISSION_SERVICE, ServingStatus::NotServing)
            .await;
        self.reporter
            .set_service_status("", ServingStatus::NotServing)
            .await;
    }

    /// Follows the shards' leaders, and the peers that refuse this node, until the groups are gone.
    pub async fn follow(self, shards: Shards) {
        let (own, members) = (shards.identity().node, shards.members().len());
        let mut refusing = shards.groups().refused_by();
        let mut watched: Vec<Watched> = shards
            .groups()
            .all()
            .map(|group| Watched {
                shard: group.shard(),
                leadership: group.leadership(),
            })
            .collect();
        let mut told: Vec<Leadership> = vec![Leadership::default(); watched.len()];
        loop {
            for (shard, told) in watched.iter_mut().zip(&mut told) {
                let now = *shard.leadership.borrow_and_update();
                if now.leader != told.leader {
                    tell(shard.shard, own, now);
                }
                *told = now;
            }
            let leaderless: Vec<ShardId> = watched
                .iter()
                .zip(&told)
                .filter(|(_, leadership)| leadership.leader.is_none())
                .map(|(watched, _)| watched.shard)
                .collect();
            let refused_by = refusing.borrow_and_update().clone();
            self.update(if is_shut_out(refused_by.len(), members) {
                Readiness::ShutOut(refused_by)
            } else if leaderless.is_empty() {
                Readiness::Ready
            } else {
                Readiness::Leaderless(leaderless)
            })
            .await;
            if watched.is_empty() {
                return;
            }
            let changes = watched
                .iter_mut()
                .map(|watched| Box::pin(watched.leadership.changed()));
            let changed = tokio::select! {
                (changed, _, _) = futures::future::select_all(changes) => changed,
                changed = refusing.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
        }
    }

    async fn update(&self, next: Readiness) {
        let serving = next == Readiness::Ready;
        let changed = self.readiness.send_if_modified(|now| {
            if *now == Readiness::Stopping || *now == next {
                return false;
            }
            *now = next;
            true
        });
        if changed {
            let status = if serving {
                ServingStatus::Serving
            } else {
                ServingStatus::NotServing
            };
            self.reporter
                .set_service_status(ADMISSION_SERVICE, status)
                .await;
        }
    }
}

struct Watched {
    shard: ShardId,
    leadership: watch::Receiver<Leadership>,
}

fn tell(shard: ShardId, own: NodeId, now: Leadership) {
    let (shard, term) = (shard.0, now.term);
    match now.leader {
        Some(leader) if leader == own => tracing::info!(shard, term, "this node leads the shard"),
        Some(leader) => tracing::info!(
            shard,
            term,
            leader = leader.0,
            "another node leads the shard"
        ),
        None => tracing::warn!(shard, term, "the shard has no leader that this node knows"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_can_be_part_of_no_quorum_is_shut_out() {
        let members_and_least = [
            (1, None),
            (2, Some(1)),
            (3, Some(2)),
            (4, Some(2)),
            (5, Some(3)),
        ];
        for (members, least) in members_and_least {
            let first = (0..members).find(|refused_by| is_shut_out(*refused_by, members));
            assert_eq!(first, least, "of {members}");
        }
    }

    #[test]
    fn not_being_ready_has_a_reason() {
        let shards = |count: u32| Readiness::Leaderless((0..count).map(ShardId).collect());
        let nodes = |ids: &[u64]| Readiness::ShutOut(ids.iter().copied().map(NodeId).collect());
        assert_eq!(shards(1).to_string(), "no leader known for 1 shard: 0");
        assert_eq!(shards(2).to_string(), "no leader known for 2 shards: 0 1");
        let long = shards(17).to_string();
        assert!(long.ends_with(" 14 15 ..."), "{long}");
        let refused = nodes(&[1, 2]).to_string();
        assert!(refused.starts_with("refused by nodes 1, 2: "), "{refused}");
    }
}
