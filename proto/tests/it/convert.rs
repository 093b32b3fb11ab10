//! Requests and policies that are right come through unchanged; answers say what was decided.

use crate::generate;
use crate::wire;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use weir_admission::{Admit, Principal, Report, ShardId, TargetName, shard_of};
use weir_proto::convert::{self, Caller, labels_digest};
use weir_proto::v1;

const SHARDS: u32 = 16;

fn caller(principal: &Principal) -> Caller<'_> {
    Caller {
        principal,
        shards: SHARDS,
        wakes: true,
    }
}

proptest! {
    #[test]
    fn asks_come_through(admit in generate::admit(), labels in wire::labels()) {
        let request = wire::admit(&admit, labels.clone());
        let labels_digest = labels_digest(&labels);
        let expected = Admit { labels_digest, ..admit.clone() };
        let read = convert::admit::read(request.clone(), caller(&admit.principal));
        prop_assert_eq!(read, Ok(expected));
        let unary = Caller { wakes: false, ..caller(&admit.principal) };
        let unary = convert::admit::read(request, unary);
        prop_assert_eq!(unary.is_ok(), !admit.wake);
    }

    #[test]
    fn releases_come_through(release in generate::release()) {
        let request = wire::release(&release, SHARDS);
        let read = convert::release::read(request, caller(&release.principal));
        prop_assert_eq!(read, Ok(release));
    }

    #[test]
    fn cancels_come_through(cancel in generate::ask_name()) {
        let request = wire::cancel(&cancel);
        let read = convert::cancel::read(request, caller(&cancel.principal));
        prop_assert_eq!(read, Ok(cancel));
    }

    #[test]
    fn extensions_come_through(extend in generate::extend()) {
        let request = wire::extend(&extend, SHARDS);
        let read = convert::extend::read(&request, caller(&extend.principal));
        prop_assert_eq!(read, Ok(extend));
    }

    #[test]
    fn reports_come_through(
        first in generate::report(),
        others in vec(generate::report(), 0..5),
    ) {
        let same = |report: Report| Report {
            target: first.target.clone(),
            principal: first.principal.clone(),
            ..report
        };
        let mut reports: Vec<_> = others.into_iter().map(same).collect();
        reports.push(first.clone());
        let request = wire::report(&reports);
        let read = convert::report::read(request, caller(&first.principal));
        prop_assert_eq!(read, Ok(reports));
    }

    #[test]
    fn policies_come_through(policy in generate::policy()) {
        let written = convert::policy::write(&policy);
        prop_assert_eq!(convert::policy::read(&written), Ok(policy));
    }

    #[test]
    fn puts_and_deletes_come_through(
        put in generate::put_policy(),
        delete in generate::delete_policy(),
    ) {
        let request = wire::put(&put);
        prop_assert_eq!(convert::target::read_put(&request, caller(&put.principal)), Ok(put.clone()));
        let request = wire::delete(&delete);
        prop_assert_eq!(convert::target::read_delete(&request), Ok(delete));
    }

    #[test]
    fn wire_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        wire::read_as_anything(&bytes);
    }

    #[test]
    fn deadlines_of_zero_mean_none(admit in generate::admit(), deadline in option::of(1..9_u64)) {
        let admit = Admit { deadline, labels_digest: 0, ..admit };
        let request = wire::admit(&admit, [].into());
        prop_assert_eq!(request.deadline_us, deadline.unwrap_or(0));
        let read = convert::admit::read(request, caller(&admit.principal)).unwrap();
        prop_assert_eq!(read.deadline, deadline);
    }
}

#[test]
fn defaults_are_filled_in() {
    let limit = |enforced_by: v1::EnforcedBy| v1::Limit {
        name: format!("{enforced_by:?}"),
        dimension: "requests".into(),
        cap: 5,
        per_us: 1_000_000,
        kind: v1::LimitKind::Sliding.into(),
        enforced_by: enforced_by.into(),
        ..v1::Limit::default()
    };
    let policy = v1::Policy {
        limits: vec![limit(v1::EnforcedBy::Provider), limit(v1::EnforcedBy::Us)],
        priorities: vec![v1::Priority {
            name: "p1".into(),
            weight: 1,
        }],
        ..v1::Policy::default()
    };
    let read = convert::policy::read(&policy).unwrap();
    let expected = weir_admission::Policy {
        limits: read.limits.clone(),
        priorities: read.priorities.clone(),
        ..weir_admission::Policy::default()
    };
    assert_eq!(read, expected);
    assert_eq!(read.limits[0].initial_use, weir_admission::InitialUse::Full);
    assert_eq!(
        read.limits[1].initial_use,
        weir_admission::InitialUse::Empty
    );
    assert_eq!(read.limits[0].burst, None);
}

#[test]
fn knobs_of_zero_are_kept_apart_from_unset() {
    let policy = v1::Policy {
        reply_window_us: Some(0),
        send_spread_us: Some(0),
        estimate_sigmas_milli: Some(0),
        ..wire::policy()
    };
    let read = convert::policy::read(&policy).unwrap();
    assert_eq!((read.reply_window, read.send_spread), (Some(0), Some(0)));
    assert_eq!(read.estimate_sigmas_milli, 0);
}

/// Kept in replicated state: these digests never change.
#[test]
fn label_digests_are_pinned() {
    let digest = |pairs: &[(&str, &str)]| {
        let owned = pairs
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        labels_digest(&owned.collect())
    };
    assert_eq!(digest(&[]), 0);
    assert_eq!(digest(&[("model", "gpt-5")]), LABELS_MODEL);
    assert_eq!(digest(&[("model", "gpt-5"), ("region", "eu")]), LABELS_BOTH);
    assert_eq!(digest(&[("region", "eu"), ("model", "gpt-5")]), LABELS_BOTH);
    assert_ne!(
        digest(&[("a", "bc")]),
        digest(&[("ab", "c")]),
        "lengths are part of it"
    );
    assert_ne!(digest(&[("a", "")]), 0);
}

const LABELS_MODEL: u64 = 0x7147_f571_e0d8_8ccb;
const LABELS_BOTH: u64 = 0x57a9_1fa4_ef92_83f9;

/// Vectors for clients in every language: `target`, number of shards, shard.
#[test]
fn shards_are_as_published() {
    let targets = [
        "a",
        "openai/gpt-5",
        "openai/gpt-5-mini",
        "openai",
        "payments/charge",
        "/leading",
        "übung/ß",
        "日本/語",
        "anthropic/claude/messages",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    ];
    let mut vectors = String::from("# target\tshards\tshard\n");
    for target in targets {
        for shards in [1, 3, 16, 17, 1024] {
            let ShardId(shard) = shard_of(&TargetName::new(target).unwrap(), shards);
            vectors.push_str(&format!("{target}\t{shards}\t{shard}\n"));
        }
    }
    crate::golden::check("fixtures/shards.txt", &vectors);
}
