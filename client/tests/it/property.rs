//! Whatever the cluster does: for one attempt at most one answer is used, it is the answer to the highest
//! number sent, it is used in time, and what went out without an answer is reported once.

use super::fake::{Act, Fake, address, admit};
use super::net::Link;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_client::{Answer, Call, Client, Error, Mode};
use weir_proto::error::{Reason, WireError};
use weir_proto::v1::RejectReason;

/// Something that happens to the cluster.
#[derive(Clone, Debug)]
enum Event {
    Wait(u64),
    Elect(u64),
    NoLeader,
    Quorum(bool),
    Link(u64, Link),
    LoseAnswers(u32),
}

fn act() -> impl Strategy<Value = Act> {
    let decision = prop_oneof![
        4 => (0..60_000_u64).prop_map(|start_in_us| Act::Admit { start_in_us }),
        2 => (20_000..200_000_u64).prop_map(|retry_in_us| Act::Defer { retry_in_us }),
        1 => Just(Act::Reject(RejectReason::Stale)),
    ];
    (decision, 0..10_u32, 0..300_u64).prop_map(|(decision, fate, ms)| {
        let decision = Box::new(decision);
        match fate {
            0 => Act::Silent(decision),
            1 => Act::Broken(decision),
            2 => Act::Duplicated(decision),
            3 => Act::Error(WireError::new(Reason::NoQuorum, "x")),
            4 => Act::Error(WireError::new(Reason::Overloaded, "x")),
            5 | 6 => Act::Late(Duration::from_millis(ms), decision),
            _ => *decision,
        }
    })
}

fn event() -> impl Strategy<Value = Event> {
    let link = prop_oneof![
        3 => Just(Link::Up),
        1 => Just(Link::Hung),
        1 => Just(Link::Dropped),
        1 => Just(Link::Dead),
    ];
    prop_oneof![
        6 => (1..2_000_u64).prop_map(Event::Wait),
        2 => (1..=3_u64).prop_map(Event::Elect),
        1 => Just(Event::NoLeader),
        1 => any::<bool>().prop_map(Event::Quorum),
        3 => (1..=3_u64, link).prop_map(|(node, link)| Event::Link(node, link)),
        1 => (1..4_u32).prop_map(Event::LoseAnswers),
    ]
}

async fn happen(fake: &Fake, event: Event) {
    match event {
        Event::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        Event::Elect(node) => fake.elect(node),
        Event::NoLeader => fake.world().leader = None,
        Event::Quorum(quorum) => fake.world().no_quorum = !quorum,
        Event::Link(node, link) => fake.net.set(address(node), link),
        Event::LoseAnswers(n) => fake.world().lose_answers += n,
    }
}

/// One worker, call after call, until it is told to stop. Answers how many went out ungated.
async fn work(fake: Fake, client: Client, worker: u64, stop_at: Instant) -> u64 {
    let mut ungated = 0;
    for n in 0.. {
        if Instant::now() >= stop_at {
            break;
        }
        let call = Call::new("openai/gpt-5", "acme", "p1").id(format!("{worker}-{n}"));
        let call = call.cost("requests", 1).deadline(Duration::from_secs(4));
        let mut ticket = None;
        while let Some(answer) = answered(client.try_admit(&call, ticket).await).await {
            match answer {
                Answer::Deferred(deferral) => {
                    ticket = Some(deferral.ticket);
                    tokio::time::sleep(deferral.retry_in).await;
                    if Instant::now() >= stop_at {
                        break;
                    }
                }
                Answer::Rejected(_) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    break;
                }
                Answer::Admitted(guard) if guard.is_ungated() => {
                    ungated += 1;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    break;
                }
                Answer::Admitted(guard) => {
                    assert!(guard.is_current());
                    in_order(&fake, guard.detach().unwrap());
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    break;
                }
            }
        }
    }
    ungated
}

/// `None` ends the call, after a pause: a refusal takes no time at all.
async fn answered(answer: Result<Answer, Error>) -> Option<Answer> {
    match answer {
        Ok(answer) => Some(answer),
        Err(Error::DeadlinePassed | Error::Unavailable { .. }) => {
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The grant answers the highest number of its attempt, and is used in time.
fn in_order(fake: &Fake, grant: weir_client::Grant) {
    let mut world = fake.world();
    let index: u64 = grant
        .to_string()
        .split('.')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let granted = world.granted[&index];
    assert_eq!(
        world.highest[&granted.attempt], granted.ask,
        "a higher number was decided"
    );
    let late_by = Instant::now().saturating_duration_since(granted.start_at);
    let window = Duration::from_micros(world.reply_window_us);
    assert!(late_by <= window, "late by {late_by:?}");
    assert!(Instant::now() >= granted.start_at, "before its start");
    let used_before = world.used.insert(granted.attempt, granted.ask);
    assert_eq!(used_before, None, "one attempt, one send");
}

fn numbers_never_repeat_or_follow_a_grant_in_use(fake: &Fake) {
    let world = fake.world();
    let mut numbers = BTreeSet::new();
    for ask in &world.asks {
        assert!(
            numbers.insert((ask.attempt, ask.ask)),
            "number {} was sent twice",
            ask.ask
        );
        if let Some(used) = world.used.get(&ask.attempt) {
            assert!(
                ask.ask <= *used,
                "ask {} after the grant of {used} was used",
                ask.ask
            );
        }
    }
}

async fn run(acts: Vec<Act>, events: Vec<Event>, mode: Mode) {
    let fake = Fake::start();
    let mut script = acts.into_iter().cycle();
    fake.script(move |_| script.next().unwrap_or_else(admit));
    let options = fake
        .options()
        .mode(mode)
        .ungated_after(Duration::from_secs(1));
    let client = Client::new(options).unwrap();
    let stop_at = Instant::now() + Duration::from_secs(6);
    let mut workers = JoinSet::new();
    for worker in 0..4 {
        workers.spawn(work(fake.clone(), client.clone(), worker, stop_at));
    }
    for event in events {
        happen(&fake, event).await;
    }
    let mut ungated = 0;
    while let Some(went) = workers.join_next().await {
        ungated += went.unwrap();
    }
    numbers_never_repeat_or_follow_a_grant_in_use(&fake);
    fake.net.set_all(Link::Up);
    fake.elect(1);
    fake.script(|_| admit());
    fake.world().no_quorum = false;
    fake.world().lose_answers = 0;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let stats = client.stats();
    assert_eq!(stats.ungated_open, ungated);
    assert_eq!(stats.reports_pending, 0, "{stats:?}");
    assert_eq!(
        stats.reports_done + stats.reports_lost,
        ungated,
        "{stats:?}"
    );
    assert_eq!(stats.shards_out, 0);
    let reported: BTreeSet<(String, u64)> = fake
        .world()
        .reports
        .iter()
        .flat_map(|report| &report.calls)
        .map(|call| (call.admission_id.clone(), call.attempt))
        .collect();
    assert!(reported.len() as u64 >= stats.reports_done);
    assert!(reported.len() as u64 <= ungated);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn one_answer_in_order_in_time(
        acts in prop::collection::vec(act(), 1..40),
        events in prop::collection::vec(event(), 0..16),
        closed in any::<bool>(),
    ) {
        let mode = if closed { Mode::Closed } else { Mode::Open };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(acts, events, mode));
    }
}
