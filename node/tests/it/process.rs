//! A node as a process of its own.

use crate::command::{file, weir};
use crate::support::*;
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use weir_node::limits::STOP_WITHIN;
use weir_proto::v1 as wire;
use weir_proto::v1::admission_service_client::AdmissionServiceClient;
use weir_proto::v1::targets_service_client::TargetsServiceClient;

/// A node of its own cluster. Dropping it kills it.
pub(crate) struct Node {
    process: Child,
    channel: Channel,
    admin: String,
    log: PathBuf,
    _dir: tempfile::TempDir,
}

/// An address that only one test of this process uses.
fn host() -> String {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    let mixed = std::process::id().wrapping_mul(0x85eb_ca6b);
    let [a, b, ..] = mixed.to_be_bytes();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("127.{}.{b}.{}", a.clamp(1, 254), 100 + count)
}

impl Node {
    /// A node with the target, told `more` than where it is, by flags and variables too.
    pub(crate) async fn start(more: &str, flags: &[&str], variables: &[(&str, &str)]) -> Node {
        let (dir, host) = (tempfile::tempdir().unwrap(), host());
        let data = dir.path().join("data");
        let config = format!(
            "[node]\ndata_dir = {data:?}\n[cluster]\nname = \"alone\"\nshards = 1\n[[cluster.member]]\nid = 1\n\
             client = \"{host}:7400\"\npeer = \"{host}:7401\"\nadmin = \"{host}:7402\"\n{more}"
        );
        let config = file(dir.path(), "weir.toml", &config);
        let mut command = weir(&["server", "--config", &config]);
        command.args(flags).envs(variables.iter().copied());
        let log = dir.path().join("log");
        command.stdout(Stdio::null());
        command.stderr(std::fs::File::create(&log).unwrap());
        let process = command.spawn().unwrap();
        let address = format!("{host}:7400");
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(&address).await.is_err() {
            assert!(Instant::now() < deadline, "the node does not listen");
            sleep(Duration::from_millis(20)).await;
        }
        let channel = channel_to(&address);
        let put = wire::PutTargetRequest {
            target: TARGET.into(),
            policy: Some(policy()),
            expected_version: None,
        };
        patiently(async || {
            TargetsServiceClient::new(channel.clone())
                .put_target(put.clone())
                .await
        })
        .await;
        Node {
            process,
            channel,
            admin: format!("http://{host}:7402/metrics"),
            log,
            _dir: dir,
        }
    }

    /// What it counts under this name and these labels.
    pub(crate) async fn metric(&self, sample: &str) -> Option<f64> {
        let text = reqwest::get(&self.admin).await.unwrap();
        let text = text.text().await.unwrap();
        let of = |line: &str| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok();
        text.lines().find_map(of)
    }

    pub(crate) fn admission(&self) -> AdmissionServiceClient<Channel> {
        AdmissionServiceClient::new(self.channel.clone())
    }

    /// SIGTERM: it ends well, within the time for it.
    pub(crate) async fn stop(mut self) {
        let pid = i32::try_from(self.process.id().unwrap()).unwrap();
        let begun = Instant::now();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
        let ended = timeout(PATIENCE, self.process.wait()).await.unwrap();
        assert!(ended.unwrap().success());
        assert!(begun.elapsed() < STOP_WITHIN, "{:?}", begun.elapsed());
        // There is nobody to hand over to, so that nothing went wrong.
        let log = std::fs::read_to_string(&self.log).unwrap();
        assert!(log.contains("stopped"), "{log}");
        assert!(!log.contains("handed over in time"), "{log}");
    }
}
