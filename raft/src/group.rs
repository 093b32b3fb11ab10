//! One shard's group as this node sees it.

use crate::cluster_time::Anchor;
use crate::limits::{IN_FLIGHT_BYTES, IN_FLIGHT_ENTRIES, READY_LAG_ENTRIES};
use crate::peer::PeerAsk;
use crate::replica::Replica;
use crate::reply::{Reply, Room};
use crate::types::{Batch, CommittedLeaderId, Metrics, Raft, RaftError, ReadError};
use crate::{
    GroupStatus, Leadership, NodeId, Pending, Positions, ProposeError, Role, Timing, TransferError,
};
use bytes::Bytes;
use openraft::async_runtime::WatchReceiver;
use openraft::{Instant, ReadPolicy, ServerState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, watch};
use weir_admission::{Operation, ShardId, State, TargetName};
use weir_proto::stored::encode_batch;

/// A handle on one shard's group. Cheap to clone.
#[derive(Clone)]
pub struct Group {
    inner: Arc<Inner>,
}

struct Inner {
    replica: Arc<Replica>,
    raft: Raft,
    timing: Timing,
    peers: PeerAsk,
    leadership: watch::Receiver<Leadership>,
    /// Held from stamping a batch until it is on its way: stamps stand in the log in their order.
    line: Mutex<()>,
    entries: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

/// How a term's leader writes: whence it counts time, and under which name the log accepts its entries.
struct Pen {
    anchor: Anchor,
    leader: CommittedLeaderId,
}

impl Group {
    pub(crate) fn new(
        replica: Arc<Replica>,
        raft: Raft,
        timing: Timing,
        peers: PeerAsk,
        leadership: watch::Receiver<Leadership>,
    ) -> Self {
        let inner = Inner {
            replica,
            raft,
            timing,
            peers,
            leadership,
            line: Mutex::new(()),
            entries: Arc::new(Semaphore::new(IN_FLIGHT_ENTRIES)),
            bytes: Arc::new(Semaphore::new(IN_FLIGHT_BYTES)),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The shard.
    pub fn shard(&self) -> ShardId {
        self.inner.replica.shard()
    }

    /// Stamps a batch and puts it on its way into the log. The order of calls is the order in the log.
    ///
    /// Waits only while a new leader's first entry is not applied yet, for at most one lease.
    ///
    /// # Errors
    /// Every [`ProposeError`] except `Unknown`: after an error here nothing happened.
    pub async fn submit(&self, batch: Vec<Operation>) -> Result<Pending, ProposeError> {
        if batch.is_empty() {
            return Err(ProposeError::NotABatch("it is empty".to_owned()));
        }
        let _line = self.inner.line.lock().await;
        let pen = self.pen().await?;
        if !self.inner.replica.peek(State::is_seeded) {
            self.seed(&pen).await?;
        }
        self.write(&pen, &batch).await
    }

    /// Reads the state as of now: everything that was answered before the call is seen. Leader only.
    ///
    /// Asks a quorum whether this node still leads; clocks are not trusted.
    ///
    /// # Errors
    /// `NotLeader`, `NoQuorum` or `Stopped`.
    pub async fn read<R>(&self, f: impl FnOnce(&State) -> R) -> Result<R, ProposeError> {
        let confirm = self.inner.raft.ensure_linearizable(ReadPolicy::ReadIndex);
        match tokio::time::timeout(self.lease(), confirm).await {
            Ok(Ok(_)) => Ok(self.peek(f)),
            Ok(Err(error)) => Err(read_error(error)),
            Err(_) => Err(ProposeError::NoQuorum),
        }
    }

    /// Reads this node's copy of the state, which may be behind.
    pub fn peek<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        self.inner.replica.peek(f)
    }

    /// Tickets of a target whose turn is near now, by this leader's cluster time: for telling those who
    /// wait. See [`State::near`]. `None` unless this node leads and has applied an entry of its term.
    pub fn near(&self, target: &TargetName, most: usize) -> Option<Vec<u64>> {
        let term = self.inner.raft.as_leader().ok()?.term();
        let anchor = *self.inner.replica.anchors().borrow();
        let anchor = anchor.filter(|anchor| anchor.term == term)?;
        let now = anchor.stamp(self.inner.replica.clock().now());
        Some(self.peek(|state| state.near(target, now, most)))
    }

    /// Positions, term and roles. Takes a digest of the whole state, so do not ask often.
    pub fn status(&self) -> GroupStatus {
        let (applied_index, digest, targets) = self
            .inner
            .replica
            .peek_at(|applied, state| (applied, state.digest(), state.target_count() as u64));
        let metrics = self.metrics();
        GroupStatus {
            shard: self.shard(),
            role: role(metrics.state),
            leader: self.inner.leadership.borrow().leader,
            term: metrics.current_term,
            last_log_index: metrics.last_log_index.unwrap_or(0),
            applied_index,
            snapshot_index: metrics.snapshot.map_or(0, |id| id.index),
            purged_index: metrics.purged.map_or(0, |id| id.index),
            voters: voters(&metrics),
            digest,
            targets,
        }
    }

    /// Role, term and log positions: cheap enough for every scrape.
    pub fn positions(&self) -> Positions {
        let metrics = self.metrics();
        Positions {
            role: role(metrics.state),
            leader: self.inner.leadership.borrow().leader,
            term: metrics.current_term,
            last_log_index: metrics.last_log_index.unwrap_or(0),
            commit_index: metrics.cluster_committed.map_or(0, |id| id.index),
            applied_index: self.inner.replica.peek_at(|applied, _| applied),
        }
    }

    /// Follows who leads.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.leadership.clone()
    }

    /// Hands leadership to another voter and waits until it leads. Nothing is done if it does already.
    ///
    /// # Errors
    /// [`TransferError::Timeout`] means that it was ordered and did not come about in time, or another was quicker.
    pub async fn transfer(&self, to: NodeId) -> Result<(), TransferError> {
        let metrics = self.metrics();
        if metrics.state != ServerState::Leader {
            return Err(TransferError::NotLeader {
                leader: metrics.current_leader.map(NodeId),
            });
        }
        if metrics.id == to.0 {
            // Without a quorum it may have been replaced and not have heard of it.
            let leader = self.inner.leadership.borrow().leader;
            return match leader {
                Some(leader) if leader == to => Ok(()),
                Some(_) | None => Err(TransferError::NotLeader { leader }),
            };
        }
        if !voters(&metrics).contains(&to) {
            return Err(TransferError::NotVoter(to));
        }
        if !self.is_ready(&metrics, to) {
            return Err(TransferError::NotReady(to));
        }
        // An order that is refused would leave the shard without anybody who leads.
        let asked_within = Duration::from_millis(self.inner.timing.election_min_ms);
        match self.inner.peers.takes_lead(to, asked_within).await {
            Some(true) => {}
            Some(false) => return Err(TransferError::Declined(to)),
            None => return Err(TransferError::NotReady(to)),
        }
        let ordered = self.inner.raft.trigger().transfer_leader(to.0).await;
        ordered.map_err(|_| TransferError::Stopped)?;
        // Whoever leads now, the order is settled: others may have been quicker.
        let own = NodeId(metrics.id);
        let mut leadership = self.leadership();
        let taken = leadership.wait_for(|now| now.leader.is_some_and(|leader| leader != own));
        let taken = tokio::time::timeout(2 * self.lease(), taken).await;
        match taken.map(|now| now.map(|now| now.leader)) {
            Ok(Ok(leader)) if leader == Some(to) => Ok(()),
            Ok(Ok(_)) | Err(_) => Err(TransferError::Timeout(to)),
            Ok(Err(_)) => Err(TransferError::Stopped),
        }
    }

    /// Hands the lead to the first peer that takes it. Shards start with different peers, so that one node
    /// does not get them all.
    pub(crate) async fn hand_over(&self) {
        let mut ready = self.ready_peers();
        let turn = (self.shard().0 as usize)
            .checked_rem(ready.len())
            .unwrap_or(0);
        ready.rotate_left(turn);
        for to in ready {
            match self.transfer(to).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::info!(shard = self.shard().0, %error, "lead not handed over");
                }
            }
        }
    }

    /// The voters that could take the lead now.
    pub(crate) fn ready_peers(&self) -> Vec<NodeId> {
        let metrics = self.metrics();
        let own = NodeId(metrics.id);
        let mut ready = voters(&metrics);
        ready.retain(|node| *node != own && self.is_ready(&metrics, *node));
        ready
    }

    /// True while this node leads.
    pub(crate) fn leads(&self) -> bool {
        self.metrics().state == ServerState::Leader
    }

    pub(crate) fn raft(&self) -> &Raft {
        &self.inner.raft
    }

    pub(crate) fn replica(&self) -> &Replica {
        &self.inner.replica
    }

    /// Whether a peer answered a moment ago and has nearly all of the log.
    fn is_ready(&self, metrics: &Metrics, peer: NodeId) -> bool {
        let heard_within = Duration::from_millis(self.inner.timing.election_min_ms);
        let heard = metrics
            .heartbeat
            .as_ref()
            .and_then(|by_node| by_node.get(&peer.0));
        let heard = heard
            .and_then(Option::as_ref)
            .is_some_and(|at| at.elapsed() < heard_within);
        let stored = metrics
            .replication
            .as_ref()
            .and_then(|by_node| by_node.get(&peer.0));
        let stored = stored.and_then(Option::as_ref).map_or(0, |id| id.index);
        heard && metrics.last_log_index.unwrap_or(0) <= stored.saturating_add(READY_LAG_ENTRIES)
    }

    fn metrics(&self) -> Metrics {
        self.inner.raft.metrics().borrow_watched().clone()
    }

    /// How long a leader may believe in its quorum, and the longest that followers wait for a leader.
    fn lease(&self) -> Duration {
        Duration::from_millis(self.inner.timing.election_max_ms)
    }

    /// What this node needs to write in the current term, if it leads: the anchor is there once the
    /// term's first entry is applied.
    async fn pen(&self) -> Result<Pen, ProposeError> {
        let leader = self.inner.raft.as_leader().map_err(ProposeError::from)?;
        let term = leader.term();
        let leader = leader.to_committed_leader_id();
        let mut anchors = self.inner.replica.anchors();
        let known = *anchors.borrow();
        let anchor = match known {
            Some(anchor) if anchor.term >= term => Some(anchor),
            Some(_) | None => {
                if !self.leads() {
                    return Err(ProposeError::NotLeader { leader: None });
                }
                let newer = anchors.wait_for(|now| now.is_some_and(|now| now.term >= term));
                match tokio::time::timeout(self.lease(), newer).await {
                    Ok(Ok(anchor)) => *anchor,
                    Ok(Err(_)) => return Err(ProposeError::Stopped),
                    Err(_) => return Err(ProposeError::NoQuorum),
                }
            }
        };
        match anchor {
            Some(anchor) if anchor.term == term => Ok(Pen { anchor, leader }),
            Some(_) | None => Err(ProposeError::NotLeader { leader: None }),
        }
    }

    /// Gives a new shard its secret, once in its life, and waits until it has it.
    async fn seed(&self, pen: &Pen) -> Result<(), ProposeError> {
        let seeding = self.write(pen, &[Operation::Seed(rand::random())]).await?;
        match seeding.await {
            Ok(_) => Ok(()),
            // Whatever became of the secret, the caller's batch did not enter the log.
            Err(ProposeError::Unknown) => Err(ProposeError::NoQuorum),
            Err(other) => Err(other),
        }
    }

    /// Stamps, encodes and sends one entry. Call it with the line held.
    async fn write(&self, pen: &Pen, batch: &[Operation]) -> Result<Pending, ProposeError> {
        let stamp = pen.anchor.stamp(self.inner.replica.clock().now());
        let encoded = encode_batch(stamp, batch)
            .map_err(|error| ProposeError::NotABatch(error.to_string()))?;
        let room = self.room(&encoded)?;
        let (reply, result) = Reply::new(Some(room));
        // Bound to the leader whose stamp it bears: no later term may take it.
        let write = self.inner.raft.write(Batch(encoded));
        let sent = write.with_leader(pen.leader).responder(reply).await;
        sent.map_err(|_| ProposeError::Stopped)?;
        Ok(Pending::new(result, 2 * self.lease()))
    }

    fn room(&self, encoded: &Bytes) -> Result<Room, ProposeError> {
        let bytes = u32::try_from(encoded.len()).map_err(|_| ProposeError::Overloaded)?;
        let entry = Arc::clone(&self.inner.entries).try_acquire_owned();
        let bytes = Arc::clone(&self.inner.bytes).try_acquire_many_owned(bytes);
        match (entry, bytes) {
            (Ok(entry), Ok(bytes)) => Ok(Room {
                _entry: entry,
                _bytes: bytes,
            }),
            (Err(_), _) | (_, Err(_)) => Err(self.full()),
        }
    }

    /// Why there is no room. Once no quorum was heard for a lease, what is in flight stays there, and
    /// trying again here is no use.
    fn full(&self) -> ProposeError {
        let metrics = self.metrics();
        let heard = metrics.last_quorum_acked.as_ref();
        let out_of_touch = heard.is_none_or(|at| at.elapsed() >= self.lease());
        if voters(&metrics).len() > 1 && out_of_touch {
            return ProposeError::NoQuorum;
        }
        ProposeError::Overloaded
    }
}

fn read_error(error: RaftError<ReadError>) -> ProposeError {
    match error {
        RaftError::APIError(ReadError::ForwardToLeader(forward)) => forward.into(),
        RaftError::APIError(_) => ProposeError::NoQuorum,
        RaftError::Fatal(_) => ProposeError::Stopped,
    }
}

fn role(state: ServerState) -> Role {
    match state {
        ServerState::Leader => Role::Leader,
        ServerState::Candidate => Role::Candidate,
        ServerState::Learner => Role::Learner,
        ServerState::Follower | ServerState::Shutdown => Role::Follower,
    }
}

fn voters(metrics: &Metrics) -> Vec<NodeId> {
    metrics
        .membership_config
        .membership()
        .voter_ids()
        .map(NodeId)
        .collect()
}
