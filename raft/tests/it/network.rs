//! Partitions, and envelopes that are not for this node.

use crate::world::{World, admit, eventually, propose, put};
use bytes::Bytes;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, yield_now};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use weir_proto::peer::v1::Envelope;
use weir_proto::peer::v1::peer_service_client::PeerServiceClient;
use weir_raft::limits::SHARDS_MAX;
use weir_raft::{NodeId, ProposeError, Retention, TransferError};

#[tokio::test]
async fn a_leader_alone_refuses_within_its_lease_and_others_go_on() {
    let world = World::new(3, 1).await;
    world.commit(0, vec![put("a", 1000)]).await;
    let old = world.leader(0).await;
    let others = world.others(old);
    world.gate.isolate(old, others.clone());
    let cut = Instant::now();
    let group = world.group(old, 0);
    // Paced, so that the lease ends before the room for what is in flight.
    let pace = Duration::from_millis(world.config.timing.election_max_ms / 20);
    let refused = eventually("the refusal", async || {
        match group.submit(vec![admit("a", 1)]).await {
            Ok(pending) => match tokio::time::timeout(pace, pending).await {
                Ok(Err(error)) if error != ProposeError::Unknown => Some(error),
                Ok(Ok(_) | Err(_)) | Err(_) => None,
            },
            Err(error) => Some(error),
        }
    })
    .await;
    let after = cut.elapsed();
    assert_eq!(refused, ProposeError::NoQuorum);
    let lease = Duration::from_millis(world.config.timing.election_max_ms);
    // The lease runs from the last heartbeat that a quorum answered, at most one and a bit ago.
    assert!(
        after < lease + Duration::from_secs(1),
        "refused only after {after:?}"
    );
    // It cannot read either: somebody else may have written since.
    let read = world.group(old, 0).read(|_| ()).await.unwrap_err();
    assert_eq!(read, ProposeError::NoQuorum);
    // Nor does it say for long that it leads.
    eventually("the end of its lead", async || {
        let told = group.transfer(old).await;
        (told == Err(TransferError::NotLeader { leader: None })).then_some(())
    })
    .await;
    let new = world.leader_among(&others, 0).await;
    propose(world.group(new, 0), vec![admit("a", 2)])
        .await
        .unwrap();
    world.gate.heal();
    world.converge(0).await;
    assert_eq!(
        world.leader(0).await,
        new,
        "the lead is not disturbed by the one that comes back"
    );
}

#[tokio::test]
async fn a_leader_alone_with_all_its_room_taken_says_that_it_has_no_quorum() {
    let world = World::new(3, 1).await;
    world.commit(0, vec![put("a", 1000)]).await;
    let old = world.leader(0).await;
    world.gate.isolate(old, world.others(old));
    let group = world.group(old, 0);
    let mut in_flight = Vec::new();
    let full = loop {
        match group.submit(vec![admit("a", 1)]).await {
            Ok(pending) => in_flight.push(pending),
            Err(error) => break error,
        }
    };
    assert_eq!(full, ProposeError::Overloaded);
    let refused = eventually("another answer", async || {
        let error = group.submit(vec![admit("a", 1)]).await.err()?;
        (error != ProposeError::Overloaded).then_some(error)
    })
    .await;
    assert_eq!(refused, ProposeError::NoQuorum);
}

#[tokio::test]
async fn a_follower_that_was_cut_off_does_not_disturb_the_term_when_it_comes_back() {
    // One shard whose preferred leader is node 1, so that the lead has no reason to move.
    let world = World::new(3, 1).await;
    eventually("the preferred leader", async || {
        (world.leader(0).await == NodeId(1)).then_some(())
    })
    .await;
    let term = world.group(NodeId(1), 0).status().term;
    world.gate.isolate(NodeId(3), [NodeId(1), NodeId(2)]);
    // Long enough for several campaigns, which pre-votes keep from happening.
    let long = Duration::from_millis(6 * world.config.timing.election_max_ms);
    tokio::time::sleep(long).await;
    assert_eq!(world.group(NodeId(3), 0).status().term, term);
    world.commit_through(NodeId(1), 0, vec![put("a", 1)]).await;
    world.gate.heal();
    world.converge(0).await;
    for node in world.members() {
        let group = world.group(node, 0);
        // A leader that was silent is told of again at the next look.
        eventually("the same leader", async || {
            (group.status().leader == Some(NodeId(1))).then_some(())
        })
        .await;
        assert_eq!(group.status().term, term);
    }
}

#[tokio::test]
async fn a_follower_that_missed_a_purged_log_gets_a_snapshot() {
    let mut world = World::unstarted(3, 1).await;
    world.config.retention = Retention {
        snapshot_entries: 300,
        tail_entries: 256,
        ..Retention::default()
    };
    world.start_all().await;
    let leader = world.leader(0).await;
    let away = world.others(leader)[1];
    let stored = world.converge(0).await.0;
    world.kill(away).await;
    world.fill(&world.running(), 0, 1_200, 1).await;
    eventually("a purged log", async || {
        let leader = world.leader(0).await;
        (world.group(leader, 0).status().purged_index > stored).then_some(())
    })
    .await;
    world.start(away).await;
    world.converge(0).await;
    assert!(world.group(away, 0).status().snapshot_index > stored);
}

#[tokio::test]
async fn a_peer_with_a_slow_disk_gets_snapshots_and_does_not_make_the_log_grow() {
    let mut world = World::unstarted(3, 1).await;
    world.config.retention = Retention {
        snapshot_entries: 10_000,
        snapshot_bytes: 1024 * 1024,
        tail_entries: 10_000,
    };
    world.start_all().await;
    eventually("a word between all", async || {
        world.have_all_met().then_some(())
    })
    .await;
    let leader = world.leader(0).await;
    let slow = world.others(leader)[1];
    let delay = Duration::from_millis(2_500);
    world.disks[&slow].delay(delay);
    let quick = world.others(slow);
    // However far the slow peer is behind, the leader keeps no more than a part of the log for it. That
    // it is too slow shows in its next answer, so the log may grow for as long as that takes.
    let begun = Instant::now();
    let (mut entries, mut kept_max) = (0, 0);
    while entries < 2_000 || begun.elapsed() < 6 * delay {
        world.fill(&quick, 0, 50, 64).await;
        entries += 50;
        let leader = world.leader_among(&quick, 0).await;
        let status = world.group(leader, 0).status();
        kept_max = kept_max.max(status.last_log_index - status.purged_index);
    }
    assert!(
        kept_max <= entries / 2,
        "{kept_max} of {entries} entries were kept"
    );
    world.disks[&slow].delay(Duration::ZERO);
    world.converge(0).await;
}

/// A client that can say anything to node 1.
fn stranger(world: &World) -> PeerServiceClient<Channel> {
    let address = format!("http://{}", world.config.members[&NodeId(1)]);
    PeerServiceClient::new(Endpoint::from_shared(address).unwrap().connect_lazy())
}

/// Envelopes to node 1 that it must refuse, and how.
fn refused(cluster_id: &str, directory: u64) -> Vec<(Envelope, Code)> {
    let right = Envelope {
        cluster_id: cluster_id.to_owned(),
        from: 2,
        to: 1,
        group: 1,
        version: 1,
        sequence: 1,
        body: Bytes::from_static(&[0xff; 40]),
        directory,
    };
    let but = |change: fn(&mut Envelope), code| {
        let mut envelope = right.clone();
        change(&mut envelope);
        (envelope, code)
    };
    vec![
        but(
            |e| e.cluster_id = "other".to_owned(),
            Code::FailedPrecondition,
        ),
        but(|e| e.to = 2, Code::FailedPrecondition),
        but(|e| e.from = 9, Code::PermissionDenied),
        but(|e| e.from = 1, Code::PermissionDenied),
        but(|e| e.directory = 0, Code::FailedPrecondition),
        but(|e| e.directory ^= 2, Code::FailedPrecondition),
        but(|e| e.group = 0, Code::NotFound),
        but(|e| e.group = 2, Code::NotFound),
        but(|e| e.version = 9, Code::FailedPrecondition),
        but(|_| (), Code::InvalidArgument),
        but(|e| e.body = Bytes::new(), Code::InvalidArgument),
    ]
}

#[tokio::test]
async fn envelopes_that_are_not_for_this_node_are_refused_and_say_why() {
    let world = World::new(3, 1).await;
    let leader = world.leader(0).await;
    let term = world.group(leader, 0).status().term;
    let mut client = stranger(&world);
    let cluster = world.groups(NodeId(1)).identity().cluster_id.clone();
    for (envelope, code) in refused(&cluster, world.directory_of(NodeId(2))) {
        let alone = || futures::stream::iter([envelope.clone()]);
        let vote = client.vote(envelope.clone()).await.unwrap_err();
        let pre_vote = client.pre_vote(envelope.clone()).await.unwrap_err();
        let order = client.transfer_leader(envelope.clone()).await.unwrap_err();
        let mut answers = client.append(alone()).await.unwrap().into_inner();
        let append = answers.message().await.unwrap_err();
        let snapshot = client.snapshot(alone()).await.unwrap_err();
        for status in [vote, pre_vote, order, append, snapshot] {
            assert_eq!(status.code(), code, "{status} for {envelope:?}");
        }
    }
    assert_eq!(
        world.leader(0).await,
        leader,
        "nothing of it has done anything"
    );
    assert_eq!(world.group(leader, 0).status().term, term);
}

/// All shards share a connection to a peer. When a node starts with many, votes of all of them are given up at one
/// moment, and that must not end it: HTTP/2 servers take it for an attack.
#[tokio::test]
async fn votes_that_are_given_up_do_not_end_the_connection() {
    let world = World::new(3, 1).await;
    let address = world.config.members[&NodeId(1)].clone();
    let connections = Arc::new(AtomicUsize::new(0));
    let (made, to) = (connections.clone(), address.clone());
    let connector = tower::service_fn(move |_: http::Uri| {
        made.fetch_add(1, Ordering::Relaxed);
        let to = to.clone();
        async move { TcpStream::connect(to).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = PeerServiceClient::new(endpoint.connect_with_connector_lazy(connector));
    let cluster = world.groups(NodeId(1)).identity().cluster_id.clone();
    let (vote, code) = refused(&cluster, world.directory_of(NodeId(2))).remove(0);
    // They are under way when they are given up: sent, and perhaps not taken yet.
    for turns in 0..16 {
        let mut votes = JoinSet::new();
        for _ in 0..SHARDS_MAX {
            let (mut client, vote) = (client.clone(), vote.clone());
            votes.spawn(async move { client.vote(vote).await });
        }
        for _ in 0..turns {
            yield_now().await;
        }
        votes.shutdown().await;
    }
    assert_eq!(client.vote(vote).await.unwrap_err().code(), code);
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn nodes_that_were_told_different_things_do_not_mix() {
    let mut world = World::unstarted(3, 1).await;
    world.start(NodeId(1)).await;
    world.start(NodeId(2)).await;
    world.leader(0).await;
    world.config.cluster = "another".to_owned();
    world.start(NodeId(3)).await;
    let first = world.groups(NodeId(1)).identity().clone();
    let third = world.groups(NodeId(3)).identity().clone();
    assert_ne!(first.cluster_id, third.cluster_id);
    let ours = [NodeId(1), NodeId(2)];
    let leader = world.leader_among(&ours, 0).await;
    let group = world.group(leader, 0);
    let committed = propose(group, vec![put("a", 1)]).await.unwrap();
    assert!(committed.index > 0);
    assert_eq!(world.group(NodeId(3), 0).status().targets, 0);
}

/// What a quorum confirmed stays confirmed: who forgot it helps to elect nobody and counts for nothing.
#[tokio::test]
async fn a_node_that_lost_its_directory_is_in_no_quorum() {
    let mut world = World::new(3, 1).await;
    world.commit(0, vec![put("a", 1000)]).await;
    eventually("a word between all", async || {
        world.have_all_met().then_some(())
    })
    .await;
    let leader = world.leader(0).await;
    let [wiped, other] = world.others(leader)[..] else {
        panic!("three nodes")
    };
    world.kill(wiped).await;
    let confirmed = world.commit(0, vec![admit("a", 1)]).await;
    world.wipe(wiped);
    world.start(wiped).await;
    // The others go on without it.
    let next = world.commit(0, vec![admit("a", 2)]).await;
    assert!(next.index > confirmed.index);
    assert_eq!(world.leader_among(&[leader, other], 0).await, leader);
    // One that knows everything and one that forgot it are no quorum, and elect nobody.
    world.kill(leader).await;
    let lease = Duration::from_millis(world.config.timing.election_max_ms);
    let until = Instant::now() + lease * 5;
    while Instant::now() < until {
        for node in [wiped, other] {
            let answer = propose(world.group(node, 0), vec![admit("a", 3)]).await;
            assert!(answer.is_err(), "node {node}: {answer:?}");
        }
        tokio::time::sleep(lease / 4).await;
    }
    // Nobody was harmed: with the third everything goes on as before.
    world.start(leader).await;
    world.leader_among(&[leader, other], 0).await;
    let last = world.commit(0, vec![admit("a", 3)]).await;
    assert!(last.index > next.index);
}
