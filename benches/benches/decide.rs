//! One decision among many that wait: `cargo bench -p weir-benches --bench decide`.
//!
//! A target with two sliding limits is saturated, and every one of N tenants has one call waiting. `ask` is
//! the cost of one of them asking again and being deferred again. `grant_release` is the cost of the next in
//! line, who is told of its turn, being granted and released at once; with `lasting` the call takes a second
//! before it is released; with `late` nobody is told and all come long after they were due, when their places
//! have lapsed. `settlement` is what the leader reads of an ask before it goes into the log, for the history
//! of use. Operations come in batches of up to 64 that are built outside the measured time. Whoever asks was
//! not heard of since its last call, so its records are cold. A batch that took four times the median of its
//! kind was interrupted, and counts as that much.
//!
//! `--features system-allocator` shows what the program's allocator is worth.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a bench that meets the unexpected should stop right there"
)]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};
use weir_admission::{
    Admit, AdmitOutcome, Amounts, CallOutcome, DimensionName, EnforcedBy, GrantId, InitialUse,
    Kind, Limit, LimitName, Operation, Outcome, Policy, Principal, Priority, PriorityName,
    PutPolicy, Release, Stamp, State, TargetName, TenantName,
};

/// The allocator of the program; the system's for comparison.
#[cfg(not(feature = "system-allocator"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TENANTS: [usize; 3] = [10, 1_000, 100_000];
const REQUESTS_PER_MINUTE: u64 = 600_000;
/// Cluster time from one slot to the next, with the guard of a minute's limit.
const SLOT_US: u64 = 101;
/// Operations of an entry, as under load.
const BATCH: u64 = 64;
/// Weights of the priorities; tenants have them in turn.
const WEIGHTS: [u64; 3] = [5, 3, 2];

/// How callers come back and how long their calls take.
#[derive(Clone, Copy, Default)]
struct Callers {
    told: bool,
    /// From the grant to its release.
    call_us: u64,
}

struct Bench {
    state: State,
    callers: Callers,
    /// Releases to come with their times, a batch of grants each.
    running: VecDeque<(u64, Vec<Operation>)>,
    index: u64,
    now: u64,
    calls: Vec<u64>,
    asks: Vec<u32>,
    random: u64,
    turns: [u64; 3],
    rings: [u64; 3],
}

fn amounts(list: &[(&str, u64)]) -> Amounts {
    let list = list
        .iter()
        .map(|(name, units)| (DimensionName::new(name).unwrap(), *units));
    Amounts::new(list.collect()).unwrap()
}

fn target() -> TargetName {
    TargetName::new("openai/gpt").unwrap()
}

fn policy() -> Policy {
    let limit = |name: &str, cap| Limit {
        name: LimitName::new(name).unwrap(),
        dimension: DimensionName::new(name).unwrap(),
        cap,
        per: 60_000_000,
        kind: Kind::Sliding,
        enforced_by: EnforcedBy::Provider,
        burst: Some(0),
        initial_use: InitialUse::Empty,
    };
    let priority = |(name, weight): (&str, u32)| Priority {
        name: PriorityName::new(name).unwrap(),
        weight,
    };
    Policy {
        limits: vec![
            limit("requests", REQUESTS_PER_MINUTE),
            limit("tokens", 1_000_000_000),
        ],
        priorities: [("p1", 5), ("p2", 3), ("p3", 2)].map(priority).to_vec(),
        ..Policy::default()
    }
}

impl Bench {
    /// A saturated target with one waiting call of each of `tenants`.
    fn new(tenants: usize, callers: Callers) -> Bench {
        let mut bench = Bench {
            state: State::default(),
            callers,
            running: VecDeque::new(),
            index: 0,
            now: 0,
            calls: vec![0; tenants],
            asks: vec![1; tenants],
            random: 1,
            turns: [0; 3],
            rings: [0; 3],
        };
        let put = PutPolicy {
            target: target(),
            principal: Principal::new("anonymous").unwrap(),
            policy: policy(),
            expected_version: None,
        };
        bench.apply(&[Operation::PutPolicy(Box::new(put))]);
        // More calls than slots within the horizon, which do not wait: from here on everybody does.
        for call in 0..1_000 {
            let class = bench.next_class();
            let mut filler = bench.admit(usize::MAX / 3 * 3 - 3 + class, call, 1);
            if let Operation::Admit(filler) = &mut filler {
                filler.deadline = Some(0);
            }
            bench.apply(&[filler]);
        }
        for tenant in 0..tenants {
            let ask = bench.admit(tenant, 0, 1);
            bench.apply(&[ask]);
        }
        // A few slots more than turns, since turns are not foreseen to the slot.
        bench.now += BATCH * SLOT_US;
        bench
    }

    fn admit(&self, tenant: usize, call: u64, ask: u32) -> Operation {
        Operation::Admit(Box::new(Admit {
            target: target(),
            tenant: TenantName::new(&format!("tenant-{tenant}")).unwrap(),
            principal: Principal::new("anonymous").unwrap(),
            priority: PriorityName::new(["p1", "p2", "p3"][tenant % 3]).unwrap(),
            admission_id: format!("{tenant}-{call}").into_bytes().into(),
            attempt: 1,
            ask,
            cost: amounts(&[("requests", 1), ("tokens", 700)]),
            cost_max: Amounts::default(),
            labels_digest: 0,
            deadline: None,
            dry_run: false,
            wake: self.callers.told,
        }))
    }

    fn apply(&mut self, batch: &[Operation]) -> Vec<Outcome> {
        self.index += 1;
        self.state
            .apply(self.index, Stamp::from_micros(self.now), batch)
    }

    fn timed(&mut self, batch: &[Operation]) -> (Vec<Outcome>, Duration) {
        let begun = Instant::now();
        let outcomes = black_box(self.apply(black_box(batch)));
        (outcomes, begun.elapsed())
    }

    /// Asks of up to 64 random waiting calls, and whose they are.
    fn random_asks(&mut self, size: u64) -> (Vec<Operation>, Vec<usize>) {
        let (mut batch, mut tenants) = (Vec::new(), Vec::new());
        for _ in 0..size {
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695);
            let tenant = (self.random >> 33) as usize % self.asks.len();
            self.asks[tenant] += 1;
            batch.push(self.admit(tenant, self.calls[tenant], self.asks[tenant]));
            tenants.push(tenant);
        }
        (batch, tenants)
    }

    /// Asks of random waiting calls, all deferred, in batches of up to 64.
    fn asks(&mut self, count: u64) -> Duration {
        let (mut spent, mut left) = (Vec::new(), count);
        while left > 0 {
            let size = left.min(BATCH);
            let (batch, tenants) = self.random_asks(size);
            let (outcomes, time) = self.timed(&batch);
            spent.push(time);
            left -= size;
            self.refill(&tenants, &outcomes);
        }
        uninterrupted(spent)
    }

    /// What asks of random waiting calls settle, in batches of up to 64: nothing.
    fn settlements(&mut self, count: u64) -> Duration {
        let (mut spent, mut left) = (Vec::new(), count);
        while left > 0 {
            let size = left.min(BATCH);
            let (batch, _) = self.random_asks(size);
            let begun = Instant::now();
            black_box(self.state.settlements(black_box(&batch)));
            spent.push(begun.elapsed());
            left -= size;
        }
        uninterrupted(spent)
    }

    /// Lets the tenants that were granted something after all wait with their next call.
    fn refill(&mut self, tenants: &[usize], outcomes: &[Outcome]) {
        for (tenant, outcome) in tenants.iter().zip(outcomes) {
            let Some(grant) = granted_id(outcome) else {
                continue;
            };
            self.calls[*tenant] += 1;
            self.asks[*tenant] = 1;
            let next = self.admit(*tenant, self.calls[*tenant], 1);
            self.apply(&[release(grant), next]);
        }
    }

    /// Grants to those whose turn it is, all released when their calls end; their next calls then wait in
    /// their places.
    fn grants(&mut self, count: u64) -> Duration {
        let (mut asking, mut releasing, mut granted) = (Vec::new(), Vec::new(), 0);
        while granted < count {
            // No tenant twice in a batch: the first priority has a third of them and half of the turns.
            let size = (count - granted).min(BATCH).min(self.asks.len() as u64 / 2);
            self.now += size * SLOT_US;
            let tenants: Vec<_> = (0..size).map(|_| self.next_in_turn()).collect();
            let asks = tenants.iter().map(|tenant| {
                self.asks[*tenant] += 1;
                self.admit(*tenant, self.calls[*tenant], self.asks[*tenant])
            });
            let asks: Vec<_> = asks.collect();
            let (outcomes, ask_time) = self.timed(&asks);
            let grants = outcomes.iter().filter_map(granted_id);
            let releases: Vec<_> = grants.map(release).collect();
            assert_eq!(releases.len() as u64, size, "it was their turn");
            asking.push(ask_time);
            granted += size;
            self.running
                .push_back((self.now + self.callers.call_us, releases));
            while let Some((_, releases)) = self.running.pop_front_if(|(at, _)| *at <= self.now) {
                releasing.push(self.timed(&releases).1);
            }
            let calls = tenants.iter().map(|tenant| {
                self.calls[*tenant] += 1;
                self.asks[*tenant] = 1;
                self.admit(*tenant, self.calls[*tenant], 1)
            });
            let calls: Vec<_> = calls.collect();
            self.apply(&calls);
        }
        uninterrupted(asking) + uninterrupted(releasing)
    }

    /// Whose turn it is: priorities by weight, the tenants of one in a ring.
    fn next_in_turn(&mut self) -> usize {
        let class = self.next_class();
        let tenants = (self.asks.len() - class).div_ceil(3) as u64;
        let turn = self.rings[class] % tenants;
        self.rings[class] += 1;
        class + 3 * turn as usize
    }

    /// The priority that is furthest behind its share; the more urgent of equals.
    fn next_class(&mut self) -> usize {
        let least = (0..3).min_by_key(|class| (self.turns[*class] + 1) * 30 / WEIGHTS[*class]);
        let class = least.unwrap();
        self.turns[class] += 1;
        class
    }
}

/// The sum of batches of one kind.
fn uninterrupted(mut batches: Vec<Duration>) -> Duration {
    batches.sort_unstable();
    let most = batches.get(batches.len() / 2).copied().unwrap_or_default() * 4;
    batches.into_iter().map(|batch| batch.min(most)).sum()
}

fn granted_id(outcome: &Outcome) -> Option<GrantId> {
    match outcome {
        Outcome::Admit(AdmitOutcome::Admitted(admitted)) => admitted.grant,
        Outcome::Admit(_) => None,
        other => panic!("unexpected {other:?}"),
    }
}

fn release(grant: GrantId) -> Operation {
    Operation::Release(Box::new(Release {
        target: target(),
        principal: Principal::new("anonymous").unwrap(),
        grant,
        actual: amounts(&[("tokens", 650)]),
        outcome: CallOutcome::Ok,
    }))
}

type Cost = fn(&mut Bench, u64) -> Duration;

fn decide(criterion: &mut Criterion) {
    let late = Callers::default();
    let told = Callers { told: true, ..late };
    let lasting = Callers {
        call_us: 1_000_000,
        ..told
    };
    let groups: [(&str, Callers, Cost); 5] = [
        ("ask", late, Bench::asks),
        ("grant_release", told, Bench::grants),
        ("lasting", lasting, Bench::grants),
        ("late", late, Bench::grants),
        ("settlement", late, Bench::settlements),
    ];
    for (name, callers, cost) in groups {
        let mut group = criterion.benchmark_group(name);
        for tenants in TENANTS {
            let mut bench = Bench::new(tenants, callers);
            group.bench_function(BenchmarkId::from_parameter(tenants), |bencher| {
                bencher.iter_custom(|count| cost(&mut bench, count));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, decide);
criterion_main!(benches);
