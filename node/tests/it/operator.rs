//! What newcomers and operators do with the program.

use crate::command::{file, run, weir};
use crate::support::*;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// `weir dev`, and what it printed until it served.
async fn dev(arguments: &[&str]) -> (Child, String) {
    let mut command = weir(&[&["dev"], arguments].concat());
    // Nobody reads its log, and a full pipe would stop it.
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut text = String::new();
    let read = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            text += &line;
            text.push('\n');
            if line.starts_with("Stop with") {
                return;
            }
        }
        panic!("dev ended: {text}");
    };
    tokio::time::timeout(PATIENCE, read)
        .await
        .expect("dev serves");
    (child, text)
}

/// A port that is free, with as many behind it as `weir dev` takes. Below those that the system gives out by itself,
/// to tests beside this one too.
fn base_port() -> String {
    const PORTS: u16 = 23;
    let own = u16::try_from(std::process::id() % 800).unwrap();
    let free = |base: &u16| {
        let all = *base..*base + PORTS;
        let bound = all.map(|port| std::net::TcpListener::bind(("127.0.0.1", port)));
        bound.collect::<Result<Vec<_>, _>>().is_ok()
    };
    let mut bases = (0..800).map(|place| 10_000 + (own + place) % 800 * PORTS);
    bases.find(free).expect("free ports").to_string()
}

#[tokio::test]
async fn what_dev_prints_works_when_it_is_pasted() {
    let port = base_port();
    let (mut child, text) = dev(&["--port", &port]).await;
    let commands: Vec<&str> = text
        .lines()
        .filter(|l| l.starts_with("  ") && l.contains(" ctl "))
        .collect();
    assert_eq!(commands.len(), 4, "{text}");
    for command in commands {
        let output = Command::new("sh")
            .args(["-c", command])
            .output()
            .await
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{command}: {stderr}");
        assert!(!output.stdout.is_empty(), "{command}");
    }
    let (code, _, stderr) = run(&["dev", "--port", &port]).await;
    assert_eq!(code, 1);
    assert!(
        stderr.contains("a port is taken; choose others") && stderr.contains(&port),
        "{stderr}"
    );

    let data = text
        .split("Data in ")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap()
        .to_owned();
    assert!(Path::new(&data).is_dir());
    let pid = child.id().unwrap().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .await
            .unwrap()
            .success()
    );
    let status = tokio::time::timeout(PATIENCE, child.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(!Path::new(&data).exists(), "temporary data is removed");
}

#[tokio::test]
async fn an_operator_works_with_any_node() {
    let cluster = start(3).await;
    let dir = tempfile::tempdir().unwrap();
    let policy = file(
        dir.path(),
        "policy.toml",
        r#"
[[target]]
name = "demo/chat"
[[target.limit]]
name = "rpm"
dimension = "requests"
cap = 5
per = "60s"
burst = "60s"
initial_use = "empty"
[[target.priority]]
name = "p1"
weight = 1
"#,
    );
    for address in cluster.client_addresses() {
        let ctl = async |arguments: &[&str]| {
            run(&[&["ctl", "--server", &address], arguments].concat()).await
        };
        let (code, stdout, stderr) = ctl(&["apply", "-f", &policy]).await;
        assert_eq!(code, 0, "{stderr}");
        assert!(stdout.contains("demo/chat"), "{stdout}");
        let (code, stdout, stderr) = ctl(&["admit", "demo/chat", "-q"]).await;
        assert_eq!(code, 0, "{stderr}");
        let grant = stdout.trim();
        let (code, stdout, stderr) = ctl(&["release", "demo/chat", grant]).await;
        assert_eq!((code, stdout.as_str()), (0, "released\n"), "{stderr}");
        let (code, _, stderr) = ctl(&["admit", "demo/chat", "--cost", "requests=6"]).await;
        assert_eq!(code, 1, "{stderr}");
        let (code, _, stderr) = ctl(&["admit", "demo/chat", "--priority", "p9"]).await;
        assert_eq!(code, 2, "{stderr}");
        let (code, _, stderr) = ctl(&["target", "demo/none"]).await;
        assert_eq!(code, 1, "{stderr}");
        let (code, stdout, _) = ctl(&["status", "--output", "json"]).await;
        assert_eq!(code, 0);
        let status: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(status["nodes"].as_array().unwrap().len(), 3);
        assert!(
            status["shards"]
                .as_array()
                .unwrap()
                .iter()
                .all(|s| s["state"] == "ok"),
            "{status}"
        );
        let (code, stdout, _) = ctl(&["targets"]).await;
        assert_eq!(code, 0);
        assert_eq!(stdout.lines().count(), 2, "{stdout}");
    }
    cluster.shutdown().await;
}
