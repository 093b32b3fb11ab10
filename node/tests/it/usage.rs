//! The history of use, from the answers of nodes to what an operator reads.

use crate::command::run;
use crate::support::*;
use serde_json::Value;
use tonic::Code;
use weir_node::dev::Cluster;
use weir_proto::error::Reason;
use weir_proto::v1 as wire;
use weir_proto::v1::history_service_client::HistoryServiceClient;
use weir_raft::NodeId;

/// `weir ctl history` of the last hour as JSON, asking one node.
async fn history(cluster: &Cluster, node: NodeId, arguments: &[&str]) -> Value {
    let address = address_of(cluster, node);
    let command = [
        "ctl", "--server", &address, "--output", "json", "history", TARGET,
    ];
    let (code, stdout, stderr) = run(&[&command, arguments].concat()).await;
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    serde_json::from_str(&stdout).unwrap()
}

fn address_of(cluster: &Cluster, node: NodeId) -> String {
    let (_, config) = cluster.nodes().find(|(id, _)| *id == node).unwrap();
    config.listen.client.clone()
}

/// The sum of a number over all points: an hour may begin or end in between.
fn sum(history: &Value, path: &[&str]) -> i64 {
    let points = history["points"].as_array().unwrap();
    let value = |point: &Value| {
        path.iter()
            .fold(point.clone(), |value, key| value[*key].clone())
    };
    points
        .iter()
        .filter_map(|point| value(point).as_i64())
        .sum()
}

async fn admit(cluster: &Cluster, id: &str, tenant: &str) -> wire::AdmitResponse {
    let ask = wire::AdmitRequest {
        tenant: tenant.into(),
        ..ask(id)
    };
    let leader = leader_now(cluster).await;
    admission(cluster, leader)
        .admit(ask)
        .await
        .unwrap()
        .into_inner()
}

#[tokio::test]
async fn what_several_leaders_decided_is_told_by_any_node_and_kept() {
    let mut cluster = start_with_target(3).await;
    let first = leader(&cluster);
    for number in 0..3 {
        let answer = admit(&cluster, &format!("first-{number}"), "acme").await;
        let end = wire::ReleaseRequest {
            actual: units(&[("tokens", 4)]),
            ..release(admitted(&answer).grant.unwrap())
        };
        admission(&cluster, first).release(end).await.unwrap();
    }
    let number = first.0.to_string();
    let other = address_of(&cluster, follower(&cluster));
    let (code, _, stderr) = run(&["ctl", "--server", &other, "drain", &number]).await;
    assert_eq!(code, 0, "{stderr}");
    let second = leader_now(&cluster).await;
    assert_ne!(second, first);
    for number in 0..2 {
        let answer = admit(&cluster, &format!("second-{number}"), "bolt").await;
        let end = wire::ReleaseRequest {
            outcome: wire::CallOutcome::Throttled.into(),
            ..release(admitted(&answer).grant.unwrap())
        };
        admission(&cluster, second).release(end).await.unwrap();
    }

    for node in [1, 2, 3].map(NodeId) {
        let told = history(&cluster, node, &[]).await;
        assert_eq!(sum(&told, &["admitted"]), 5, "{told}");
        assert_eq!(sum(&told, &["throttled"]), 2, "{told}");
        assert_eq!(sum(&told, &["charged", "tokens"]), 50, "{told}");
        assert_eq!(sum(&told, &["used", "tokens"]), 32, "{told}");
        assert_eq!(told["missing_nodes"], Value::Array(Vec::new()));
    }
    let bolt = history(&cluster, first, &["--tenant", "bolt"]).await;
    assert_eq!(sum(&bolt, &["admitted"]), 2, "{bolt}");
    let low = history(&cluster, first, &["--priority", "low"]).await;
    assert_eq!(low["points"], Value::Array(Vec::new()));
    let by_tenant = history(&cluster, first, &["--by", "tenant", "--step", "60m"]).await;
    let tenants = by_tenant["points"].as_array().unwrap().iter();
    let mut tenants: Vec<_> = tenants
        .map(|point| point["tenant"].as_str().unwrap())
        .collect();
    tenants.sort_unstable();
    tenants.dedup();
    assert_eq!(tenants, ["acme", "bolt"]);

    // A node that is gone takes its part with it, and the answer says so.
    cluster.stop(first).await.unwrap();
    let address = address_of(&cluster, second);
    let command = ["ctl", "--server", &address, "history", TARGET];
    let (code, stdout, stderr) = run(&command).await;
    assert_eq!(code, 3, "{stderr}");
    assert!(
        stdout.contains(&format!("node {first} does not answer")),
        "{stdout}"
    );
    assert!(stdout.contains("requests=2,tokens=20"), "{stdout}");
    // It kept it.
    cluster.restart(first).await.unwrap();
    cluster.ready(PATIENCE).await.unwrap();
    let told = history(&cluster, second, &[]).await;
    assert_eq!(sum(&told, &["admitted"]), 5, "{told}");
    assert_eq!(sum(&told, &["used", "tokens"]), 32, "{told}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_history_is_drawn_and_bad_ranges_are_named_by_field() {
    let cluster = start_with_target(1).await;
    let node = leader(&cluster);
    for number in 0..4 {
        admit(&cluster, &number.to_string(), "acme").await;
    }
    let address = address_of(&cluster, node);
    let plot = [
        "ctl", "--server", &address, "history", TARGET, "--plot", "--from", "5m",
    ];
    let (code, stdout, stderr) = run(&plot).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("cap of the policy in force: 100 requests"),
        "{stdout}"
    );
    assert!(stdout.contains('#') && !stdout.contains('\x1b'), "{stdout}");
    let tokens = [&plot[..], &["--dimension", "tokens"]].concat();
    let (_, stdout, _) = run(&tokens).await;
    assert!(
        stdout.contains("cap of the policy in force: 10000 tokens"),
        "{stdout}"
    );
    let short = [
        "ctl", "--server", &address, "history", TARGET, "--from", "2d", "--step", "1m",
    ];
    let (code, _, stderr) = run(&short).await;
    assert_eq!(code, 2);
    assert!(stderr.contains("step_s must be at least"), "{stderr}");

    let request = wire::ReadHistoryRequest {
        target: TARGET.into(),
        from_unix_s: 61,
        to_unix_s: 60,
        step_s: 30,
        ..wire::ReadHistoryRequest::default()
    };
    let mut client = HistoryServiceClient::new(channel(&cluster, node));
    let status = client.read_history(request).await.unwrap_err();
    assert_eq!(
        (status.code(), reason(&status)),
        (Code::InvalidArgument, Reason::Malformed)
    );
    let fields: Vec<String> = error(&status)
        .violations
        .into_iter()
        .map(|it| it.field)
        .collect();
    assert_eq!(fields, ["from_unix_s", "step_s"]);
    cluster.shutdown().await;
}
