//! One session for all callers of a client.

use super::fake::{Act, Fake, address, admit, numbers};
use super::net::Link;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::Status;
use weir_client::{Call, Client, Transport};
use weir_proto::v1::session_response::Message;
use weir_proto::v1::{Goodbye, GoodbyeReason};

fn call() -> Call {
    Call::new("openai/gpt-5", "acme", "p1").cost("requests", 1)
}

async fn admit_many(client: &Client, count: usize) {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let client = client.clone();
        calls.spawn(async move { client.admit_wait(&call()).await });
    }
    while let Some(guard) = calls.join_next().await {
        assert!(!guard.unwrap().unwrap().is_ungated());
    }
}

#[tokio::test(start_paused = true)]
async fn callers_share_a_session_and_its_frames() {
    let fake = Fake::start();
    let client = fake.client();
    admit_many(&client, 1).await;
    admit_many(&client, 600).await;
    let world = fake.world();
    assert_eq!(world.asks.len(), 601);
    let leader: Vec<_> = world.sessions.iter().filter(|it| it.node == 1).collect();
    assert_eq!(leader.len(), 1, "one session with the leader");
    let frames = &leader[0].frames;
    assert_eq!(frames[0], 1, "the first one goes at once: {frames:?}");
    assert_eq!(frames.iter().max(), Some(&256), "{frames:?}");
    assert!(frames.len() < 60, "{frames:?}");
}

#[tokio::test(start_paused = true)]
async fn thousands_of_callers_share_one_session() {
    let fake = Fake::start();
    let client = fake.client();
    admit_many(&client, 2_000).await;
    let stats = client.stats();
    assert_eq!(stats.admitted, 2_000, "{stats:?}");
    assert_eq!(stats.ungated_open + stats.deferred_locally, 0, "{stats:?}");
    let world = fake.world();
    assert_eq!(world.sessions.iter().filter(|it| it.node == 1).count(), 1);
    assert_eq!(world.asks.len(), 2_000);
}

#[tokio::test(start_paused = true)]
async fn no_more_is_in_flight_than_the_node_allows() {
    let fake = Fake::start();
    fake.world().in_flight = 7;
    fake.script(|_| Act::Late(Duration::from_millis(1), Box::new(admit())));
    let client = fake.client();
    admit_many(&client, 100).await;
    let world = fake.world();
    let frames = world.sessions.iter().flat_map(|it| &it.frames);
    assert!(frames.clone().all(|count| *count <= 7));
    assert_eq!(world.asks.len(), 100, "nothing was asked twice");
}

#[tokio::test(start_paused = true)]
async fn the_client_rule_counts_from_the_frame_not_from_the_queue() {
    let fake = Fake::start();
    // One at a time, 40 ms each, with a reply window of 100 ms: the third waits for 80 ms before it is
    // sent, and its answer is 40 ms old all the same.
    fake.world().in_flight = 1;
    fake.script(|_| Act::Late(Duration::from_millis(40), Box::new(admit())));
    let client = fake.client();
    admit_many(&client, 4).await;
    let stats = client.stats();
    assert_eq!((stats.admitted, stats.late_answers), (4, 0), "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_get_into_a_busy_session_blames_nobody() {
    let fake = Fake::start();
    fake.world().in_flight = 1;
    fake.script(|_| Act::Late(Duration::from_millis(30), Box::new(admit())));
    let client = fake.client();
    admit_many(&client, 30).await;
    let world = fake.world();
    assert!(world.sessions.iter().all(|it| it.node == 1), "the leader was kept");
    assert_eq!(world.sessions.len(), 1, "its session was kept");
    drop(world);
    assert_eq!(client.stats().outages, 0);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_know_no_sessions_are_asked_by_unary_calls() {
    let fake = Fake::start_without_sessions();
    let client = fake.client();
    admit_many(&client, 50).await;
    assert_eq!(numbers(&fake.world().asks), [1; 50]);
    assert!(fake.world().asks.iter().all(|ask| !ask.wake));
}

#[tokio::test(start_paused = true)]
async fn a_client_may_be_told_to_make_unary_calls() {
    let fake = Fake::start();
    let client = Client::new(fake.options().transport(Transport::Unary)).unwrap();
    admit_many(&client, 10).await;
    let world = fake.world();
    assert_eq!((world.sessions.len(), world.asks.len()), (0, 10));
    assert!(world.asks.iter().all(|ask| !ask.wake));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_breaks_leaves_its_calls_unknown_and_they_go_on() {
    let fake = Fake::start();
    fake.script(|ask| {
        if ask.ask == 1 {
            Act::Silent(Box::new(admit()))
        } else {
            admit()
        }
    });
    let client = fake.client();
    let calls = tokio::spawn({
        let client = client.clone();
        async move { admit_many(&client, 50).await }
    });
    while fake.world().asks.len() < 50 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let begun = Instant::now();
    for session in &fake.world().sessions {
        session.end(Status::unavailable("the node went away"));
    }
    calls.await.unwrap();
    // Nobody waited for the timeout of a try.
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    let world = fake.world();
    assert_eq!(world.held.len(), 50, "one grant for each call");
    // The next session with the leader was opened once for all.
    let leader = world.sessions.iter().filter(|it| it.node == 1).count();
    assert_eq!(leader, 2);
}

#[tokio::test(start_paused = true)]
async fn a_goodbye_moves_calls_to_another_node() {
    let fake = Fake::start();
    let client = fake.client();
    admit_many(&client, 1).await;
    fake.elect(2);
    for session in &fake.world().sessions {
        session.say(Message::Goodbye(Goodbye {
            reason: GoodbyeReason::Stopping.into(),
            last_sequence: 1,
        }));
    }
    admit_many(&client, 20).await;
    let stats = client.stats();
    assert_eq!((stats.admitted, stats.outages), (21, 0), "{stats:?}");
    assert_eq!(fake.world().asks.len(), 21, "nothing was asked twice");
}

#[tokio::test(start_paused = true)]
async fn an_idle_goodbye_is_followed_by_another_session() {
    let fake = Fake::start();
    let client = fake.client();
    admit_many(&client, 1).await;
    let opened = fake.world().sessions.len();
    for session in &fake.world().sessions {
        session.say(Message::Goodbye(Goodbye {
            reason: GoodbyeReason::Idle.into(),
            last_sequence: 1,
        }));
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    admit_many(&client, 5).await;
    assert_eq!(fake.world().sessions.len(), opened + 1);
    assert_eq!(numbers(&fake.world().asks), [1; 6]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_is_not_tried_without_a_pause() {
    let fake = Fake::start();
    fake.net.set_all(Link::Dead);
    let client = fake.client();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        let _ = client.try_admit(&call(), None).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fake.net.set(address(1), Link::Up);
    fake.net.set(address(2), Link::Up);
    fake.net.set(address(3), Link::Up);
    tokio::time::sleep(Duration::from_secs(3)).await;
    admit_many(&client, 5).await;
}
