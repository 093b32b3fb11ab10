//! A cluster to test with, and raw clients of its nodes: nothing is retried unless a test says so.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use weir_admission::TargetName;
use weir_node::dev::{Cluster, ClusterOptions};
use weir_proto::error::{Reason, Retry, WireError};
use weir_proto::v1 as wire;
use weir_proto::v1::admission_service_client::AdmissionServiceClient;
use weir_proto::v1::admit_response::Decision;
use weir_proto::v1::cluster_service_client::ClusterServiceClient;
use weir_proto::v1::targets_service_client::TargetsServiceClient;
use weir_raft::{NodeId, Timing};

pub(crate) const TARGET: &str = "demo/chat";
/// Long enough for an election on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// A ready cluster, patient enough for a machine that does other things too.
pub(crate) async fn start(nodes: usize) -> Cluster {
    let options = ClusterOptions { nodes, ..options() };
    let cluster = Cluster::start(options).await.unwrap();
    cluster.ready(PATIENCE).await.unwrap();
    cluster
}

pub(crate) fn options() -> ClusterOptions {
    ClusterOptions {
        timing: Timing {
            heartbeat_ms: 200,
            election_min_ms: 1_500,
            election_max_ms: 3_000,
        },
        ..ClusterOptions::default()
    }
}

/// Repeats what is safe to repeat until it succeeds: on a busy machine a shard may be without a quorum
/// for a moment.
pub(crate) async fn patiently<T>(mut call: impl AsyncFnMut() -> Result<T, Status>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(status) => {
                let retry = WireError::from_status(&status).map(|error| error.reason.retry());
                assert!(
                    retry.is_some_and(|retry| retry != Retry::Never) && Instant::now() < deadline,
                    "{status:?}"
                );
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// A ready cluster with the target in place.
pub(crate) async fn start_with_target(nodes: usize) -> Cluster {
    start_with(ClusterOptions { nodes, ..options() }).await
}

/// The same with other options.
pub(crate) async fn start_with(options: ClusterOptions) -> Cluster {
    let cluster = Cluster::start(options).await.unwrap();
    cluster.ready(PATIENCE).await.unwrap();
    let put = wire::PutTargetRequest {
        target: TARGET.into(),
        policy: Some(policy()),
        expected_version: None,
    };
    patiently(async || {
        let node = leader_now(&cluster).await;
        targets(&cluster, node).put_target(put.clone()).await
    })
    .await;
    cluster
}

/// Who leads the target's shard, once somebody does.
pub(crate) async fn leader_now(cluster: &Cluster) -> NodeId {
    let target = TargetName::new(TARGET).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(leader) = cluster.leader_of_target(&target) {
            return leader;
        }
        assert!(Instant::now() < deadline, "no leader");
        sleep(Duration::from_millis(10)).await;
    }
}

/// 100 requests and 10 000 tokens per minute; two priorities.
pub(crate) fn policy() -> wire::Policy {
    let limit = |dimension: &str, cap| wire::Limit {
        name: dimension.into(),
        dimension: dimension.into(),
        cap,
        per_us: 60_000_000,
        kind: wire::LimitKind::Sliding.into(),
        enforced_by: wire::EnforcedBy::Provider.into(),
        burst_us: Some(60_000_000),
        initial_use: wire::InitialUse::Empty.into(),
    };
    let priority = |name: &str, weight| wire::Priority {
        name: name.into(),
        weight,
    };
    wire::Policy {
        limits: vec![limit("requests", 100), limit("tokens", 10_000)],
        priorities: vec![priority("high", 3), priority("low", 1)],
        // A busy machine answers late; grants of these tests may be that old.
        reply_window_us: Some(5_000_000),
        ..wire::Policy::default()
    }
}

/// Who leads the target's shard.
pub(crate) fn leader(cluster: &Cluster) -> NodeId {
    cluster
        .leader_of_target(&TargetName::new(TARGET).unwrap())
        .unwrap()
}

/// Some other node.
pub(crate) fn follower(cluster: &Cluster) -> NodeId {
    let leader = leader(cluster);
    cluster
        .nodes()
        .map(|(node, _)| node)
        .find(|node| *node != leader)
        .unwrap()
}

pub(crate) fn channel(cluster: &Cluster, node: NodeId) -> Channel {
    let (_, config) = cluster.nodes().find(|(id, _)| *id == node).unwrap();
    channel_to(&config.listen.client)
}

pub(crate) fn channel_to(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect_timeout(Duration::from_secs(2))
        .timeout(PATIENCE)
        .connect_lazy()
}

pub(crate) fn admission(cluster: &Cluster, node: NodeId) -> AdmissionServiceClient<Channel> {
    AdmissionServiceClient::new(channel(cluster, node))
}

pub(crate) fn targets(cluster: &Cluster, node: NodeId) -> TargetsServiceClient<Channel> {
    TargetsServiceClient::new(channel(cluster, node))
}

pub(crate) fn cluster_service(cluster: &Cluster, node: NodeId) -> ClusterServiceClient<Channel> {
    ClusterServiceClient::new(channel(cluster, node))
}

/// One request and ten tokens, as a new call.
pub(crate) fn ask(id: &str) -> wire::AdmitRequest {
    wire::AdmitRequest {
        target: TARGET.into(),
        tenant: "acme".into(),
        priority: "high".into(),
        admission_id: id.into(),
        attempt: 1,
        ask: 1,
        cost: units(&[("requests", 1), ("tokens", 10)]),
        ..wire::AdmitRequest::default()
    }
}

pub(crate) fn units(list: &[(&str, u64)]) -> BTreeMap<String, u64> {
    list.iter()
        .map(|(dimension, units)| ((*dimension).to_owned(), *units))
        .collect()
}

pub(crate) fn release(grant: wire::Grant) -> wire::ReleaseRequest {
    wire::ReleaseRequest {
        target: TARGET.into(),
        grant: Some(grant),
        actual: BTreeMap::new(),
        outcome: wire::CallOutcome::Ok.into(),
        retry_after_us: 0,
        throttled_dimension: String::new(),
    }
}

pub(crate) fn admitted(answer: &wire::AdmitResponse) -> &wire::Admitted {
    let Some(Decision::Admitted(admitted)) = &answer.decision else {
        panic!("not admitted: {answer:?}")
    };
    admitted
}

pub(crate) fn error(status: &Status) -> WireError {
    WireError::from_status(status).unwrap_or_else(|| panic!("not ours: {status:?}"))
}

pub(crate) fn reason(status: &Status) -> Reason {
    error(status).reason
}

/// The target as its leader sees it.
pub(crate) async fn target(cluster: &Cluster) -> wire::Target {
    let get = wire::GetTargetRequest {
        target: TARGET.into(),
    };
    let answer = patiently(async || {
        let node = leader_now(cluster).await;
        targets(cluster, node).get_target(get.clone()).await
    })
    .await;
    answer.into_inner().target.unwrap()
}

/// Units that count against each limit now.
pub(crate) async fn used(cluster: &Cluster) -> Vec<u64> {
    target(cluster)
        .await
        .limits
        .iter()
        .map(|limit| limit.used)
        .collect()
}
