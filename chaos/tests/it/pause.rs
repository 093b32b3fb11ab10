//! The leader stands still for longer than its lease, and goes on as if nothing had happened.

use crate::rig::{Rig, TARGET, one_request, served};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};
use weir_client::wire::admission_service_client::AdmissionServiceClient;
use weir_client::wire::targets_service_client::TargetsServiceClient;
use weir_client::wire::{AdmitRequest, GetTargetRequest};
use weir_client::{Answer, Call, Client, Mode, Options};

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

/// A call decides this long after its deadline at the latest, on a busy machine.
const LATE_MAX: Duration = Duration::from_millis(500);
/// After the outage everything is as before within this.
const NORMAL_WITHIN: Duration = Duration::from_secs(5);

#[tokio::test]
async fn when_all_nodes_stand_still_each_call_decides_in_time() {
    let rig = Rig::start(1_000, Duration::from_secs(2)).await;
    let options = Options::new(rig.cluster.addresses())
        .mode(Mode::Open)
        .ungated_after(Duration::from_millis(100));
    let client = Client::new(options).unwrap();
    let call = |id: String| {
        Call::new(TARGET, "acme", "interactive")
            .id(id)
            .cost("requests", 1)
            .deadline(DEADLINE)
    };
    let before = client.try_admit(&call("before".into()), None).await;
    assert!(before.is_ok_and(|answer| !is_ungated(&answer)));
    for id in rig.cluster.ids() {
        rig.cluster.node(id).unwrap().pause().unwrap();
    }
    let mut calls = JoinSet::new();
    for number in 0..50 {
        let (client, call) = (client.clone(), call(format!("during.{number}")));
        calls.spawn(async move {
            let begun = Instant::now();
            let answer = client.try_admit(&call, None).await;
            (
                begun.elapsed(),
                answer.is_ok_and(|answer| is_ungated(&answer)),
            )
        });
    }
    let decided = calls.join_all().await;
    let slowest = decided.iter().map(|(took, _)| *took).max().unwrap();
    let ungated = decided.iter().filter(|(_, ungated)| *ungated).count();
    println!(
        "{ungated} of {} let through; the slowest took {slowest:?}",
        decided.len()
    );
    assert!(slowest < DEADLINE + LATE_MAX, "{slowest:?}");
    for id in rig.cluster.ids() {
        rig.cluster.node(id).unwrap().resume().unwrap();
    }
    let until = Instant::now() + NORMAL_WITHIN;
    for number in 0.. {
        match client
            .try_admit(&call(format!("after.{number}")), None)
            .await
        {
            Ok(Answer::Admitted(guard)) if !guard.is_ungated() => break,
            answer => assert!(Instant::now() < until, "{answer:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// What a call of the test may take.
const DEADLINE: Duration = Duration::from_millis(200);

fn is_ungated(answer: &Answer) -> bool {
    matches!(answer, Answer::Admitted(guard) if guard.is_ungated())
}
