//! Wrong requests: each gets its precise error, and nothing is charged, lost or changed.

use crate::support::*;
use bytes::{Buf, BufMut, Bytes};
use std::time::{Duration, Instant};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};
use weir_node::dev::Cluster;
use weir_proto::error::Reason;
use weir_proto::v1 as wire;
use weir_proto::v1::admit_response::Decision;

type Change<T> = fn(&mut T);

/// What is wrong with an ask, the reason and the fields told.
#[rustfmt::skip]
const WRONG_ASKS: &[(Change<wire::AdmitRequest>, Reason, &[&str])] = &[
    (|a| a.target = "demo/other".into(), Reason::TargetUnknown, &[]),
    // Looks alike, is another name: a Cyrillic letter.
    (|a| a.target = "dem\u{43e}/chat".into(), Reason::TargetUnknown, &[]),
    (|a| a.target = "demo/chat ".into(), Reason::TargetUnknown, &[]),
    (|a| a.target = String::new(), Reason::Malformed, &["target"]),
    (|a| a.target = "x".repeat(129), Reason::Malformed, &["target"]),
    (|a| a.target = "demo/\u{7}chat".into(), Reason::Malformed, &["target"]),
    (|a| a.tenant = String::new(), Reason::Malformed, &["tenant"]),
    (|a| a.tenant = "x".repeat(129), Reason::Malformed, &["tenant"]),
    (|a| a.tenant = "a\nb".into(), Reason::Malformed, &["tenant"]),
    (|a| a.priority = "urgent".into(), Reason::PriorityUnknown, &["priority"]),
    (|a| a.priority = "High".into(), Reason::PriorityUnknown, &["priority"]),
    (|a| a.priority = String::new(), Reason::Malformed, &["priority"]),
    (|a| a.admission_id = String::new(), Reason::Malformed, &["admission_id"]),
    (|a| a.admission_id = "x".repeat(129), Reason::Malformed, &["admission_id"]),
    (|a| a.ask = 0, Reason::Malformed, &["ask"]),
    (|a| a.cost = units(&[("images", 1)]), Reason::DimensionUnknown, &["cost[\"images\"]"]),
    (|a| a.cost = units(&[]), Reason::Malformed, &["cost"]),
    (|a| a.cost = units(&[("requests", 0), ("tokens", 0)]), Reason::Malformed, &["cost"]),
    (|a| a.cost = units(&[("requests", u64::MAX)]), Reason::Malformed, &["cost[\"requests\"]"]),
    (|a| a.cost = units(&[("requests", (1 << 46) + 1)]), Reason::Malformed, &["cost[\"requests\"]"]),
    (|a| a.cost = units(&[("", 1)]), Reason::Malformed, &["cost[\"\"]"]),
    (|a| a.cost_max = units(&[("tokens", 9)]), Reason::Malformed, &["cost_max[\"tokens\"]"]),
    (|a| a.cost = (0..9).map(|n| (format!("d{n}"), 1)).collect(), Reason::Malformed, &["cost"]),
    (|a| a.labels = (0..9).map(|n| (format!("l{n}"), String::new())).collect(), Reason::Malformed, &["labels"]),
    (|a| a.deadline_us = u64::MAX, Reason::Malformed, &["deadline_us"]),
    (|a| (a.target, a.tenant, a.ask) = (String::new(), "\0".into(), 0), Reason::Malformed, &["target", "tenant", "ask"]),
];

/// Whatever came in, the next call is answered.
async fn serves_on(cluster: Cluster) {
    admission(&cluster, leader(&cluster))
        .admit(ask("job"))
        .await
        .unwrap();
    cluster.shutdown().await;
}

#[tokio::test]
async fn wrong_asks_are_refused_and_not_charged() {
    let cluster = start_with_target(1).await;
    let mut leader = admission(&cluster, leader(&cluster));
    for (number, (change, wanted, fields)) in WRONG_ASKS.iter().enumerate() {
        let mut wrong = ask("job");
        change(&mut wrong);
        let refused = leader.admit(wrong).await.unwrap_err();
        let error = error(&refused);
        assert_eq!(error.reason, *wanted, "case {number}: {error}");
        assert_eq!(refused.code(), wanted.code(), "case {number}");
        let told: Vec<&str> = error.violations.iter().map(|v| v.field.as_str()).collect();
        assert_eq!(told, *fields, "case {number}: {error}");
    }
    nothing_happened(&cluster).await;
    cluster.shutdown().await;
}

async fn nothing_happened(cluster: &Cluster) {
    let target = target(cluster).await;
    assert_eq!((target.grants, target.waiting), (0, 0));
    assert!(
        target.limits.iter().all(|limit| limit.used == 0),
        "{target:?}"
    );
}

#[tokio::test]
async fn what_can_never_fit_is_rejected_by_the_limit() {
    let cluster = start_with_target(1).await;
    let mut leader = admission(&cluster, leader(&cluster));
    for (cost, limit) in [
        (units(&[("requests", 101)]), "requests"),
        (units(&[("requests", 1), ("tokens", 10_001)]), "tokens"),
        (units(&[("tokens", 1 << 46)]), "tokens"),
    ] {
        let answer = leader
            .admit(wire::AdmitRequest { cost, ..ask("big") })
            .await
            .unwrap();
        let answer = answer.into_inner();
        let Some(Decision::Rejected(rejected)) = &answer.decision else {
            panic!("{answer:?}")
        };
        assert_eq!(rejected.reason(), wire::RejectReason::NeverFits);
        assert_eq!(rejected.limit, limit);
    }
    nothing_happened(&cluster).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn an_id_used_for_another_call_is_a_conflict() {
    let cluster = start_with_target(1).await;
    let mut leader = admission(&cluster, leader(&cluster));
    leader.admit(ask("job")).await.unwrap();
    let before = used(&cluster).await;
    let others = [
        wire::AdmitRequest {
            cost: units(&[("requests", 2)]),
            ask: 2,
            ..ask("job")
        },
        wire::AdmitRequest {
            priority: "low".into(),
            ask: 2,
            ..ask("job")
        },
        wire::AdmitRequest {
            labels: [("model".to_owned(), "other".to_owned())].into(),
            ask: 2,
            ..ask("job")
        },
    ];
    for other in others {
        let answer = leader.admit(other).await.unwrap().into_inner();
        let Some(Decision::Rejected(rejected)) = &answer.decision else {
            panic!("{answer:?}")
        };
        assert_eq!(rejected.reason(), wire::RejectReason::IdConflict);
    }
    assert_eq!(used(&cluster).await, before);
    cluster.shutdown().await;
}

/// What is wrong with a release, the reason and the field told.
#[rustfmt::skip]
const WRONG_RELEASES: &[(Change<wire::ReleaseRequest>, Reason, &str)] = &[
    (|r| r.grant = None, Reason::Malformed, "grant"),
    (|r| r.grant = Some(wire::Grant { shard: 99, index: 1, offset: 0 }), Reason::Malformed, "grant.shard"),
    (|r| if let Some(grant) = &mut r.grant { grant.index = 0 }, Reason::Malformed, "grant.index"),
    (|r| r.outcome = 99, Reason::Malformed, "outcome"),
    (|r| r.outcome = 0, Reason::Malformed, "outcome"),
    (|r| r.actual = units(&[("tokens", u64::MAX)]), Reason::Malformed, "actual[\"tokens\"]"),
];

#[tokio::test]
async fn wrong_ends_of_grants_change_nothing() {
    let cluster = start_with_target(1).await;
    let mut leader = admission(&cluster, leader(&cluster));
    let answer = leader.admit(ask("job")).await.unwrap().into_inner();
    let grant = admitted(&answer).grant.unwrap();
    let before = used(&cluster).await;

    let unknown = wire::Grant {
        index: grant.index + 1_000,
        ..grant
    };
    let answer = leader.release(release(unknown)).await.unwrap().into_inner();
    assert_eq!(answer.status(), wire::ReleaseStatus::Unknown);
    for (number, (change, wanted, field)) in WRONG_RELEASES.iter().enumerate() {
        let mut wrong = release(grant);
        change(&mut wrong);
        let refused = error(&leader.release(wrong).await.unwrap_err());
        assert_eq!(refused.reason, *wanted, "case {number}: {refused}");
        let told: Vec<&str> = refused
            .violations
            .iter()
            .map(|v| v.field.as_str())
            .collect();
        assert_eq!(told, [*field], "case {number}: {refused}");
    }
    assert_eq!(used(&cluster).await, before);
    assert_eq!(target(&cluster).await.grants, 1);
    cluster.shutdown().await;
}

/// What is wrong with a policy, and the fields told.
#[rustfmt::skip]
const WRONG_POLICIES: &[(Change<wire::Policy>, &[&str])] = &[
    (|p| p.limits.clear(), &["policy.limits"]),
    (|p| p.priorities.clear(), &["policy.priorities"]),
    (|p| p.priorities[0].weight = 0, &["policy.priorities[0].weight"]),
    (|p| p.priorities[1].weight = 10_001, &["policy.priorities[1].weight"]),
    (|p| p.priorities[1].name = "high".into(), &["policy.priorities[1].name"]),
    (|p| p.limits[1].name = "requests".into(), &["policy.limits[1].name"]),
    (|p| p.limits[0].name = String::new(), &["policy.limits[0].name"]),
    (|p| p.limits[0].cap = u64::MAX, &["policy.limits[0].cap"]),
    (|p| (p.limits[0].per_us, p.limits[0].burst_us) = (999_999, None), &["policy.limits[0].per_us"]),
    (|p| p.limits[0].burst_us = Some(60_000_001), &["policy.limits[0].burst_us"]),
    (|p| p.limits[0].kind = 77, &["policy.limits[0].kind"]),
    (|p| p.tenant_weights = [("acme".to_owned(), 0)].into(), &["policy.tenant_weights[\"acme\"]"]),
    (|p| p.default_tenant_weight = 10_001, &["policy.default_tenant_weight"]),
    (|p| p.horizon_us = 999, &["policy.horizon_us"]),
    (|p| (p.limits[0].cap, p.priorities[0].weight) = (u64::MAX, 0), &["policy.limits[0].cap", "policy.priorities[0].weight"]),
];

#[tokio::test]
async fn wrong_policies_are_refused_and_the_old_one_stays() {
    let cluster = start_with_target(1).await;
    let mut leader = targets(&cluster, leader(&cluster));
    let before = target(&cluster).await;
    let put = |policy| wire::PutTargetRequest {
        target: TARGET.into(),
        policy,
        expected_version: None,
    };
    for (number, (change, fields)) in WRONG_POLICIES.iter().enumerate() {
        let mut wrong = policy();
        change(&mut wrong);
        let refused = error(&leader.put_target(put(Some(wrong))).await.unwrap_err());
        assert_eq!(
            refused.reason,
            Reason::Malformed,
            "case {number}: {refused}"
        );
        let told: Vec<&str> = refused
            .violations
            .iter()
            .map(|v| v.field.as_str())
            .collect();
        assert_eq!(told, *fields, "case {number}: {refused}");
    }
    let refused = error(&leader.put_target(put(None)).await.unwrap_err());
    assert_eq!(refused.reason, Reason::Malformed);
    assert_eq!(target(&cluster).await, before);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_cap_of_zero_closes_the_target() {
    let cluster = start_with_target(1).await;
    let mut closed = policy();
    closed.limits[0].cap = 0;
    let put = wire::PutTargetRequest {
        target: TARGET.into(),
        policy: Some(closed),
        expected_version: None,
    };
    targets(&cluster, leader(&cluster))
        .put_target(put)
        .await
        .unwrap();
    let answer = admission(&cluster, leader(&cluster))
        .admit(ask("job"))
        .await
        .unwrap();
    let answer = answer.into_inner();
    let Some(Decision::Rejected(rejected)) = &answer.decision else {
        panic!("{answer:?}")
    };
    assert_eq!(rejected.reason(), wire::RejectReason::NeverFits);
    cluster.shutdown().await;
}

#[tokio::test]
async fn versions_are_compared_before_they_are_replaced() {
    let cluster = start_with_target(1).await;
    let mut leader = targets(&cluster, leader(&cluster));
    let put = |expected_version| wire::PutTargetRequest {
        target: TARGET.into(),
        policy: Some(policy()),
        expected_version,
    };
    let version = leader.put_target(put(None)).await.unwrap().into_inner();
    assert!(!version.changed, "the same policy again");
    for wrong in [0, version.version + 1] {
        let refused = error(&leader.put_target(put(Some(wrong))).await.unwrap_err());
        assert_eq!(refused.reason, Reason::VersionConflict);
        assert_eq!(refused.version, Some(version.version));
    }
    let delete = wire::DeleteTargetRequest {
        target: TARGET.into(),
        expected_version: Some(version.version + 1),
    };
    let refused = error(&leader.delete_target(delete).await.unwrap_err());
    assert_eq!(refused.reason, Reason::VersionConflict);
    let delete = wire::DeleteTargetRequest {
        target: TARGET.into(),
        expected_version: None,
    };
    leader.delete_target(delete).await.unwrap();
    let get = wire::GetTargetRequest {
        target: TARGET.into(),
    };
    assert_eq!(
        reason(&leader.get_target(get).await.unwrap_err()),
        Reason::TargetUnknown
    );
    cluster.shutdown().await;
}

/// Sends bytes as they are, as another program would.
#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

async fn send_raw(cluster: &Cluster, path: &'static str, bytes: Bytes) -> Result<Bytes, Status> {
    let mut client = tonic::client::Grpc::new(channel(cluster, leader(cluster)));
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(path);
    let answer = client.unary(tonic::Request::new(bytes), path, Raw).await?;
    Ok(answer.into_inner())
}

#[tokio::test]
async fn garbage_and_oversized_messages_are_refused() {
    const ADMIT: &str = "/weir.v1.AdmissionService/Admit";
    let cluster = start_with_target(1).await;
    let garbage = send_raw(&cluster, ADMIT, Bytes::from_static(b"\xff\xff\xff\xff")).await;
    assert_eq!(garbage.unwrap_err().code(), Code::Internal);
    // A field of 4 GB that is not there.
    let claims = Bytes::from_static(b"\x0a\xff\xff\xff\xff\x0fx");
    assert_eq!(
        send_raw(&cluster, ADMIT, claims).await.unwrap_err().code(),
        Code::Internal
    );
    let not_utf8 = Bytes::from_static(b"\x0a\x02\xff\xfe");
    assert_eq!(
        send_raw(&cluster, ADMIT, not_utf8)
            .await
            .unwrap_err()
            .code(),
        Code::Internal
    );
    let empty = send_raw(&cluster, ADMIT, Bytes::new()).await.unwrap_err();
    assert_eq!(reason(&empty), Reason::Malformed);
    let oversized = Bytes::from(vec![0x0a; 65 * 1024]);
    let refused = send_raw(&cluster, ADMIT, oversized).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    let nowhere = send_raw(&cluster, "/weir.v1.AdmissionService/Nothing", Bytes::new()).await;
    assert_eq!(nowhere.unwrap_err().code(), Code::Unimplemented);
    nothing_happened(&cluster).await;
    serves_on(cluster).await;
}

#[tokio::test]
async fn other_protocols_do_not_disturb() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let cluster = start_with_target(1).await;
    let address = cluster.client_addresses().remove(0);
    for noise in [
        &b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01",
        b"\0\0\0",
    ] {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        stream.write_all(noise).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // Whatever it says, the node closes the connection.
        let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        assert!(closed.is_ok(), "{noise:?}");
    }
    serves_on(cluster).await;
}

#[tokio::test]
async fn an_ask_whose_deadline_passed_is_not_charged() {
    let cluster = start_with_target(1).await;
    let mut leader = admission(&cluster, leader(&cluster));
    for number in 0..20 {
        let mut late = tonic::Request::new(ask(&format!("late-{number}")));
        late.metadata_mut()
            .insert("grpc-timeout", "1n".parse().unwrap());
        let begun = Instant::now();
        let refused = leader.admit(late).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_millis(500), "{refused:?}");
        assert!(
            matches!(refused.code(), Code::DeadlineExceeded | Code::Cancelled),
            "{refused:?}"
        );
    }
    nothing_happened(&cluster).await;
    cluster.shutdown().await;
}
