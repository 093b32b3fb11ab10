//! What a node is told when it starts: defaults, then a file, then the environment, then flags.

mod file;
#[cfg(test)]
mod tests;

pub use self::file::{ConfigError, Overlay, env_overlay, file_overlay};

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use tracing_subscriber::EnvFilter;
use weir_admission::limits::NAME_BYTES_MAX;
use weir_raft::{NodeId, Retention, Timing};

/// The documented example that `weir server --print-default-config` prints. It reads as the defaults.
pub const DEFAULT_CONFIG: &str = include_str!("config/default.toml");

/// Shards of one cluster.
pub const SHARDS_MAX: u32 = 4096;
/// Sizes of a cluster: an even number would add a node without surviving one more loss.
const MEMBER_COUNTS: [usize; 3] = [1, 3, 5];
/// Range of `raft.heartbeat_ms`.
const HEARTBEAT_MS: std::ops::RangeInclusive<u64> = 10..=10_000;
/// Longest `raft.election_max_ms`.
const ELECTION_MS_MAX: u64 = 60_000;

/// Longest `history.retention_hours`: 31 days.
const HISTORY_HOURS_MAX: u32 = 744;
/// Range of `history.max_mib`.
const HISTORY_MIB: std::ops::RangeInclusive<u32> = 1..=65_536;

/// Everything a node is told, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This node.
    pub node: NodeId,
    /// Directory of log, snapshots, identity and history of use.
    pub data_dir: PathBuf,
    /// The cluster's name.
    pub cluster: String,
    /// Number of shards, fixed when the cluster is founded.
    pub shards: u32,
    /// Every node of the cluster, this one included.
    pub members: BTreeMap<NodeId, Member>,
    /// Where this node listens.
    pub listen: Member,
    /// How often a leader shows that it is alive, in milliseconds.
    pub heartbeat_ms: u64,
    /// Shortest election timeout, in milliseconds.
    pub election_min_ms: u64,
    /// Longest election timeout, in milliseconds.
    pub election_max_ms: u64,
    /// What is kept of the history of use.
    pub history: HistoryConfig,
    /// How the log is written.
    pub log: LogConfig,
    /// Where spans go.
    pub trace: TraceConfig,
}

/// The three addresses of a node, each `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where clients reach it.
    pub client: String,
    /// Where the other nodes reach it.
    pub peer: String,
    /// Where metrics and health are read over HTTP.
    pub admin: String,
}

/// What is kept of the history of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    /// How long, in hours; 0 keeps none.
    pub retention_hours: u32,
    /// How much, in MiB of rows: the oldest ones go first.
    pub max_mib: u32,
}

impl Default for HistoryConfig {
    /// A week, 256 MiB.
    fn default() -> HistoryConfig {
        HistoryConfig {
            retention_hours: 168,
            max_mib: 256,
        }
    }
}

/// How the log is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Its form.
    pub format: LogFormat,
    /// Least level told, as `tracing_subscriber` reads it.
    pub filter: String,
}

/// Where the spans along the road of requests go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceConfig {
    /// The OTLP collector that they are sent to over gRPC, `http://host:port`; `None` sends none.
    pub otlp_endpoint: Option<String>,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text on a terminal, otherwise JSON.
    #[default]
    Auto,
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Config {
    /// Lays overlays over the defaults, later ones over earlier ones, and checks the whole.
    pub fn from_overlays(
        overlays: impl IntoIterator<Item = Overlay>,
    ) -> Result<Config, ConfigError> {
        let mut all = Overlay::defaults()?;
        for overlay in overlays {
            all.lay(overlay);
        }
        all.into_config()
    }

    /// What the groups of this node are told.
    pub fn raft(&self) -> weir_raft::Config {
        weir_raft::Config {
            data_dir: self.data_dir.clone(),
            cluster: self.cluster.clone(),
            node: self.node,
            members: self
                .members
                .iter()
                .map(|(id, member)| (*id, member.peer.clone()))
                .collect(),
            shards: self.shards,
            timing: Timing {
                heartbeat_ms: self.heartbeat_ms,
                election_min_ms: self.election_min_ms,
                election_max_ms: self.election_max_ms,
            },
            retention: Retention::default(),
        }
    }

    /// The first rule that the whole breaks, as key and sentence.
    fn check(&self) -> Result<(), (String, String)> {
        self.check_cluster()?;
        self.check_members()?;
        self.check_raft()?;
        self.check_history()?;
        self.check_trace()?;
        EnvFilter::try_new(&self.log.filter)
            .map(|_| ())
            .map_err(|error| ("log.filter".to_owned(), format!("is not a filter: {error}")))
    }

    fn check_cluster(&self) -> Result<(), (String, String)> {
        let name = &self.cluster;
        rule(!name.is_empty(), "cluster.name", || {
            "must not be empty".into()
        })?;
        rule(name.len() <= NAME_BYTES_MAX, "cluster.name", || {
            format!("must be at most {NAME_BYTES_MAX} bytes, has {}", name.len())
        })?;
        rule(!name.chars().any(char::is_control), "cluster.name", || {
            "must not contain control characters".into()
        })?;
        rule(
            (1..=SHARDS_MAX).contains(&self.shards),
            "cluster.shards",
            || format!("must be 1 to {SHARDS_MAX}, is {}", self.shards),
        )?;
        rule(
            !self.data_dir.as_os_str().is_empty(),
            "node.data_dir",
            || "must not be empty".into(),
        )
    }

    fn check_members(&self) -> Result<(), (String, String)> {
        rule(
            MEMBER_COUNTS.contains(&self.members.len()),
            "cluster.member",
            || format!("must be 1, 3 or 5 members, has {}", self.members.len()),
        )?;
        rule(self.members.contains_key(&self.node), "node.id", || {
            let known: Vec<String> = self.members.keys().map(NodeId::to_string).collect();
            format!(
                "must be one of the members ({}), is {}",
                known.join(", "),
                self.node
            )
        })?;
        let mut seen = BTreeSet::new();
        for (id, member) in &self.members {
            for (kind, address) in member.iter() {
                let key = format!("cluster.member[id={id}].{kind}");
                check_address(&key, address)?;
                rule(!address.ends_with(":0"), &key, || {
                    format!("must name the port, is {address:?}")
                })?;
                rule(seen.insert(address), &key, || {
                    format!("{address:?} is used twice")
                })?;
            }
        }
        for (kind, address) in self.listen.iter() {
            check_address(&format!("listen.{kind}"), address)?;
        }
        Ok(())
    }

    fn check_history(&self) -> Result<(), (String, String)> {
        let HistoryConfig {
            retention_hours,
            max_mib,
        } = self.history;
        rule(
            retention_hours <= HISTORY_HOURS_MAX,
            "history.retention_hours",
            || format!("must be 0 to {HISTORY_HOURS_MAX}, is {retention_hours}"),
        )?;
        rule(HISTORY_MIB.contains(&max_mib), "history.max_mib", || {
            format!("must be 1 to 65 536, is {max_mib}")
        })
    }

    fn check_trace(&self) -> Result<(), (String, String)> {
        let Some(endpoint) = &self.trace.otlp_endpoint else {
            return Ok(());
        };
        let key = "trace.otlp_endpoint";
        let address = endpoint.strip_prefix("http://").unwrap_or_default();
        let address = address.strip_suffix('/').unwrap_or(address);
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"/?#@".contains(&byte);
        let well_formed = address.bytes().all(plain) && check_address(key, address).is_ok();
        rule(well_formed, key, || {
            format!("must be http://host:port, for gRPC without TLS, is {endpoint:?}")
        })
    }

    fn check_raft(&self) -> Result<(), (String, String)> {
        rule(
            HEARTBEAT_MS.contains(&self.heartbeat_ms),
            "raft.heartbeat_ms",
            || format!("must be 10 to 10 000, is {}", self.heartbeat_ms),
        )?;
        rule(
            self.election_min_ms >= 2 * self.heartbeat_ms,
            "raft.election_min_ms",
            || {
                format!(
                    "must be at least twice raft.heartbeat_ms ({}), is {}",
                    self.heartbeat_ms, self.election_min_ms
                )
            },
        )?;
        rule(
            self.election_max_ms > self.election_min_ms,
            "raft.election_max_ms",
            || {
                format!(
                    "must be above raft.election_min_ms ({}), is {}",
                    self.election_min_ms, self.election_max_ms
                )
            },
        )?;
        rule(
            self.election_max_ms <= ELECTION_MS_MAX,
            "raft.election_max_ms",
            || {
                format!(
                    "must be at most {ELECTION_MS_MAX}, is {}",
                    self.election_max_ms
                )
            },
        )
    }
}

impl Member {
    /// The kinds of address with the address.
    fn iter(&self) -> [(&'static str, &str); 3] {
        [
            ("client", &self.client),
            ("peer", &self.peer),
            ("admin", &self.admin),
        ]
    }
}

fn rule(holds: bool, key: &str, sentence: impl FnOnce() -> String) -> Result<(), (String, String)> {
    if holds {
        Ok(())
    } else {
        Err((key.to_owned(), sentence()))
    }
}

/// `host:port`, where the port is a number.
fn check_address(key: &str, address: &str) -> Result<(), (String, String)> {
    let well_formed = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
    });
    rule(well_formed, key, || {
        format!("must be host:port, is {address:?}")
    })
}
