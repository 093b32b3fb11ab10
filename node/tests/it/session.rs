//! Sessions: many operations over one stream.

mod callers;
mod equal;
mod raw;
mod turns;

use self::raw::{Raw, admit_operation, hello, open};
use crate::support::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weir_admission::TargetName;
use weir_node::limits::{SESSION_ASKS_MAX, SESSION_HELLO_WITHIN};
use weir_proto::error::{Reason, Retry, WireError};
use weir_proto::limits::FRAME_OPERATIONS_MAX;
use weir_proto::v1 as wire;
use weir_proto::v1::admit_response::Decision;
use weir_proto::v1::session_answer::Answer;
use weir_proto::v1::session_operation::Operation;
use weir_proto::v1::session_response::Message;

/// A target of every shard, which need not exist: an unknown target is an answer too.
fn one_target_per_shard(shards: u32) -> Vec<String> {
    let mut names = BTreeMap::new();
    for number in 0.. {
        let name = format!("pool-{number}/x");
        let shard = weir_admission::shard_of(&TargetName::new(&name).unwrap(), shards);
        names.entry(shard).or_insert(name);
        if names.len() == shards as usize {
            break;
        }
    }
    names.into_values().collect()
}

fn ask_of(target: &str, id: &str) -> Operation {
    Operation::Admit(wire::AdmitRequest {
        target: target.to_owned(),
        ..ask(id)
    })
}

fn error_of(answer: &wire::SessionAnswer) -> WireError {
    match &answer.answer {
        Some(Answer::Error(error)) => WireError::from_session(error.clone()).unwrap(),
        other => panic!("no error: {other:?}"),
    }
}

fn decision(answer: &wire::SessionAnswer) -> &Decision {
    match &answer.answer {
        Some(Answer::Admit(answer)) => answer.decision.as_ref().unwrap(),
        other => panic!("no decision: {other:?}"),
    }
}

#[tokio::test]
async fn a_session_begins_with_hellos() {
    let cluster = start_with_target(1).await;
    let node = leader(&cluster);
    let identity = cluster.shards(node).unwrap().identity().clone();
    let mut session = open(&cluster, node).await;
    session.say(hello()).await;
    let Message::Hello(server) = session.hear().await.unwrap() else {
        panic!("no hello")
    };
    assert_eq!(server.cluster_id, identity.cluster_id);
    assert_eq!((server.node_id, server.protocol_version), (node.0, 1));
    assert_eq!(server.principal, "anonymous");
    let limits = server.limits.unwrap();
    assert_eq!(
        limits.frame_operations as usize, FRAME_OPERATIONS_MAX,
        "{limits:?}"
    );
    assert_eq!(limits.operations_in_flight as usize, SESSION_ASKS_MAX);
    // The client closes its side: what is in flight is answered, and the stream ends well.
    session.ask(vec![admit_operation(TARGET, "last")]).await;
    session.close();
    assert_eq!(session.answers(1).await.len(), 1);
    assert!(session.end().await.is_none());
    cluster.shutdown().await;
}

#[tokio::test]
async fn what_breaks_the_rules_of_the_stream_ends_it() {
    use wire::session_request::Message::{Frame, Hello};
    let cluster = start_with_target(1).await;
    let node = leader(&cluster);
    let good = || Hello(hello_message());
    let frame = |sequences: &[u64]| {
        let operation = |sequence: &u64| wire::SessionOperation {
            sequence: *sequence,
            operation: Some(admit_operation(TARGET, "x")),
            ..wire::SessionOperation::default()
        };
        Frame(wire::ClientFrame {
            operations: sequences.iter().map(operation).collect(),
        })
    };
    let wide = frame(&(1..=257).collect::<Vec<_>>());
    let mut large = admit_operation(TARGET, "x");
    if let Operation::Admit(ask) = &mut large {
        ask.admission_id = "x".repeat(256 * 1024);
    }
    let large = Frame(wire::ClientFrame {
        operations: vec![wire::SessionOperation {
            sequence: 1,
            operation: Some(large),
            ..wire::SessionOperation::default()
        }],
    });
    let version = wire::ClientHello {
        protocol_version: 9,
        ..hello_message()
    };
    let cases = [
        (vec![frame(&[1])], "hello"),
        (vec![Hello(version)], "hello.protocol_version"),
        (vec![good(), good()], "hello"),
        (vec![good(), frame(&[])], "frame.operations"),
        (vec![good(), wide], "frame.operations"),
        (vec![good(), frame(&[0])], "frame.operations[0].sequence"),
        (vec![good(), frame(&[2, 1])], "frame.operations[1].sequence"),
        (
            vec![good(), frame(&[2]), frame(&[2])],
            "frame.operations[0].sequence",
        ),
        (vec![good(), large], "frame"),
    ];
    for (number, (messages, field)) in cases.into_iter().enumerate() {
        let mut session = open(&cluster, node).await;
        for message in messages {
            session.say(message).await;
        }
        let status = session.end().await.expect("an end with a status");
        let error = error(&status);
        assert_eq!(error.reason, Reason::Malformed, "case {number}: {error}");
        assert_eq!(error.violations[0].field, field, "case {number}: {error}");
    }
    // Nothing of it was charged but what stood in the frames before: the one ask "x".
    assert!(used(&cluster).await[0] <= 1);
    cluster.shutdown().await;
}

fn hello_message() -> wire::ClientHello {
    match hello() {
        wire::session_request::Message::Hello(hello) => hello,
        wire::session_request::Message::Frame(_) => unreachable!("a hello"),
    }
}

#[tokio::test]
async fn a_session_without_a_hello_ends() {
    let cluster = start(1).await;
    let begun = Instant::now();
    let mut session = open(&cluster, leader(&cluster)).await;
    let status = session.end().await.unwrap();
    assert_eq!(error(&status).violations[0].field, "hello");
    assert!(begun.elapsed() >= SESSION_HELLO_WITHIN);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_wrong_operation_is_answered_and_the_rest_goes_on() {
    let cluster = start_with_target(1).await;
    let mut session = Raw::greeted(&cluster, leader(&cluster)).await;
    let mut wrong = ask("wrong");
    wrong.cost = units(&[("tokens", u64::MAX)]);
    let unknown = wire::AdmitRequest {
        target: "demo/other".into(),
        ..ask("unknown")
    };
    let woken = wire::AdmitRequest {
        wake: true,
        ..ask("woken")
    };
    session
        .ask(vec![
            admit_operation(TARGET, "one"),
            Operation::Admit(wrong),
            Operation::Admit(unknown),
            Operation::Admit(woken),
        ])
        .await;
    let answers = session.answers(4).await;
    assert!(matches!(decision(&answers[&1]), Decision::Admitted(_)));
    let malformed = error_of(&answers[&2]);
    assert_eq!(malformed.reason, Reason::Malformed);
    assert_eq!(malformed.violations[0].field, "cost[\"tokens\"]");
    let unknown = error_of(&answers[&3]);
    assert_eq!(unknown.reason, Reason::TargetUnknown);
    assert_eq!(unknown.resource.unwrap().name, "demo/other");
    assert!(matches!(decision(&answers[&4]), Decision::Admitted(_)));
    cluster.shutdown().await;
}

/// Every ask undoes the one before it, so one that overtakes another makes that one stale.
#[tokio::test]
async fn operations_of_one_shard_keep_their_order() {
    let cluster = start_with_target(1).await;
    let mut session = Raw::greeted(&cluster, leader(&cluster)).await;
    let numbered = |number| {
        Operation::Admit(wire::AdmitRequest {
            ask: number,
            ..ask("job")
        })
    };
    let mut number = 0;
    for length in [1, 7, 100, 1, 1, 256, 3, 32, 200, 1] {
        let frame = (number + 1..=number + length).map(numbered).collect();
        session.ask(frame).await;
        number += length;
    }
    let answers = session.answers(number as usize).await;
    for (sequence, answer) in &answers {
        let decision = decision(answer);
        assert!(
            matches!(decision, Decision::Admitted(_)),
            "{sequence}: {decision:?}"
        );
    }
    assert_eq!(used(&cluster).await, [1, 10]);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_frame_may_be_for_many_shards_and_hints_are_for_each_operation() {
    let cluster = start(3).await;
    let shards = cluster.nodes().next().unwrap().1.shards;
    let targets = one_target_per_shard(shards);
    let (node, _) = cluster.nodes().next().unwrap();
    let mut session = Raw::greeted(&cluster, node).await;
    let begun = Instant::now();
    // Leaders may move while nodes have just started: until this node leads some shard and another not.
    loop {
        let frame = targets.iter().map(|target| ask_of(target, "x")).collect();
        let first = session.ask(frame).await;
        let answers = session.answers(targets.len()).await;
        let mut elsewhere = 0;
        let mut decided = 0;
        for (target, sequence) in targets.iter().zip(first..) {
            let error = error_of(&answers[&sequence]);
            // On a busy machine a shard may lack a quorum or a leader for a moment.
            let unsettled = error.reason == Reason::NotLeader && error.leader.is_none();
            if unsettled || error.reason.retry() == Retry::Later {
                continue;
            }
            decided += 1;
            if error.reason == Reason::NotLeader {
                let hint = error.leader.unwrap();
                assert_ne!(hint.node_id, node.0);
                assert!(cluster.client_addresses().contains(&hint.address));
                elsewhere += 1;
            } else {
                assert_eq!(error.reason, Reason::TargetUnknown, "{error}");
                assert_eq!(&error.resource.unwrap().name, target);
            }
        }
        if elsewhere > 0 && elsewhere < decided {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "leaders do not spread");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn asks_beyond_the_bound_are_refused_at_once_and_the_rest_is_not() {
    // A long lease: the leader that commits nothing takes long to notice.
    let timing = weir_raft::Timing {
        heartbeat_ms: 1_000,
        election_min_ms: 10_000,
        election_max_ms: 20_000,
    };
    let options = weir_node::dev::ClusterOptions {
        timing,
        ..options()
    };
    let mut cluster = start_with(options).await;
    let node = leader(&cluster);
    let mut session = Raw::greeted(&cluster, node).await;
    let others: Vec<_> = cluster.nodes().map(|(id, _)| id).collect();
    for other in others.into_iter().filter(|other| *other != node) {
        cluster.kill(other).await.unwrap();
    }
    let ask_many = |frame: usize, count: usize| -> Vec<_> {
        (0..count)
            .map(|n| admit_operation(TARGET, &format!("{frame}-{n}")))
            .collect()
    };
    for frame in 0..SESSION_ASKS_MAX / FRAME_OPERATIONS_MAX {
        session.ask(ask_many(frame, FRAME_OPERATIONS_MAX)).await;
    }
    let mut mixed = ask_many(99, FRAME_OPERATIONS_MAX - 1);
    mixed.push(Operation::Cancel(wire::CancelRequest {
        target: TARGET.into(),
        tenant: "acme".into(),
        admission_id: "nobody".into(),
        attempt: 1,
        ask: 1,
    }));
    let begun = Instant::now();
    let first = session.ask(mixed).await;
    let refused = session.answers(FRAME_OPERATIONS_MAX - 1).await;
    let took = begun.elapsed();
    for (sequence, answer) in &refused {
        let error = error_of(answer);
        assert!(*sequence >= first, "{sequence}: {error}");
        assert_eq!(error.reason, Reason::Overloaded, "{error}");
        assert!(error.retry_after.is_some());
    }
    // Generous, for a busy machine; what waits for a quorum waits for a second at least.
    assert!(took < Duration::from_millis(500), "{took:?}");
    // The cancel was taken up, and is answered with the asks before it.
    let rest = session.answers(SESSION_ASKS_MAX + 1).await;
    let cancelled = error_of(&rest[&(first + FRAME_OPERATIONS_MAX as u64 - 1)]);
    assert_ne!(cancelled.reason, Reason::Overloaded, "{cancelled}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let cluster = start_with_target(1).await;
    let mut session = Raw::greeted(&cluster, leader(&cluster)).await;
    let metrics = || raw::metrics(&cluster);
    assert!(metrics().await.contains("weir_sessions 1\n"));
    let deadline = Instant::now() + PATIENCE;
    // Small asks with large answers: every one says at length that its names are wrong.
    let long = "\n".repeat(120);
    let wrong = || {
        let names = (0..8).map(|n| (format!("{n}{long}"), u64::MAX));
        Operation::Admit(wire::AdmitRequest {
            cost: names.collect(),
            ..wire::AdmitRequest::default()
        })
    };
    while !metrics().await.contains("weir_session_cut_off_total 1\n") {
        let frame = (0..32).map(|_| wrong()).collect();
        session.try_ask(frame);
        assert!(Instant::now() < deadline, "not cut off");
    }
    let status = session.end().await.unwrap();
    assert_eq!(reason(&status), Reason::Overloaded);
    assert!(metrics().await.contains("weir_sessions 0\n"));
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_stopping_node_answers_what_is_in_flight_and_says_goodbye() {
    let mut cluster = start_with_target(3).await;
    let node = leader(&cluster);
    let mut session = Raw::greeted(&cluster, node).await;
    let first = session.ask(vec![admit_operation(TARGET, "before")]).await;
    session.answers(1).await;
    let mut asker = session.asker();
    let asking = tokio::spawn(async move {
        for number in 0.. {
            let operation = admit_operation(TARGET, &format!("during-{number}"));
            if !asker.ask(vec![operation]).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let stopping = tokio::spawn(async move {
        let begun = Instant::now();
        cluster.stop(node).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5));
        cluster
    });
    let mut answered = BTreeSet::from([first]);
    let goodbye = loop {
        match session.hear().await.unwrap() {
            Message::Frame(frame) => {
                for answer in frame.answers {
                    // What is refused at once overtakes what waits for its entry.
                    assert!(answered.insert(answer.sequence), "answered twice");
                    if let Some(Answer::Error(error)) = answer.answer {
                        let error = WireError::from_session(error).unwrap();
                        assert!(!error.reason.may_have_happened(), "{error}");
                    }
                }
            }
            Message::Goodbye(goodbye) => break goodbye,
            Message::Hello(hello) => panic!("{hello:?}"),
        }
    };
    assert_eq!(goodbye.reason(), wire::GoodbyeReason::Stopping);
    assert_eq!(answered, (1..=goodbye.last_sequence).collect());
    assert!(session.end().await.is_none());
    let cluster = stopping.await.unwrap();
    drop(session);
    asking.await.unwrap();
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_session_breaks_with_its_leader_and_another_one_goes_on() {
    let mut cluster = start_with_target(3).await;
    let node = leader(&cluster);
    let mut session = Raw::greeted(&cluster, node).await;
    session.ask(vec![admit_operation(TARGET, "job")]).await;
    let answers = session.answers(1).await;
    assert!(matches!(decision(&answers[&1]), Decision::Admitted(_)));
    session
        .ask(vec![admit_operation(TARGET, "in flight")])
        .await;
    cluster.kill(node).await.unwrap();
    // Answered or not, the stream ends; a goodbye it is not.
    let status = session.end().await.expect("the connection breaks");
    assert!(WireError::from_status(&status).is_none(), "{status:?}");
    // The same attempt, asked again of the new leader: the same grant, one charge.
    let deadline = Instant::now() + PATIENCE;
    let mut number = 1;
    loop {
        number += 1;
        let mut session = Raw::greeted(&cluster, leader_now(&cluster).await).await;
        let again = wire::AdmitRequest {
            ask: number,
            ..ask("job")
        };
        session.ask(vec![Operation::Admit(again)]).await;
        let answers = session.answers(1).await;
        match &answers[&1].answer {
            Some(Answer::Admit(_)) => break,
            other => assert!(Instant::now() < deadline, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(used(&cluster).await[0] <= 2);
    cluster.shutdown().await;
}
