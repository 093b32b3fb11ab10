//! What becomes of a guard.

use super::fake::{Fake, NODES};
use super::net::Link;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use weir_client::{
    Call, Cancellation, Client, Error, Extension, Grant, Guard, Options, OptionsError, Outcome,
    Settlement,
};
use weir_proto::v1::CallOutcome;

fn call() -> Call {
    Call::new("openai/gpt-5", "acme", "p1")
        .cost("requests", 1)
        .cost("tokens", 800)
}

async fn admitted(client: &Client) -> Guard {
    client.admit_wait(&call()).await.unwrap()
}

async fn moments() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test(start_paused = true)]
async fn a_settlement_carries_outcome_and_use() {
    let ends = [
        (Outcome::Ok, CallOutcome::Ok, (0, "")),
        (
            Outcome::Throttled {
                retry_after: Duration::from_millis(1_500),
                dimension: Some("tokens".into()),
            },
            CallOutcome::Throttled,
            (1_500_000, "tokens"),
        ),
        (Outcome::Failed, CallOutcome::Failed, (0, "")),
        (Outcome::NotSent, CallOutcome::NotSent, (0, "")),
    ];
    for (outcome, wire, (retry_after_us, dimension)) in ends {
        let fake = Fake::start();
        let client = fake.client();
        let guard = admitted(&client).await;
        let charged = BTreeMap::from([("requests".to_owned(), 1), ("tokens".to_owned(), 800)]);
        assert_eq!(*guard.charged(), charged);
        assert_eq!(
            guard.settle(outcome, [("tokens", 812)]).await,
            Ok(Settlement::Applied)
        );
        moments().await;
        let world = fake.world();
        assert_eq!(world.releases.len(), 1, "the drop adds nothing");
        let release = &world.releases[0];
        assert_eq!(release.outcome(), wire);
        assert_eq!(release.retry_after_us, retry_after_us);
        assert_eq!(release.throttled_dimension, dimension);
        assert_eq!(release.actual, BTreeMap::from([("tokens".to_owned(), 812)]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_settles_by_its_estimate_in_the_background() {
    let fake = Fake::start();
    let client = fake.client();
    drop(admitted(&client).await);
    assert_eq!(client.stats().releases_pending, 1);
    moments().await;
    assert_eq!(client.stats().releases_pending, 0);
    let world = fake.world();
    assert_eq!(world.releases.len(), 1);
    assert_eq!(world.releases[0].outcome(), CallOutcome::Failed);
    assert!(
        world.releases[0].actual.is_empty(),
        "no actual: the estimate stays"
    );
}

#[tokio::test(start_paused = true)]
async fn a_settlement_whose_future_is_dropped_is_sent_all_the_same() {
    let fake = Fake::start();
    let client = fake.client();
    let guard = admitted(&client).await;
    fake.net.set_all(Link::Hung);
    let settling = guard.settle(Outcome::Ok, [("tokens", 7)]);
    assert!(
        tokio::time::timeout(Duration::from_millis(100), settling)
            .await
            .is_err()
    );
    fake.net.set_all(Link::Up);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let world = fake.world();
    let used: Vec<Option<&u64>> = world
        .releases
        .iter()
        .map(|release| release.actual.get("tokens"))
        .collect();
    assert!(
        !used.is_empty() && used.iter().all(|used| *used == Some(&7)),
        "{used:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_until_it_is_answered() {
    let fake = Fake::start();
    let client = fake.client();
    let guard = admitted(&client).await;
    fake.world().lose_answers = 2;
    assert_eq!(
        guard.settle(Outcome::Ok, [("tokens", 7)]).await,
        Ok(Settlement::Already)
    );
    let world = fake.world();
    assert_eq!(world.releases.len(), 3);
    assert!(
        world.releases.windows(2).all(|pair| pair[0] == pair[1]),
        "the same each time"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_release_goes_to_the_background_and_is_given_up_after_ten_seconds() {
    let fake = Fake::start();
    let client = fake.client();
    let guards = [admitted(&client).await, admitted(&client).await];
    fake.net.set_all(Link::Dead);
    let [early, late] = guards;
    let started = Instant::now();
    assert_eq!(
        late.settle(Outcome::Ok, [("tokens", 7)]).await,
        Ok(Settlement::Pending)
    );
    assert!(
        started.elapsed() <= Duration::from_millis(500),
        "{:?}",
        started.elapsed()
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    fake.net.set_all(Link::Up);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        fake.world().releases.len(),
        1,
        "delivered when the cluster is back"
    );

    fake.net.set_all(Link::Dead);
    drop(early);
    tokio::time::sleep(Duration::from_secs(11)).await;
    fake.net.set_all(Link::Up);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        fake.world().releases.len(),
        1,
        "a later one might meet a cluster that forgot"
    );
    let stats = client.stats();
    assert_eq!((stats.releases_pending, stats.releases_lost), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_bad_dimension_is_the_callers_fault_and_the_rest_is_settled() {
    let fake = Fake::start();
    let client = fake.client();
    let outcome = Outcome::Throttled {
        retry_after: Duration::from_millis(1_500),
        dimension: Some("to\nkens".into()),
    };
    let settled = admitted(&client)
        .await
        .settle(outcome.clone(), [("tokens", 7)]);
    let failed = settled.await.unwrap_err();
    assert!(matches!(failed, Error::Invalid { .. }), "{failed}");
    moments().await;
    let grant = admitted(&client).await.detach().unwrap();
    let settled = client.settle("openai/gpt-5", grant, outcome, [("tokens", 7)]);
    let failed = settled.await.unwrap_err();
    assert!(matches!(failed, Error::Invalid { .. }), "{failed}");
    let world = fake.world();
    assert_eq!(world.releases.len(), 1);
    let release = &world.releases[0];
    assert_eq!(release.outcome(), CallOutcome::Throttled);
    assert_eq!(release.retry_after_us, 1_500_000);
    assert_eq!(release.throttled_dimension, "");
    assert_eq!(release.actual, BTreeMap::from([("tokens".to_owned(), 7)]));
}

#[tokio::test(start_paused = true)]
async fn bad_actuals_are_the_callers_fault_and_the_estimate_is_settled() {
    let fake = Fake::start();
    let client = fake.client();
    let guard = admitted(&client).await;
    let failed = guard.settle(Outcome::Ok, [("", 1)]).await.unwrap_err();
    assert!(matches!(failed, Error::Invalid { .. }));
    moments().await;
    let world = fake.world();
    assert_eq!(world.releases.len(), 1);
    assert_eq!(world.releases[0].outcome(), CallOutcome::Ok);
    assert!(world.releases[0].actual.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_extension_is_repeated_too() {
    let fake = Fake::start();
    let client = fake.client();
    let guard = admitted(&client).await;
    fake.world().lose_answers = 1;
    let extended = guard.extend().await.unwrap();
    assert_eq!(
        extended,
        Extension::Extended {
            expires_in: Duration::from_secs(60)
        }
    );
    assert_eq!(fake.world().extends.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_grant_can_be_settled_by_another_process() {
    let fake = Fake::start();
    let grant = admitted(&fake.client()).await.detach().unwrap();
    moments().await;
    assert!(
        fake.world().releases.is_empty(),
        "a detached grant is not settled by the drop"
    );
    let stored: Grant = grant.to_string().parse().unwrap();
    let other = fake.client();
    let settled = other
        .settle("openai/gpt-5", stored, Outcome::Ok, [("tokens", 9)])
        .await;
    assert_eq!(settled, Ok(Settlement::Applied));
    let held = fake.world().held.values().next().map(|(_, grant)| *grant);
    assert_eq!(fake.world().releases[0].grant, held);
}

#[tokio::test(start_paused = true)]
async fn a_place_is_cancelled_by_its_ticket() {
    let fake = Fake::start();
    fake.acts([super::fake::Act::Defer {
        retry_in_us: 1_000_000,
    }]);
    let client = fake.client();
    let call = call();
    let answer = client.try_admit(&call, None).await.unwrap();
    let weir_client::Answer::Deferred(deferral) = answer else {
        panic!("{answer:?}")
    };
    fake.world().lose_answers = 1;
    let cancelled = client.cancel(&call, deferral.ticket).await.unwrap();
    assert_eq!(cancelled, Cancellation::PlaceDropped);
    let world = fake.world();
    assert_eq!(world.cancels.len(), 2);
    assert_eq!(
        (world.cancels[0].attempt, world.cancels[0].ask),
        (world.asks[0].attempt, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_delivers_what_is_left_within_its_bound() {
    let fake = Fake::start();
    let client = fake.client();
    for _ in 0..200 {
        drop(admitted(&client).await);
    }
    let stats = client.shutdown().await;
    assert_eq!((stats.releases_pending, stats.releases_lost), (0, 0));
    assert_eq!(fake.world().releases.len(), 200);

    let client = fake.client();
    drop(admitted(&client).await);
    fake.net.set_all(Link::Hung);
    let started = Instant::now();
    let stats = client.shutdown().await;
    assert!(started.elapsed() <= weir_client::limits::DRAIN_MAX + Duration::from_millis(1));
    assert_eq!(
        stats.releases_pending, 1,
        "and says what it could not deliver"
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_of_one_clone_leaves_the_others_at_work() {
    let fake = Fake::start();
    let client = fake.client();
    let clone = client.clone();
    let guard = admitted(&client).await;
    drop(admitted(&client).await);
    assert_eq!(client.shutdown().await.releases_pending, 0);
    assert_eq!(
        guard.settle(Outcome::Ok, [("tokens", 1)]).await,
        Ok(Settlement::Applied)
    );
    admitted(&clone).await.not_sent().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guard_outlives_its_client_and_the_background_ends_after_both() {
    let fake = Fake::start();
    let alive = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let client = fake.client();
    let guard = admitted(&client).await;
    drop(client);
    drop(guard);
    moments().await;
    assert_eq!(fake.world().releases.len(), 1);
    fake.net.set_all(Link::Dead);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let idle = alive();
    let client = fake.client();
    assert!(alive() > idle);
    drop(client);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(alive(), idle, "no task is left behind");
}

#[test]
fn a_client_outside_of_a_runtime_says_so() {
    assert!(matches!(
        Client::new(Options::new(NODES)),
        Err(OptionsError::NoRuntime)
    ));
}
