//! The program itself: flags, exit codes, what it prints.

use std::path::Path;
use std::process::{Output, Stdio};
use tokio::process::Command;

pub(crate) fn weir(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_remove("WEIR_SERVER")
        .kill_on_drop(true);
    command
}

pub(crate) async fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = weir(arguments).output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

pub(crate) fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn the_default_configuration_is_printed() {
    let (code, stdout, _) = run(&["server", "--print-default-config"]).await;
    assert_eq!(code, 0);
    assert_eq!(stdout, weir_node::config::DEFAULT_CONFIG);
}

/// How a command ends whose stdout is elsewhere, and what it says on stderr.
async fn told(command: &mut Command) -> (Option<i32>, String) {
    let child = command.spawn().unwrap();
    let Output { status, stderr, .. } = child.wait_with_output().await.unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[tokio::test]
async fn an_answer_that_cannot_be_written_is_an_error_unless_nobody_wants_it() {
    let dir = tempfile::tempdir().unwrap();
    let policy = format!(
        "[[target]]\nname = \"a\"\n{}",
        "[[target.limit]]\ndimension = \"x\"\ncap = 1\nper = \"1s\"\n[[target.priority]]\nname = \"p\"\nweight = 1\n"
    );
    let policy = file(dir.path(), "policy.toml", &policy);
    let check = ["ctl", "apply", "--check", "-f", &policy];
    for arguments in [&check[..], &["server", "--print-default-config"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let (status, stderr) = told(weir(arguments).stdout(full.unwrap())).await;
        assert_eq!(status, Some(1), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("error: stdout: "), "{stderr}");
        // A pipe that nobody reads.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (status, stderr) = told(weir(arguments).stdout(writer)).await;
        assert_eq!((status, &*stderr), (Some(0), ""), "{arguments:?}");
    }
}

#[tokio::test]
async fn wrong_usage_ends_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let cases = [
        (vec!["serve".to_owned()], "unrecognized subcommand"),
        (
            vec!["dev".into(), "--nodes".into(), "2".into()],
            "must be 1, 3 or 5",
        ),
        (
            vec!["server".into(), "--config".into(), "/nowhere.toml".into()],
            "/nowhere.toml: No such file",
        ),
        (
            vec![
                "server".into(),
                "--config".into(),
                file(dir.path(), "a.toml", "[node]\nidd = 1"),
            ],
            "unknown field `idd`",
        ),
        (
            vec![
                "server".into(),
                "--config".into(),
                file(dir.path(), "b.toml", "[listen]\nclient = \"0.0.0.0:0\""),
            ],
            "start with --insecure",
        ),
        (
            vec![
                "ctl".into(),
                "apply".into(),
                "-f".into(),
                file(dir.path(), "c.toml", "x = 1"),
            ],
            "c.toml: TOML parse error at line 1, column 1",
        ),
        (
            ["ctl", "release", "demo/chat", "1:2"]
                .map(str::to_owned)
                .into(),
            "is not SHARD:INDEX:OFFSET",
        ),
        (
            ["ctl", "admit", "demo/chat", "--cost", "requests"]
                .map(str::to_owned)
                .into(),
            "is not dimension=units",
        ),
    ];
    for (arguments, message) in cases {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (code, _, stderr) = run(&arguments).await;
        assert_eq!(code, 2, "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
    }
}

#[tokio::test]
async fn every_mistake_of_a_policy_file_is_listed_by_line() {
    let dir = tempfile::tempdir().unwrap();
    let policy = file(
        dir.path(),
        "policy.toml",
        r#"
[[target]]
name = "a"
[[target.limit]]
dimension = "requests"
cap = 600
per = "10ms"
[[target.priority]]
name = "p1"
weight = 0
[[target]]
name = ""
"#,
    );
    let (code, stdout, stderr) = run(&["ctl", "apply", "--file", &policy]).await;
    assert_eq!((code, stdout.as_str()), (2, ""));
    for part in [
        r#"policy.toml:4: target "a": limit[0].per: must be 1s to 31d"#,
        r#"policy.toml:8: target "a": priority[0].weight: must be"#,
        r#"policy.toml:11: target "": name: must not be empty"#,
        r#"policy.toml:11: target "": limit: must have"#,
    ] {
        assert!(stderr.contains(part), "{part}\nis not in\n{stderr}");
    }
}

#[tokio::test]
async fn without_a_cluster_the_command_line_ends_with_3() {
    // A port that was just free.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    // Too long for a name, so that no name server is asked.
    let nobody = format!("{}:7400", "n".repeat(64));
    let servers = format!("{free},{nobody}");
    let (code, _, stderr) = run(&["ctl", "--server", &servers, "status"]).await;
    assert_eq!(code, 3, "{stderr}");
    let unknown = format!("--server {nobody} cannot be resolved on this machine");
    assert!(stderr.contains(&unknown), "{stderr}");
    assert!(!stderr.contains(&format!("--server {free}")), "{stderr}");
    let told = stderr.strip_prefix("waiting for the cluster\n");
    assert!(
        told.is_some_and(|rest| rest.starts_with("error: ")),
        "{stderr}"
    );
}
