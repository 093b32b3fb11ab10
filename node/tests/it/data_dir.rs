//! Data directories that are not this node's.

use crate::support::*;
use std::sync::Arc;
use weir_node::config::Config;
use weir_node::dev::{Cluster, ClusterOptions};
use weir_node::listen::{bind, tcp};
use weir_node::metrics::SpanMetrics;
use weir_node::server::{Parts, Server};
use weir_raft::{MonotonicClock, NodeId};

async fn start_error(config: Config) -> String {
    let listener = async || tcp(bind("port", "127.0.0.1:0", false).await.unwrap());
    let started = Server::start(Parts {
        config,
        client: listener().await,
        connections_max: 64,
        peer: listener().await,
        admin: None,
        connector: Arc::new(|endpoint| endpoint.connect_lazy()),
        clock: Arc::new(MonotonicClock::new()),
        wall: weir_node::history::wall(),
        spans: SpanMetrics::default(),
    })
    .await;
    match started {
        Ok(_) => panic!("it started"),
        Err(error) => error.to_string(),
    }
}

/// The identity as a newer version would write it: a whole file of another format.
fn of_newer_format(identity: &str) -> String {
    let (body, _) = identity.split_once("checksum").unwrap();
    let body = body.replace("format 1", "format 2");
    format!("{body}checksum {:08x}\n", crc32fast::hash(body.as_bytes()))
}

#[tokio::test]
async fn a_directory_of_another_node_cluster_or_format_is_refused_and_kept() {
    let data = tempfile::tempdir().unwrap();
    let options = ClusterOptions {
        nodes: 3,
        data_dir: Some(data.path().to_owned()),
        ..options()
    };
    let mut cluster = Cluster::start(options).await.unwrap();
    cluster.ready(PATIENCE).await.unwrap();
    let node = NodeId(1);
    let (_, config) = cluster.nodes().find(|(id, _)| *id == node).unwrap();
    let config = config.clone();

    let in_use = start_error(config.clone()).await;
    assert!(
        in_use.contains("another process uses this data directory"),
        "{in_use}"
    );

    cluster.stop(node).await.unwrap();
    let identity = config.data_dir.join("identity");
    let before = std::fs::read(&identity).unwrap();

    let other_node = Config {
        node: NodeId(2),
        ..config.clone()
    };
    let error = start_error(other_node).await;
    assert!(error.contains("of node 1, expected 2"), "{error}");

    let other_cluster = Config {
        cluster: "another".into(),
        ..config.clone()
    };
    let error = start_error(other_cluster).await;
    assert!(error.contains("of cluster "), "{error}");

    let other_shards = Config {
        shards: 4,
        ..config.clone()
    };
    let error = start_error(other_shards).await;
    assert!(error.contains("identity"), "{error}");

    assert_eq!(std::fs::read(&identity).unwrap(), before);
    let before_text = String::from_utf8(before.clone()).unwrap();
    std::fs::write(&identity, of_newer_format(&before_text)).unwrap();
    let error = start_error(config.clone()).await;
    assert!(error.contains("format 2; this version reads 1"), "{error}");

    // Nothing was lost by being refused.
    std::fs::write(&identity, before).unwrap();
    cluster.restart(node).await.unwrap();
    cluster.ready(PATIENCE).await.unwrap();
    cluster.shutdown().await;
}
