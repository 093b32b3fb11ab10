//! The state machine openraft drives: entries in, outcomes out, snapshots both ways.

use crate::log::GroupLog;
use crate::offload::offload;
use crate::replica::Replica;
use crate::snapshot::{Loaded, SnapshotStore};
use crate::types::{LogId, Snapshot, SnapshotMeta, StoredMembership, TypeConfig};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{OptionalSend, RaftSnapshotBuilder};
use std::io;
use std::sync::Arc;

/// One group's state machine.
#[derive(Clone)]
pub(crate) struct Machine {
    replica: Arc<Replica>,
    snapshots: Arc<SnapshotStore>,
    log: GroupLog,
}

impl Machine {
    /// A machine that goes on where its replica stands.
    pub(crate) fn new(replica: Arc<Replica>, snapshots: Arc<SnapshotStore>, log: GroupLog) -> Self {
        Self {
            replica,
            snapshots,
            log,
        }
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok(self.replica.position())
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let turn = self.replica.turn();
        let _turn = turn.lock().await;
        while let Some((entry, responder)) = entries.try_next().await? {
            let applied = self.replica.apply(entry)?;
            if let Some(responder) = responder {
                responder.send(applied);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Bytes) -> io::Result<()> {
        let Self {
            replica, snapshots, ..
        } = self.clone();
        let (saved, bytes) = (meta.clone(), snapshot.len());
        // On disk before it counts: the log below it goes next.
        let state = offload(move || {
            let state = replica.decode_state(&snapshot)?;
            snapshots.save(&saved, &snapshot)?;
            Ok(state)
        })
        .await?;
        let turn = self.replica.turn();
        let turn = turn.lock().await;
        let replaced = self.replica.install(meta, state, bytes);
        drop(turn);
        offload(move || {
            drop(replaced);
            Ok(())
        })
        .await
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let snapshots = Arc::clone(&self.snapshots);
        let log_start = self.log.range().start;
        let newest = offload(move || Ok(snapshots.newest(log_start)?)).await?;
        Ok(newest.map(|Loaded { meta, state }| Snapshot {
            meta,
            snapshot: state,
        }))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let Self {
            replica, snapshots, ..
        } = self.clone();
        in_turn(&replica, |replica| {
            replica.begin_checkpoint();
            Ok(())
        })
        .await?;
        let (meta, checkpoint) = loop {
            if let Some(all) = in_turn(&replica, Replica::continue_checkpoint).await? {
                break all;
            }
            // Whoever waits to apply or to read goes first.
            tokio::task::yield_now().await;
        };
        offload(move || {
            let snapshot = Bytes::from(checkpoint.encode());
            replica.snapshot_taken(snapshot.len());
            snapshots.save(&meta, &snapshot)?;
            Ok(Snapshot { meta, snapshot })
        })
        .await
    }
}

/// Work on a replica that must not be applied to meanwhile.
async fn in_turn<R: Send + 'static>(
    replica: &Arc<Replica>,
    work: impl FnOnce(&Replica) -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    let turn = replica.turn().lock_owned().await;
    let replica = Arc::clone(replica);
    offload(move || {
        let _turn = turn;
        work(&replica)
    })
    .await
}
