//! What operators ask.

use super::fake::{Fake, NODES, SHARDS, address};
use super::net::Link;
use std::time::Duration;
use weir_client::wire::{ExplainRequest, Policy};
use weir_client::{Client, Error, Options};

/// One try that was given up, and what it takes to find the next leader.
const SOON: Duration = Duration::from_millis(1_500);

#[tokio::test(start_paused = true)]
async fn targets_are_put_read_listed_and_deleted_through_any_seed() {
    let fake = Fake::start();
    let client = Client::new(Options::new([NODES[2]]).connector(fake.net.connector())).unwrap();
    let put = client
        .put_target("a/x", Policy::default(), Some(0))
        .await
        .unwrap();
    assert_eq!((put.version, put.changed), (1, true));
    client
        .put_target("b/y", Policy::default(), None)
        .await
        .unwrap();
    let conflict = client
        .put_target("a/x", Policy::default(), Some(0))
        .await
        .unwrap_err();
    assert!(
        matches!(conflict, Error::Conflict { version: 1, .. }),
        "{conflict:?}"
    );
    assert_eq!(client.get_target("a/x").await.unwrap().version, 1);
    let versions = client.list_versions("a/x").await.unwrap();
    assert_eq!(versions.len(), 1, "{versions:?}");
    let ask = ExplainRequest {
        target: "a/x".into(),
        ..ExplainRequest::default()
    };
    client.explain(ask).await.unwrap();
    let list = client.list_targets().await.unwrap();
    let names: Vec<&str> = list
        .targets
        .iter()
        .map(|target| target.name.as_str())
        .collect();
    assert_eq!(
        (names.as_slice(), list.missing_shards.as_slice()),
        (["a/x", "b/y"].as_slice(), [].as_slice())
    );
    client.delete_target("a/x", None).await.unwrap();
    let unknown = client.get_target("a/x").await.unwrap_err();
    assert_eq!(
        unknown,
        Error::TargetUnknown {
            target: "a/x".into()
        }
    );
    assert!(matches!(
        client.get_target("").await,
        Err(Error::Invalid { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_list_says_which_shards_are_missing() {
    let fake = Fake::start();
    let client = fake.client();
    client
        .put_target("a/x", Policy::default(), None)
        .await
        .unwrap();
    fake.world().leader = None;
    let list = client.list_targets().await.unwrap();
    assert!(list.targets.is_empty());
    assert_eq!(list.missing_shards, (0..SHARDS).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_list_finds_a_leader_that_moved() {
    let fake = Fake::start();
    let client = fake.client();
    client
        .put_target("a/x", Policy::default(), None)
        .await
        .unwrap();
    fake.elect(3);
    let list = client.list_targets().await.unwrap();
    assert_eq!((list.targets.len(), list.missing_shards.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn status_and_routes_are_answered_by_any_node_that_lives() {
    let fake = Fake::start();
    fake.net.set(address(1), Link::Dead);
    fake.net.set(address(2), Link::Hung);
    let client = fake.client();
    assert_eq!(client.status().await.unwrap().cluster_id, "fake");
    assert_eq!(client.routes().await.unwrap().nodes.len(), 3);
}

/// The others elect another leader; whoever asked the one that hangs is not held up for it.
#[tokio::test(start_paused = true)]
async fn a_leader_that_hangs_holds_an_operator_up_for_a_second() {
    let fake = Fake::start();
    let client = fake.client();
    let put = client.put_target("a/x", Policy::default(), None).await;
    put.unwrap();
    fake.net.set(address(1), Link::Hung);
    fake.elect(3);
    for _ in 0..2 {
        let begun = tokio::time::Instant::now();
        assert_eq!(client.get_target("a/x").await.unwrap().version, 1);
        let list = client.list_targets().await.unwrap();
        assert_eq!((list.targets.len(), list.missing_shards.len()), (1, 0));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
}

/// Whoever waited for the first tries in vain goes on to the end of ten seconds.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_late_is_waited_for_all_the_same() {
    let fake = Fake::start();
    let client = fake.client();
    fake.net.set_all(Link::Hung);
    let begun = tokio::time::Instant::now();
    let answer = async {
        tokio::time::sleep(Duration::from_secs(7)).await;
        fake.net.set_all(Link::Up);
    };
    let (status, ()) = tokio::join!(client.status(), answer);
    assert_eq!(status.unwrap().cluster_id, "fake");
    assert!(begun.elapsed() < weir_client::limits::RETRY_MAX);
}

#[tokio::test(start_paused = true)]
async fn leadership_is_transferred_at_the_leader() {
    let fake = Fake::start();
    let client = fake.client();
    client.transfer(1, 2).await.unwrap();
    assert_eq!(fake.world().leader, Some(2));
    assert!(matches!(
        client.transfer(SHARDS, 1).await,
        Err(Error::Invalid { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn nobody_to_ask_is_an_error_after_ten_seconds() {
    let fake = Fake::start();
    fake.net.set_all(Link::Dead);
    let client = fake.client();
    let started = tokio::time::Instant::now();
    let failed = client
        .put_target("a/x", Policy::default(), None)
        .await
        .unwrap_err();
    assert!(
        matches!(
            failed,
            Error::Unavailable {
                may_have_happened: false,
                ..
            }
        ),
        "{failed:?}"
    );
    assert!(failed.is_retryable());
    assert!(started.elapsed() <= weir_client::limits::RETRY_MAX);
}
