use super::*;
use std::io::Write;

fn config(file: &str, env: &[(&str, &str)]) -> Result<Config, String> {
    let mut source = tempfile::NamedTempFile::new().unwrap();
    source.write_all(file.as_bytes()).unwrap();
    let path = source.path().display().to_string();
    let read = || {
        let file = file_overlay(source.path())?;
        let env = env_overlay(env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())))?;
        Config::from_overlays([file, env])
    };
    read().map_err(|error| error.to_string().replace(&path, "weir.toml"))
}

const THREE: &str = r#"
[node]
id = 2
[cluster]
shards = 3
[[cluster.member]]
id = 1
client = "127.0.0.1:7400"
peer = "127.0.0.1:7401"
admin = "127.0.0.1:7402"
[[cluster.member]]
id = 2
client = "127.0.0.1:7410"
peer = "127.0.0.1:7411"
admin = "127.0.0.1:7412"
[[cluster.member]]
id = 3
client = "node-3.example:7420"
peer = "node-3.example:7421"
admin = "node-3.example:7422"
"#;

#[test]
fn the_printed_example_is_the_default() {
    assert_eq!(
        config(DEFAULT_CONFIG, &[]).unwrap(),
        Config::from_overlays([]).unwrap()
    );
}

#[test]
fn the_printed_example_shows_every_key() {
    // A key that it left out would have no default, and `into_config` would miss it.
    let defaults = Config::from_overlays([]).unwrap();
    let timing = Timing::default();
    assert_eq!(defaults.heartbeat_ms, timing.heartbeat_ms);
    assert_eq!(defaults.election_min_ms, timing.election_min_ms);
    assert_eq!(defaults.election_max_ms, timing.election_max_ms);
    assert_eq!(defaults.history, HistoryConfig::default());
    assert_eq!(defaults.shards, 16);
    assert_eq!(defaults.listen.client, "127.0.0.1:7400");
}

#[test]
fn later_sources_win() {
    let env = [
        ("WEIR__NODE__ID", "3"),
        ("WEIR__CLUSTER__NAME", "77"),
        ("WEIR__LISTEN__CLIENT", "127.0.0.1:9000"),
        ("WEIR__LOG__FORMAT", "\"json\""),
        ("WEIR_SERVER", "not ours"),
        ("HOME", "not ours"),
    ];
    let config = config(THREE, &env).unwrap();
    assert_eq!(config.node, NodeId(3));
    assert_eq!(config.cluster, "77");
    assert_eq!(config.shards, 3);
    assert_eq!(config.listen.client, "127.0.0.1:9000");
    assert_eq!(config.listen.peer, "node-3.example:7421");
    assert_eq!(config.log.format, LogFormat::Json);
}

#[test]
fn a_variable_may_hold_the_members() {
    let member = r#"[{ id = 1, client = "a:1", peer = "a:2", admin = "a:3" }]"#;
    let config = config("", &[("WEIR__CLUSTER__MEMBER", member)]).unwrap();
    assert_eq!(config.members.len(), 1);
    assert_eq!(config.listen.client, "a:1");
}

/// A file, variables, and what the error must say.
type Mistake = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

#[rustfmt::skip]
const MISTAKES: &[Mistake] = &[
    ("[node]\nidd = 1", &[], &["weir.toml: ", "line 2", "unknown field `idd`"]),
    ("[node]\nid = -1", &[], &["weir.toml: ", "line 2", "-1"]),
    ("[nodes]", &[], &["weir.toml: ", "line 1", "unknown field `nodes`"]),
    ("[node", &[], &["weir.toml: ", "line 1"]),
    ("[log]\nformat = \"xml\"", &[], &["weir.toml: ", "line 2", "unknown variant `xml`"]),
    ("[cluster]\nshards = 0", &[], &["cluster.shards: must be 1 to 4096, is 0", "weir.toml"]),
    ("[cluster]\nname = \"\"", &[], &["cluster.name: must not be empty"]),
    ("[node]\nid = 9", &[], &["node.id: must be one of the members (1), is 9"]),
    ("[listen]\nclient = \"7400\"", &[], &["listen.client: must be host:port, is \"7400\""]),
    ("[listen]\nclient = \"a:99999\"", &[], &["listen.client: must be host:port"]),
    ("[listen]\nclient = \"http://a:1\"", &[], &["listen.client: must be host:port"]),
    ("[[cluster.member]]\nid = 1\nclient = \"a:0\"\npeer = \"a:2\"\nadmin = \"a:3\"", &[], &["cluster.member[id=1].client: must name the port, is \"a:0\""]),
    ("[raft]\nheartbeat_ms = 0", &[], &["raft.heartbeat_ms: must be 10 to 10 000, is 0"]),
    ("[raft]\nheartbeat_ms = 300", &[], &["raft.election_min_ms: must be at least twice raft.heartbeat_ms (300), is 400"]),
    ("[raft]\nelection_max_ms = 400", &[], &["raft.election_max_ms: must be above raft.election_min_ms (400), is 400"]),
    ("[history]\nretention_hours = 745", &[], &["history.retention_hours: must be 0 to 744, is 745"]),
    ("[history]\nmax_mib = 0", &[], &["history.max_mib: must be 1 to 65 536, is 0"]),
    ("[trace]\notlp_endpoint = \"https://a:4317\"", &[], &["trace.otlp_endpoint: must be http://host:port, for gRPC without TLS, is \"https://a:4317\""]),
    ("[trace]\notlp_endpoint = \"http://a\"", &[], &["trace.otlp_endpoint: must be http://host:port"]),
    ("[trace]\notlp_endpoint = \"http://a/b:1\"", &[], &["trace.otlp_endpoint: must be http://host:port"]),
    ("[trace]\notlp_endpoint = \"http://:1\"", &[], &["trace.otlp_endpoint: must be http://host:port"]),
    ("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", "a:1")], &["trace.otlp_endpoint: must be http://host:port", "OTEL_EXPORTER_OTLP_ENDPOINT"]),
    ("[log]\nfilter = \"a=b=c\"", &[], &["log.filter: is not a filter"]),
    ("", &[("WEIR__NODE__ID", "two")], &["environment variable WEIR__NODE__ID: ", "\"two\""]),
    ("", &[("WEIR__NODE__IDD", "2")], &["variable WEIR__NODE__IDD: ", "unknown field `idd`"]),
    ("", &[("WEIR__NODE", "2")], &["variable WEIR__NODE: must be named WEIR__SECTION__KEY"]),
    ("", &[("WEIR__NODE__A=1\n", "2")], &["must be named WEIR__SECTION__KEY"]),
    ("", &[("WEIR__NODE__ID", "9")], &["node.id: must be one of the members (1), is 9", "WEIR__NODE__ID"]),
];

#[test]
fn the_collector_is_where_the_most_particular_source_says() {
    let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://general:1");
    let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:2/");
    let ours = ("WEIR__TRACE__OTLP_ENDPOINT", "http://ours:3");
    let unset = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "");
    let off = ("WEIR__TRACE__OTLP_ENDPOINT", "");
    let file = "[trace]\notlp_endpoint = \"http://file:4\"";
    for (file, env, expected) in [
        ("", &[][..], None),
        (file, &[], Some("http://file:4")),
        (file, &[general], Some(general.1)),
        (file, &[general, traces], Some(traces.1)),
        (file, &[traces, general], Some(traces.1)),
        (file, &[ours, traces, general], Some(ours.1)),
        (file, &[general, unset], Some(general.1)),
        (file, &[unset], Some("http://file:4")),
        (file, &[general, off], None),
    ] {
        let told = config(file, env).unwrap().trace.otlp_endpoint;
        assert_eq!(told.as_deref(), expected, "{file} {env:?}");
    }
}

#[test]
fn errors_name_source_and_key() {
    for (file, env, parts) in MISTAKES {
        let error = config(file, env).unwrap_err();
        for part in *parts {
            assert!(
                error.contains(part),
                "{file:?} {env:?}:\n{error}\nlacks {part:?}"
            );
        }
    }
}

#[test]
fn members_are_checked() {
    let twice = THREE.replace("id = 3", "id = 2");
    assert!(
        config(&twice, &[])
            .unwrap_err()
            .contains("cluster.member.id: 2 is used twice")
    );
    let zero = THREE.replace("id = 3", "id = 0");
    assert!(
        config(&zero, &[])
            .unwrap_err()
            .contains("cluster.member.id: must be at least 1")
    );
    let shared = THREE.replace("node-3.example:7421", "127.0.0.1:7401");
    let error = config(&shared, &[]).unwrap_err();
    assert!(
        error.contains("cluster.member[id=3].peer: \"127.0.0.1:7401\" is used twice"),
        "{error}"
    );
    let (two, _) = THREE.split_once("[[cluster.member]]\nid = 3").unwrap();
    let error = config(two, &[]).unwrap_err();
    assert!(
        error.contains("cluster.member: must be 1, 3 or 5 members, has 2"),
        "{error}"
    );
}

#[test]
fn a_missing_file_is_named() {
    let error = file_overlay(std::path::Path::new("/nowhere/weir.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("/nowhere/weir.toml: No such file"),
        "{error}"
    );
}
