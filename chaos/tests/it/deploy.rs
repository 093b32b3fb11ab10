//! The samples in `deploy/` are what a node reads.

use std::path::PathBuf;
use weir_node::config::{Config, file_overlay};

fn sample(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/config")).join(name)
}

#[test]
fn the_sample_nodes_make_one_cluster() {
    let read = |id: u64| {
        let overlay = file_overlay(&sample(&format!("node{id}.toml"))).unwrap();
        Config::from_overlays([overlay]).unwrap()
    };
    let first = read(1);
    for id in 1..=3 {
        let config = read(id);
        assert_eq!(config.node.0, id);
        // Only the number differs.
        assert_eq!(
            Config {
                node: first.node,
                ..config
            },
            first
        );
    }
}

#[test]
fn the_sample_policies_are_valid() {
    let text = std::fs::read_to_string(sample("policy.toml")).unwrap();
    let targets = weir_node::ctl::policy_file::parse(&text).unwrap();
    let names: Vec<_> = targets.iter().map(|target| target.name.as_str()).collect();
    assert_eq!(names, ["openai/gpt-5", "payments/charge"]);
    for target in targets {
        weir_proto::convert::policy::read(&target.policy).unwrap();
    }
}
