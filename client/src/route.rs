//! Where to send: what a client knows of the cluster's nodes and leaders. No socket, no clock.

use crate::limits::{BLAME_TO_AVOID, NODES_MAX, SHARDS_MAX, SUSPECT_FOR};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;
use weir_admission::{ShardId, TargetName, shard_of};
use weir_proto::v1::RoutesResponse;

/// Address of a node's client API, as nodes and people write it.
pub(crate) type Address = Arc<str>;

/// What is known of the cluster.
///
/// For every shard there is one *guess*: the node asked next. Routes and hints move it to the leader
/// they name; a node that does not answer, or does not lead and names nobody, moves it on to the next
/// node in line, so that a search meets all nodes. Guesses may be wrong at any time: a node that does
/// not lead says so and nothing happens.
#[derive(Debug)]
pub(crate) struct Routes {
    seeds: Vec<Address>,
    known: Option<Known>,
    guesses: BTreeMap<ShardId, Guess>,
    /// Which node is asked about the cluster itself.
    any: Address,
    /// Nodes that did not answer lately.
    suspects: BTreeMap<Address, Suspicion>,
}

#[derive(Debug)]
struct Known {
    cluster_id: String,
    shards: u32,
    nodes: BTreeMap<u64, Address>,
}

#[derive(Clone, Debug)]
struct Guess {
    address: Address,
    /// Term in which a node named this leader; older news is ignored.
    term: u64,
}

/// A node that did not answer comes last in a search, but a hint to it is still followed. With enough
/// blame it is not asked for a while even then: see [`crate::limits::BLAME_TO_AVOID`].
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    blame: u32,
    until: Instant,
}

/// Who leads instead, as a node said that does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    /// Address of the leader's client API.
    pub(crate) address: Address,
}

/// Why an answer to `Routes` is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RoutesError {
    #[error("node belongs to cluster {other}, not to {ours}")]
    OtherCluster { ours: String, other: String },
    #[error("routes have {shards} shards")]
    Shards { shards: u32 },
    #[error("the number of shards changed from {from} to {to}")]
    ShardsChanged { from: u32, to: u32 },
    #[error("routes have no node")]
    NoNodes,
}

impl Routes {
    /// Knows nothing but its seeds. `None` without a seed.
    pub(crate) fn new(seeds: &[String]) -> Option<Routes> {
        let seeds: Vec<Address> = seeds.iter().map(|seed| Arc::from(seed.as_str())).collect();
        let any = seeds.first()?.clone();
        Some(Routes {
            seeds,
            known: None,
            guesses: BTreeMap::new(),
            any,
            suspects: BTreeMap::new(),
        })
    }

    /// The shard of a target; `None` while the cluster is not known.
    pub(crate) fn shard_of(&self, target: &TargetName) -> Option<ShardId> {
        self.known
            .as_ref()
            .map(|known| shard_of(target, known.shards))
    }

    /// Number of shards; `None` while the cluster is not known.
    pub(crate) fn shards(&self) -> Option<u32> {
        self.known.as_ref().map(|known| known.shards)
    }

    /// The node to ask about a shard, or with `None` about the cluster.
    pub(crate) fn node_for(&self, shard: Option<ShardId>) -> Address {
        match shard {
            None => self.any.clone(),
            Some(shard) => match self.guesses.get(&shard) {
                Some(guess) => guess.address.clone(),
                None => self.any.clone(),
            },
        }
    }

    /// A node told the routes. Newer terms replace guesses; a guess is kept against an equal term,
    /// because the search may have moved on from a leader that died.
    pub(crate) fn learn(&mut self, routes: &RoutesResponse) -> Result<(), RoutesError> {
        self.check(routes)?;
        let nodes: BTreeMap<u64, Address> = routes
            .nodes
            .iter()
            .filter(|node| !node.address.is_empty())
            .take(NODES_MAX)
            .map(|node| (node.node_id, Arc::from(node.address.as_str())))
            .collect();
        if nodes.is_empty() {
            return Err(RoutesError::NoNodes);
        }
        for route in &routes.routes {
            let Some(address) = nodes.get(&route.leader) else {
                continue;
            };
            let shard = ShardId(route.shard);
            let newer = self
                .guesses
                .get(&shard)
                .is_none_or(|guess| guess.term < route.term);
            if newer && route.shard < routes.shards {
                self.guesses.insert(
                    shard,
                    Guess {
                        address: address.clone(),
                        term: route.term,
                    },
                );
            }
        }
        let is_member = |address: &Address| nodes.values().any(|node| node == address);
        self.guesses.retain(|_, guess| is_member(&guess.address));
        self.suspects
            .retain(|address, _| is_member(address) || self.seeds.contains(address));
        self.known = Some(Known {
            cluster_id: routes.cluster_id.clone(),
            shards: routes.shards,
            nodes,
        });
        Ok(())
    }

    fn check(&self, routes: &RoutesResponse) -> Result<(), RoutesError> {
        if routes.shards == 0 || routes.shards > SHARDS_MAX {
            return Err(RoutesError::Shards {
                shards: routes.shards,
            });
        }
        let Some(known) = &self.known else {
            return Ok(());
        };
        if known.cluster_id != routes.cluster_id {
            return Err(RoutesError::OtherCluster {
                ours: known.cluster_id.clone(),
                other: routes.cluster_id.clone(),
            });
        }
        if known.shards != routes.shards {
            return Err(RoutesError::ShardsChanged {
                from: known.shards,
                to: routes.shards,
            });
        }
        Ok(())
    }

    /// `from` does not lead the shard. Its hint is followed unless the node it names has
    /// too much blame; without one the search goes on behind `from`. True if the hint is followed: then
    /// there is somebody to ask at once.
    pub(crate) fn not_leader(
        &mut self,
        shard: ShardId,
        from: &Address,
        hint: Option<&Hint>,
        now: Instant,
    ) -> bool {
        let guess = self.node_for(Some(shard));
        if guess != *from {
            // Another call has moved the guess since this one was sent.
            return hint.is_some_and(|hint| hint.address == guess);
        }
        let next = match hint {
            Some(hint) if hint.address != *from && !self.is_avoided(&hint.address, now) => {
                hint.address.clone()
            }
            Some(_) | None => self.after(from, now),
        };
        let followed = hint.is_some_and(|hint| hint.address == next && next != *from);
        self.set_guess(shard, next);
        followed
    }

    /// `from` did not answer. It is asked last for a while.
    pub(crate) fn missing(
        &mut self,
        shard: Option<ShardId>,
        from: &Address,
        blame: u32,
        now: Instant,
    ) {
        self.suspects.retain(|_, suspicion| now < suspicion.until);
        let until = now + SUSPECT_FOR;
        let suspicion = self
            .suspects
            .entry(from.clone())
            .or_insert(Suspicion { blame: 0, until });
        suspicion.blame = suspicion.blame.saturating_add(blame);
        suspicion.until = until;
        let next = self.after(from, now);
        if self.any == *from {
            self.any = next.clone();
        }
        if let Some(shard) = shard
            && self.node_for(Some(shard)) == *from
        {
            self.set_guess(shard, next);
        }
    }

    /// `from` answered.
    pub(crate) fn answered(&mut self, from: &Address) {
        self.suspects.remove(from);
    }

    /// True if a hint to this node is not worth following now.
    fn is_avoided(&self, address: &Address, now: Instant) -> bool {
        let suspicion = self.suspects.get(address);
        suspicion.is_some_and(|it| it.blame >= BLAME_TO_AVOID && now < it.until)
    }

    fn is_suspect(&self, address: &Address, now: Instant) -> bool {
        self.suspects
            .get(address)
            .is_some_and(|suspicion| now < suspicion.until)
    }

    fn set_guess(&mut self, shard: ShardId, address: Address) {
        let term = self.guesses.get(&shard).map_or(0, |guess| guess.term);
        self.guesses.insert(shard, Guess { address, term });
    }

    /// The nodes a search goes through: the members, or the seeds while no member is known.
    fn nodes(&self) -> Vec<&Address> {
        match &self.known {
            Some(known) => known.nodes.values().collect(),
            None => self.seeds.iter().collect(),
        }
    }

    /// The node behind `from` in line, round and round. Members that did not answer lately come after
    /// the seeds: the addresses of all members may have changed while this client slept.
    fn after(&self, from: &Address, now: Instant) -> Address {
        let nodes = self.nodes();
        let start = nodes
            .iter()
            .position(|node| *node == from)
            .map_or(0, |at| at + 1);
        let round = || {
            let others = nodes.iter().copied().cycle().skip(start).take(nodes.len());
            others.filter(|node| *node != from)
        };
        let fresh = |node: &&Address| *node != from && !self.is_suspect(node, now);
        round()
            .find(fresh)
            .or_else(|| self.seeds.iter().find(fresh))
            .or_else(|| round().next())
            .unwrap_or(from)
            .clone()
    }
}

#[cfg(test)]
mod tests;
