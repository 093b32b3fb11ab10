//! Status, routes, listing, transfer: the cluster as any node tells it.

use crate::support::*;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::{Duration, Instant, sleep};
use weir_admission::ShardId;
use weir_node::dev::Cluster;
use weir_proto::error::Reason;
use weir_proto::v1 as wire;
use weir_raft::NodeId;

async fn status(cluster: &Cluster, node: NodeId) -> wire::StatusResponse {
    let request = wire::StatusRequest { local: false };
    cluster_service(cluster, node)
        .status(request)
        .await
        .unwrap()
        .into_inner()
}

/// Leader of each shard, as the nodes say of themselves.
fn leaders(status: &wire::StatusResponse) -> BTreeMap<u32, u64> {
    let mut leaders = BTreeMap::new();
    for node in &status.nodes {
        for group in node
            .groups
            .iter()
            .filter(|g| g.role() == wire::GroupRole::Leader)
        {
            assert_eq!(
                leaders.insert(group.shard, node.node_id),
                None,
                "two leaders"
            );
        }
    }
    leaders
}

#[tokio::test]
async fn every_node_tells_the_same_true_status() {
    let cluster = start_with_target(3).await;
    admission(&cluster, leader(&cluster))
        .admit(ask("job"))
        .await
        .unwrap();
    let truth: BTreeMap<u32, u64> = (0..3)
        .map(|shard| (shard, cluster.leader_of(ShardId(shard)).unwrap().0))
        .collect();
    for (node, _) in cluster.nodes() {
        let status = status(&cluster, node).await;
        assert_eq!(status.shards, 3);
        assert_eq!(status.nodes.len(), 3);
        assert!(
            status
                .nodes
                .iter()
                .all(|node| node.reachable && node.groups.len() == 3)
        );
        assert_eq!(leaders(&status), truth);
        for group in status.nodes.iter().flat_map(|node| &node.groups) {
            assert_eq!(group.voters, [1, 2, 3]);
            assert_eq!(group.leader, truth[&group.shard]);
            assert!(group.applied_index <= group.last_log_index);
        }
        // Replicas at the same index have the same state.
        let mut digests: BTreeMap<(u32, u64), BTreeSet<&str>> = BTreeMap::new();
        for group in status.nodes.iter().flat_map(|node| &node.groups) {
            let at = (group.shard, group.applied_index);
            digests.entry(at).or_default().insert(&group.digest);
        }
        assert!(
            digests.values().all(|digests| digests.len() == 1),
            "{digests:?}"
        );
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_dead_node_is_said_to_be_unreachable() {
    let mut cluster = start_with_target(3).await;
    let dead = follower(&cluster);
    cluster.kill(dead).await.unwrap();
    let begun = Instant::now();
    let status = status(&cluster, leader_elsewhere(&cluster, dead).await).await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    for node in &status.nodes {
        assert_eq!(node.reachable, node.node_id != dead.0, "{node:?}");
        assert!(!node.address.is_empty());
    }
    cluster.shutdown().await;
}

/// Waits until the target's shard has a leader that is not `dead`.
async fn leader_elsewhere(cluster: &Cluster, dead: NodeId) -> NodeId {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let leader = leader_now(cluster).await;
        if leader != dead {
            return leader;
        }
        assert!(Instant::now() < deadline, "no new leader");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn routes_lead_to_the_leader() {
    let cluster = start_with_target(3).await;
    for (node, _) in cluster.nodes() {
        let routes = cluster_service(&cluster, node)
            .routes(wire::RoutesRequest {})
            .await
            .unwrap();
        let routes = routes.into_inner();
        assert_eq!(routes.shards, 3);
        assert_eq!(routes.routes.len(), 3);
        let target = weir_admission::TargetName::new(TARGET).unwrap();
        let shard = weir_admission::shard_of(&target, routes.shards);
        let route = routes
            .routes
            .iter()
            .find(|route| route.shard == shard.0)
            .unwrap();
        let address = routes
            .nodes
            .iter()
            .find(|node| node.node_id == route.leader)
            .unwrap();
        let mut there = wire::admission_service_client::AdmissionServiceClient::new(channel_to(
            &address.address,
        ));
        there.admit(ask(&format!("by-{node}"))).await.unwrap();
    }
    cluster.shutdown().await;
}

/// What the lists of all nodes say: how often each shard is answered for, and the targets.
async fn lists(cluster: &Cluster) -> (Vec<u32>, Vec<String>) {
    let (mut shards, mut names) = (Vec::new(), Vec::new());
    for (node, _) in cluster.nodes() {
        let request = wire::ListTargetsRequest {};
        let list = targets(cluster, node)
            .list_targets(request)
            .await
            .unwrap()
            .into_inner();
        shards.extend(list.shards);
        names.extend(list.targets.into_iter().map(|target| target.name));
    }
    shards.sort_unstable();
    (shards, names)
}

#[tokio::test]
async fn a_list_says_for_which_shards_it_answers() {
    let cluster = start_with_target(3).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (shards, names) = lists(&cluster).await;
        // A shard whose leader has no quorum for a moment is missing, and that can be seen.
        if shards == [0, 1, 2] {
            assert_eq!(names, [TARGET]);
            break;
        }
        assert!(Instant::now() < deadline, "{shards:?}");
        sleep(Duration::from_millis(50)).await;
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn leadership_moves_where_it_is_sent() {
    let cluster = start_with_target(3).await;
    let (from, to) = (leader(&cluster), follower(&cluster));
    let shard = target(&cluster).await.shard;
    let transfer = |to: u64| wire::TransferRequest { shard, to };
    let mut there = cluster_service(&cluster, from);
    let refused = there.transfer(transfer(9)).await.unwrap_err();
    assert_eq!(reason(&refused), Reason::Malformed, "{refused:?}");
    let refused = there
        .transfer(wire::TransferRequest { shard: 3, to: 1 })
        .await
        .unwrap_err();
    assert_eq!(reason(&refused), Reason::Malformed, "{refused:?}");
    let refused = cluster_service(&cluster, to)
        .transfer(transfer(to.0))
        .await
        .unwrap_err();
    assert_eq!(reason(&refused), Reason::NotLeader, "{refused:?}");

    there.transfer(transfer(to.0)).await.unwrap();
    cluster.ready(PATIENCE).await.unwrap();
    assert_eq!(leader(&cluster), to);
    admission(&cluster, to).admit(ask("after")).await.unwrap();
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_killed_leader_is_replaced_and_nothing_is_charged_twice() {
    let mut cluster = start_with_target(3).await;
    let old = leader(&cluster);
    admission(&cluster, old).admit(ask("before")).await.unwrap();
    cluster.kill(old).await.unwrap();
    let new = leader_elsewhere(&cluster, old).await;
    let mut there = admission(&cluster, new);
    let answer = patiently(async || there.admit(ask("before")).await)
        .await
        .into_inner();
    // The straggler meets its own grant, or hears that it is stale; it is never charged again.
    assert!(answer.decision.is_some(), "{answer:?}");
    assert_eq!(used(&cluster).await, [1, 10]);
    cluster.restart(old).await.unwrap();
    cluster.ready(PATIENCE).await.unwrap();
    assert_eq!(used(&cluster).await, [1, 10]);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_restarted_cluster_remembers_policy_and_use() {
    let mut cluster = start_with_target(3).await;
    admission(&cluster, leader(&cluster))
        .admit(ask("before"))
        .await
        .unwrap();
    let nodes: Vec<NodeId> = cluster.nodes().map(|(node, _)| node).collect();
    for node in &nodes {
        cluster.kill(*node).await.unwrap();
    }
    for node in &nodes {
        cluster.restart(*node).await.unwrap();
    }
    cluster.ready(PATIENCE).await.unwrap();
    assert_eq!(used(&cluster).await, [1, 10]);
    let again = admission(&cluster, leader(&cluster))
        .admit(ask("before"))
        .await
        .unwrap();
    assert!(again.into_inner().decision.is_some());
    assert_eq!(used(&cluster).await, [1, 10]);
    cluster.shutdown().await;
}
