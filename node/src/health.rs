//! What the node says of itself to those who route traffic.

use crate::shards::Shards;
use std::sync::Arc;
use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use weir_admission::ShardId;
use weir_raft::Leadership;

/// The service whose health says whether asks are answered.
pub const ADMISSION_SERVICE: &str = "weir.v1.AdmissionService";

/// Whether this node should get traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Every shard of this node knows its leader.
    Ready,
    /// These shards know none.
    Leaderless(Vec<ShardId>),
    /// The node was asked to stop.
    Stopping,
}

impl std::fmt::Display for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Readiness::Ready => f.write_str("ready"),
            Readiness::Leaderless(shards) => {
                write!(f, "no leader known for {} shards:", shards.len())?;
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
            Readiness::Stopping => f.write_str("stopping"),
        }
    }
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

    /// Follows the shards' leaders until the groups are gone.
    pub async fn follow(self, shards: Shards) {
        let own = shards.identity().node;
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
            let leaderless = watched
                .iter()
                .zip(&told)
                .filter(|(_, leadership)| leadership.leader.is_none())
                .map(|(watched, _)| watched.shard)
                .collect();
            self.update(leaderless).await;
            if watched.is_empty() {
                return;
            }
            let changes = watched
                .iter_mut()
                .map(|watched| Box::pin(watched.leadership.changed()));
            let (changed, _, _) = futures::future::select_all(changes).await;
            if changed.is_err() {
                return;
            }
        }
    }

    async fn update(&self, leaderless: Vec<ShardId>) {
        let next = if leaderless.is_empty() {
            Readiness::Ready
        } else {
            Readiness::Leaderless(leaderless)
        };
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

fn tell(shard: ShardId, own: weir_raft::NodeId, now: Leadership) {
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
