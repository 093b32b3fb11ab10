//! Frames, answers and ends, one step after the other.

use super::*;
use proptest::prelude::*;
use weir_proto::error::{Reason, WireError};
use weir_proto::v1::{CancelRequest, CancelResponse, ExtendRequest};

fn operation(bytes: usize) -> Operation {
    Operation::Cancel(CancelRequest {
        admission_id: "x".repeat(bytes),
        ..CancelRequest::default()
    })
}

fn until() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

fn open(in_flight: u32) -> Lane {
    let mut lane = Lane::new();
    let limits = SessionLimits {
        frame_operations: 256,
        frame_bytes: 256 * 1024,
        operations_in_flight: in_flight,
        idle_timeout_us: 0,
    };
    lane.opened(&limits, Instant::now());
    lane
}

type Answered = oneshot::Receiver<Reply>;

fn push(lane: &mut Lane, count: usize) -> Vec<(u64, Answered)> {
    let pushed = (0..count).map(|_| lane.push(operation(1), until()).unwrap());
    pushed.collect()
}

fn frame(lane: &mut Lane) -> Vec<u64> {
    let frame = lane.next_frame(Instant::now());
    let operations = frame.map_or_else(Vec::new, |frame| frame.operations);
    operations.iter().map(|it| it.sequence).collect()
}

fn answer(sequence: u64) -> SessionAnswer {
    SessionAnswer {
        sequence,
        answer: Some(Answer::Cancel(CancelResponse::default())),
    }
}

fn failure(answered: &mut Answered) -> Failure {
    match answered.try_recv().unwrap() {
        Err(Unheard::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_sent_before_the_node_said_hello() {
    let mut lane = Lane::new();
    let _waiting = push(&mut lane, 2);
    assert_eq!(frame(&mut lane), [0; 0]);
    lane.opened(&SessionLimits::default(), Instant::now());
    // A node that allows nothing is not believed.
    assert_eq!(frame(&mut lane), [1]);
}

#[test]
fn frames_hold_what_waits_up_to_their_bounds() {
    let mut lane = open(10_000);
    let _waiting = push(&mut lane, 300);
    let first = frame(&mut lane);
    assert_eq!(
        (first.len(), first.first(), first.last()),
        (256, Some(&1), Some(&256))
    );
    assert_eq!(frame(&mut lane).len(), 44);
    assert_eq!(frame(&mut lane), [0; 0]);
    let large: Vec<_> = (0..3)
        .map(|_| lane.push(operation(100 * 1024), until()).unwrap())
        .collect();
    assert_eq!(frame(&mut lane).len(), 2, "a third one is too much");
    assert_eq!(frame(&mut lane).len(), 1);
    drop(large);
    // What is too large for any frame goes alone, and the node says what is wrong with it.
    let _huge = lane.push(operation(300 * 1024), until()).unwrap();
    assert_eq!(frame(&mut lane).len(), 1);
}

#[test]
fn what_nobody_waits_for_is_not_sent() {
    let mut lane = open(100);
    let mut waiting = push(&mut lane, 4);
    drop(waiting.remove(0));
    drop(waiting.remove(1));
    assert_eq!(frame(&mut lane), [2, 4]);
}

#[test]
fn the_node_sees_no_more_at_once_than_it_allows() {
    let mut lane = open(3);
    let mut waiting = push(&mut lane, 5);
    assert_eq!(frame(&mut lane), [1, 2, 3]);
    // Who waits no longer still counts: the node has not answered yet.
    drop(waiting.remove(0));
    assert_eq!(frame(&mut lane), [0; 0]);
    lane.answered(vec![answer(1), answer(3), answer(99)], Instant::now());
    assert_eq!(frame(&mut lane), [4, 5]);
    assert!(waiting.remove(1).1.try_recv().unwrap().is_ok());
}

#[test]
fn a_crowd_waits_for_room_for_half_a_frame() {
    let mut lane = open(8);
    let _waiting = push(&mut lane, 20);
    assert_eq!(frame(&mut lane), [1, 2, 3, 4, 5, 6, 7, 8]);
    for sequence in 1..=3 {
        lane.answered(vec![answer(sequence)], Instant::now());
        assert_eq!(frame(&mut lane), [0; 0], "after answer {sequence}");
    }
    lane.answered(vec![answer(4)], Instant::now());
    assert_eq!(frame(&mut lane), [9, 10, 11, 12]);
}

#[test]
fn who_finds_room_for_all_that_waits_goes_at_once() {
    let mut lane = open(8);
    let _flying = push(&mut lane, 7);
    assert_eq!(frame(&mut lane).len(), 7);
    let _last = push(&mut lane, 1);
    assert_eq!(frame(&mut lane), [8]);
}

#[test]
fn an_answer_tells_when_its_operation_was_handed_over() {
    let mut lane = open(100);
    let (_, mut answered) = lane.push(operation(1), until()).unwrap();
    let handed_at = Instant::now() + Duration::from_millis(7);
    lane.next_frame(handed_at).unwrap();
    lane.answered(vec![answer(1)], handed_at + Duration::from_millis(5));
    assert_eq!(answered.try_recv().unwrap().unwrap().handed_at, handed_at);
}

#[test]
fn an_error_is_what_it_is_in_a_unary_call() {
    let mut lane = open(100);
    let (_, mut answered) = lane.push(operation(1), until()).unwrap();
    frame(&mut lane);
    let error = WireError::new(Reason::Overloaded, "x").retry_after(Duration::from_millis(9));
    let told = SessionAnswer {
        sequence: 1,
        answer: Some(Answer::Error(error.clone().to_session())),
    };
    lane.answered(vec![told], Instant::now());
    assert_eq!(failure(&mut answered), Failure::of(&error.to_status()));
}

#[test]
fn a_broken_session_says_what_may_have_happened() {
    let mut lane = open(1);
    let mut waiting = push(&mut lane, 2);
    assert_eq!(frame(&mut lane), [1]);
    let unsent = Failure::unsendable("gone".into());
    lane.end(Unheard::Failed(unsent.clone()), "broken");
    let handed = failure(&mut waiting[0].1);
    assert!(
        handed.may_have_happened() && handed.is_silence(),
        "{handed:?}"
    );
    // The node is blamed once.
    let again = Unheard::Failed(unsent).again();
    assert_eq!(waiting[1].1.try_recv().unwrap().unwrap_err(), again);
    assert_eq!(lane.push(operation(1), until()).unwrap_err(), again);
}

#[test]
fn a_reader_that_was_cut_off_does_not_take_its_asks_for_refused() {
    let mut lane = open(1);
    let mut waiting = push(&mut lane, 1);
    frame(&mut lane);
    let overloaded = Failure::Overloaded { retry_in: None };
    lane.end(Unheard::Failed(overloaded), "cut off");
    assert!(failure(&mut waiting[0].1).may_have_happened());
}

#[test]
fn a_refused_credential_is_no_outage() {
    let mut lane = open(1);
    let mut waiting = push(&mut lane, 2);
    frame(&mut lane);
    let denied = Failure::of(&tonic::Status::unauthenticated("who?"));
    lane.end(Unheard::Failed(denied.clone()), "denied");
    for (_, answered) in &mut waiting {
        assert_eq!(failure(answered), denied);
    }
}

#[test]
fn a_goodbye_says_what_was_not_taken_up() {
    let mut lane = open(100);
    let mut waiting = push(&mut lane, 3);
    frame(&mut lane);
    let mut queued = push(&mut lane, 1);
    let stopping = Failure::NotLeader { hint: None };
    lane.answered(vec![answer(1)], Instant::now());
    lane.goodbye(2, &stopping);
    assert!(waiting[0].1.try_recv().unwrap().is_ok());
    assert!(failure(&mut waiting[1].1).may_have_happened());
    assert_eq!(failure(&mut waiting[2].1), stopping);
    assert_eq!(failure(&mut queued[0].1), stopping);
}

#[test]
fn whose_patience_ended_knows_whether_it_was_sent() {
    let mut lane = Lane::new();
    let since = Instant::now();
    let _waiting = push(&mut lane, 2);
    assert_eq!(lane.stage(1, since), Stage::Unsent);
    let limits = SessionLimits {
        operations_in_flight: 1,
        frame_operations: 256,
        frame_bytes: 1 << 20,
        idle_timeout_us: 0,
    };
    lane.opened(&limits, since);
    let handed = Instant::now();
    lane.next_frame(handed).unwrap();
    let later = since + Duration::from_millis(1);
    assert_eq!(
        (lane.stage(1, later), lane.stage(2, later)),
        (Stage::Handed(handed), Stage::Unsent)
    );
    lane.answered(Vec::new(), later);
    assert_eq!(lane.stage(2, later), Stage::Crowded);
}

#[test]
fn a_retired_session_ends_with_its_last_call() {
    let mut lane = open(100);
    let _waiting = push(&mut lane, 2);
    assert!(!lane.retire());
    assert!(!lane.call_ended());
    assert!(lane.call_ended());
    assert!(open(1).retire());
}

#[test]
fn the_queue_is_bounded() {
    let mut lane = Lane::new();
    let waiting = push(&mut lane, SESSION_QUEUE_MAX);
    let full = lane.push(operation(1), until()).unwrap_err();
    assert_eq!(full, Unheard::Failed(Failure::not_taken_up()));
    drop(waiting);
}

proptest! {
    /// Whatever happens in whatever order: everybody gets one reply, and sequences rise.
    #[test]
    fn every_operation_is_replied_to(steps in prop::collection::vec(0..5_u8, 0..80), limit in 1..9_u32) {
        let mut lane = open(limit);
        let mut waiting = Vec::new();
        let (mut sent, mut answered) = (Vec::new(), 0);
        for step in steps {
            match step {
                0 | 1 => waiting.push(lane.push(Operation::Extend(ExtendRequest::default()), until()).unwrap()),
                2 => sent.extend(frame(&mut lane)),
                3 if answered < sent.len() => {
                    lane.answered(vec![answer(sent[answered])], Instant::now());
                    answered += 1;
                }
                _ => {}
            }
            prop_assert!(sent.len() - answered <= limit as usize);
        }
        prop_assert!(sent.is_sorted());
        lane.end(Unheard::Failed(Failure::unread()), "over");
        let replies: Vec<_> = waiting.iter_mut().map(|(_, it)| it.try_recv()).collect();
        prop_assert!(replies.iter().all(Result::is_ok));
        prop_assert_eq!(replies.iter().filter(|it| matches!(it, Ok(Ok(_)))).count(), answered);
    }
}
