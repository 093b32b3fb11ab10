//! Operators at work, through the program.

use crate::command::{file, run};
use crate::support::*;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use tokio::time::{Instant, sleep};
use weir_admission::{ShardId, TargetName};
use weir_node::dev::Cluster;
use weir_raft::NodeId;

/// `weir ctl`, asking any node.
async fn ctl(cluster: &Cluster, arguments: &[&str]) -> (i32, String, String) {
    let servers = cluster.client_addresses().join(",");
    run(&[&["ctl", "--server", &servers], arguments].concat()).await
}

/// The same as JSON; the command must succeed.
async fn ctl_json(cluster: &Cluster, arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = ctl(cluster, &[arguments, &["--output", "json"]].concat()).await;
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    serde_json::from_str(&stdout).unwrap()
}

fn policy(dir: &Path, cap: u64) -> String {
    let text = format!(
        "[[target]]\nname = \"demo/chat\"\n[[target.limit]]\nname = \"rpm\"\ndimension = \"requests\"\n\
         cap = {cap}\nper = \"60s\"\nburst = \"60s\"\ninitial_use = \"empty\"\n\
         [[target.priority]]\nname = \"p1\"\nweight = 2\n[[target.priority]]\nname = \"p2\"\nweight = 1\n"
    );
    file(dir, &format!("{cap}.toml"), &text)
}

fn cap_of(target: &Value) -> u64 {
    target["policy"]["limits"][0]["cap"].as_u64().unwrap()
}

#[tokio::test]
async fn a_policy_is_put_in_place_of_what_was_shown_and_rolled_back() {
    let cluster = start(3).await;
    let dir = tempfile::tempdir().unwrap();
    let (small, large) = (policy(dir.path(), 5), policy(dir.path(), 9));

    let plan = ctl_json(&cluster, &["apply", "-f", &small, "--dry-run"]).await;
    assert_eq!(plan["targets"][0]["version"], 0);
    let (code, ..) = ctl(&cluster, &["target", "demo/chat"]).await;
    assert_eq!(code, 1, "a dry run puts nothing");

    let (code, stdout, stderr) = ctl(&cluster, &["apply", "-f", &small]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stderr.contains("limit[\"rpm\"].cap") && !stderr.contains("horizon"),
        "{stderr}"
    );
    let (_, plan, _) = ctl(
        &cluster,
        &["apply", "-f", &large, "--dry-run", "--defaults"],
    )
    .await;
    assert!(plan.contains("5 -> 9"), "{plan}");
    assert!(stdout.contains("put"), "{stdout}");
    let (_, stdout, stderr) = ctl(&cluster, &["apply", "-f", &small]).await;
    assert!(
        stdout.contains("unchanged") && stderr.is_empty(),
        "{stdout}{stderr}"
    );

    let stale = ["apply", "-f", &large, "--expect-version", "7"];
    let (code, stdout, _) = ctl(&cluster, &stale).await;
    assert_eq!(code, 1, "{stdout}");
    let applied = ctl_json(&cluster, &["apply", "-f", &large, "--expect-version", "1"]).await;
    assert_eq!(applied["targets"][0]["version"], 2);
    let change = &applied["targets"][0]["changes"][0];
    assert_eq!((&change["old"], &change["new"]), (&5.into(), &9.into()));

    let told = ctl_json(&cluster, &["versions", "demo/chat"]).await;
    let versions = told["versions"].as_array().unwrap();
    let numbers: Vec<_> = versions.iter().map(|one| one["version"].as_u64()).collect();
    assert_eq!(numbers, [Some(2), Some(1)]);
    assert!(versions.iter().all(|one| one["put_by"] == "anonymous"));
    assert_eq!((cap_of(&versions[0]), cap_of(&versions[1])), (9, 5));

    let (code, _, stderr) = ctl(&cluster, &["rollback", "demo/chat", "7"]).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("these are: 2, 1"), "{stderr}");
    let plan = ctl_json(&cluster, &["rollback", "demo/chat", "1", "--diff"]).await;
    assert_eq!(plan["targets"][0]["changes"][0]["new"], 5);
    let back = ctl_json(&cluster, &["rollback", "demo/chat", "1", "--yes"]).await;
    assert_eq!(back["targets"][0]["version"], 3);
    let target = ctl_json(&cluster, &["target", "demo/chat"]).await;
    assert_eq!((cap_of(&target), &target["version"]), (5, &3.into()));
    cluster.shutdown().await;
}

/// Uses the whole cap, and lets one call wait.
async fn fill_and_watch(cluster: &Cluster) {
    let free = ctl_json(cluster, &["explain", "demo/chat"]).await;
    assert_eq!(
        (&free["decision"], &free["limit"]),
        (&"admitted".into(), &Value::Null)
    );
    let watching = ctl_json(cluster, &["watch", "--once", "--interval", "5s", "demo/"]);
    let asking = async {
        let full = [
            "admit",
            "demo/chat",
            "--cost",
            "requests=2",
            "--id",
            "first",
        ];
        assert_eq!(ctl_json(cluster, &full).await["decision"], "admitted");
        let late = [
            "admit",
            "demo/chat",
            "--priority",
            "p1",
            "--id",
            "late",
            "--attempt",
            "8",
        ];
        assert_eq!(ctl_json(cluster, &late).await["decision"], "deferred");
    };
    let (seen, ()) = tokio::join!(watching, asking);
    let seen = &seen["targets"][0];
    assert_eq!(
        (&seen["target"], &seen["leader"]),
        (&"demo/chat".into(), &1.into())
    );
    assert_eq!(seen["limits"][0]["cap"], 2);
}

#[tokio::test]
async fn a_full_target_is_explained_watched_and_freed() {
    let cluster = start(1).await;
    let dir = tempfile::tempdir().unwrap();
    let (code, _, stderr) = ctl(&cluster, &["apply", "-f", &policy(dir.path(), 2)]).await;
    assert_eq!(code, 0, "{stderr}");
    fill_and_watch(&cluster).await;

    let told = ctl_json(&cluster, &["explain", "demo/chat", "--priority", "p2"]).await;
    assert_eq!(
        (&told["decision"], &told["limit"]),
        (&"deferred".into(), &"rpm".into())
    );
    assert_eq!(told["priorities"][0]["ahead"], 1, "{told}");
    assert_eq!(told["limits"][0]["used"], 2, "{told}");
    let own = ["explain", "demo/chat", "--priority", "p1", "--id", "late"];
    let own = ctl_json(&cluster, &own).await;
    assert_eq!(
        (&own["waits"], &own["priorities"][0]["ahead"]),
        (&true.into(), &0.into())
    );
    let known = &own["known"];
    assert_eq!(
        (&known["attempt"], &known["ask"], &known["holds"]),
        (&"8".into(), &1.into(), &"place".into())
    );
    let first = ["explain", "demo/chat", "--id", "first"];
    let first = ctl_json(&cluster, &first).await;
    assert_eq!(first["known"]["holds"], "grant", "{first}");
    let (code, _, stderr) = ctl(&cluster, &["explain", "demo/chat", "--priority", "p9"]).await;
    assert_eq!(code, 2, "{stderr}");
    let (code, ..) = ctl(&cluster, &["explain", "demo/none", "--priority", "p1"]).await;
    assert_eq!(code, 1);

    let cancel = [
        "cancel",
        "demo/chat",
        "--id",
        "late",
        "--attempt",
        "8",
        "--ask",
        "1",
    ];
    assert_eq!(ctl_json(&cluster, &cancel).await["status"], "place_dropped");
    assert_eq!(ctl_json(&cluster, &cancel).await["status"], "nothing");
    let told = ctl_json(&cluster, &["explain", "demo/chat", "--priority", "p2"]).await;
    assert_eq!(told["priorities"][0]["ahead"], 0, "{told}");
    // Without an attempt it is the newest one, with whatever it holds.
    let newest = ["cancel", "demo/chat", "--id", "first"];
    let status = ctl_json(&cluster, &newest).await["status"].clone();
    assert_eq!(status, "grant_refunded");
    let (code, _, stderr) = ctl(&cluster, &["cancel", "demo/chat", "--id", "never"]).await;
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("no call \"never\""), "{stderr}");
    cluster.shutdown().await;
}

/// Shards that a node leads, once every node agrees on all leaders.
async fn led_by(cluster: &Cluster, node: NodeId) -> BTreeSet<u32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let leaders: Option<Vec<NodeId>> = (0..3)
            .map(|shard| cluster.leader_of(ShardId(shard)))
            .collect();
        if let Some(leaders) = leaders {
            return (0..3)
                .zip(leaders)
                .filter(|(_, by)| *by == node)
                .map(|(s, _)| s)
                .collect();
        }
        assert!(Instant::now() < deadline, "no leaders");
        sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_drained_node_leads_nothing_until_it_may_again() {
    let cluster = start_with_target(3).await;
    let node = leader(&cluster);
    let number = node.to_string();
    let (code, _, stderr) = ctl(&cluster, &["drain", &number]).await;
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(led_by(&cluster, node).await, BTreeSet::new());
    let status = ctl_json(&cluster, &["status"]).await;
    let of = |status: &Value, key: &str| {
        let nodes = status["nodes"].as_array().unwrap();
        let of_node = nodes.iter().find(|one| one["node"] == node.0).unwrap();
        of_node[key].clone()
    };
    assert_eq!(of(&status, "drained"), true);

    // Nobody gives it a lead, and the shard goes on at once when somebody tries.
    let target = TargetName::new(TARGET).unwrap();
    let shard = cluster.shards(node).unwrap().shard_of(&target);
    let (code, _, stderr) = ctl(&cluster, &["transfer", &shard.0.to_string(), &number]).await;
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("is drained or stops"), "{stderr}");
    let next = leader(&cluster);
    assert_ne!(next, node);
    admission(&cluster, next).admit(ask("job")).await.unwrap();

    let another = next.to_string();
    let (code, _, stderr) = ctl(&cluster, &["drain", &another]).await;
    assert_eq!(code, 1);
    assert!(
        stderr.contains(&format!("node {number} is drained; with --force")),
        "{stderr}"
    );

    let (code, _, stderr) = ctl(&cluster, &["undrain", &number]).await;
    assert_eq!(code, 0, "{stderr}");
    let (code, _, stderr) = ctl(&cluster, &["transfer", &shard.0.to_string(), &number]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(led_by(&cluster, node).await.contains(&shard.0));
    let status = ctl_json(&cluster, &["status"]).await;
    assert_eq!(of(&status, "drained"), false);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_call_by_hand_waits_for_the_next_leader() {
    let mut cluster = start_with_target(3).await;
    let old = leader(&cluster);
    cluster.kill(old).await.unwrap();
    let call = ["admit", TARGET, "--tenant", "acme", "--priority", "high"];
    let call = [&call[..], &["--cost", "requests=1", "--id", "by-hand"]].concat();
    let (code, stdout, stderr) = ctl(&cluster, &call).await;
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("admitted"), "{stdout}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_node_alone_is_not_drained() {
    let cluster = start(1).await;
    let (code, _, stderr) = ctl(&cluster, &["drain", "1"]).await;
    assert_eq!(code, 1);
    assert!(
        stderr.contains("there is no other node to lead"),
        "{stderr}"
    );
    let (code, _, stderr) = ctl(&cluster, &["drain", "9"]).await;
    assert_eq!(code, 2);
    assert!(stderr.contains("there is no node 9, only 1"), "{stderr}");
    let (code, _, stderr) = ctl(&cluster, &["drain", "1", "--force"]).await;
    assert_ne!(code, 0, "{stderr}");
    assert!(stderr.contains("the node is not drained"), "{stderr}");
    assert_eq!(led_by(&cluster, NodeId(1)).await.len(), 3);
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_program_tells_shells_and_readers_about_itself() {
    for (shell, part) in [
        ("bash", "complete -F _weir"),
        ("zsh", "#compdef weir"),
        ("fish", "complete -c weir"),
    ] {
        let (code, stdout, _) = run(&["completions", shell]).await;
        assert_eq!(code, 0, "{shell}");
        assert!(
            stdout.contains(part) && stdout.contains("rollback"),
            "{shell}"
        );
    }
    let (code, _, _) = run(&["completions", "tcsh"]).await;
    assert_eq!(code, 2);
    let (code, stdout, _) = run(&["man"]).await;
    assert_eq!(code, 0);
    assert!(
        stdout.contains(".TH weir 1") && stdout.contains("Exit codes"),
        "{stdout}"
    );
    let dir = tempfile::tempdir().unwrap();
    let (code, ..) = run(&["man", "--dir", &dir.path().display().to_string()]).await;
    assert_eq!(code, 0);
    for page in [
        "weir.1",
        "weir-server.1",
        "weir-ctl.1",
        "weir-ctl-explain.1",
    ] {
        assert!(dir.path().join(page).is_file(), "{page}");
    }
}
