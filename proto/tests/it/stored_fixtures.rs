//! Bytes written by earlier versions are read for ever.

use crate::fixtures::{Fixture, batches_v1};
use std::path::PathBuf;
use weir_proto::stored::{BATCH_FORMAT, decode_batch, encode_batch};

fn path(fixture: &Fixture) -> PathBuf {
    let name = format!("tests/fixtures/v1/{}.bin", fixture.name);
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The frozen bytes. With `WEIR_FREEZE=1` a file that is missing is written; none is ever overwritten.
fn frozen(fixture: &Fixture) -> Vec<u8> {
    let path = path(fixture);
    if !path.exists() && std::env::var_os("WEIR_FREEZE").is_some() {
        let bytes = encode_batch(fixture.stamp, &fixture.operations).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_frozen_batch_decodes_to_its_value() {
    for fixture in batches_v1() {
        let (stamp, operations) = decode_batch(&frozen(&fixture)).unwrap();
        assert_eq!(stamp, fixture.stamp, "{}", fixture.name);
        assert_eq!(operations, fixture.operations, "{}", fixture.name);
    }
}

#[test]
fn every_value_still_encodes_to_its_frozen_bytes() {
    assert_eq!(BATCH_FORMAT, 1, "a new format needs fixtures of its own");
    for fixture in batches_v1() {
        let bytes = encode_batch(fixture.stamp, &fixture.operations).unwrap();
        assert_eq!(&bytes[..], &frozen(&fixture)[..], "{}", fixture.name);
    }
}

#[test]
fn every_file_is_a_known_fixture() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1");
    let known: Vec<_> = batches_v1().iter().map(path).collect();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(
            known.contains(&path),
            "{} is read by no test",
            path.display()
        );
    }
}
