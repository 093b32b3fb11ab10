use super::*;
use crate::metrics::Metrics;
use futures::channel::mpsc;
use futures::{FutureExt, StreamExt};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::advance;

type Inner = mpsc::UnboundedReceiver<io::Result<DuplexStream>>;

/// A house with a street in front of it.
struct Scene {
    street: mpsc::UnboundedSender<io::Result<DuplexStream>>,
    incoming: Incoming<Inner, DuplexStream>,
    metrics: Metrics,
    cut: CancellationToken,
}

impl Scene {
    fn new(connections_max: usize) -> Scene {
        let (street, inner) = mpsc::unbounded();
        let (metrics, cut) = (Metrics::default(), CancellationToken::new());
        let door = metrics.door("client");
        Scene {
            street,
            incoming: Incoming::new(inner, connections_max, door, cut.clone()),
            metrics,
            cut,
        }
    }

    /// Somebody comes to the door.
    fn come(&mut self) -> DuplexStream {
        let (theirs, ours) = duplex(1024);
        self.street.unbounded_send(Ok(ours)).unwrap();
        theirs
    }

    /// Who is let in now.
    fn let_in(&mut self) -> Option<Connection<DuplexStream>> {
        let next = self.incoming.next().now_or_never()?;
        Some(next.unwrap().unwrap())
    }

    /// Somebody comes and is let in at once.
    fn enter(&mut self) -> (DuplexStream, Connection<DuplexStream>) {
        let theirs = self.come();
        (theirs, self.let_in().unwrap())
    }

    fn counts(&self, line: &str) -> bool {
        let text = self.metrics.render().unwrap();
        text.lines().any(|told| told == line)
    }
}

async fn is_cut(connection: &mut Connection<DuplexStream>) -> bool {
    let read = connection.read_u8().now_or_never();
    read.is_some_and(|read| read.unwrap_err().kind() == io::ErrorKind::ConnectionAborted)
}

#[tokio::test(start_paused = true)]
async fn the_oldest_stranger_makes_room() {
    let mut scene = Scene::new(2);
    let (_a, mut first) = scene.enter();
    let (_b, mut second) = scene.enter();
    advance(STRANGER_SAFE).await;
    let _c = scene.come();
    assert!(scene.let_in().is_none(), "two are in");
    assert!(is_cut(&mut first).await);
    assert!(!is_cut(&mut second).await);
    // Nobody comes in, and nobody else is sent away, before the first has gone.
    assert!(scene.let_in().is_none());
    assert!(!is_cut(&mut second).await);
    drop(first);
    let mut third = scene.let_in().unwrap();
    assert!(!is_cut(&mut third).await);
    assert!(scene.counts(r#"weir_connections{port="client"} 2"#));
    let closed = r#"weir_closed_connections_total{port="client",reason="made_room"} 1"#;
    assert!(scene.counts(closed));
}

#[tokio::test(start_paused = true)]
async fn callers_stay_and_a_house_full_of_them_refuses() {
    let mut scene = Scene::new(2);
    let (_a, mut first) = scene.enter();
    let (_b, mut second) = scene.enter();
    first.connect_info().calls();
    first.connect_info().calls();
    advance(STRANGER_SAFE).await;
    let _c = scene.come();
    assert!(scene.let_in().is_none());
    assert!(!is_cut(&mut first).await, "it has called");
    assert!(is_cut(&mut second).await);
    drop(second);
    let third = scene.let_in().unwrap();
    third.connect_info().calls();
    let mut refused = scene.come();
    assert!(scene.let_in().is_none());
    assert_eq!(refused.read(&mut [0]).await.unwrap(), 0, "closed at once");
    let closed = r#"weir_closed_connections_total{port="client",reason="full"} 1"#;
    assert!(scene.counts(closed));
    assert!(!is_cut(&mut first).await);
    drop(first);
    scene.enter();
}

#[tokio::test(start_paused = true)]
async fn who_has_just_come_is_not_sent_away() {
    let mut scene = Scene::new(1);
    let (_a, mut first) = scene.enter();
    advance(STRANGER_SAFE - Duration::from_millis(1)).await;
    let mut refused = scene.come();
    assert!(scene.let_in().is_none());
    assert_eq!(refused.read(&mut [0]).await.unwrap(), 0, "closed at once");
    assert!(!is_cut(&mut first).await);
    advance(Duration::from_millis(1)).await;
    let _c = scene.come();
    assert!(scene.let_in().is_none(), "the first is leaving");
    assert!(is_cut(&mut first).await);
    drop(first);
    scene.let_in().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_one_who_waits_is_told_when_there_is_room() {
    let mut scene = Scene::new(1);
    let (_a, first) = scene.enter();
    advance(STRANGER_SAFE).await;
    let _b = scene.come();
    let mut incoming = scene.incoming;
    let second = tokio::spawn(async move { incoming.next().await.unwrap().is_ok() });
    tokio::task::yield_now().await;
    assert!(!second.is_finished());
    drop(first);
    assert!(second.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn who_says_too_little_is_closed_in_time() {
    let mut scene = Scene::new(3);
    let mut buffer = [0; 64];
    let (_silent, mut silent) = scene.enter();
    let begun = tokio::time::Instant::now();
    let closed = silent.read(&mut buffer).await.unwrap_err();
    assert_eq!(closed.kind(), io::ErrorKind::TimedOut);
    assert_eq!(begun.elapsed().as_secs(), GREETING_WITHIN.as_secs());

    // One byte a second is no greeting either.
    let (mut theirs, mut slow) = scene.enter();
    let begun = tokio::time::Instant::now();
    let drip = async {
        while theirs.write_u8(b'P').await.is_ok() {
            tokio::time::sleep(GREETING_WITHIN / 5).await;
        }
    };
    let hear = async {
        while slow.read(&mut buffer).await.is_ok() {}
        begun.elapsed()
    };
    tokio::select! {
        () = drip => unreachable!("our side is open"),
        took = hear => assert!(took < GREETING_WITHIN * 2, "{took:?}"),
    }

    let (mut theirs, mut whole) = scene.enter();
    theirs.write_all(&[0; GREETING_BYTES]).await.unwrap();
    while whole.greeting.is_some() {
        assert!(whole.read(&mut buffer).await.unwrap() > 0);
    }
    tokio::time::sleep(GREETING_WITHIN * 100).await;
    assert!(whole.read(&mut buffer).now_or_never().is_none(), "may idle");
    let closed = r#"weir_closed_connections_total{port="client",reason="no_greeting"} 2"#;
    assert!(scene.counts(closed));
}

#[tokio::test(start_paused = true)]
async fn a_greeting_that_lies_there_counts_however_late_it_is_read() {
    let mut scene = Scene::new(1);
    let (mut theirs, mut ours) = scene.enter();
    theirs.write_all(&[0; GREETING_BYTES]).await.unwrap();
    advance(GREETING_WITHIN * 2).await;
    let mut buffer = [0; 64];
    assert_eq!(ours.read(&mut buffer).await.unwrap(), GREETING_BYTES);
    assert!(ours.greeting.is_none());
}

#[tokio::test(start_paused = true)]
async fn all_end_with_the_node() {
    let mut scene = Scene::new(2);
    let (_a, mut stranger) = scene.enter();
    let (_b, mut caller) = scene.enter();
    caller.connect_info().calls();
    scene.cut.cancel();
    assert!(is_cut(&mut stranger).await);
    assert!(is_cut(&mut caller).await);
}

#[tokio::test(start_paused = true)]
async fn the_caller_that_has_rested_longest_makes_room_for_who_comes() {
    let mut scene = Scene::new(3);
    scene.incoming = scene.incoming.let_rest();
    let (_a, mut works) = scene.enter();
    let (_b, mut second) = scene.enter();
    let (_c, mut first) = scene.enter();
    let [working, resting, longer] = [&works, &second, &first].map(|it| it.connect_info());
    for visitor in [&working, &resting, &longer] {
        visitor.calls();
    }
    let _works = working.works();
    let two = (longer.works(), longer.works());
    drop(two.0);
    drop(resting.works());
    advance(REST_MIN / 2).await;
    drop(two.1);
    drop(resting.works());
    drop(resting.works());
    advance(REST_MIN / 4).await;
    drop(resting.works());
    advance(REST_MIN * 3 / 4 - Duration::from_millis(1)).await;
    let mut refused = scene.come();
    assert!(scene.let_in().is_none());
    assert_eq!(
        refused.read(&mut [0]).await.unwrap(),
        0,
        "nobody rests for long enough"
    );
    // Nobody looks again at once.
    advance(Duration::from_millis(1)).await;
    let mut refused = scene.come();
    assert!(scene.let_in().is_none());
    assert_eq!(refused.read(&mut [0]).await.unwrap(), 0);
    advance(REST_LOOK_EVERY).await;
    let _d = scene.come();
    assert!(scene.let_in().is_none(), "three are in");
    assert!(is_cut(&mut first).await);
    assert!(!is_cut(&mut second).await && !is_cut(&mut works).await);
    drop(first);
    let fourth = scene.let_in().unwrap();
    fourth.connect_info().calls();
    let rested = r#"weir_closed_connections_total{port="client",reason="rested"} 1"#;
    assert!(scene.counts(rested));
    // Who calls again rests anew.
    advance(REST_MIN).await;
    let again = resting.works();
    advance(REST_LOOK_EVERY).await;
    drop(again);
    let _e = scene.come();
    assert!(scene.let_in().is_none());
    let mut fourth = fourth;
    assert!(is_cut(&mut fourth).await, "it has rested longer");
    assert!(!is_cut(&mut second).await && !is_cut(&mut works).await);
}

#[tokio::test(start_paused = true)]
async fn callers_that_rest_stay_where_nobody_said_that_they_make_room() {
    let mut scene = Scene::new(1);
    let (_a, mut first) = scene.enter();
    first.connect_info().calls();
    advance(REST_MIN * 100).await;
    let mut refused = scene.come();
    assert!(scene.let_in().is_none());
    assert_eq!(refused.read(&mut [0]).await.unwrap(), 0);
    assert!(!is_cut(&mut first).await);
}
