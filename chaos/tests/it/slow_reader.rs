//! Who asks and does not take the answers is cut off, and what waits for it is bounded.

use crate::rig::{Rig, TARGET};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use weir_chaos::frames::{INITIAL_WINDOW_SIZE, PREFACE, SETTINGS, call, frame, message, setting};
use weir_client::wire::Policy;

const LIST: &str = "/weir.v1.TargetsService/ListTargets";
/// Connections, and calls on each of them.
const CONNECTIONS: usize = 4;
const CALLS: u32 = 250;
/// Tenants that the policy names: an answer has more than a mebibyte.
const TENANTS: u64 = 9_000;
/// What all the answers together may take: far less than they have.
const GROWTH_MAX: u64 = 256 * 1024 * 1024;
/// A connection on which answers lie is cut within this.
const CUT_MAX: Duration = Duration::from_secs(15);

/// A client that asks for much and allows no byte of it.
async fn ask_and_take_nothing(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let closed = setting(INITIAL_WINDOW_SIZE, 0);
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &closed)].concat();
    for number in 0..CALLS {
        bytes.extend(call(2 * number + 1, LIST, &[], &message(false, 0, &[])));
    }
    stream.write_all(&bytes).await.unwrap();
    stream
}

/// True once the other side has closed. What it says until then is thrown away.
fn is_closed(stream: &TcpStream) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match stream.try_read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

#[tokio::test]
async fn answers_that_nobody_takes_are_bounded_and_their_connections_cut() {
    let mut rig = Rig::start(1_000, Duration::from_secs(2)).await;
    let leader = rig.cluster.leader(TARGET).await.unwrap();
    let target = rig.target().await;
    let weight = |number| (format!("{number:0120}"), 7);
    let large = Policy {
        tenant_weights: (0..TENANTS).map(weight).collect(),
        ..target.policy.unwrap()
    };
    rig.client.put_target(TARGET, large, None).await.unwrap();
    let node = rig.cluster.node(leader).unwrap();
    let before = node.resident_bytes().unwrap();
    let mut slow = Vec::new();
    for _ in 0..CONNECTIONS {
        slow.push(ask_and_take_nothing(&rig.cluster.address(leader)).await);
    }
    // Those who came when there was no more room were refused, and take none.
    let (begun, mut most) = (Instant::now(), 0);
    while !slow.iter().any(is_closed) {
        most = most.max(node.resident_bytes().unwrap());
        assert!(begun.elapsed() < CUT_MAX, "not cut");
        sleep(Duration::from_millis(50)).await;
    }
    println!(
        "cut after {:?}; {} KiB before, {} KiB at most",
        begun.elapsed(),
        before / 1024,
        most / 1024
    );
    assert!(most < before + GROWTH_MAX, "{before} -> {most} bytes");
    // Who takes the answer gets it.
    let listed = rig.client.list_targets().await.unwrap();
    assert_eq!(listed.targets.len(), 1);
    rig.cluster.wait_until_whole().await.unwrap();
}
