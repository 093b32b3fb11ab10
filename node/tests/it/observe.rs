//! Health, reflection, metrics and probes.

use crate::process::Node;
use crate::support::*;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use weir_client::{Call, Client, Options, Outcome, Settlement};
use weir_node::dev::Cluster;
use weir_node::health::ADMISSION_SERVICE;
use weir_node::limits::{PEER_CONNECTIONS_MAX, STRANGER_SAFE};
use weir_proto::v1::admission_service_client::AdmissionServiceClient;
use weir_raft::NodeId;

async fn health(cluster: &Cluster, node: NodeId, service: &str) -> ServingStatus {
    let request = HealthCheckRequest {
        service: service.into(),
    };
    let answer = HealthClient::new(channel(cluster, node))
        .check(request)
        .await
        .unwrap();
    answer.into_inner().status()
}

async fn http(cluster: &Cluster, node: NodeId, path: &str) -> (u16, String, String) {
    http_as(cluster, node, path, "*/*").await
}

async fn http_as(
    cluster: &Cluster,
    node: NodeId,
    path: &str,
    accept: &str,
) -> (u16, String, String) {
    let (_, config) = cluster.nodes().find(|(id, _)| *id == node).unwrap();
    let url = format!("http://{}{path}", config.listen.admin);
    let client = reqwest::Client::new();
    let request = client.get(url).header("accept", accept);
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let media = answer
        .headers()
        .get("content-type")
        .map(|v| v.to_str().unwrap().to_owned());
    (
        status,
        media.unwrap_or_default(),
        answer.text().await.unwrap(),
    )
}

#[tokio::test]
async fn a_node_is_healthy_while_every_shard_knows_its_leader() {
    let mut cluster = start_with_target(3).await;
    let nodes: Vec<NodeId> = cluster.nodes().map(|(node, _)| node).collect();
    for node in &nodes {
        assert_eq!(health(&cluster, *node, "").await, ServingStatus::Serving);
        assert_eq!(
            health(&cluster, *node, ADMISSION_SERVICE).await,
            ServingStatus::Serving
        );
        assert_eq!(http(&cluster, *node, "/livez").await.0, 200);
        assert_eq!(http(&cluster, *node, "/readyz").await.0, 200);
    }
    let (survivor, others) = nodes.split_first().unwrap();
    for other in others {
        cluster.kill(*other).await.unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    while health(&cluster, *survivor, ADMISSION_SERVICE).await != ServingStatus::NotServing {
        assert!(Instant::now() < deadline, "ready without a quorum");
        sleep(Duration::from_millis(50)).await;
    }
    let (status, _, text) = http(&cluster, *survivor, "/readyz").await;
    assert_eq!(status, 503);
    assert!(text.starts_with("no leader known for"), "{text}");
    assert_eq!(
        health(&cluster, *survivor, "").await,
        ServingStatus::Serving
    );
    assert_eq!(http(&cluster, *survivor, "/livez").await.0, 200);
    cluster.shutdown().await;
}

/// Calls that the provider refuses, each for what it names.
async fn throttle_in_a_session(cluster: &Cluster, named: &[&str]) {
    let seeds = cluster.client_addresses();
    let client = Client::new(Options::new(seeds)).unwrap();
    for dimension in named {
        let call = Call::new("demo/chat", "acme", "high").cost("tokens", 1);
        let guard = client.admit_wait(&call).await.unwrap();
        let outcome = Outcome::Throttled {
            retry_after: Duration::ZERO,
            dimension: Some((*dimension).to_owned()),
        };
        let settled = guard.settle(outcome, [("tokens", 1)]).await;
        assert_eq!(settled, Ok(Settlement::Applied), "{dimension}");
    }
}

#[tokio::test]
async fn metrics_tell_what_happened() {
    let cluster = start_with_target(3).await;
    let leader = leader(&cluster);
    let mut client = admission(&cluster, leader);
    let answer = client.admit(ask("well")).await.unwrap().into_inner();
    let mut settled = release(admitted(&answer).grant.unwrap());
    // Half as much again as it was charged.
    settled.actual = units(&[("tokens", 15)]);
    client.release(settled).await.unwrap();
    throttle_in_a_session(&cluster, &["tokens", "tokens", "nobody's", ""]).await;
    let answer = client.admit(ask("job")).await.unwrap().into_inner();
    let mut throttled = release(admitted(&answer).grant.unwrap());
    throttled.outcome = weir_proto::v1::CallOutcome::Throttled.into();
    throttled.retry_after_us = 1_000_000;
    client.release(throttled).await.unwrap();
    client.admit(ask("")).await.unwrap_err();

    // As Prometheus asks.
    let accept = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.4";
    let (status, media, text) = http_as(&cluster, leader, "/metrics", accept).await;
    assert_eq!(status, 200);
    assert!(media.starts_with("application/openmetrics-text"), "{media}");
    let shard = target(&cluster).await.shard;
    for line in [
        r#"weir_admit_decisions_total{target="demo/chat",priority="high",outcome="admitted"} 6"#,
        r#"weir_estimate_error_ratio_sum{target="demo/chat",dimension="tokens"} 1.5"#,
        r#"weir_estimate_error_ratio_count{target="demo/chat",dimension="tokens"} 1"#,
        r#"weir_upstream_429_total{target="demo/chat",dimension="tokens"} 2"#,
        r#"weir_upstream_429_total{target="demo/chat",dimension="other"} 1"#,
        r#"weir_upstream_429_total{target="demo/chat",dimension=""} 2"#,
        r#"weir_refused_calls_total{reason="MALFORMED"} 1"#,
        r#"weir_build_info{version="0.1.0"} 1"#,
        r#"weir_queue_depth{target="demo/chat",priority="high"} 0"#,
        "weir_admit_duration_seconds_count 6",
        &format!(r#"weir_raft_is_leader{{shard="{shard}"}} 1"#),
        &format!(r#"weir_raft_has_leader{{shard="{shard}"}} 1"#),
        &format!(r#"weir_batch_queue_operations{{shard="{shard}"}} 0"#),
        &format!(r#"weir_raft_apply_lag_entries{{shard="{shard}"}} 0"#),
    ] {
        assert!(
            text.lines().any(|told| told == line),
            "{line}\nis not in\n{text}"
        );
    }
    for name in [
        "weir_raft_term",
        "weir_raft_applied_index",
        "weir_batch_operations_bucket",
    ] {
        assert!(text.contains(name), "{name} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));

    let (status, media, classic) = http(&cluster, leader, "/metrics").await;
    assert_eq!(status, 200);
    assert!(media.starts_with("text/plain; version=0.0.4"), "{media}");
    assert_eq!(told(&classic), METRICS);
    cluster.shutdown().await;
}

#[tokio::test]
async fn estimates_are_judged_without_a_history_too() {
    let node = Node::start("[history]\nretention_hours = 0\n", &[], &[]).await;
    let mut client = node.admission();
    let answer = client.admit(ask("job")).await.unwrap().into_inner();
    let mut settled = release(admitted(&answer).grant.unwrap());
    settled.actual = units(&[("tokens", 5)]);
    client.release(settled.clone()).await.unwrap();
    // A release that comes again changes nothing.
    client.release(settled).await.unwrap();
    let told = async |part: &str| {
        let labels = r#"{target="demo/chat",dimension="tokens"}"#;
        let sample = format!("weir_estimate_error_ratio_{part}{labels}");
        node.metric(&sample).await
    };
    assert_eq!(
        (told("sum").await, told("count").await),
        (Some(0.5), Some(1.0))
    );
    node.stop().await;
}

/// Every metric of a node. Dashboards and alerts know these names.
const METRICS: &str = include_str!("metrics.txt");

/// Name, type and help of every metric, in order of name.
fn told(classic: &str) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut helps = std::collections::BTreeMap::new();
    for line in classic.lines() {
        let mut words = line.splitn(4, ' ');
        let (mark, what) = (words.next(), words.next());
        let (Some("#"), Some(name), Some(text)) = (mark, words.next(), words.next()) else {
            continue;
        };
        match what {
            Some("HELP") => {
                helps.insert(name, text);
            }
            Some("TYPE") => told.push(format!("{name} {text}: {}\n", helps[name])),
            _ => panic!("{line}"),
        }
    }
    told.sort();
    told.concat()
}

#[tokio::test]
async fn the_schema_is_told_by_reflection() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let cluster = start(1).await;
    let (node, _) = cluster.nodes().next().unwrap();
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(channel(&cluster, node));
    let requests = tonic::Request::new(tokio_stream::once(request));
    let mut answers = client
        .server_reflection_info(requests)
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("{answer:?}")
    };
    let names: Vec<String> = list
        .service
        .into_iter()
        .map(|service| service.name)
        .collect();
    for name in [
        "weir.v1.AdmissionService",
        "weir.v1.TargetsService",
        "weir.v1.ClusterService",
    ] {
        assert!(
            names.iter().any(|told| told == name),
            "{name} is not in {names:?}"
        );
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn who_has_the_wrong_port_makes_room_for_peers() {
    let cluster = start(1).await;
    let (node, config) = cluster.nodes().next().unwrap();
    let peer_port = format!("http://{}", config.listen.peer);
    let mut lost = Vec::new();
    for number in 0..PEER_CONNECTIONS_MAX + 8 {
        if number == PEER_CONNECTIONS_MAX {
            // Until then nobody is sent away.
            sleep(STRANGER_SAFE * 2).await;
        }
        let endpoint = Endpoint::from_shared(peer_port.clone()).unwrap();
        let channel = endpoint.connect().await.unwrap();
        let mut client = AdmissionServiceClient::new(channel);
        let status = client.admit(ask("lost")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{number}: {status}");
        lost.push(client);
    }
    let (_, _, metrics) = http(&cluster, node, "/metrics").await;
    let made_room = r#"weir_closed_connections_total{port="peer",reason="made_room"} 8"#;
    assert!(metrics.contains(made_room), "{metrics}");
    assert!(
        !metrics.contains(r#"port="peer",reason="full""#),
        "{metrics}"
    );
    cluster.shutdown().await;
}
