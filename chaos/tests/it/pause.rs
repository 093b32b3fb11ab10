//! The leader stands still for longer than its lease, and goes on as if nothing had happened.

use crate::rig::{Rig, TARGET, one_request, served};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};
use weir_client::wire::admission_service_client::AdmissionServiceClient;
use weir_client::wire::targets_service_client::TargetsServiceClient;
use weir_client::wire::{AdmitRequest, GetTargetRequest};

const PAUSE: Duration = Duration::from_secs(5);
/// Longest time without any answer around the pause, which outlasts it.
const SILENCE_MAX_US: u64 = 2_500_000;

#[tokio::test]
async fn a_paused_leader_is_replaced_and_answers_nothing_stale_when_it_wakes() {
    let mut rig = Rig::start(40, Duration::from_secs(2)).await;
    let load = rig.load();
    sleep(Duration::from_secs(2)).await;

    let leader = rig.cluster.leader(TARGET).await.unwrap();
    let channel = connect(&rig.cluster.address(leader)).await;
    let paused_us = rig.recorder.now_us();
    rig.cluster.node(leader).unwrap().pause().unwrap();
    // They lie in its socket while it stands still, and are the first that it reads.
    let questions = ask(&channel);
    sleep(PAUSE).await;
    let resumed_us = rig.recorder.now_us();
    rig.cluster.node(leader).unwrap().resume().unwrap();

    for status in questions.join_all().await {
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    }
    sleep(Duration::from_secs(2)).await;
    load.finish().await;
    rig.cluster.wait_until_whole().await.unwrap();
    let history = rig.judge().await;

    let (at_us, silence_us) = history.longest_silence_us(paused_us, resumed_us);
    println!(
        "silent for {} ms, {} ms after the fault",
        silence_us / 1_000,
        (at_us - paused_us) / 1_000
    );
    assert!(
        silence_us < SILENCE_MAX_US,
        "{silence_us} us without an answer"
    );
    assert!(
        served(&history, paused_us, resumed_us) > 0,
        "served while the old leader stood still"
    );
}

async fn connect(address: &str) -> Channel {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"));
    endpoint.unwrap().connect().await.unwrap()
}

/// Reads and trial asks, each of which a leader would answer from its state.
fn ask(channel: &Channel) -> JoinSet<Status> {
    let mut questions = JoinSet::new();
    for number in 1..=8 {
        let mut admission = AdmissionServiceClient::new(channel.clone());
        let mut targets = TargetsServiceClient::new(channel.clone());
        questions.spawn(async move {
            let request = AdmitRequest {
                target: TARGET.into(),
                tenant: "acme".into(),
                priority: "bulk".into(),
                admission_id: format!("late.{number}"),
                attempt: number,
                ask: 1,
                cost: one_request(),
                dry_run: true,
                ..AdmitRequest::default()
            };
            refusal(admission.admit(request)).await
        });
        questions.spawn(async move {
            refusal(targets.get_target(GetTargetRequest {
                target: TARGET.into(),
            }))
            .await
        });
    }
    questions
}

/// The status of an answer that must be none.
async fn refusal<T: std::fmt::Debug>(
    answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Status {
    let answer = timeout(PAUSE * 3, answer)
        .await
        .expect("an answer after the pause");
    answer.expect_err("a node that no longer leads must not answer")
}
