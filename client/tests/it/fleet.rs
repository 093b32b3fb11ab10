//! Fleets whose own asks are what keeps their node slow: a storm has to end by itself.
//!
//! The node does one ask after the other, each takes it as long, and it does them all, whether anybody still
//! waits or not. So how long an answer takes depends on how much is asked, and beyond some load every answer
//! comes too late.

use super::fake::{Act, Fake, admit, numbers};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use weir_client::limits::{LOCAL_RETRY_MAX, STRAIN_DOUBLINGS_MAX, STRAINED_AFTER};
use weir_client::{Answer, Call, Client, Mode, Origin};
use weir_proto::error::{Reason, WireError};

/// What one ask takes: fifty can be done in a second.
const TAKES: Duration = Duration::from_millis(20);
/// The backlog beyond which asks are lost on the way.
const BACKLOG_MAX: Duration = Duration::from_secs(1);
/// Callers that wait at once. Each asks about twice a second if it is not answered and does not slow down.
const CALLERS: usize = 60;
/// A fleet is out of its storm within this.
const RECOVERED: Duration = Duration::from_secs(15);

const LONGEST_PAUSE: Duration = LOCAL_RETRY_MAX.saturating_mul(1 << STRAIN_DOUBLINGS_MAX);
const REPLY_WINDOW: Duration = Duration::from_millis(100);

fn call() -> Call {
    Call::new("openai/gpt-5", "acme", "p1").cost("requests", 1)
}

/// The node is held up for so long, then it does one ask after the other.
fn hold(fake: &Fake, stall: Duration) {
    let mut busy_until = Instant::now() + stall;
    fake.script(move |_| {
        let now = Instant::now();
        if busy_until.saturating_duration_since(now) >= BACKLOG_MAX {
            return Act::Silent(Box::new(admit()));
        }
        busy_until = busy_until.max(now) + TAKES;
        Act::Late(busy_until - now, Box::new(admit()))
    });
}

/// Clients that take nothing for an outage: all their load goes on.
fn clients(fake: &Fake, count: usize) -> Vec<Client> {
    let seeds = 1..=u64::try_from(count).unwrap();
    let options = |seed| {
        let patient = Duration::from_secs(3_600);
        fake.options().mode(Mode::Closed).ungated_after(patient).random_seed(seed)
    };
    seeds.map(|seed| Client::new(options(seed)).unwrap()).collect()
}

/// All callers of all clients want a grant at the same time, from a node that is held up: until the last has it.
async fn storm(count: usize) -> Duration {
    let fake = Fake::start();
    let fleet = clients(&fake, count);
    for client in &fleet {
        client.admit_wait(&call()).await.unwrap().detach();
    }
    hold(&fake, Duration::from_millis(990));
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    for caller in 0..CALLERS {
        let client = fleet[caller % count].clone();
        calls.spawn(async move { client.admit_wait(&call()).await.unwrap().detach() });
    }
    let served = timeout(Duration::from_secs(60), async {
        let mut served = Vec::new();
        while let Some(ended) = calls.join_next().await {
            ended.unwrap();
            served.push(begun.elapsed());
        }
        served
    });
    let served = served.await.unwrap_or_default();
    served.last().copied().unwrap_or(Duration::MAX)
}

#[tokio::test(start_paused = true)]
async fn clients_with_one_caller_each_come_out_of_a_storm() {
    let last = storm(CALLERS).await;
    assert!(last < RECOVERED, "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn clients_with_many_callers_come_out_of_a_storm() {
    let last = storm(6).await;
    assert!(last < RECOVERED, "{last:?}");
}

/// When each ask was met, counted from now.
fn note_asks(fake: &Fake, mut act: impl FnMut() -> Act + Send + 'static) -> Arc<Mutex<Vec<Duration>>> {
    let (begun, met) = (Instant::now(), Arc::<Mutex<Vec<Duration>>>::default());
    let noted = met.clone();
    fake.script(move |_| {
        noted.lock().unwrap().push(begun.elapsed());
        act()
    });
    met
}

/// The pauses between asks that come one after the other.
fn gaps(met: &[Duration]) -> Vec<Duration> {
    met.windows(2).map(|two| two[1] - two[0]).collect()
}

fn late() -> Act {
    Act::Late(REPLY_WINDOW * 3 / 2, Box::new(admit()))
}

fn refused() -> Act {
    Act::Error(WireError::new(Reason::Overloaded, "no room"))
}

fn unanswered() -> Act {
    Act::Silent(Box::new(admit()))
}

/// Whatever it is that is of no use, the visits become rarer up to a bound, and one answer of use makes all as
/// at first.
#[tokio::test(start_paused = true)]
async fn visits_in_vain_become_rarer_and_one_answer_of_use_ends_that() {
    for act in [late as fn() -> Act, refused, unanswered] {
        let fake = Fake::start();
        let client = clients(&fake, 1).remove(0);
        client.admit_wait(&call()).await.unwrap().detach();
        let met = note_asks(&fake, act);
        let waits = tokio::spawn({
            let client = client.clone();
            async move { client.admit_wait(&call()).await.unwrap().detach() }
        });
        sleep(Duration::from_secs(60)).await;
        let first = std::mem::take(&mut *met.lock().unwrap());
        let later: Vec<Duration> = first.iter().copied().filter(|at| at.as_secs() >= 15).collect();
        // A quarter of the longest pause is the shortest one; a try takes up to half a second.
        let try_max = Duration::from_millis(501);
        for gap in gaps(&later) {
            assert!(gap >= LONGEST_PAUSE / 4 && gap <= LONGEST_PAUSE + try_max, "{first:?}");
        }
        assert!(later.len() >= 6 && later.len() <= 28, "{first:?}");
        // The first rounds are as ever: nobody waits longer for a short stall.
        let usual = LOCAL_RETRY_MAX + try_max;
        let repeats = 2 * STRAINED_AFTER as usize;
        assert!(first.len() > repeats && gaps(&first)[..2].iter().all(|gap| *gap <= usual), "{first:?}");

        let mut useful = Some(Act::Defer { retry_in_us: 50_000 });
        let met = note_asks(&fake, move || useful.take().unwrap_or_else(act));
        while met.lock().unwrap().len() < 4 {
            sleep(Duration::from_millis(1)).await;
        }
        let again = gaps(&met.lock().unwrap());
        assert!(again[0] < Duration::from_millis(60), "the node's deferral counts: {again:?}");
        assert!(again[1..].iter().all(|gap| *gap <= usual), "{again:?}");
        fake.script(|_| admit());
        waits.await.unwrap();
    }
}

/// What one caller hears is known to all: the others come back at once, and no faster than answers tell that
/// there is use in it.
#[tokio::test(start_paused = true)]
async fn an_answer_of_use_calls_back_those_who_rest() {
    const WAITING: usize = 40;
    let fake = Fake::start();
    let client = clients(&fake, 1).remove(0);
    fake.script(|_| late());
    let mut calls = JoinSet::new();
    for _ in 0..WAITING {
        let client = client.clone();
        calls.spawn(async move {
            client.admit_wait(&call()).await.unwrap().detach();
            Instant::now()
        });
    }
    sleep(Duration::from_secs(40)).await;
    let takes = Duration::from_millis(10);
    let met = note_asks(&fake, move || Act::Late(takes, Box::new(admit())));
    let mut served = calls.join_all().await;
    served.sort_unstable();
    let spread = served[WAITING - 1] - served[0];
    // Doubled with every answer: 1, 3, 7, 15, 31, 40.
    assert!(spread >= takes * 4 && spread <= takes * 10, "{spread:?}");
    assert_eq!(met.lock().unwrap().len(), WAITING);
}

/// A pause never hides an outage: the mode decides as soon as it would without strain.
#[tokio::test(start_paused = true)]
async fn a_strained_client_learns_of_an_outage_in_time() {
    for caller in 0..20 {
        let fake = Fake::start();
        let patience = Duration::from_secs(20);
        let client = Client::new(fake.options().ungated_after(patience).random_seed(caller)).unwrap();
        client.admit_wait(&call()).await.unwrap().detach();
        fake.script(|_| unanswered());
        let begun = Instant::now();
        let guard = client.admit_wait(&call()).await.unwrap();
        let took = begun.elapsed();
        assert!(guard.is_ungated());
        assert!(took >= patience && took < patience + Duration::from_millis(910), "{took:?}");
    }
}

/// Grants that come too late do not hold the cap while their callers rest.
#[tokio::test(start_paused = true)]
async fn a_late_grant_is_given_back_before_a_long_rest() {
    let fake = Fake::start();
    let client = clients(&fake, 1).remove(0);
    fake.script(|_| late());
    let waits = tokio::spawn(async move { client.admit_wait(&call()).await.unwrap().detach() });
    // Of the last hundredths of a minute most find nothing held.
    sleep(Duration::from_secs(20)).await;
    let mut held = 0;
    for _ in 0..1_000 {
        sleep(Duration::from_millis(40)).await;
        held += fake.world().held.len();
    }
    assert!(held <= 150, "{held}");
    let asks = numbers(&fake.world().asks);
    let cancels = fake.world().cancels.len();
    assert_eq!(asks, (1..=u32::try_from(asks.len()).unwrap()).collect::<Vec<_>>());
    assert!(cancels > 0 && cancels < asks.len(), "{cancels} of {asks:?}");
    fake.script(|_| admit());
    waits.await.unwrap();
}

/// The deadline of a call counts, however rare its visits are.
#[tokio::test(start_paused = true)]
async fn a_strained_caller_keeps_its_deadline_and_uses_the_time_before_it() {
    let fake = Fake::start();
    let client = clients(&fake, 1).remove(0);
    let met = note_asks(&fake, late);
    let (begun, deadline) = (Instant::now(), Duration::from_secs(20));
    let error = client.admit_wait(&call().deadline(deadline)).await.unwrap_err();
    assert!(matches!(error, weir_client::Error::DeadlinePassed), "{error}");
    assert!(begun.elapsed() <= deadline + Duration::from_millis(10), "{:?}", begun.elapsed());
    let last = *met.lock().unwrap().last().unwrap();
    assert!(deadline - last < LOCAL_RETRY_MAX, "{last:?}");
}

/// Callers with timers of their own are told the same.
#[tokio::test(start_paused = true)]
async fn deferrals_of_a_strained_client_grow() {
    let fake = Fake::start();
    let client = clients(&fake, 1).remove(0);
    fake.script(|_| late());
    let mut ticket = None;
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let Answer::Deferred(deferral) = client.try_admit(&call().id("same"), ticket).await.unwrap() else {
            panic!("admitted late");
        };
        assert_eq!(deferral.origin, Origin::LateAnswer);
        pauses.push(deferral.retry_in);
        ticket = Some(deferral.ticket);
        sleep(deferral.retry_in).await;
    }
    assert!(pauses[..2].iter().all(|pause| *pause <= LOCAL_RETRY_MAX), "{pauses:?}");
    assert!(pauses[8..].iter().all(|pause| *pause >= LONGEST_PAUSE / 4), "{pauses:?}");
}

/// A try that a deadline cut short says nothing about the shard.
#[tokio::test(start_paused = true)]
async fn short_deadlines_strain_nobody() {
    let fake = Fake::start();
    let client = clients(&fake, 1).remove(0);
    client.admit_wait(&call()).await.unwrap().detach();
    fake.script(|_| late());
    for _ in 0..20 {
        let hasty = call().deadline(Duration::from_millis(30));
        let Answer::Deferred(_) = client.try_admit(&hasty, None).await.unwrap() else {
            panic!("admitted late");
        };
        sleep(Duration::from_secs(1)).await;
    }
    for _ in 0..STRAINED_AFTER {
        let Answer::Deferred(deferral) = client.try_admit(&call(), None).await.unwrap() else {
            panic!("admitted late");
        };
        assert!(deferral.retry_in <= LOCAL_RETRY_MAX, "{deferral:?}");
        sleep(deferral.retry_in).await;
    }
}
