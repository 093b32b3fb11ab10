//! A client finds the leader, whatever it was told and whatever happens to it.

use super::fake::{Fake, NODES, address};
use super::net::Link;
use std::time::Duration;
use tokio::time::Instant;
use weir_client::{Answer, Call, Client, Error, Options};

fn call() -> Call {
    Call::new("openai/gpt-5", "acme", "p1").cost("requests", 1)
}

async fn admitted(client: &Client) {
    let guard = client.admit_wait(&call()).await.unwrap();
    assert!(!guard.is_ungated());
    guard.not_sent().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_whole_cluster_is_learnt_from_any_seed() {
    for seed in NODES {
        for leader in 1..=3 {
            let fake = Fake::start();
            fake.world().leader = Some(leader);
            let options = Options::new([seed]).connector(fake.net.connector());
            let client = Client::new(options).unwrap();
            admitted(&client).await;
            assert_eq!(fake.world().turned_away, 0, "the routes name the leader");
            assert_eq!(client.stats().asks, 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dead_seeds_are_passed_over() {
    let fake = Fake::start();
    fake.net.set(address(2), Link::Dead);
    fake.net.set(address(3), Link::Hung);
    let seeds = [address(2), address(3), address(1)];
    let client = Client::new(Options::new(seeds).connector(fake.net.connector())).unwrap();
    admitted(&client).await;
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_followed_at_once() {
    let fake = Fake::start();
    let client = fake.client();
    admitted(&client).await;
    fake.elect(3);
    let started = Instant::now();
    admitted(&client).await;
    assert!(
        started.elapsed() < Duration::from_millis(5),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(fake.world().turned_away, 1);
    admitted(&client).await;
    assert_eq!(fake.world().turned_away, 1, "the leader is remembered");
}

#[tokio::test(start_paused = true)]
async fn nodes_that_name_each_other_make_no_hot_loop() {
    let fake = Fake::start();
    let client = fake.client();
    admitted(&client).await;
    {
        // Node 1 believes in 2, the others in 1: nobody leads.
        let mut world = fake.world();
        world.leader = None;
        world.believed = Some(1);
    }
    let answer = client.try_admit(&call(), None).await.unwrap();
    assert!(matches!(answer, Answer::Deferred(deferral) if deferral.is_local()));
    let turned_away = fake.world().turned_away;
    assert!(
        (4..=24).contains(&turned_away),
        "{turned_away} requests in half a second"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_leaders_successor_is_found_although_followers_name_the_dead() {
    let fake = Fake::start();
    let client = fake.client();
    admitted(&client).await;
    let dead = fake.kill_leader();
    assert_eq!(dead, 1);
    let waiting = tokio::spawn({
        let client = client.clone();
        async move {
            admitted(&client).await;
            Instant::now()
        }
    });
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    fake.elect(3);
    let elected = Instant::now();
    let found = waiting.await.unwrap();
    assert!(
        found - elected < Duration::from_millis(900),
        "{:?}",
        found - elected
    );
    assert_eq!(client.stats().outages, 0, "a failover is no outage");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_hangs_is_left_for_its_successor() {
    let fake = Fake::start();
    let client = fake.client();
    admitted(&client).await;
    fake.net.set(address(1), Link::Hung);
    fake.world().believed = Some(1);
    fake.world().leader = None;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { admitted(&client).await }
    });
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    fake.elect(2);
    tokio::time::timeout(Duration::from_millis(900), waiting)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_routes_of_another_cluster_are_refused() {
    let fake = Fake::start();
    let client = fake.client();
    admitted(&client).await;
    fake.world().cluster_id = "another".into();
    match client.list_targets().await {
        Err(Error::Internal { message }) => assert!(message.contains("another"), "{message}"),
        other => panic!("{other:?}"),
    }
    admitted(&client).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_needs_no_cluster_to_be_made_and_finds_it_later() {
    let fake = Fake::start();
    fake.net.set_all(Link::Dead);
    let client = fake.client();
    let answer = client.try_admit(&call(), None).await.unwrap();
    assert!(matches!(answer, Answer::Deferred(deferral) if deferral.is_local()));
    fake.net.set_all(Link::Up);
    admitted(&client).await;
}
