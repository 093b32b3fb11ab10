//! Stored values come back, and every refusal says what is wrong.

use crate::{fixtures, generate};
use proptest::collection::vec;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_admission::limits::{BATCH_OPERATIONS_MAX, TENANT_WEIGHTS_MAX};
use weir_admission::{Amounts, Operation, Stamp, TenantName};
use weir_proto::limits::{STORED_BATCH_BYTES_MAX, STORED_VALUE_BYTES_MAX};
use weir_proto::stored::{
    Kind, StoredError, decode_batch, decode_versioned, encode_batch, encode_versioned, format_of,
};

proptest! {
    #[test]
    fn batches_come_back(
        stamp in generate::stamp(),
        operations in vec(generate::operation(), 0..8),
    ) {
        let bytes = encode_batch(stamp, &operations).unwrap();
        let (stamp_read, operations_read) = decode_batch(&bytes).unwrap();
        prop_assert_eq!(stamp_read, stamp);
        prop_assert_eq!(&operations_read, &operations);
        prop_assert_eq!(encode_batch(stamp_read, &operations_read).unwrap(), bytes);
    }
}

fn batch() -> Vec<u8> {
    let operations = [Operation::Admit(Box::new(fixtures::admit()))];
    encode_batch(Stamp::from_micros(5), &operations)
        .unwrap()
        .to_vec()
}

fn said(error: StoredError) -> String {
    error.to_string()
}

#[test]
fn a_newer_format_is_named() {
    let mut bytes = batch();
    bytes[0] = 2;
    assert_eq!(
        decode_batch(&bytes).unwrap_err(),
        StoredError::NewerFormat {
            what: "batch",
            found: 2,
            known: 1
        }
    );
    bytes.splice(0..1, [252, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(
        said(decode_batch(&bytes).unwrap_err()),
        "batch has format 4294967295, the newest known here is 1"
    );
}

#[test]
fn a_format_that_never_was_is_named() {
    let mut bytes = batch();
    bytes[0] = 0;
    assert_eq!(
        said(decode_batch(&bytes).unwrap_err()),
        "batch has format 0, the oldest known here is 1"
    );
}

#[test]
fn every_cut_is_truncated() {
    let bytes = batch();
    for length in 0..bytes.len() {
        match decode_batch(&bytes[..length]) {
            Err(StoredError::Truncated {
                what: "batch",
                missing,
            }) => assert!(missing > 0),
            other => panic!("cut at {length}: {other:?}"),
        }
    }
}

#[test]
fn bytes_left_over_are_refused() {
    let mut bytes = batch();
    bytes.extend_from_slice(&[0, 0]);
    assert_eq!(
        decode_batch(&bytes).unwrap_err(),
        StoredError::TrailingBytes {
            what: "batch",
            bytes: 2
        }
    );
}

#[test]
fn a_batch_too_long_is_refused_before_it_is_read() {
    let bytes = vec![1; STORED_BATCH_BYTES_MAX + 1];
    assert_eq!(
        decode_batch(&bytes).unwrap_err(),
        StoredError::TooLong {
            what: "batch",
            max: STORED_BATCH_BYTES_MAX
        }
    );
}

#[test]
fn a_batch_too_long_is_not_written() {
    let mut policy = fixtures::put_policy();
    policy.policy.tenant_weights = (0..TENANT_WEIGHTS_MAX)
        .map(|i| (TenantName::new(&format!("{i:0>128}")).unwrap(), 10_000))
        .collect::<BTreeMap<_, _>>();
    let put = Operation::PutPolicy(Box::new(policy));
    let one = encode_batch(Stamp::ZERO, std::slice::from_ref(&put)).unwrap();
    assert_eq!(decode_batch(&one).unwrap().1[0], put);
    assert_eq!(
        encode_batch(Stamp::ZERO, &[put.clone(), put]).unwrap_err(),
        StoredError::TooLong {
            what: "batch",
            max: STORED_BATCH_BYTES_MAX
        }
    );
}

#[test]
fn too_many_operations_are_neither_written_nor_read() {
    let seeds = vec![Operation::Seed([0; 16]); BATCH_OPERATIONS_MAX + 1];
    let rule = "batch is invalid: operations must be at most 512, is 513";
    assert_eq!(said(encode_batch(Stamp::ZERO, &seeds).unwrap_err()), rule);

    let mut bytes = encode_batch(Stamp::ZERO, &seeds[1..]).unwrap().to_vec();
    assert_eq!(bytes[2..5], [251, 0, 2]);
    bytes[3] = 1;
    assert_eq!(said(decode_batch(&bytes).unwrap_err()), rule);
}

#[test]
fn a_stamp_beyond_time_is_refused() {
    let mut bytes = vec![1, 253];
    bytes.extend_from_slice(&u64::MAX.to_le_bytes());
    bytes.push(0);
    assert_eq!(
        said(decode_batch(&bytes).unwrap_err()),
        "batch is invalid: stamp must be at most 1152921504606846976"
    );
}

/// Replaces the only occurrence of `from` by `to`, which has the same length.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let places: Vec<_> = (0..=bytes.len() - from.len())
        .filter(|at| bytes[*at..].starts_with(from))
        .collect();
    assert_eq!(places.len(), 1, "{from:?} must occur once");
    let mut changed = bytes.to_vec();
    changed[places[0]..places[0] + to.len()].copy_from_slice(to);
    changed
}

/// A batch, what is replaced in it, and what the refusal says.
type Case<'a> = (&'a [u8], &'a [u8], &'a [u8], &'a str);

#[test]
fn values_that_the_rules_do_not_allow_are_refused_with_their_field() {
    let put = fixtures::batches_v1().remove(10);
    let put = encode_batch(put.stamp, &put.operations).unwrap();
    let admit = batch();
    let most = [253, 0, 0, 0, 0, 0, 0x40, 0, 0];
    let release = fixtures::batches_v1().remove(3);
    let release = encode_batch(release.stamp, &release.operations).unwrap();
    let table: &[Case<'_>] = &[
        (
            &admit,
            b"interactive",
            b"inter\nctive",
            "operations[0].priority must not contain control characters, has one at byte 5",
        ),
        (
            &admit,
            b"\x0copenai/gpt-5",
            b"\x0copenai/gpt-\xff",
            "operations[0].target must be UTF-8",
        ),
        (
            &admit,
            b"requests",
            b"reques\0\0",
            "operations[0].cost must not contain control \
         characters, has one at byte 6",
        ),
        (
            &release,
            &most,
            &[253, 1, 0, 0, 0, 0, 0x40, 0, 0],
            "operations[0].actual must be at most 70368744177664 units in dimension \"tokens\"",
        ),
        (
            &put,
            b"\x03tpm",
            b"\x03rpm",
            "operations[0].policy.limits[1].name must be unique, \
         \"rpm\" appears twice",
        ),
        (
            &put,
            "\u{6}übung".as_bytes(),
            b"\x06\xff\xff\xff\xff\xff\xff",
            "operations[0].policy.tenant_weights must be UTF-8",
        ),
    ];
    for (bytes, from, to, rule) in table {
        let error = decode_batch(&replaced(bytes, from, to)).unwrap_err();
        assert!(matches!(error, StoredError::Invalid { .. }), "{error:?}");
        assert_eq!(said(error), format!("batch is invalid: {rule}"));
    }
}

#[test]
fn an_entry_that_could_not_be_read_is_not_written() {
    let mut long_id = fixtures::admit();
    long_id.admission_id = Box::from([b'a'; 129]);
    let operation = Operation::Admit(Box::new(long_id));
    assert_eq!(
        said(encode_batch(Stamp::ZERO, &[operation]).unwrap_err()),
        "batch is invalid: operations[0].admission_id must have 1 to 128 bytes, has 129"
    );
    let mut put = fixtures::put_policy();
    put.policy.horizon = 0;
    let operation = Operation::PutPolicy(Box::new(put));
    assert_eq!(
        said(encode_batch(Stamp::ZERO, &[Operation::Seed([0; 16]), operation]).unwrap_err()),
        "batch is invalid: operations[1].policy.horizon_us must be 1000 to 1000000 microseconds"
    );
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Meta {
    term: u64,
    digest: u128,
    voters: Vec<u64>,
    body: bytes::Bytes,
}

const META: Kind = Kind {
    name: "snapshot meta",
    format: 3,
};

fn meta() -> Meta {
    Meta {
        term: 7,
        digest: u128::MAX,
        voters: vec![1, 2, 300],
        body: vec![9; 1000].into(),
    }
}

#[test]
fn versioned_values_come_back() {
    let bytes = encode_versioned(META, &meta()).unwrap();
    assert_eq!(format_of(META, &bytes).unwrap(), 3);
    assert_eq!(decode_versioned::<Meta>(META, &bytes).unwrap(), meta());
}

#[test]
fn versioned_values_are_refused_alike() {
    let bytes = encode_versioned(META, &meta()).unwrap().to_vec();
    let newer = Kind { format: 2, ..META };
    let older = Kind { format: 4, ..META };
    let read = |kind, bytes: &[u8]| said(decode_versioned::<Meta>(kind, bytes).unwrap_err());
    assert_eq!(
        read(newer, &bytes),
        "snapshot meta has format 3, the newest known here is 2"
    );
    assert_eq!(
        read(older, &bytes),
        "snapshot meta has format 3, the oldest known here is 4"
    );
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(
        read(META, &longer),
        "snapshot meta is followed by 1 bytes that do not belong to it"
    );
    for length in 0..bytes.len() {
        let error = decode_versioned::<Meta>(META, &bytes[..length]).unwrap_err();
        assert!(
            matches!(error, StoredError::Truncated { .. }),
            "cut at {length}: {error:?}"
        );
    }
    let huge = Meta {
        body: vec![0; STORED_VALUE_BYTES_MAX].into(),
        ..meta()
    };
    let too_long = "snapshot meta is too long, at most 8388608 bytes are allowed";
    assert_eq!(said(encode_versioned(META, &huge).unwrap_err()), too_long);
    assert_eq!(read(META, &vec![3; STORED_VALUE_BYTES_MAX + 1]), too_long);
}

/// Batches are written by hand, in the encoding that serde and bincode would give them.
#[test]
fn batches_are_in_the_encoding_of_every_other_value() {
    let kind = Kind {
        name: "batch",
        format: 1,
    };
    let admit = fixtures::admit();
    let pairs = |amounts: &Amounts| -> Vec<(String, u64)> {
        amounts
            .iter()
            .map(|(name, units)| (name.to_string(), units))
            .collect()
    };
    let by_serde = (
        (5_u64, 1_u64, 0_u32),
        admit.target.as_str(),
        admit.tenant.as_str(),
        admit.principal.as_str(),
        admit.priority.as_str(),
        &admit.admission_id,
        admit.attempt,
        admit.ask,
        pairs(&admit.cost),
        pairs(&admit.cost_max),
        admit.labels_digest,
        admit.deadline,
        (admit.dry_run, admit.wake),
    );
    assert_eq!(
        batch(),
        encode_versioned(kind, &by_serde).unwrap(),
        "an ask"
    );
}

#[test]
fn a_value_has_one_encoding_only() {
    let release = fixtures::batches_v1().remove(3);
    assert_eq!(release.stamp, Stamp::from_micros(251));
    let release = encode_batch(release.stamp, &release.operations).unwrap();
    let wide = replaced(&release, &[251, 251, 0], &[251, 250, 0]);
    assert_eq!(
        said(decode_batch(&wide).unwrap_err()),
        "batch is malformed: stamp is an integer in more bytes than it needs"
    );
    let admit = batch();
    let swapped = replaced(&admit, b"requests\x01", b"xequests\x01");
    assert_eq!(
        said(decode_batch(&swapped).unwrap_err()),
        "batch is invalid: operations[0].cost must be in order of the dimensions, each once"
    );
}

#[test]
fn bytes_that_are_no_encoding_name_their_field() {
    let mut bytes = batch();
    *bytes.last_mut().unwrap() = 2;
    assert_eq!(
        said(decode_batch(&bytes).unwrap_err()),
        "batch is malformed: operations[0].wake is neither 0 nor 1"
    );
    let mut bytes = batch();
    bytes[3] = 9;
    assert_eq!(
        said(decode_batch(&bytes).unwrap_err()),
        "batch is malformed: operations[0].kind is no kind of operation"
    );
    bytes[3] = 254;
    assert_eq!(
        said(decode_batch(&bytes).unwrap_err()),
        "batch is malformed: operations[0].kind is no integer of at most 64 bits"
    );
}
