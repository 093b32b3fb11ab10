//! A data directory belongs to one node of one cluster.

use crate::rig::{alone, program};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use weir_chaos::cluster::Cluster;
use weir_chaos::process::{Process, tail};

const EXIT_MAX: Duration = Duration::from_secs(10);
/// What a node that is wrongly configured ends with.
const EXIT_USAGE: i32 = 2;

/// Every file below a directory, with its bytes.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut ahead = vec![directory.to_owned()];
    while let Some(next) = ahead.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                ahead.push(path);
            } else {
                found.insert(path.display().to_string(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// A cluster at rest, whose first node's directory is well filled.
async fn founded() -> Cluster {
    let mut cluster = Cluster::new(&program(), 2).unwrap();
    cluster.start().await.unwrap();
    for id in cluster.ids() {
        let ended = cluster.take(id).unwrap().terminate(EXIT_MAX).await.unwrap();
        assert!(ended.success(), "{ended}");
    }
    cluster
}

/// Starts node 1 with changes and expects it to refuse its directory, untouched.
async fn refused(cluster: &Cluster, variables: &[(&str, &str)], says: &[&str]) {
    let before = contents(&cluster.data(1));
    assert!(!before.is_empty());
    let log = cluster.data(1).with_extension("refused.log");
    let process = Process::start_with(&program(), &cluster.config(1), &log, variables).unwrap();
    let ended = process.exit(EXIT_MAX).await.unwrap();
    let said = tail(&log, 10);
    assert_eq!(ended.code(), Some(EXIT_USAGE), "{said}");
    for part in says {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
    let after = contents(&cluster.data(1));
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>()
    );
    assert!(before == after, "a file's bytes changed");
    std::fs::remove_file(&log).unwrap();
}

#[tokio::test]
async fn the_directory_of_another_node_or_cluster_is_refused_and_not_touched() {
    let _alone = alone().await;
    let mut cluster = founded().await;
    let directory = cluster.data(1).display().to_string();
    refused(
        &cluster,
        &[("WEIR__NODE__ID", "2")],
        &[&directory, "of node 1, expected 2"],
    )
    .await;
    refused(
        &cluster,
        &[("WEIR__CLUSTER__NAME", "another")],
        &[&directory, "of cluster "],
    )
    .await;
    refused(
        &cluster,
        &[("WEIR__CLUSTER__SHARDS", "3")],
        &[&directory, "of cluster "],
    )
    .await;
    cluster.start().await.unwrap();
}
