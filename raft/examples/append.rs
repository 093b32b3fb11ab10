//! How fast the log is: groups that append batches of 16 x 256 bytes and wait for each to be durable.
//!
//! `cargo run --release -p weir-raft --example append -- [DIR] [SECONDS]`; the directory decides which
//! disk is measured.

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_admission::ShardId;
use weir_raft::log::{GroupLog, LogOptions, LogStore};
use weir_raft::types::{Batch, Entry, LogId, TypeConfig};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Bytes of a batch.
const BATCH_BYTES: usize = 16 * 256;
/// Entries a group keeps behind what it purged.
const KEPT: u64 = 1000;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let seconds: u64 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    println!("groups  batches/s  syncs/s  batches/sync  CPU us/batch  p50 us  p99 us  files MB");
    for groups in [1, 3, 16, 64] {
        let dir = parent.join(format!("weir-append-{}-{groups}", std::process::id()));
        let measured = runtime.block_on(measure(&dir, groups, Duration::from_secs(seconds)));
        std::fs::remove_dir_all(&dir)?;
        measured?;
    }
    Ok(())
}

async fn measure(dir: &Path, groups: u32, time: Duration) -> Outcome<()> {
    std::fs::create_dir_all(dir)?;
    let store = LogStore::open(&LogOptions::new(dir, groups))?;
    let until = Instant::now() + time;
    let (cpu_before, began) = (cpu_us()?, Instant::now());
    let appends = (0..groups).filter_map(|shard| store.group(ShardId(shard)));
    let appends = futures::future::try_join_all(appends.map(|log| append(log, until))).await?;
    let took = began.elapsed().as_secs_f64();
    let cpu = cpu_us()? - cpu_before;
    let mut waits: Vec<u64> = appends.into_iter().flatten().collect();
    waits.sort_unstable();
    let at = |share: usize| waits.get(waits.len() * share / 100).copied().unwrap_or(0);
    let (batches, syncs) = (waits.len() as f64, store.stats().rounds as f64);
    println!(
        "{groups:6}  {:9.0}  {:7.0}  {:12.1}  {:12.0}  {:6}  {:6}  {:8.1}",
        batches / took,
        syncs / took,
        batches / syncs,
        cpu / batches,
        at(50),
        at(99),
        size(&dir.join("log"))? as f64 / 1e6,
    );
    store.close().await?;
    Ok(())
}

/// Appends one batch after the other; gives the microseconds that each took.
async fn append(mut log: GroupLog, until: Instant) -> std::io::Result<Vec<u64>> {
    let body = Bytes::from(vec![7; BATCH_BYTES]);
    let mut waits = Vec::new();
    for index in 0.. {
        let began = Instant::now();
        if began >= until {
            break;
        }
        let entry = Entry {
            log_id: LogId::new_term_index(1, index),
            payload: EntryPayload::Normal(Batch(body.clone())),
        };
        let (done, durable) = TypeConfig::oneshot();
        log.append([entry], IOFlushed::<TypeConfig>::signal(done))
            .await?;
        durable.await.map_err(std::io::Error::other)??;
        waits.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
        if index % KEPT == KEPT - 1 {
            log.purge(LogId::new_term_index(1, index - KEPT / 2))
                .await?;
        }
    }
    Ok(waits)
}

/// Bytes of the files in a directory.
fn size(dir: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

/// CPU time of this process so far, in microseconds, from `/proc/self/stat` (clock ticks of 10 ms).
fn cpu_us() -> Outcome<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<f64>().unwrap_or(0.0))
        .sum();
    Ok(ticks * 10_000.0)
}
