//! Bytes of a log entry: what a batch costs to write and to read, per operation.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench that cannot go on has failed; criterion's macros write no docs"
)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use weir_admission::{
    Admit, Amounts, CallOutcome, DimensionName, GrantId, Operation, Principal, PriorityName,
    Release, Stamp, TargetName, TenantName,
};
use weir_proto::stored::{decode_batch, encode_batch};

const STAMP: Stamp = Stamp::from_micros(86_400_000_000);

fn amounts(list: &[(&str, u64)]) -> Amounts {
    let names = list
        .iter()
        .map(|(name, units)| (DimensionName::new(name).unwrap(), *units));
    Amounts::new(names.collect()).unwrap()
}

/// An ask in two dimensions, every one from another tenant.
fn admit(i: usize) -> Operation {
    Operation::Admit(Box::new(Admit {
        target: TargetName::new("openai/gpt-5").unwrap(),
        tenant: TenantName::new(&format!("tenant-{i}")).unwrap(),
        principal: Principal::new("spiffe://fleet/worker").unwrap(),
        priority: PriorityName::new("interactive").unwrap(),
        admission_id: format!("0192f0c1-7e4a-7000-8000-{i:012}")
            .into_bytes()
            .into_boxed_slice(),
        attempt: 0x0123_4567_89ab_cdef + i as u64,
        ask: 1,
        cost: amounts(&[("requests", 1), ("tokens", 1_200)]),
        cost_max: amounts(&[("tokens", 5_296)]),
        labels_digest: 0x0123_4567_89ab_cdef,
        deadline: Some(30_000_000),
        dry_run: false,
        wake: false,
    }))
}

fn release(i: usize) -> Operation {
    Operation::Release(Box::new(Release {
        target: TargetName::new("openai/gpt-5").unwrap(),
        principal: Principal::new("spiffe://fleet/worker").unwrap(),
        grant: GrantId {
            index: 1_000_000,
            offset: u32::try_from(i).unwrap(),
        },
        actual: amounts(&[("tokens", 2_048)]),
        outcome: CallOutcome::Ok,
    }))
}

fn batches(c: &mut Criterion) {
    let mut group = c.benchmark_group("stored");
    for (kind, operation) in [
        ("admit", admit as fn(usize) -> Operation),
        ("release", release as fn(usize) -> Operation),
    ] {
        for size in [1, 64, 512] {
            let batch: Vec<_> = (0..size).map(operation).collect();
            let bytes = encode_batch(STAMP, &batch).unwrap();
            group.throughput(Throughput::Elements(size as u64));
            group.bench_function(BenchmarkId::new(format!("decode_{kind}"), size), |b| {
                b.iter(|| decode_batch(black_box(&bytes)));
            });
            group.bench_function(BenchmarkId::new(format!("encode_{kind}"), size), |b| {
                b.iter(|| encode_batch(STAMP, black_box(&batch)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, batches);
criterion_main!(benches);
