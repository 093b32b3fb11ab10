//! Elections, replication, restarts, snapshots, placement.

use crate::faulty::Faults;
use crate::world::{PATIENCE, World, admit, eventually, propose, put};
use weir_admission::{AdmitOutcome, Outcome, PolicyOutcome};
use weir_raft::{NodeId, ProposeError, Role, TransferError};

#[tokio::test]
async fn three_nodes_elect_a_leader_and_agree_on_everything() {
    let world = World::new(3, 1).await;
    let put = world.commit(0, vec![put("openai/gpt", 100)]).await;
    assert!(matches!(
        put.outcomes[..],
        [Outcome::Policy(PolicyOutcome::Put { version: 1, .. })]
    ));
    let asks = world
        .commit(0, (0..50).map(|id| admit("openai/gpt", id)).collect())
        .await;
    assert!(asks.index > put.index && asks.stamp > put.stamp);
    assert_eq!(asks.outcomes.len(), 50);
    let (index, _) = world.converge(0).await;
    assert_eq!(index, asks.index);
}

#[tokio::test]
async fn followers_say_who_leads_and_do_nothing() {
    let world = World::new(3, 1).await;
    let leader = world.leader(0).await;
    let (before, _) = world.converge(0).await;
    for follower in world.others(leader) {
        let refused = propose(world.group(follower, 0), vec![put("a", 1)])
            .await
            .unwrap_err();
        assert_eq!(
            refused,
            ProposeError::NotLeader {
                leader: Some(leader)
            }
        );
        let refused = world.group(follower, 0).read(|_| ()).await.unwrap_err();
        assert_eq!(
            refused,
            ProposeError::NotLeader {
                leader: Some(leader)
            }
        );
        assert_eq!(world.group(follower, 0).status().role, Role::Follower);
    }
    assert_eq!(world.converge(0).await.0, before);
}

#[tokio::test]
async fn what_is_no_batch_never_reaches_the_log() {
    let world = World::new(1, 1).await;
    let leader = world.leader(0).await;
    let group = world.group(leader, 0);
    let before = group.status().last_log_index;
    let too_many = (0..513).map(|id| admit("a", id)).collect();
    for batch in [Vec::new(), too_many] {
        let refused = propose(group, batch).await.unwrap_err();
        assert!(matches!(refused, ProposeError::NotABatch(_)), "{refused:?}");
    }
    // The first submit gave the shard its secret.
    assert!(group.status().last_log_index <= before + 1);
}

#[tokio::test]
async fn more_in_flight_than_a_group_takes_is_refused() {
    let world = World::new(3, 1).await;
    let leader = world.leader(0).await;
    world.commit(0, vec![put("a", 1000)]).await;
    let group = world.group(leader, 0);
    world.gate.isolate(leader, world.others(leader));
    let mut pending = Vec::new();
    let refused = loop {
        match group.submit(vec![admit("a", pending.len() as u64)]).await {
            Ok(one) => pending.push(one),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, ProposeError::Overloaded);
    assert_eq!(pending.len(), weir_raft::limits::IN_FLIGHT_ENTRIES);
    world.gate.heal();
    for one in pending {
        // Either the leader got through in time or the batch's fate is not known; never "nothing
        // happened".
        match one.await {
            Ok(_) | Err(ProposeError::Unknown) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_leader_dies_another_takes_over_and_the_old_one_comes_back() {
    let mut world = World::new(3, 1).await;
    world.commit(0, vec![put("a", 100), admit("a", 1)]).await;
    let old = world.leader(0).await;
    world.kill(old).await;
    let after = world.commit(0, vec![admit("a", 2)]).await;
    assert!(matches!(
        after.outcomes[..],
        [Outcome::Admit(AdmitOutcome::Admitted(_))]
    ));
    assert_ne!(world.leader(0).await, old);
    world.start(old).await;
    let (index, _) = world.converge(0).await;
    assert!(index >= after.index);
}

#[tokio::test]
async fn a_restart_of_one_node_or_of_all_keeps_everything() {
    let mut world = World::new(3, 2).await;
    for shard in 0..2 {
        world
            .commit(shard, vec![put("a", 100), admit("a", 1)])
            .await;
    }
    world.kill(NodeId(3)).await;
    world.commit(0, vec![admit("a", 2)]).await;
    world.start(NodeId(3)).await;
    let before = [world.converge(0).await, world.converge(1).await];
    for node in world.members() {
        world.kill(node).await;
    }
    world.start_all().await;
    for (shard, (index, digest)) in (0..2).zip(before) {
        let leader = world.leader(shard).await;
        let group = world.group(leader, shard);
        // The new term's first entry changes the log but not the state.
        assert!(world.converge(shard).await.0 > index);
        assert_eq!(group.status().digest, digest);
        assert_eq!(group.read(|state| state.target_count()).await, Ok(1));
    }
    let next = world.commit(0, vec![admit("a", 3)]).await;
    assert!(matches!(next.outcomes[..], [Outcome::Admit(_)]));
}

#[tokio::test]
async fn the_lead_can_be_handed_to_a_voter_that_is_there() {
    let mut world = World::new(3, 1).await;
    world.commit(0, vec![put("a", 100)]).await;
    let leader = world.leader(0).await;
    let [next, third] = world.others(leader)[..] else {
        panic!("three nodes")
    };
    let group = world.group(leader, 0);
    assert_eq!(group.transfer(leader).await, Ok(()));
    assert_eq!(
        group.transfer(NodeId(9)).await,
        Err(TransferError::NotVoter(NodeId(9)))
    );
    assert_eq!(
        world.group(next, 0).transfer(third).await,
        Err(TransferError::NotLeader {
            leader: Some(leader)
        })
    );
    group.transfer(next).await.unwrap();
    assert_eq!(world.leader(0).await, next);
    world.kill(third).await;
    // A moment ago it was there, so the first try may go astray; that costs an election.
    eventually("the loss to be noticed", async || {
        let leader = world.leader(0).await;
        let refused = world.group(leader, 0).transfer(third).await;
        (refused == Err(TransferError::NotReady(third))).then_some(())
    })
    .await;
    world.commit(0, vec![admit("a", 1)]).await;
}

#[tokio::test]
async fn a_node_that_stops_gives_its_leads_away_and_gets_none() {
    let world = World::new(3, 3).await;
    spread(&world).await;
    world.groups(NodeId(1)).hand_over(PATIENCE).await;
    for shard in 0..3 {
        let leader = eventually("another leader", async || {
            let leader = world.leader(shard).await;
            (leader != NodeId(1)).then_some(leader)
        })
        .await;
        world.commit_through(leader, shard, vec![put("a", 1)]).await;
    }
    let next = world.leader(0).await;
    assert!(
        world.group(next, 0).transfer(NodeId(1)).await.is_err(),
        "a stopping node leads nothing"
    );
}

#[tokio::test]
async fn a_drained_node_takes_no_lead_and_an_offer_stops_nobody() {
    let world = World::new(3, 3).await;
    spread(&world).await;
    let drained = NodeId(1);
    world.groups(drained).drain(PATIENCE).await.unwrap();
    for shard in 0..3 {
        let leader = eventually("another leader", async || {
            let leader = world.leader(shard).await;
            (leader != drained).then_some(leader)
        })
        .await;
        let group = world.group(leader, shard);
        // A leader that has just begun may not have heard of the drained node yet.
        let answer = eventually("an answer to the offer", async || {
            let answer = group.transfer(drained).await;
            (answer != Err(TransferError::NotReady(drained))).then_some(answer)
        });
        assert_eq!(answer.await, Err(TransferError::Declined(drained)));
        let term = group.positions().term;
        world.commit_through(leader, shard, vec![put("a", 1)]).await;
        assert_eq!(group.positions().term, term, "it led on");
    }
    world.groups(drained).undrain();
    let leader = world.leader(0).await;
    eventually("the lead", async || {
        let moved = world.group(leader, 0).transfer(drained).await;
        (moved.is_ok() || world.leader(0).await == drained).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_node_whose_log_cannot_be_synced_fails_and_the_others_go_on() {
    let mut world = World::new(3, 1).await;
    world.commit(0, vec![put("a", 100)]).await;
    let leader = world.leader(0).await;
    Faults::set(&world.disks[&leader].fail_all_syncs, true);
    let pending = world.group(leader, 0).submit(vec![admit("a", 1)]).await;
    let failure = world.groups(leader).failed().await;
    assert!(failure.to_string().contains("os error 5"), "{failure}");
    if let Ok(pending) = pending {
        // The followers may have it.
        let fate = pending.await;
        assert!(
            matches!(fate, Ok(_) | Err(ProposeError::Unknown)),
            "{fate:?}"
        );
    }
    let refused = propose(world.group(leader, 0), vec![admit("a", 2)]).await;
    assert!(refused.is_err(), "a dead node promises nothing");
    world.kill(leader).await;
    world.commit(0, vec![admit("a", 3)]).await;
    world.converge(0).await;
}

#[tokio::test]
async fn leaders_are_spread_and_return_after_a_restart() {
    let mut world = World::new(3, 3).await;
    spread(&world).await;
    world.kill(NodeId(2)).await;
    assert_ne!(world.leader(1).await, NodeId(2));
    world.start(NodeId(2)).await;
    spread(&world).await;
}

/// Waits until each of three shards is led by the node that should lead it.
async fn spread(world: &World) {
    eventually("spread leaders", async || {
        let mut leaders = Vec::new();
        for shard in 0..3 {
            leaders.push(world.leader(shard).await);
        }
        (leaders == [NodeId(1), NodeId(2), NodeId(3)]).then_some(())
    })
    .await;
}
