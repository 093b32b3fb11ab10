//! What no client of ours would send: an error or an end for whoever sends it, and nothing for the others.

use crate::rig::{Rig, TARGET};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use weir_chaos::frames::{
    CONTINUATION, DATA, END_HEADERS, HEADERS, INITIAL_WINDOW_SIZE, PING, PREFACE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, call, call_headers, frame, framed, header, message, setting,
};
use weir_client::{Answer, Call, Outcome};

const ADMIT: &str = "/weir.v1.AdmissionService/Admit";
const SESSION: &str = "/weir.v1.SessionService/Session";
/// Times that each is sent, over connections of its own.
const ROUNDS: usize = 20;
/// Bytes by which the node may be larger after all of them. What it had been given at once is far more.
const GROWTH_MAX: u64 = 48 * 1024 * 1024;
/// A sender hears an error, or the end, within this.
const ANSWER_MAX: Duration = Duration::from_secs(12);
/// Another client's call takes no longer than this meanwhile, on a machine that is busy sending.
const SERVED_MAX: Duration = Duration::from_secs(3);

/// What happens to who sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The node closes the connection.
    Closed,
    /// The call fails with this gRPC status; the connection goes on.
    Status(&'static str),
}

struct Attack {
    name: &'static str,
    bytes: Vec<u8>,
    end: End,
}

fn greeted(bytes: &[u8]) -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[]), bytes].concat()
}

/// The first bytes of a stream whose body is not sent yet.
fn opened(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, &call_headers(path, more))
}

fn repeated(times: u32, one: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    (0..times).flat_map(one).collect()
}

/// Groups within groups, as no message of ours has them.
fn nested() -> Vec<u8> {
    let (open, close) = (0x7b, 0x7c);
    [vec![open; 8_000], vec![close; 8_000]].concat()
}

/// Bytes that are no HTTP/2.
fn broken_frames() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("noise", (0..=255_u8).cycle().take(65_536).collect()),
        ("noise after the first words", greeted(&[0xa5; 65_536])),
        (
            "a frame of 16 MiB",
            greeted(&framed(0xff_ffff, DATA, 0, 1, &[0; 32_768])),
        ),
        (
            "a body without a stream",
            greeted(&frame(DATA, 0, 1, &[0; 64])),
        ),
        (
            "a stream of ours",
            greeted(&frame(HEADERS, END_HEADERS, 2, &call_headers(ADMIT, &[]))),
        ),
        (
            "headers that are none",
            greeted(&frame(HEADERS, END_HEADERS, 1, &[0xff; 512])),
        ),
        (
            "a ping of the wrong length",
            greeted(&frame(PING, 0, 0, &[0; 7])),
        ),
        (
            "a setting that cannot be",
            greeted(&frame(
                SETTINGS,
                0,
                0,
                &setting(INITIAL_WINDOW_SIZE, u32::MAX),
            )),
        ),
    ]
}

/// Calls that are opened and given up at once.
fn given_up(calls: u32) -> Vec<u8> {
    repeated(calls, |number| {
        let stream = 2 * number + 1;
        let opened = frame(HEADERS, END_HEADERS, stream, &call_headers(ADMIT, &[]));
        let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        [opened, reset].concat()
    })
}

/// HTTP/2 that asks for more than is good.
fn greedy_frames() -> Vec<(&'static str, Vec<u8>)> {
    let long = "x".repeat(120);
    let endless = repeated(20_000, |number| {
        frame(CONTINUATION, 0, 1, &header(&format!("x-{number}"), &long))
    });
    let unfinished = frame(HEADERS, 0, 1, &call_headers(ADMIT, &[]));
    let allowance = repeated(2, |_| {
        frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes())
    });
    vec![
        (
            "headers without an end",
            greeted(&[unfinished, endless].concat()),
        ),
        ("streams given up at once", greeted(&given_up(5_000))),
        (
            "more allowed than can be",
            greeted(&[opened(ADMIT, &[]), allowance].concat()),
        ),
    ]
}

/// Calls that are no messages of ours, and their statuses. gRPC: 3 invalid argument, 11 out of range, 12
/// unimplemented, 13 internal.
fn broken_calls() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let unary = |compressed, length, bytes: &[u8], more: &[(&str, &str)]| {
        greeted(&call(1, ADMIT, more, &message(compressed, length, bytes)))
    };
    let cut_short = |stream| call(stream, ADMIT, &[], &message(false, 500, &[0x0a; 64]));
    let empty = |path| greeted(&call(1, path, &[], &message(false, 0, &[])));
    let session =
        |length, bytes: &[u8]| greeted(&call(1, SESSION, &[], &message(false, length, bytes)));
    let zip = [("grpc-encoding", "gzip")];
    let nested = nested();
    let nested_length = u32::try_from(nested.len()).unwrap();
    vec![
        (
            "a message of 4 GiB",
            unary(false, u32::MAX, &[0; 64], &[]),
            "11",
        ),
        ("a message cut short", greeted(&cut_short(1)), "13"),
        (
            // As many as may be open at once: a client gives all up when a node stood still, and must not lose its
            // connection for it.
            "a thousand calls given up, and a message cut short",
            greeted(&[given_up(1_000), cut_short(2_001)].concat()),
            "13",
        ),
        (
            "a name of 4 GiB",
            unary(false, 7, b"\x0a\xff\xff\xff\xff\x0fx", &[]),
            "13",
        ),
        (
            "a message nested 8 000 deep",
            unary(false, nested_length, &nested, &[]),
            "13",
        ),
        (
            "a compressed message",
            unary(true, 64, &[0x1f; 64], &zip),
            "12",
        ),
        (
            "compressed without a word",
            unary(true, 64, &[0x1f; 64], &[]),
            "13",
        ),
        (
            "a service that is not there",
            empty("/weir.v2.Nothing/At"),
            "12",
        ),
        (
            "a service of other nodes",
            empty("/weir.peer.v1.PeerService/Append"),
            "12",
        ),
        ("a session of noise", session(64, &[0xa5; 64]), "13"),
        ("a session of 4 GiB", session(u32::MAX, &[0; 64]), "3"),
    ]
}

fn attacks() -> Vec<Attack> {
    let closed = broken_frames().into_iter().chain(greedy_frames());
    let closed = closed.map(|(name, bytes)| Attack {
        name,
        bytes,
        end: End::Closed,
    });
    let failed = broken_calls()
        .into_iter()
        .map(|(name, bytes, status)| Attack {
            name,
            bytes,
            end: End::Status(status),
        });
    closed.chain(failed).collect()
}

/// Sends it and says what came of it: `None` if the node closed the connection.
async fn send(address: &str, attack: &Attack) -> Option<String> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let bytes = attack.bytes.clone();
    let writing = tokio::spawn(async move {
        // A node that closes while this is being sent has said what it thinks of it.
        let _sent = writer.write_all(&bytes).await;
        writer
    });
    let mut heard = Vec::new();
    let until = Instant::now() + ANSWER_MAX;
    let answer = loop {
        let mut buffer = [0; 4096];
        let left = until.saturating_duration_since(Instant::now());
        let read = timeout(left, reader.read(&mut buffer)).await;
        let read = read.unwrap_or_else(|_| panic!("{}: no answer; heard {heard:?}", attack.name));
        match read {
            Ok(0) | Err(_) => break None,
            Ok(count) => heard.extend(buffer.iter().take(count)),
        }
        if let Some(status) = grpc_status(&heard) {
            break Some(status);
        }
    };
    drop(writing.await);
    answer
}

/// The status in headers that a node wrote. Both sides know HPACK's tables; to find one short header it is
/// enough to know how tonic's are written: a new name, then its value, both by Huffman's code or not.
fn grpc_status(heard: &[u8]) -> Option<String> {
    /// `grpc-status` in Huffman's code, with its length.
    const NAME: [u8; 9] = [0x88, 0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];
    let at = heard.windows(NAME.len()).position(|bytes| bytes == NAME)?;
    let value = heard.get(at + NAME.len()..)?;
    let (length, digits) = value.split_first()?;
    let bytes = digits.get(..usize::from(length & 0x7f))?;
    if length & 0x80 == 0 {
        return String::from_utf8(bytes.to_vec()).ok();
    }
    Some(huffman_digits(bytes))
}

/// Digits in Huffman's code: 0 to 2 have five bits, 3 to 9 have six.
fn huffman_digits(bytes: &[u8]) -> String {
    let bits: Vec<u8> = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1))
        .collect();
    let mut digits = String::new();
    let mut rest = bits.as_slice();
    let number = |bits: &[u8]| {
        bits.iter()
            .fold(0_u32, |number, bit| number << 1 | u32::from(*bit))
    };
    while rest.len() >= 5 {
        let five = number(&rest[..5]);
        if five <= 2 {
            digits.push(char::from_digit(five, 10).unwrap());
            rest = &rest[5..];
        } else if rest.len() >= 6 && (25..=31).contains(&number(&rest[..6])) {
            digits.push(char::from_digit(number(&rest[..6]) - 22, 10).unwrap());
            rest = &rest[6..];
        } else {
            break;
        }
    }
    digits
}

/// Another client asks all the time; answers its slowest call.
async fn others(rig: &Rig, mut stopped: tokio::sync::watch::Receiver<bool>) -> (usize, Duration) {
    let (mut calls, mut slowest) = (0, Duration::ZERO);
    while !*stopped.borrow_and_update() {
        let call = Call::new(TARGET, "acme", "interactive")
            .id(format!("other.{calls}"))
            .cost("requests", 1);
        let begun = Instant::now();
        match rig.client.try_admit(&call, None).await.unwrap() {
            Answer::Admitted(guard) => {
                guard.settle(Outcome::Ok, [("requests", 1)]).await.unwrap();
            }
            Answer::Deferred(deferral) => assert!(!deferral.is_local(), "{deferral:?}"),
            Answer::Rejected(rejection) => panic!("{rejection:?}"),
        }
        (calls, slowest) = (calls + 1, slowest.max(begun.elapsed()));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (calls, slowest)
}

async fn attack_all(address: &str, rounds: usize) {
    for attack in attacks() {
        for round in 0..rounds {
            let ended = send(address, &attack).await;
            let expected = match attack.end {
                End::Closed => None,
                End::Status(status) => Some(status.to_owned()),
            };
            assert_eq!(ended, expected, "{} in round {round}", attack.name);
        }
    }
}

#[tokio::test]
async fn hostile_bytes_end_in_an_error_and_cost_nobody_else_anything() {
    let mut rig = Rig::start(1_000_000, Duration::from_secs(2)).await;
    let leader = rig.cluster.leader(TARGET).await.unwrap();
    let address = rig.cluster.address(leader);
    // The first time fills caches and pools.
    attack_all(&address, 1).await;
    let before = rig.cluster.node(leader).unwrap().resident_bytes().unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let attacked = async {
        attack_all(&address, ROUNDS).await;
        stop.send_replace(true);
    };
    let ((), (calls, slowest)) = tokio::join!(attacked, others(&rig, stopped));
    let after = rig.cluster.node(leader).unwrap().resident_bytes().unwrap();
    println!(
        "{calls} calls of another client, the slowest {slowest:?}; {} KiB before, {} KiB after",
        before / 1024,
        after / 1024
    );
    assert!(slowest < SERVED_MAX, "{slowest:?}");
    assert!(after < before + GROWTH_MAX, "{before} -> {after} bytes");
    rig.cluster.wait_until_whole().await.unwrap();
}

#[test]
fn a_status_is_read_from_headers() {
    assert_eq!(huffman_digits(&[0b0000_1000, 0b1011_1111]), "12");
    assert_eq!(huffman_digits(&[0b0110_0111]), "3");
    assert_eq!(huffman_digits(&[0b0000_1011, 0b0011_1111]), "13");
}
