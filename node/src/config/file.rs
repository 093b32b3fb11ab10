//! Reading one source of configuration: a file, an environment variable, flags.

use super::{Config, DEFAULT_CONFIG, HistoryConfig, LogConfig, LogFormat, Member, TraceConfig};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_raft::NodeId;

/// Prefix of environment variables that configure a node.
const ENV_PREFIX: &str = "WEIR__";

/// Where programs that know OpenTelemetry find their collector, from the least to the most particular.
const OTLP_VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {error}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is not what it must be.
    #[error("{}: {message}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong, with line and column.
        message: String,
    },
    /// An environment variable is not what it must be.
    #[error("environment variable {variable}: {message}")]
    Env {
        /// The variable.
        variable: String,
        /// What is wrong.
        message: String,
    },
    /// A value breaks a rule, or values contradict each other.
    #[error("{key}: {rule} (configured by {sources})")]
    Rule {
        /// The key, as `section.key`.
        key: String,
        /// What it must be and what it is.
        rule: String,
        /// The files, variables and flags that had a say.
        sources: String,
    },
}

/// One source of configuration: what it says, and nothing else.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Overlay {
    /// Section `node`.
    pub node: NodeSection,
    /// Section `cluster`.
    pub cluster: ClusterSection,
    /// Section `listen`.
    pub listen: ListenSection,
    /// Section `raft`.
    pub raft: RaftSection,
    /// Section `history`.
    pub history: HistorySection,
    /// Section `log`.
    pub log: LogSection,
    /// Section `trace`.
    pub trace: TraceSection,
    /// Where this comes from, for error messages.
    #[serde(skip)]
    pub sources: Vec<String>,
}

/// Section `node`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeSection {
    /// Number of this node.
    pub id: Option<u64>,
    /// Its directory.
    pub data_dir: Option<PathBuf>,
}

/// Section `cluster`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSection {
    /// The cluster's name.
    pub name: Option<String>,
    /// Number of shards.
    pub shards: Option<u32>,
    /// Every node.
    pub member: Option<Vec<MemberSection>>,
}

/// One `[[cluster.member]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberSection {
    /// Its number.
    pub id: u64,
    /// Where clients reach it.
    pub client: String,
    /// Where the other nodes reach it.
    pub peer: String,
    /// Where metrics and health are read.
    pub admin: String,
}

/// Section `listen`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenSection {
    /// For clients.
    pub client: Option<String>,
    /// For the other nodes.
    pub peer: Option<String>,
    /// For metrics and health.
    pub admin: Option<String>,
}

/// Section `raft`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RaftSection {
    /// Between signs of life of a leader.
    pub heartbeat_ms: Option<u64>,
    /// Shortest election timeout.
    pub election_min_ms: Option<u64>,
    /// Longest election timeout.
    pub election_max_ms: Option<u64>,
}

/// Section `history`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HistorySection {
    /// Hours that are kept.
    pub retention_hours: Option<u32>,
    /// MiB that are kept.
    pub max_mib: Option<u32>,
}

/// Section `log`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    /// Its form.
    pub format: Option<LogFormat>,
    /// Least level told.
    pub filter: Option<String>,
}

/// Section `trace`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceSection {
    /// Where the collector is.
    pub otlp_endpoint: Option<String>,
}

/// Reads a file.
pub fn file_overlay(file: &Path) -> Result<Overlay, ConfigError> {
    let text = std::fs::read_to_string(file).map_err(|error| ConfigError::Read {
        file: file.to_owned(),
        error,
    })?;
    let mut overlay: Overlay = toml::from_str(&text).map_err(|error| ConfigError::File {
        file: file.to_owned(),
        message: error.to_string().trim_end().to_owned(),
    })?;
    overlay.sources.push(file.display().to_string());
    Ok(overlay)
}

/// Reads the variables that start with `WEIR__`, and where OpenTelemetry says that its collector is unless one
/// of them says so too; others are none of ours.
pub fn env_overlay(
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Overlay, ConfigError> {
    let mut all = Overlay::default();
    let mut collectors = [const { None }; OTLP_VARIABLES.len()];
    for (variable, value) in variables {
        let known = OTLP_VARIABLES.iter().zip(&mut collectors);
        for (_, collector) in known.filter(|(name, _)| **name == variable) {
            // Empty means unset, as OpenTelemetry wants it.
            *collector = (!value.is_empty()).then(|| value.clone());
        }
        if let Some(path) = variable.strip_prefix(ENV_PREFIX) {
            let mut overlay = read_variable(path, &value).map_err(|message| ConfigError::Env {
                variable: variable.clone(),
                message,
            })?;
            overlay.sources.push(variable);
            all.lay(overlay);
        }
    }
    if all.trace.otlp_endpoint.is_none() {
        let told = OTLP_VARIABLES.iter().zip(collectors);
        for (variable, collector) in told.filter(|(_, collector)| collector.is_some()) {
            all.trace.otlp_endpoint = collector;
            all.sources.push((*variable).to_owned());
        }
    }
    Ok(all)
}

/// Reads one variable as if its value stood in a file: as TOML, and if that does not fit, as plain text.
fn read_variable(path: &str, value: &str) -> Result<Overlay, String> {
    let (section, key) = path
        .split_once("__")
        .ok_or("must be named WEIR__SECTION__KEY, with two underscores")?;
    let (section, key) = (section.to_lowercase(), key.to_lowercase());
    let word = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if !word(&section) || !word(&key) {
        return Err("must be named WEIR__SECTION__KEY, with two underscores".into());
    }
    let document = |value: &str| format!("{section} = {{ {key} = {value} }}");
    let as_toml = document(value);
    let as_text = document(&toml::Value::from(value).to_string());
    let well_formed = toml::from_str::<toml::Table>(&as_toml).is_ok();
    match (toml::from_str(&as_toml), toml::from_str(&as_text)) {
        (Ok(overlay), _) | (Err(_), Ok(overlay)) => Ok(overlay),
        (Err(error), Err(_)) if well_formed => Err(error.message().to_owned()),
        (Err(_), Err(error)) => Err(error.message().to_owned()),
    }
}

impl Overlay {
    /// The defaults: what the documented example says.
    pub(super) fn defaults() -> Result<Overlay, ConfigError> {
        toml::from_str(DEFAULT_CONFIG).map_err(|error| ConfigError::File {
            file: "default.toml".into(),
            message: error.to_string(),
        })
    }

    /// Lays another overlay over this one: what it says wins.
    pub(super) fn lay(&mut self, over: Overlay) {
        replace(&mut self.node.id, over.node.id);
        replace(&mut self.node.data_dir, over.node.data_dir);
        replace(&mut self.cluster.name, over.cluster.name);
        replace(&mut self.cluster.shards, over.cluster.shards);
        replace(&mut self.cluster.member, over.cluster.member);
        replace(&mut self.listen.client, over.listen.client);
        replace(&mut self.listen.peer, over.listen.peer);
        replace(&mut self.listen.admin, over.listen.admin);
        replace(&mut self.raft.heartbeat_ms, over.raft.heartbeat_ms);
        replace(&mut self.raft.election_min_ms, over.raft.election_min_ms);
        replace(&mut self.raft.election_max_ms, over.raft.election_max_ms);
        let history = &mut self.history;
        replace(&mut history.retention_hours, over.history.retention_hours);
        replace(&mut history.max_mib, over.history.max_mib);
        replace(&mut self.log.format, over.log.format);
        replace(&mut self.log.filter, over.log.filter);
        replace(&mut self.trace.otlp_endpoint, over.trace.otlp_endpoint);
        self.sources.extend(over.sources);
    }

    /// The configuration, if nothing is missing and every rule holds.
    pub(super) fn into_config(self) -> Result<Config, ConfigError> {
        let sources = if self.sources.is_empty() {
            "defaults".into()
        } else {
            self.sources.join(", ")
        };
        let build = || -> Result<Config, (String, String)> {
            let node = NodeId(present("node.id", self.node.id)?);
            let members = members(self.cluster.member.unwrap_or_default())?;
            let own = members.get(&node);
            let listen = Member {
                client: listen(self.listen.client, own.map(|member| &member.client)),
                peer: listen(self.listen.peer, own.map(|member| &member.peer)),
                admin: listen(self.listen.admin, own.map(|member| &member.admin)),
            };
            let config = Config {
                node,
                data_dir: present("node.data_dir", self.node.data_dir)?,
                cluster: present("cluster.name", self.cluster.name)?,
                shards: present("cluster.shards", self.cluster.shards)?,
                listen,
                members,
                heartbeat_ms: present("raft.heartbeat_ms", self.raft.heartbeat_ms)?,
                election_min_ms: present("raft.election_min_ms", self.raft.election_min_ms)?,
                election_max_ms: present("raft.election_max_ms", self.raft.election_max_ms)?,
                history: HistoryConfig {
                    retention_hours: present(
                        "history.retention_hours",
                        self.history.retention_hours,
                    )?,
                    max_mib: present("history.max_mib", self.history.max_mib)?,
                },
                log: LogConfig {
                    format: present("log.format", self.log.format)?,
                    filter: present("log.filter", self.log.filter)?,
                },
                trace: TraceConfig {
                    otlp_endpoint: Some(present("trace.otlp_endpoint", self.trace.otlp_endpoint)?)
                        .filter(|endpoint| !endpoint.is_empty()),
                },
            };
            config.check()?;
            Ok(config)
        };
        build().map_err(|(key, rule)| ConfigError::Rule { key, rule, sources })
    }
}

fn replace<T>(value: &mut Option<T>, over: Option<T>) {
    if over.is_some() {
        *value = over;
    }
}

fn present<T>(key: &str, value: Option<T>) -> Result<T, (String, String)> {
    value.ok_or_else(|| (key.to_owned(), "must be set".to_owned()))
}

fn listen(set: Option<String>, own: Option<&String>) -> String {
    set.filter(|address| !address.is_empty())
        .or_else(|| own.cloned())
        .unwrap_or_default()
}

fn members(list: Vec<MemberSection>) -> Result<BTreeMap<NodeId, Member>, (String, String)> {
    let mut members = BTreeMap::new();
    for section in list {
        let key = || "cluster.member.id".to_owned();
        if section.id == 0 {
            return Err((key(), "must be at least 1".into()));
        }
        let member = Member {
            client: section.client,
            peer: section.peer,
            admin: section.admin,
        };
        if members.insert(NodeId(section.id), member).is_some() {
            return Err((key(), format!("{} is used twice", section.id)));
        }
    }
    Ok(members)
}
