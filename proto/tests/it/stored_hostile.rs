//! Bytes that nobody wrote: an error, never a panic, never memory for what is not there.

use crate::generate;
use proptest::collection::vec;
use proptest::prelude::*;
use weir_admission::Stamp;
use weir_proto::stored::{Kind, StoredError, decode_batch, decode_versioned, encode_batch};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..512)) {
        let _ = decode_batch(&bytes);
        let _ = decode_versioned::<(u64, String, Vec<Vec<u64>>)>(KIND, &bytes);
    }

    #[test]
    fn arbitrary_bodies_never_panic(kind in 0..9_u8, body in vec(any::<u8>(), 0..512)) {
        let mut bytes = vec![1, 0, 1, kind];
        bytes.extend_from_slice(&body);
        check(&bytes);
    }

    #[test]
    fn mutated_batches_never_panic(
        operations in vec(generate::operation(), 1..4),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = encode_batch(Stamp::ZERO, &operations).unwrap().to_vec();
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        check(&bytes);
    }
}

const KIND: Kind = Kind {
    name: "value",
    format: 1,
};

/// What decodes holds valid values only, and is written as the very bytes it was read from.
fn check(bytes: &[u8]) {
    if let Ok((stamp, operations)) = decode_batch(bytes) {
        assert_eq!(encode_batch(stamp, &operations).unwrap(), bytes);
    }
}

#[test]
fn lengths_beyond_the_bytes_are_refused() {
    let endless = [253, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    let after = |front: &[u8]| [front, &endless, &[0; 32]].concat();
    let table: &[(&str, Vec<u8>)] = &[
        ("operations", after(&[1, 0])),
        ("target", after(&[1, 0, 1, 0])),
        (
            "cost",
            after(&[
                1, 0, 1, 0, 1, b't', 1, b'u', 1, b'p', 1, b'q', 1, b'i', 1, 1,
            ]),
        ),
        ("limits", after(&[1, 0, 1, 5, 1, b't'])),
        ("tenant_weights", after(&[1, 0, 1, 5, 1, b't', 0, 0])),
    ];
    for (field, bytes) in table {
        let error = decode_batch(bytes).unwrap_err();
        let refused = matches!(
            error,
            StoredError::TooLong { .. }
                | StoredError::Truncated { .. }
                | StoredError::Invalid { .. }
        );
        assert!(refused, "{field}: {error:?}");
    }
    let text = [&[1][..], &endless, b"text"].concat();
    let error = decode_versioned::<String>(KIND, &text).unwrap_err();
    assert!(matches!(error, StoredError::TooLong { .. }), "{error:?}");
}
