//! A data directory belongs to one node of one cluster.

use crate::rig::{Rig, TARGET, alone, program, readiness};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use weir_chaos::cluster::{Cluster, Port};
use weir_chaos::process::{Process, tail};
use weir_client::{Answer, Call, Client, Mode, Options, Outcome};

const EXIT_MAX: Duration = Duration::from_secs(10);
/// What a node that is wrongly configured ends with.
const EXIT_USAGE: i32 = 2;
/// What a node ends with that cannot use what is rightly configured.
const EXIT_FAILED: i32 = 1;
/// All nodes have met each other within this after the cluster was founded.
const MET_MAX: Duration = Duration::from_secs(10);
/// A quorum would be found within a part of this.
const NO_QUORUM_FOR: Duration = Duration::from_secs(5);

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
    let log = cluster.data(1).with_extension("refused.log");
    let start = || Process::start_with(&program(), &cluster.config(1), &log, variables).unwrap();
    refuses(cluster, start, &log, (EXIT_USAGE, says)).await;
}

/// Expects that node 1, started in some way, refuses its directory, untouched.
async fn refuses(
    cluster: &Cluster,
    start: impl Fn() -> Process,
    log: &Path,
    (code, says): (i32, &[&str]),
) {
    let before = contents(&cluster.data(1));
    assert!(!before.is_empty());
    let ended = start().exit(EXIT_MAX).await.unwrap();
    let said = tail(log, 10);
    assert_eq!(ended.code(), Some(code), "{said}");
    for part in says {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
    let after = contents(&cluster.data(1));
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>()
    );
    assert!(before == after, "a file's bytes changed");
    std::fs::remove_file(log).unwrap();
}

#[tokio::test]
async fn the_directory_of_another_node_or_cluster_or_a_damaged_one_is_refused_and_not_touched() {
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
    for damaged in ["identity", "met", "log.mark"] {
        let file = cluster.data(1).join(damaged);
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, &whole[..3]).unwrap();
        refused(&cluster, &[], &[damaged]).await;
        std::fs::write(&file, whole).unwrap();
    }
    cluster.start().await.unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_start_without_the_right_to_write_changes_nothing() {
    let _alone = alone().await;
    let mut cluster = founded().await;
    let directory = cluster.data(1);
    let (config, log) = (cluster.config(1), directory.with_extension("refused.log"));
    let start = || Process::start_unprivileged(&program(), &config, &log).unwrap();
    let name = directory.display().to_string();
    set_mode(&directory, 0o500);
    set_mode(&directory.join("lock"), 0o400);
    let says = [&name[..], "Permission denied"];
    refuses(&cluster, start, &log, (EXIT_FAILED, &says)).await;
    set_mode(&directory, 0o700);
    set_mode(&directory.join("lock"), 0o600);
    cluster.start().await.unwrap();
    cluster.wait_until_whole().await.unwrap();
}

/// Its votes are forgotten with it, so it is let into no quorum.
#[tokio::test]
async fn a_node_that_comes_back_without_its_directory_is_refused_by_those_who_met_it() {
    let mut rig = Rig::start(1_000, Duration::from_secs(2)).await;
    let wiped = rig.cluster.ids()[2];
    let met = |id: u64| {
        let text = std::fs::read_to_string(rig.cluster.data(id).join("met")).unwrap();
        text.matches("\npeer ").count()
    };
    let until = Instant::now() + MET_MAX;
    while rig.cluster.ids().into_iter().any(|id| met(id) < 2) {
        assert!(Instant::now() < until, "a word between all");
        sleep(Duration::from_millis(50)).await;
    }
    rig.cluster.take(wiped).unwrap().kill().await.unwrap();
    std::fs::remove_dir_all(rig.cluster.data(wiped)).unwrap();
    rig.cluster.start_node(wiped).unwrap();
    let until = Instant::now() + MET_MAX;
    let says = |id: u64, part: &str| tail(&rig.cluster.log(id), 200).contains(part);
    while !says(
        wiped,
        "a peer refuses this node: node 3 was met with data directory",
    ) {
        assert!(
            Instant::now() < until,
            "{}",
            tail(&rig.cluster.log(wiped), 20)
        );
        sleep(Duration::from_millis(50)).await;
    }
    let status = rig.client.status().await.unwrap();
    let seen = status.nodes.iter().find(|node| node.node_id == wiped);
    assert!(!seen.unwrap().refused_by.is_empty(), "{seen:?}");
    // Whoever routes traffic by readiness is told too, and not to turn away from the others.
    let ready = async |id: u64| readiness(&rig.cluster.address_of(id, Port::Admin)).await;
    let until = Instant::now() + MET_MAX;
    while !ready(wiped).await.contains("refused by nodes 1, 2: ") {
        assert!(Instant::now() < until, "{}", ready(wiped).await);
        sleep(Duration::from_millis(50)).await;
    }
    assert!(ready(wiped).await.starts_with("HTTP/1.1 503"));
    for other in [1, 2] {
        assert!(ready(other).await.starts_with("HTTP/1.1 200"), "{other}");
        let seen = status.nodes.iter().find(|node| node.node_id == other);
        assert_eq!(seen.unwrap().refused_by, [0; 0], "{other}");
        // Who turns away what the new one says is not the one that is refused.
        assert!(!says(other, "a peer refuses this node"), "{other}");
    }
    // The others go on ...
    let call = Call::new(TARGET, "acme", "interactive").cost("requests", 1);
    let guard = rig.client.admit_wait(&call).await.unwrap();
    assert!(!guard.is_ungated());
    guard.settle(Outcome::Ok, [("requests", 1)]).await.unwrap();
    // ... and with one of them alone there is no quorum, whatever the new one says.
    let second = rig.cluster.ids()[1];
    rig.cluster.take(second).unwrap().kill().await.unwrap();
    let options = Options::new(rig.cluster.addresses()).mode(Mode::Closed);
    let client = Client::new(options).unwrap();
    let until = Instant::now() + NO_QUORUM_FOR;
    while Instant::now() < until {
        let call = call.clone().deadline(Duration::from_millis(500));
        let answer = client.try_admit(&call, None).await;
        assert!(!matches!(answer, Ok(Answer::Admitted(_))), "{answer:?}");
    }
}
