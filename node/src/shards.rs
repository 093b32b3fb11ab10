//! The shards of this node: where operations and reads go, and who answers for what it does not lead.

use crate::batch::{Batcher, Completion, Refused, SubmitError};
use crate::config::Member;
use crate::history::{Counted, Recorder};
use crate::metrics::Metrics;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use tokio::time::Instant;
use weir_admission::{DimensionName, Operation, Outcome, ShardId, State, TargetName, shard_of};
use weir_raft::{Groups, Identity, NodeId};

/// Every shard of this node with its batcher. Cheap to clone.
#[derive(Clone)]
pub struct Shards {
    groups: Groups,
    batchers: Arc<BTreeMap<ShardId, Batcher>>,
    members: Arc<BTreeMap<NodeId, Member>>,
}

impl Shards {
    /// Starts a batcher for each group. What they decide is counted by `recorder`.
    pub fn start(
        groups: Groups,
        members: BTreeMap<NodeId, Member>,
        metrics: &Metrics,
        recorder: &Recorder,
    ) -> Shards {
        let batchers = groups
            .all()
            .map(|group| {
                let counted = Counted {
                    group: group.clone(),
                    recorder: recorder.clone(),
                    estimates: metrics.estimates(),
                };
                (group.shard(), Batcher::start(counted, metrics.batch()))
            })
            .collect();
        Shards {
            groups,
            batchers: Arc::new(batchers),
            members: Arc::new(members),
        }
    }

    /// Which node of which cluster this is.
    pub fn identity(&self) -> &Identity {
        self.groups.identity()
    }

    /// Every group of this node.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Every node of the cluster with its addresses.
    pub fn members(&self) -> &BTreeMap<NodeId, Member> {
        &self.members
    }

    /// The shard that serves a target.
    pub fn shard_of(&self, target: &TargetName) -> ShardId {
        shard_of(target, self.identity().shards)
    }

    /// The dimensions of a target's policy, as this node's copy of the state has them; none if it has no
    /// policy. Copies the policy, so do not ask often.
    pub fn dimensions(&self, target: &TargetName) -> BTreeSet<DimensionName> {
        let group = self.groups().group(self.shard_of(target));
        let view = group.and_then(|group| group.peek(|state| state.view(target)));
        let limits = view.map(|view| view.policy.limits).unwrap_or_default();
        limits.into_iter().map(|limit| limit.dimension).collect()
    }

    /// Puts operations of one shard into the log and waits for their outcomes. If all of them give capacity
    /// back they wait for room too.
    pub async fn submit(
        &self,
        shard: ShardId,
        operations: Vec<Operation>,
        deadline: Option<Instant>,
    ) -> Result<Vec<Outcome>, SubmitError> {
        let Some(batcher) = self.batchers.get(&shard) else {
            return Err(SubmitError::NotLeader { leader: None });
        };
        batcher.answer(operations, deadline).await
    }

    /// Puts operations of one shard into the log, in the order of the calls. Those that are not accepted
    /// are given back.
    pub fn enqueue(
        &self,
        shard: ShardId,
        operations: Vec<Operation>,
        deadline: Option<Instant>,
    ) -> Result<Completion, Refused> {
        match self.batchers.get(&shard) {
            Some(batcher) => batcher.try_submit(operations, deadline),
            None => Err(Refused {
                error: SubmitError::NotLeader { leader: None },
                operations,
            }),
        }
    }

    /// Reads a shard that this node leads: everything answered before the call is seen.
    pub async fn read<R>(
        &self,
        shard: ShardId,
        f: impl FnOnce(&State) -> R,
    ) -> Result<R, SubmitError> {
        match self.groups.group(shard) {
            Some(group) => Ok(group.read(f).await?),
            None => Err(SubmitError::NotLeader { leader: None }),
        }
    }

    /// Where clients reach a node.
    pub fn client_address(&self, node: NodeId) -> Option<&str> {
        self.members.get(&node).map(|member| member.client.as_str())
    }

    /// Shards with operations that wait, and how many.
    pub fn queue_depths(&self) -> impl Iterator<Item = (ShardId, usize)> {
        self.batchers
            .iter()
            .map(|(shard, batcher)| (*shard, batcher.depth()))
    }

    /// Accepts nothing more and resolves when everything accepted is answered.
    pub fn drain(&self) -> impl Future<Output = ()> + use<> {
        let batchers = self.batchers.clone();
        for batcher in batchers.values() {
            batcher.close();
        }
        async move {
            for batcher in batchers.values() {
                batcher.drained().await;
            }
        }
    }
}
