//! The batcher against a log that does what a script says, in paused time.

use super::*;
use crate::limits::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_admission::{
    Admit, Amounts, DimensionName, Extend, ExtendOutcome, GrantId, Principal, PriorityName, Stamp,
    TargetName, TenantName,
};

/// What the log does with one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Commit { after_ms: u64 },
    Lose { after_ms: u64 },
    Hang,
    NotLeader,
    NoQuorum,
}

#[derive(Clone, Default)]
struct Log {
    fates: Arc<Mutex<Vec<Fate>>>,
    /// Entries that were taken into the log, each as the numbers of its operations.
    entries: Arc<Mutex<Vec<Vec<u64>>>>,
    in_flight: Arc<AtomicUsize>,
    in_flight_max: Arc<AtomicUsize>,
}

impl Log {
    fn with(fates: &[Fate]) -> Log {
        let log = Log::default();
        *log.fates.lock().unwrap() = fates.iter().rev().copied().collect();
        log
    }

    fn entries(&self) -> Vec<Vec<u64>> {
        self.entries.lock().unwrap().clone()
    }
}

/// Every test operation carries its number.
fn number_of(operation: &Operation) -> u64 {
    if let Operation::Extend(extend) = operation {
        return extend.grant.index;
    }
    let Operation::Admit(admit) = operation else {
        panic!("not a test operation: {operation:?}")
    };
    admit.attempt
}

impl Propose for Log {
    type Pending = Pin<Box<dyn Future<Output = Result<Committed, ProposeError>> + Send>>;

    async fn propose(&self, batch: Vec<Operation>) -> Result<Self::Pending, ProposeError> {
        let fate = self
            .fates
            .lock()
            .unwrap()
            .pop()
            .unwrap_or(Fate::Commit { after_ms: 1 });
        let numbers: Vec<u64> = batch.iter().map(number_of).collect();
        match fate {
            Fate::NotLeader => {
                return Err(ProposeError::NotLeader {
                    leader: Some(NodeId(2)),
                });
            }
            Fate::NoQuorum => return Err(ProposeError::NoQuorum),
            Fate::Commit { .. } | Fate::Lose { .. } | Fate::Hang => {}
        }
        let index = {
            let mut entries = self.entries.lock().unwrap();
            entries.push(numbers.clone());
            entries.len() as u64
        };
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.in_flight_max.fetch_max(now, Ordering::SeqCst);
        let in_flight = self.in_flight.clone();
        Ok(Box::pin(async move {
            let result = match fate {
                Fate::Commit { after_ms } => {
                    tokio::time::sleep(Duration::from_millis(after_ms)).await;
                    let outcomes = numbers
                        .iter()
                        .map(|number| {
                            Outcome::Extend(ExtendOutcome::Extended {
                                expires_in: *number,
                            })
                        })
                        .collect();
                    Ok(Committed {
                        index,
                        stamp: Stamp::ZERO,
                        outcomes,
                    })
                }
                Fate::Lose { after_ms } => {
                    tokio::time::sleep(Duration::from_millis(after_ms)).await;
                    Err(ProposeError::Unknown)
                }
                Fate::Hang | Fate::NotLeader | Fate::NoQuorum => std::future::pending().await,
            };
            in_flight.fetch_sub(1, Ordering::SeqCst);
            result
        }))
    }
}

fn extend(number: u64) -> Operation {
    Operation::Extend(Extend {
        target: TargetName::new("demo/chat").unwrap(),
        principal: Principal::new("anonymous").unwrap(),
        grant: GrantId {
            index: number,
            offset: 0,
        },
    })
}

fn admit(number: u64) -> Operation {
    let requests = DimensionName::new("requests").unwrap();
    Operation::Admit(Box::new(Admit {
        target: TargetName::new("demo/chat").unwrap(),
        tenant: TenantName::new("t").unwrap(),
        principal: Principal::new("anonymous").unwrap(),
        priority: PriorityName::new("p1").unwrap(),
        admission_id: Box::from(&b"id"[..]),
        attempt: number,
        ask: 1,
        cost: Amounts::new(vec![(requests, 1)]).unwrap(),
        cost_max: Amounts::default(),
        labels_digest: 0,
        deadline: None,
        dry_run: false,
        wake: false,
    }))
}

fn numbers(answer: &Answer) -> Vec<u64> {
    answer
        .as_ref()
        .unwrap()
        .iter()
        .map(|outcome| {
            let Outcome::Extend(ExtendOutcome::Extended { expires_in }) = outcome else {
                panic!("not a test outcome: {outcome:?}")
            };
            *expires_in
        })
        .collect()
}

fn start(log: &Log) -> Batcher {
    Batcher::start(log.clone(), BatchMetrics::default())
}

#[tokio::test(start_paused = true)]
async fn the_first_operation_goes_at_once_and_the_next_share_an_entry() {
    let log = Log::with(&[Fate::Commit { after_ms: 5 }]);
    let batcher = start(&log);
    let first = batcher.submit(vec![admit(0)], None).unwrap();
    tokio::task::yield_now().await;
    assert_eq!(log.entries(), [[0]]);
    let rest: Vec<_> = (1..9)
        .map(|number| batcher.submit(vec![admit(number)], None).unwrap())
        .collect();
    assert_eq!(numbers(&first.await), [0]);
    for (number, completion) in (1..9).zip(rest) {
        assert_eq!(numbers(&completion.await), [number]);
    }
    assert_eq!(log.entries(), [vec![0], (1..9).collect::<Vec<_>>()]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_entry_holds_the_next_one_back_only_for_a_moment() {
    let log = Log::with(&[Fate::Hang]);
    let batcher = start(&log);
    let stuck = batcher.submit(vec![admit(0)], None).unwrap();
    tokio::task::yield_now().await;
    let start = Instant::now();
    let next = batcher.submit(vec![admit(1)], None).unwrap();
    assert_eq!(numbers(&next.await), [1]);
    assert!(start.elapsed() <= ENTRY_PATIENCE + 2 * SWEEP_INTERVAL);
    assert_eq!(stuck.await, Err(SubmitError::Unknown));
    assert!(start.elapsed() <= COMMIT_WAIT_MAX + SWEEP_INTERVAL);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_asks_at_once_and_still_takes_releases() {
    let log = Log::with(&[Fate::Hang; ENTRIES_IN_FLIGHT_MAX]);
    let batcher = start(&log);
    let mut accepted = Vec::new();
    let overloaded = loop {
        let frame = (0..SUBMISSION_OPERATIONS_MAX as u64).map(admit).collect();
        match batcher.submit(frame, None) {
            Ok(completion) => accepted.push(completion),
            Err(error) => break error,
        }
        tokio::task::yield_now().await;
    };
    let SubmitError::Overloaded { retry_in } = overloaded else {
        panic!("{overloaded:?}")
    };
    assert!((RETRY_HINT_MIN..=RETRY_HINT_MAX).contains(&retry_in));
    assert_eq!(
        batcher.depth(),
        QUEUE_OPERATIONS_MAX - QUEUE_OPERATIONS_RESERVED
    );
    for number in 0..QUEUE_OPERATIONS_RESERVED as u64 {
        accepted.push(batcher.submit(vec![extend(number)], None).unwrap());
    }
    let full = batcher.submit(vec![extend(0)], None).unwrap_err();
    assert!(matches!(full, SubmitError::Overloaded { .. }), "{full:?}");
    let mixed = batcher.submit(vec![extend(0), admit(0)], None).unwrap_err();
    assert!(matches!(mixed, SubmitError::Overloaded { .. }), "{mixed:?}");
    // Nothing landed in all that time: those in the log may have happened, the others did not.
    for completion in accepted {
        let answer = completion.await;
        assert!(
            matches!(answer, Err(SubmitError::Unknown | SubmitError::NoQuorum)),
            "{answer:?}"
        );
    }
}

/// Fills the queue of `batcher` up to the last operation, the reserved part included.
async fn fill(batcher: &Batcher) -> Vec<Completion> {
    let mut accepted = Vec::new();
    for one in [admit, extend] {
        loop {
            let frame = (0..64).map(one).collect();
            match batcher.submit(frame, None) {
                Ok(completion) => accepted.push(completion),
                Err(SubmitError::Overloaded { .. }) => break,
                Err(error) => panic!("{error:?}"),
            }
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(batcher.depth(), QUEUE_OPERATIONS_MAX);
    accepted
}

/// Offers `per_ms` asks in each of `ms` milliseconds; answers the longest queue after the first 300, and the
/// hints of those that were refused.
async fn press(batcher: &Batcher, per_ms: u64, ms: u64) -> (usize, Vec<Duration>) {
    let (mut longest, mut hints) = (0, Vec::new());
    let mut accepted = Vec::new();
    for tick in 0..ms {
        match batcher.submit((0..per_ms).map(admit).collect(), None) {
            Ok(completion) => accepted.push(completion),
            Err(SubmitError::Overloaded { retry_in }) => hints.push(retry_in),
            Err(error) => panic!("{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        if tick >= 300 {
            longest = longest.max(batcher.depth());
        }
    }
    (longest, hints)
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_stays_is_kept_short_and_a_burst_fills_it() {
    // Two entries of 512 in 10 ms: 100 a millisecond and 2 in flight more.
    let log = Log::with(&[Fate::Commit { after_ms: 20 }; 400]);
    let batcher = start(&log);
    let (longest, hints) = press(&batcher, 200, 1_000).await;
    assert!(longest <= QUEUE_CROWDED_OPERATIONS, "{longest}");
    assert!(
        longest > QUEUE_CROWDED_OPERATIONS / 2,
        "the log is kept busy"
    );
    let mild = *hints.last().unwrap();
    // Ten times as many are told to come back later.
    let (longest, hints) = press(&batcher, 250, 500).await;
    assert!(longest <= QUEUE_CROWDED_OPERATIONS, "{longest}");
    assert!(*hints.last().unwrap() >= mild);
    // Once it was empty, a burst finds room again.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(batcher.depth(), 0);
    for _ in 0..QUEUE_CROWDED_OPERATIONS * 2 / 256 {
        batcher.submit((0..256).map(admit).collect(), None).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_gives_capacity_back_waits_for_room_and_is_done() {
    let log = Log::with(&[Fate::Commit { after_ms: 10 }; ENTRIES_IN_FLIGHT_MAX]);
    let batcher = start(&log);
    let accepted = fill(&batcher).await;
    let refused = batcher.answer(vec![extend(0), admit(0)], None).await;
    assert!(matches!(refused, Err(SubmitError::Overloaded { .. })));
    let waiting = (1..=100).map(|number| batcher.answer(vec![extend(number)], None));
    let answers = futures::future::join_all(waiting).await;
    for (number, answer) in (1..).zip(&answers) {
        assert_eq!(numbers(answer), [number]);
    }
    drop(accepted);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_room_waits_no_longer_than_anything_moves() {
    let log = Log::with(&[Fate::Hang; ENTRIES_IN_FLIGHT_MAX]);
    let batcher = start(&log);
    let accepted = fill(&batcher).await;
    let begun = Instant::now();
    let deadline = begun + Duration::from_millis(50);
    let answer = batcher.answer(vec![extend(1)], Some(deadline)).await;
    assert_eq!(answer, Err(SubmitError::Expired));
    assert_eq!(Instant::now(), deadline);
    // Then the asks are dropped, which makes room, but nothing lands.
    let answer = batcher.answer(vec![extend(1)], None).await;
    assert_eq!(answer, Err(SubmitError::NoQuorum));
    assert!(begun.elapsed() <= QUEUE_WAIT_MAX * 2 + SWEEP_INTERVAL * 2);
    drop(accepted);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_room_is_told_when_the_node_stops() {
    let log = Log::with(&[Fate::Hang; ENTRIES_IN_FLIGHT_MAX]);
    let batcher = start(&log);
    let accepted = fill(&batcher).await;
    let waiting = batcher.answer(vec![extend(1)], None);
    let (answer, ()) = tokio::join!(waiting, async { batcher.close() });
    assert_eq!(answer, Err(SubmitError::Stopped));
    drop(accepted);
}

#[tokio::test(start_paused = true)]
async fn bytes_are_bounded_too() {
    let log = Log::with(&[Fate::Hang; ENTRIES_IN_FLIGHT_MAX]);
    let batcher = start(&log);
    let mut policy = weir_admission::Policy::default();
    for number in 0..10_000 {
        policy
            .tenant_weights
            .insert(TenantName::new(&format!("{number:0>100}")).unwrap(), 1);
    }
    let put = Operation::PutPolicy(Box::new(weir_admission::PutPolicy {
        principal: weir_admission::Principal::new("anonymous").unwrap(),
        target: TargetName::new("demo/chat").unwrap(),
        policy,
        expected_version: None,
    }));
    let mut accepted = 0;
    let refused = loop {
        match batcher.submit(vec![put.clone()], None) {
            Ok(_abandoned_later) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(refused, SubmitError::Overloaded { .. }),
        "{refused:?}"
    );
    assert!((1..20).contains(&accepted), "{accepted}");
}

#[tokio::test(start_paused = true)]
async fn what_expires_in_the_queue_never_enters_the_log() {
    let log = Log::with(&[Fate::Commit { after_ms: 500 }]);
    let batcher = start(&log);
    let first = batcher.submit(vec![admit(0)], None).unwrap();
    tokio::task::yield_now().await;
    let past = batcher
        .submit(vec![admit(1)], Some(Instant::now()))
        .unwrap();
    assert_eq!(past.await, Err(SubmitError::Expired));
    assert_eq!(numbers(&first.await), [0]);
    assert_eq!(log.entries(), [[0]]);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_on_the_way_leaves_the_outcome_unknown() {
    let log = Log::with(&[Fate::Commit { after_ms: 500 }]);
    let batcher = start(&log);
    let start = Instant::now();
    let deadline = start + Duration::from_millis(100);
    let hasty = batcher.submit(vec![admit(0)], Some(deadline)).unwrap();
    let patient = batcher.submit(vec![admit(1), admit(2)], None).unwrap();
    assert_eq!(hasty.await, Err(SubmitError::Unknown));
    assert!(start.elapsed() <= Duration::from_millis(100) + SWEEP_INTERVAL);
    assert_eq!(numbers(&patient.await), [1, 2]);
}

/// Callers wait for 50 ms, an entry takes 200, and they ask again and again: three times as many as the log
/// takes.
#[tokio::test(start_paused = true)]
async fn a_storm_of_retries_is_dropped_before_the_log_and_leaves_nothing_behind() {
    const CALLERS: u64 = 1_500;
    let patience = Duration::from_millis(50);
    let log = Log::with(&[Fate::Commit { after_ms: 200 }; 40]);
    let batcher = start(&log);
    let (mut asked, mut refused) = (Vec::new(), Vec::new());
    for round in 0..40 {
        let deadline = Instant::now() + patience;
        for caller in 0..CALLERS {
            let number = round * CALLERS + caller;
            match batcher.submit(vec![admit(number)], Some(deadline)) {
                Ok(completion) => asked.push((number, completion)),
                Err(SubmitError::Overloaded { .. }) => refused.push(number),
                Err(error) => panic!("{error:?}"),
            }
        }
        tokio::time::sleep(patience).await;
    }
    let mut proposed: BTreeSet<u64> = log.entries().into_iter().flatten().collect();
    assert!(refused.iter().all(|number| !proposed.contains(number)));
    let (mut expired, mut unknown) = (refused.len(), 0);
    for (number, answer) in asked {
        match answer.await {
            Err(SubmitError::Expired) => {
                assert!(!proposed.contains(&number), "{number} was dropped");
                expired += 1;
            }
            Err(SubmitError::Unknown) => {
                assert!(proposed.remove(&number), "{number} was proposed once");
                unknown += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(expired > unknown, "{expired} {unknown}");
    // The log is quick again, and nothing of the storm is left in its way.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(batcher.depth(), 0);
    log.fates.lock().unwrap().clear();
    let begun = Instant::now();
    let next = batcher.submit(vec![admit(1)], Some(begun + patience));
    assert_eq!(numbers(&next.unwrap().await), [1]);
    assert!(begun.elapsed() < patience);
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_for_those_who_left_but_releases_still_count() {
    let log = Log::with(&[Fate::Commit { after_ms: 10 }]);
    let batcher = start(&log);
    let first = batcher.submit(vec![admit(0)], None).unwrap();
    tokio::task::yield_now().await;
    drop(batcher.submit(vec![admit(1)], None).unwrap());
    drop(batcher.submit(vec![extend(2)], None).unwrap());
    let last = batcher.submit(vec![admit(3)], None).unwrap();
    assert_eq!(numbers(&first.await), [0]);
    assert_eq!(numbers(&last.await), [3]);
    assert_eq!(log.entries(), [vec![0], vec![2, 3]]);
}

#[tokio::test(start_paused = true)]
async fn errors_keep_their_meaning() {
    let log = Log::with(&[Fate::NotLeader, Fate::NoQuorum, Fate::Lose { after_ms: 1 }]);
    let batcher = start(&log);
    let mut answers = Vec::new();
    for number in 0..3 {
        answers.push(batcher.submit(vec![admit(number)], None).unwrap().await);
    }
    assert_eq!(
        answers,
        [
            Err(SubmitError::NotLeader {
                leader: Some(NodeId(2))
            }),
            Err(SubmitError::NoQuorum),
            Err(SubmitError::Unknown),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn closing_answers_what_was_accepted_and_refuses_the_rest() {
    let log = Log::with(&[Fate::Commit { after_ms: 20 }]);
    let batcher = start(&log);
    let accepted: Vec<_> = (0..3)
        .map(|number| batcher.submit(vec![admit(number)], None).unwrap())
        .collect();
    batcher.close();
    assert_eq!(
        batcher.submit(vec![admit(9)], None).unwrap_err(),
        SubmitError::Stopped
    );
    batcher.drained().await;
    for (number, completion) in (0..3).zip(accepted) {
        assert_eq!(numbers(&completion.await), [number]);
    }
}

#[derive(Clone, Debug)]
struct Step {
    operations: usize,
    gives_back: bool,
    deadline_ms: Option<u64>,
    pause_ms: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        prop_oneof![3 => 1..4_usize, 1 => 100..=SUBMISSION_OPERATIONS_MAX],
        any::<bool>(),
        proptest::option::of(0..200_u64),
        prop_oneof![2 => Just(0), 1 => 0..60_u64],
    )
        .prop_map(|(operations, gives_back, deadline_ms, pause_ms)| Step {
            operations,
            gives_back,
            deadline_ms,
            pause_ms,
        });
    proptest::collection::vec(step, 1..120)
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        6 => (0..40_u64).prop_map(|after_ms| Fate::Commit { after_ms }),
        1 => (0..40_u64).prop_map(|after_ms| Fate::Lose { after_ms }),
        1 => Just(Fate::Hang),
        1 => Just(Fate::NotLeader),
        1 => Just(Fate::NoQuorum),
    ];
    proptest::collection::vec(fate, 0..60)
}

/// Numbers and answer of each submission, in the order of submitting.
async fn run(log: &Log, steps: &[Step]) -> Vec<(Vec<u64>, Answer)> {
    let batcher = start(log);
    let mut next = 0;
    let mut waiting = Vec::new();
    for step in steps {
        let own: Vec<u64> = (next..next + step.operations as u64).collect();
        next += step.operations as u64;
        let make = if step.gives_back { extend } else { admit };
        let operations = own.iter().map(|number| make(*number)).collect();
        let deadline = step
            .deadline_ms
            .map(|ms| Instant::now() + Duration::from_millis(ms));
        let submitted = batcher.submit(operations, deadline);
        waiting.push((own, submitted));
        tokio::time::sleep(Duration::from_millis(step.pause_ms)).await;
    }
    let patience = QUEUE_WAIT_MAX + COMMIT_WAIT_MAX + 10 * SWEEP_INTERVAL;
    // What gives capacity back waits on while entries land.
    let entries = u32::try_from(steps.len()).unwrap();
    let mut answers = Vec::new();
    for ((own, submitted), step) in waiting.into_iter().zip(steps) {
        let patience = if step.gives_back {
            patience * entries
        } else {
            patience
        };
        let answer = match submitted {
            Ok(completion) => tokio::time::timeout(patience, completion)
                .await
                .expect("an answer in time"),
            Err(error) => Err(error),
        };
        answers.push((own, answer));
    }
    answers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_submission_gets_one_true_answer(steps in steps(), fates in fates()) {
        let log = Log::with(&fates);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let answers = runtime.block_on(run(&log, &steps));
        let entries = log.entries();
        let logged: Vec<u64> = entries.iter().flatten().copied().collect();
        prop_assert!(logged.is_sorted(), "the log keeps the order of submitting");
        let logged_once: BTreeSet<u64> = logged.iter().copied().collect();
        prop_assert_eq!(logged_once.len(), logged.len(), "nothing enters the log twice");
        prop_assert!(entries.iter().all(|entry| entry.len() <= ENTRY_OPERATIONS_MAX));
        prop_assert!(log.in_flight_max.load(Ordering::SeqCst) <= ENTRIES_IN_FLIGHT_MAX);
        for (own, answer) in answers {
            let entered = own.iter().filter(|number| logged_once.contains(number)).count();
            match answer {
                Ok(_) => prop_assert_eq!(numbers(&answer), own),
                Err(SubmitError::Unknown) => prop_assert_eq!(entered, own.len()),
                Err(error) => prop_assert_eq!(entered, 0, "{:?} says that nothing happened", error),
            }
        }
    }
}
