use super::counts::{Counts, Key};
use super::recorder::notes;
use super::*;
use crate::limits::{HISTORY_BATCH_MAX, HISTORY_MINUTES_MAX};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_admission::{
    Admit, AdmitOutcome, Amounts, AskName, CallOutcome, CancelOutcome, DimensionName, EnforcedBy,
    GrantId, InitialUse, Kind, Limit, LimitName, Operation, Outcome, Policy, Principal, Priority,
    PriorityName, PutPolicy, Release, ReleaseOutcome, Report, ReportOutcome, Stamp, State,
    TargetName, TenantName,
};
use weir_proto::convert::history::HistoryBy;
use weir_proto::v1 as wire;
use weir_raft::Committed;

/// For what takes a moment, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// A minute of the year 2026.
const START: u64 = 29_700_000;

/// A history with a clock that stands still until it is moved.
struct Fixture {
    history: History,
    minute: Arc<AtomicU64>,
    metrics: HistoryMetrics,
}

impl Fixture {
    fn start(dir: &Path, config: HistoryConfig, minute: u64) -> Fixture {
        let minute = Arc::new(AtomicU64::new(minute));
        let metrics = HistoryMetrics::default();
        let clock = minute.clone();
        let wall: Wall = Arc::new(move || clock.load(Ordering::Relaxed) * 60 + 59);
        let history = History::start(dir.to_owned(), config, wall, metrics.clone());
        Fixture {
            history,
            minute,
            metrics,
        }
    }

    /// A history that has its store: on a busy machine the life before it lets go of it some time after it was
    /// closed.
    async fn open(dir: &Path, config: HistoryConfig, minute: u64) -> Fixture {
        let fixture = Fixture::start(dir, config, minute);
        let deadline = std::time::Instant::now() + PATIENCE;
        while fixture.read(HistoryBy::Nothing).await.trouble == "in use" {
            assert!(
                std::time::Instant::now() < deadline,
                "the store stays in use"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        fixture
    }

    /// Closes, however long it takes to write on a busy machine.
    async fn close(&self) {
        assert!(
            self.history.close_within(PATIENCE).await,
            "it is not closed"
        );
    }

    fn shared(&self) -> &Shared {
        self.history.shared.as_ref().unwrap()
    }

    fn at(&self, minute: u64) {
        self.minute.store(minute, Ordering::Relaxed);
    }

    /// Counts `admitted` of a tenant in the minute that it is.
    fn count(&self, tenant: &str, admitted: u64) {
        let key = Key::of(&target(), &TenantName::new(tenant).unwrap(), &priority(0));
        let counts = Counts {
            admitted,
            ..Counts::default()
        };
        self.shared()
            .minutes()
            .at(self.shared().now())
            .row(key)
            .add(&counts);
    }

    async fn read(&self, by: HistoryBy) -> Answer {
        self.history.read(all(by)).await.unwrap()
    }

    /// Start minute and admitted of every point.
    async fn admitted(&self) -> Vec<(u64, u64)> {
        let answer = self.read(HistoryBy::Nothing).await;
        let points = answer.points.iter();
        points
            .map(|point| (point.start_unix_s / 60, point.admitted))
            .collect()
    }
}

/// Everything, minute by minute.
fn all(by: HistoryBy) -> ReadHistory {
    ReadHistory {
        target: target(),
        tenant: None,
        priority: None,
        from_minute: 0,
        to_minute: u64::from(u32::MAX),
        step_minutes: 1,
        by,
    }
}

fn target() -> TargetName {
    TargetName::new("api/x").unwrap()
}

fn tenant(place: usize) -> TenantName {
    TenantName::new(["ann", "bob"][place % 2]).unwrap()
}

fn priority(place: usize) -> PriorityName {
    PriorityName::new(["p1", "p2"][place % 2]).unwrap()
}

fn dimension(name: &str) -> DimensionName {
    DimensionName::new(name).unwrap()
}

fn tokens(tokens: u64) -> Amounts {
    Amounts::new(vec![(dimension("tokens"), tokens)]).unwrap()
}

fn principal() -> Principal {
    Principal::new("fleet").unwrap()
}

/// A thousand tokens in ten seconds.
fn policy() -> Operation {
    let limit = Limit {
        name: LimitName::new("tpm").unwrap(),
        dimension: dimension("tokens"),
        cap: 1_000,
        per: 10_000_000,
        kind: Kind::Sliding,
        enforced_by: EnforcedBy::Us,
        burst: Some(10_000_000),
        initial_use: InitialUse::Empty,
    };
    let priority = |place| Priority {
        name: priority(place),
        weight: 1,
    };
    Operation::PutPolicy(Box::new(PutPolicy {
        target: target(),
        principal: principal(),
        policy: Policy {
            limits: vec![limit],
            priorities: vec![priority(0), priority(1)],
            ..Policy::default()
        },
        expected_version: None,
    }))
}

#[derive(Clone, Debug)]
enum Act {
    /// The next ask of a call.
    Ask {
        call: usize,
        tokens: u64,
        dry_run: bool,
    },
    Release {
        grant: usize,
        actual: Option<u64>,
        outcome: u8,
    },
    Cancel {
        call: usize,
    },
    Report {
        call: usize,
        tokens: u64,
    },
    /// Cluster time goes on.
    Wait(u64),
    /// The next minute of the wall clock.
    Minute,
    /// The node is stopped and started again.
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0..6usize, 1..400u64, prop::bool::weighted(0.1)).prop_map(|(call, tokens, dry_run)| {
            Act::Ask { call, tokens, dry_run }
        }),
        4 => (0..4usize, prop::option::of(0..600u64), 0..4u8).prop_map(|(grant, actual, outcome)| {
            Act::Release { grant, actual, outcome }
        }),
        1 => (0..6usize).prop_map(|call| Act::Cancel { call }),
        1 => (0..6usize, 1..100u64).prop_map(|(call, tokens)| Act::Report { call, tokens }),
        3 => (0..8_000_000u64).prop_map(Act::Wait),
        1 => Just(Act::Minute),
        1 => Just(Act::Restart),
    ]
}

/// Whose, in which minute.
type Place = (u64, usize);

/// What is known of a call: its number, asks, attempt and size.
#[derive(Clone, Copy)]
struct Call {
    number: u64,
    ask: u32,
    tokens: u64,
}

/// The rules at work, and what must have been counted, added up in the simplest way.
struct World {
    state: State,
    index: u64,
    now: u64,
    minute: u64,
    calls: [Call; 6],
    /// Grants that were answered.
    grants: Vec<Granted>,
    expected: BTreeMap<Place, Sum>,
}

#[derive(Clone, Copy)]
struct Granted {
    id: GrantId,
    call: usize,
    number: u64,
    tokens: u64,
    live: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Sum {
    admitted: u64,
    deferred: u64,
    rejected: u64,
    throttled: u64,
    ungated: u64,
    charged: u64,
    corrected: i64,
}

impl World {
    fn new() -> World {
        let mut world = World {
            state: State::default(),
            index: 0,
            now: 0,
            minute: START,
            calls: [Call {
                number: 0,
                ask: 0,
                tokens: 0,
            }; 6],
            grants: Vec::new(),
            expected: BTreeMap::new(),
        };
        world.apply(&policy());
        world
    }

    fn apply(&mut self, operation: &Operation) -> Outcome {
        self.index += 1;
        let stamp = Stamp::from_micros(self.now);
        let mut outcomes = self
            .state
            .apply(self.index, stamp, std::slice::from_ref(operation));
        outcomes.remove(0)
    }

    /// Applies an act and has it counted, by the history and here.
    fn act(&mut self, act: &Act, history: &Shared) {
        let Some(operation) = self.operation(act) else {
            return;
        };
        let batch = std::slice::from_ref(&operation);
        let notes = notes(batch, self.state.settlements(batch));
        let outcome = self.apply(&operation);
        self.count(act, &outcome);
        let committed = Committed {
            index: self.index,
            stamp: self.state.now(),
            outcomes: vec![outcome],
        };
        history.count(&notes, &committed);
    }

    fn sum(&mut self, call: usize) -> &mut Sum {
        self.expected.entry((self.minute, call % 4)).or_default()
    }

    /// The live grant of a call costs so much instead, and has ended.
    fn settle(&mut self, call: usize, number: u64, tokens: impl Fn(u64) -> u64) {
        let mut of_call = self.grants.iter_mut();
        let granted =
            of_call.find(|grant| grant.live && (grant.call, grant.number) == (call, number));
        if let Some(granted) = granted {
            granted.live = false;
            let change = tokens(granted.tokens) as i64 - granted.tokens as i64;
            if change != 0 {
                self.sum(call).corrected += change;
            }
        }
    }

    fn count(&mut self, act: &Act, outcome: &Outcome) {
        match (act, outcome) {
            (
                Act::Ask {
                    call,
                    dry_run: false,
                    ..
                },
                Outcome::Admit(decided),
            ) => {
                self.count_decision(*call, decided);
            }
            (
                Act::Release {
                    grant,
                    actual,
                    outcome,
                },
                Outcome::Release(ReleaseOutcome::Applied),
            ) => {
                let Granted { call, number, .. } = *self.grants.iter().rev().nth(*grant).unwrap();
                self.settle(call, number, |charged| match outcome {
                    0 | 1 => actual.unwrap_or(charged),
                    2 => charged,
                    _ => 0,
                });
                if *outcome == 2 {
                    self.sum(call).throttled += 1;
                }
            }
            (Act::Cancel { call }, Outcome::Cancel(CancelOutcome::GrantRefunded)) => {
                self.settle(*call, self.calls[*call].number, |_| 0);
            }
            (Act::Report { call, tokens }, Outcome::Report(ReportOutcome::Charged)) => {
                let sum = self.sum(*call);
                (sum.ungated, sum.charged) = (sum.ungated + 1, sum.charged + tokens);
            }
            (Act::Report { call, tokens }, Outcome::Report(ReportOutcome::Settled)) => {
                self.settle(*call, self.calls[*call].number, |_| *tokens);
            }
            _ => {}
        }
    }

    fn count_decision(&mut self, call: usize, decided: &AdmitOutcome) {
        let number = self.calls[call].number;
        let own = GrantId {
            index: self.index,
            offset: 0,
        };
        match decided {
            AdmitOutcome::Admitted(admitted) if admitted.grant == Some(own) => {
                // A grant that was there before was taken back.
                self.settle(call, number, |_| 0);
                let tokens = admitted.charged.get(&dimension("tokens")).unwrap();
                self.grants.push(Granted {
                    id: own,
                    call,
                    number,
                    tokens,
                    live: true,
                });
                let sum = self.sum(call);
                (sum.admitted, sum.charged) = (sum.admitted + 1, sum.charged + tokens);
            }
            AdmitOutcome::Admitted(_) => {}
            AdmitOutcome::Deferred(_) => {
                self.settle(call, number, |_| 0);
                self.sum(call).deferred += 1;
            }
            AdmitOutcome::Rejected(_) => self.sum(call).rejected += 1,
        }
    }

    /// The next ask of a call, or the first of its next life.
    fn ask(&mut self, call: usize, size: u64, dry_run: bool) -> Operation {
        let known = &mut self.calls[call];
        if known.ask == 0 {
            (known.number, known.tokens) = (known.number + 1, size);
        }
        known.ask += 1;
        Operation::Admit(Box::new(Admit {
            target: target(),
            tenant: tenant(call),
            principal: principal(),
            priority: priority(call / 2),
            admission_id: id(call, known.number),
            attempt: 1,
            ask: known.ask,
            cost: tokens(known.tokens),
            cost_max: Amounts::default(),
            labels_digest: 0,
            deadline: None,
            dry_run,
            wake: false,
        }))
    }

    fn operation(&mut self, act: &Act) -> Option<Operation> {
        Some(match act {
            Act::Ask {
                call,
                tokens,
                dry_run,
            } => self.ask(*call, *tokens, *dry_run),
            Act::Release {
                grant,
                actual,
                outcome,
            } => {
                let Granted {
                    id: grant, call, ..
                } = *self.grants.iter().rev().nth(*grant)?;
                self.calls[call].ask = 0;
                Operation::Release(Box::new(Release {
                    target: target(),
                    principal: principal(),
                    grant,
                    actual: actual.map_or_else(Amounts::default, tokens),
                    outcome: match outcome {
                        0 | 1 => CallOutcome::Ok,
                        2 => CallOutcome::Throttled { retry_after: 0 },
                        _ => CallOutcome::NotSent,
                    },
                }))
            }
            Act::Cancel { call } => {
                let known = &mut self.calls[*call];
                let ask = std::mem::take(&mut known.ask);
                Operation::Cancel(Box::new(AskName {
                    target: target(),
                    tenant: tenant(*call),
                    principal: principal(),
                    admission_id: id(*call, known.number),
                    attempt: 1,
                    ask: ask.max(1),
                }))
            }
            Act::Report { call, tokens: size } => {
                let known = &mut self.calls[*call];
                known.ask = 0;
                Operation::Report(Box::new(Report {
                    target: target(),
                    tenant: tenant(*call),
                    principal: principal(),
                    priority: priority(*call / 2),
                    admission_id: id(*call, known.number),
                    attempt: 1,
                    actual: tokens(*size),
                    age: 0,
                }))
            }
            Act::Wait(_) | Act::Minute | Act::Restart => return None,
        })
    }
}

/// The id of a call's n-th life.
fn id(call: usize, number: u64) -> Box<[u8]> {
    format!("{call}-{number}").into_bytes().into()
}

/// What the history tells, by place.
async fn told(fixture: &Fixture) -> BTreeMap<Place, Sum> {
    let mut told = BTreeMap::new();
    for who in 0..4 {
        let read = ReadHistory {
            tenant: Some(tenant(who)),
            priority: Some(priority(who / 2)),
            ..all(HistoryBy::Nothing)
        };
        for point in fixture.history.read(read).await.unwrap().points {
            let place = (point.start_unix_s / 60, who);
            told.insert(place, sum_of(&point));
        }
    }
    told
}

fn sum_of(point: &wire::HistoryPoint) -> Sum {
    Sum {
        admitted: point.admitted,
        deferred: point.deferred,
        rejected: point.rejected,
        throttled: point.throttled,
        ungated: point.ungated,
        charged: point.charged.get("tokens").copied().unwrap_or(0),
        corrected: point.corrected.get("tokens").copied().unwrap_or(0),
    }
}

async fn judge(acts: &[Act]) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("history");
    let config = HistoryConfig::default();
    let mut world = World::new();
    let mut fixture = Fixture::open(&dir, config, world.minute).await;
    for act in acts {
        match act {
            Act::Wait(us) => world.now += us,
            Act::Minute => {
                // Minutes pass faster here than they are written by themselves.
                fixture.read(HistoryBy::Nothing).await;
                world.minute += 1;
                fixture.at(world.minute);
            }
            Act::Restart => {
                fixture.close().await;
                fixture = Fixture::open(&dir, config, world.minute).await;
            }
            Act::Ask { .. } | Act::Release { .. } | Act::Cancel { .. } | Act::Report { .. } => {
                world.act(act, fixture.shared());
            }
        }
    }
    world.expected.retain(|_, sum| *sum != Sum::default());
    prop_assert_eq!(told(&fixture).await, world.expected);
    // However points are cut, they add up to the same.
    let total = |points: &[wire::HistoryPoint]| {
        let sums = points.iter().map(sum_of);
        sums.fold((0, 0), |(asks, used), sum| {
            let charged = sum.charged as i64;
            (
                asks + sum.admitted + sum.deferred + sum.rejected,
                used + charged + sum.corrected,
            )
        })
    };
    let minutes = fixture.read(HistoryBy::Nothing).await;
    for (by, step_minutes) in [(HistoryBy::Tenant, 7), (HistoryBy::Priority, 1_000_000)] {
        let read = ReadHistory {
            step_minutes,
            ..all(by)
        };
        let answer = fixture.history.read(read).await.unwrap();
        prop_assert_eq!(total(&answer.points), total(&minutes.points));
    }
    fixture.close().await;
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_told_is_what_was_answered(acts in prop::collection::vec(act(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(judge(&acts))?;
    }
}

#[tokio::test]
async fn minutes_are_kept_over_a_restart_and_added_to() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("history");
    let fixture = Fixture::open(&dir, HistoryConfig::default(), START).await;
    fixture.count("ann", 3);
    fixture.close().await;
    let fixture = Fixture::open(&dir, HistoryConfig::default(), START).await;
    fixture.count("ann", 4);
    fixture.at(START + 1);
    fixture.count("bob", 1);
    assert_eq!(fixture.admitted().await, [(START, 7), (START + 1, 1)]);
    let by_tenant = fixture.read(HistoryBy::Tenant).await;
    assert_eq!(by_tenant.oldest_minute, Some(START as u32));
    assert_eq!(by_tenant.trouble, "");
    let names: Vec<&str> = by_tenant
        .points
        .iter()
        .map(|point| point.tenant.as_str())
        .collect();
    assert_eq!(names, ["ann", "bob"]);
    fixture.close().await;
}

/// Damages a file of a store.
type Damage = fn(&mut Vec<u8>);

#[tokio::test]
async fn a_damaged_store_is_put_aside_and_a_new_one_begins() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("history");
    for (round, damage) in (1..).zip([(|bytes| bytes.fill(0x5a)) as Damage, Vec::clear]) {
        let fixture = Fixture::start(&dir, HistoryConfig::default(), START + round);
        for tenant in 0..500 {
            fixture.count(&tenant.to_string(), 1);
        }
        fixture.close().await;
        for entry in std::fs::read_dir(&dir).unwrap() {
            let (path, name) = entry
                .map(|entry| (entry.path(), entry.file_name()))
                .unwrap();
            if path.is_file() && name != "conf" {
                let mut bytes = std::fs::read(&path).unwrap();
                damage(&mut bytes);
                std::fs::write(&path, bytes).unwrap();
            }
        }
        let fixture = Fixture::open(&dir, HistoryConfig::default(), START + round).await;
        assert_eq!(fixture.admitted().await, [], "round {round}");
        fixture.count("ann", 2);
        assert_eq!(fixture.admitted().await, [(START + round, 2)]);
        assert_eq!(fixture.read(HistoryBy::Nothing).await.trouble, "");
        assert_eq!(fixture.metrics.told(), (true, 1), "round {round}");
        fixture.close().await;
        let aside: Vec<String> = std::fs::read_dir(parent.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| name != "history")
            .collect();
        let expected = format!("history.damaged-{}", (START + round) * 60 + 59);
        assert_eq!(aside, [expected], "only the last one is kept");
    }
}

#[tokio::test]
async fn without_a_store_the_last_minutes_are_told_and_the_rest_is_given_up() {
    let parent = tempfile::tempdir().unwrap();
    // A file where the directory should be: it is not damage, and nothing of it is moved.
    let dir = parent.path().join("history");
    std::fs::write(&dir, b"not a store").unwrap();
    let fixture = Fixture::start(&dir, HistoryConfig::default(), START);
    let minutes = HISTORY_MINUTES_MAX as u64 + 3;
    for minute in START..START + minutes {
        fixture.at(minute);
        fixture.count("ann", minute);
        fixture.read(HistoryBy::Nothing).await;
    }
    let kept: Vec<u64> = fixture
        .admitted()
        .await
        .iter()
        .map(|(minute, _)| *minute)
        .collect();
    assert_eq!(kept, Vec::from_iter(START + 3..START + minutes));
    assert!(!fixture.read(HistoryBy::Nothing).await.trouble.is_empty());
    assert_eq!(fixture.metrics.told(), (false, 0));
    assert_eq!(std::fs::read(&dir).unwrap(), b"not a store");
    fixture.close().await;
}

#[tokio::test]
async fn a_node_that_keeps_none_counts_nothing_and_says_so() {
    let parent = tempfile::tempdir().unwrap();
    let config = HistoryConfig {
        retention_hours: 0,
        ..HistoryConfig::default()
    };
    let history = History::start(
        parent.path().join("history"),
        config,
        wall(),
        HistoryMetrics::default(),
    );
    assert!(history.recorder().0.is_none());
    let answer = history.read(all(HistoryBy::Nothing)).await.unwrap();
    assert_eq!(
        (answer.points.len(), answer.trouble.as_str()),
        (0, "it keeps none")
    );
    history.close().await;
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}

/// Rows of one tenant each, in one minute.
fn rows(minute: u64, count: usize) -> Vec<(u32, Key, Counts)> {
    let row = |number: usize| {
        let tenant = TenantName::new(&format!("{number:05}")).unwrap();
        let counts = Counts {
            admitted: 1,
            ..Counts::default()
        };
        (
            minute as u32,
            Key::of(&target(), &tenant, &priority(0)),
            counts,
        )
    };
    (0..count).map(row).collect()
}

#[test]
fn what_is_old_or_too_much_goes_in_batches_from_the_oldest() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = super::store::Store::open(&dir.path().join("history")).unwrap();
    let count = HISTORY_BATCH_MAX + HISTORY_BATCH_MAX / 2;
    for minute in START..START + 3 {
        for batch in rows(minute, count).chunks(HISTORY_BATCH_MAX) {
            store.add(batch).unwrap();
        }
    }
    let (all, of_minute) = (store.bytes(), store.bytes() / 3);
    let told = |store: &super::store::Store| {
        let rows = |minute: u64| store.rows(minute as u32, &target()).count();
        [rows(START), rows(START + 1), rows(START + 2)]
    };
    let first = START as u32;
    assert!(!store.trim(first, all).unwrap());
    assert_eq!(
        told(&store),
        [count; 3],
        "nothing is old, and all of it fits"
    );
    assert!(
        store.trim(first + 1, all).unwrap(),
        "more is old than goes at once"
    );
    assert_eq!(told(&store), [count - HISTORY_BATCH_MAX, count, count]);
    assert!(!store.trim(first + 1, all).unwrap());
    assert_eq!(told(&store), [0, count, count]);
    assert_eq!(store.bytes(), 2 * of_minute);
    while store.trim(first, of_minute / 2).unwrap() {}
    assert_eq!(told(&store)[1], 0);
    assert!(store.bytes() <= of_minute / 2 && told(&store)[2] >= count / 2 - 1);
    let bytes = store.bytes();
    drop(store);
    let store = super::store::Store::open(&dir.path().join("history")).unwrap();
    assert_eq!(
        store.bytes(),
        bytes,
        "what is kept is measured when it is opened"
    );
}

#[tokio::test]
async fn an_answer_with_too_many_points_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture::start(&dir.path().join("history"), HistoryConfig::default(), START);
    for minute in START..START + 4 {
        fixture.at(minute);
        for (_, key, counts) in rows(minute, 6_000) {
            fixture
                .shared()
                .minutes()
                .at(minute as u32)
                .row(key)
                .add(&counts);
        }
    }
    let refused = fixture.history.read(all(HistoryBy::Tenant)).await;
    assert_eq!(refused, Err(ReadError::TooManyPoints));
    let longer = ReadHistory {
        step_minutes: 1_000_000,
        ..all(HistoryBy::Tenant)
    };
    assert_eq!(
        fixture.history.read(longer).await.unwrap().points.len(),
        6_000
    );
    assert_eq!(fixture.admitted().await.len(), 4);
    fixture.close().await;
}

#[tokio::test]
async fn a_history_waits_for_the_one_before_it_to_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("history");
    let before = Fixture::start(&dir, HistoryConfig::default(), START);
    before.count("ann", 1);
    assert_eq!(before.admitted().await, [(START, 1)]);
    let after = Fixture::start(&dir, HistoryConfig::default(), START);
    after.count("ann", 2);
    assert_eq!(after.admitted().await, [(START, 2)]);
    assert_eq!(after.read(HistoryBy::Nothing).await.trouble, "in use");
    before.close().await;
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while after.admitted().await != [(START, 3)] {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(after.read(HistoryBy::Nothing).await.trouble, "");
    after.close().await;
}
