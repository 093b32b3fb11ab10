//! A fleet in virtual time: closed-loop workers behind a provider that counts, judged by what arrived.

use crate::make::{amounts, limit, policy, principal, priority, put, target, tenant};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weir_admission::{
    Admit, AdmitOutcome, CallOutcome, GrantId, InitialUse, Limit, Operation, Outcome, Policy,
    Release, Stamp, State, TargetName, TenantName,
};

const TARGET: &str = "openai/gpt";
const SECOND: u64 = 1_000_000;

/// SplitMix64: the same numbers for the same seed.
struct Rng(u64);

impl Rng {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        low + (z ^ (z >> 31)) % (high - low + 1)
    }
}

struct Fleet {
    policy: Policy,
    /// Priority, tenants, workers of each tenant.
    groups: Vec<(&'static str, usize, usize)>,
    /// Tokens before the answer, and the most the answer can add.
    tokens: (u64, u64),
    seed: u64,
    seconds: u64,
}

#[derive(Default)]
struct Seen {
    calls_of_priority: BTreeMap<&'static str, u64>,
    arrivals: Vec<(u64, [u64; 2])>,
    asks: u64,
    longest_wait: u64,
}

struct Worker {
    tenant: TenantName,
    priority: &'static str,
    since: u64,
    call: u64,
    ask: u32,
    actual: u64,
}

enum Event {
    Ask(usize),
    Send(usize, GrantId),
    Done(usize, GrantId),
}

/// A limit per ten seconds of which all may have been used before.
fn used_up(name: &str, cap: u64) -> Limit {
    Limit {
        initial_use: InitialUse::Full,
        ..limit(name, cap, 10 * SECOND)
    }
}

/// One run: the state under test, the workers, and what will happen when.
struct Run<'a> {
    fleet: &'a Fleet,
    target: TargetName,
    state: State,
    index: u64,
    rng: Rng,
    workers: Vec<Worker>,
    events: Vec<Option<Event>>,
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    seen: Seen,
}

/// Before this nothing is judged: the first burst is not the steady state.
const WARM_UP: u64 = 20 * SECOND;

impl Fleet {
    fn run(&self) -> Seen {
        let mut run = Run {
            fleet: self,
            target: target(TARGET),
            state: State::default(),
            index: 0,
            rng: Rng(self.seed),
            workers: self.workers(),
            events: Vec::new(),
            heap: BinaryHeap::new(),
            seen: Seen::default(),
        };
        run.apply(0, put(TARGET, self.policy.clone()));
        for worker in 0..run.workers.len() {
            let start = run.rng.between(0, 50_000);
            run.at(start, Event::Ask(worker));
        }
        while let Some(Reverse((now, event))) = run.heap.pop() {
            if now > self.seconds * SECOND {
                break;
            }
            match run.events[event].take().unwrap() {
                Event::Ask(worker) => run.ask(now, worker),
                Event::Send(worker, grant) => run.send(now, worker, grant),
                Event::Done(worker, grant) => run.done(now, worker, grant),
            }
        }
        run.state.check().unwrap();
        run.seen
    }

    fn workers(&self) -> Vec<Worker> {
        let mut workers = Vec::new();
        for (priority, tenants, each) in &self.groups {
            for number in 0..tenants * each {
                workers.push(Worker {
                    tenant: tenant(&format!("{priority}-{}", number % tenants)),
                    priority,
                    since: 0,
                    call: 0,
                    ask: 0,
                    actual: 0,
                });
            }
        }
        workers
    }
}

impl Run<'_> {
    fn at(&mut self, time: u64, event: Event) {
        self.heap.push(Reverse((time, self.events.len())));
        self.events.push(Some(event));
    }

    fn apply(&mut self, now: u64, operation: Operation) -> Outcome {
        self.index += 1;
        let outcomes = self
            .state
            .apply(self.index, Stamp::from_micros(now), &[operation]);
        outcomes.into_iter().next().unwrap()
    }

    fn ask(&mut self, now: u64, i: usize) {
        let (lower, spread) = self.fleet.tokens;
        let actual = lower + self.rng.between(0, spread);
        let worker = &mut self.workers[i];
        if worker.ask == 0 {
            worker.since = now;
            worker.actual = actual;
        }
        worker.ask += 1;
        let admit = Admit {
            target: self.target.clone(),
            tenant: worker.tenant.clone(),
            principal: principal(),
            priority: priority(worker.priority),
            admission_id: format!("{i}-{}", worker.call).into_bytes().into(),
            attempt: 1,
            ask: worker.ask,
            cost: amounts(&[("requests", 1), ("tokens", lower)]),
            cost_max: amounts(&[("tokens", lower + spread)]),
            labels_digest: 0,
            deadline: None,
            dry_run: false,
            wake: false,
        };
        self.seen.asks += u64::from(now > WARM_UP);
        match self.apply(now, Operation::Admit(Box::new(admit))) {
            Outcome::Admit(AdmitOutcome::Admitted(admitted)) => {
                let answered = now + self.rng.between(1_000, 6_000);
                let send = Event::Send(i, admitted.grant.unwrap());
                self.at(answered + admitted.start_in, send);
            }
            Outcome::Admit(AdmitOutcome::Deferred(deferred)) => {
                let late = self.rng.between(5_000, 40_000);
                self.at(now + deferred.retry_in + late, Event::Ask(i));
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    fn send(&mut self, now: u64, i: usize, grant: GrantId) {
        let arrival = now + self.rng.between(1_000, 10_000);
        self.seen
            .arrivals
            .push((arrival, [1, self.workers[i].actual]));
        let done = arrival + self.rng.between(50_000, 150_000);
        self.at(done, Event::Done(i, grant));
    }

    fn done(&mut self, now: u64, i: usize, grant: GrantId) {
        let release = Release {
            target: self.target.clone(),
            principal: principal(),
            grant,
            actual: amounts(&[("tokens", self.workers[i].actual)]),
            outcome: CallOutcome::Ok,
        };
        self.apply(now, Operation::Release(Box::new(release)));
        let worker = &mut self.workers[i];
        if now > WARM_UP {
            *self
                .seen
                .calls_of_priority
                .entry(worker.priority)
                .or_default() += 1;
            self.seen.longest_wait = self.seen.longest_wait.max(now - worker.since);
        }
        worker.call += 1;
        worker.ask = 0;
        let next = now + self.rng.between(5_000, 20_000);
        self.at(next, Event::Ask(i));
    }
}

/// The largest sum of one dimension over any window of `per`.
fn worst_window(arrivals: &[(u64, [u64; 2])], dimension: usize, per: u64) -> u64 {
    let mut sorted = arrivals.to_vec();
    sorted.sort();
    let (mut worst, mut sum, mut oldest) = (0, 0, 0);
    for (time, units) in &sorted {
        sum += units[dimension];
        while sorted[oldest].0 + per <= *time {
            sum -= sorted[oldest].1[dimension];
            oldest += 1;
        }
        worst = worst.max(sum);
    }
    worst
}

/// Requests bind: shares follow the weights, the cap is kept in every window and used up.
#[test]
fn priorities_share_a_request_cap_by_weight() {
    let fleet = Fleet {
        policy: policy(
            vec![used_up("requests", 200), used_up("tokens", 1_000_000)],
            &[("p1", 5), ("p2", 3), ("p3", 2)],
        ),
        groups: vec![("p1", 2, 30), ("p2", 2, 30), ("p3", 2, 30)],
        tokens: (500, 0),
        seed: 1,
        seconds: 120,
    };
    let seen = fleet.run();
    let total: u64 = seen.calls_of_priority.values().sum();
    for (priority, weight) in [("p1", 5.0), ("p2", 3.0), ("p3", 2.0)] {
        let share = seen.calls_of_priority[priority] as f64 / total as f64;
        assert!(
            (share / (weight / 10.0) - 1.0).abs() < 0.02,
            "{priority} got {share}"
        );
    }
    assert!(worst_window(&seen.arrivals, 0, 10 * SECOND) <= 200);
    let used = total as f64 / (100.0 * 20.0);
    assert!(used > 0.97, "used {used} of the cap");
    let asks = seen.asks as f64 / total as f64;
    assert!(asks < 5.0, "{asks} asks per call");
    assert!(
        seen.longest_wait < 30 * SECOND,
        "waited {} us",
        seen.longest_wait
    );
}

/// Tokens bind and are only estimated: few windows go over, and the cap is still used.
#[test]
fn a_token_cap_is_kept_with_learned_estimates() {
    let fleet = Fleet {
        policy: policy(
            vec![used_up("requests", 10_000), used_up("tokens", 400_000)],
            &[("p1", 5), ("p2", 3), ("p3", 2)],
        ),
        groups: vec![("p1", 2, 30), ("p2", 2, 30), ("p3", 2, 30)],
        tokens: (500, 2_000),
        seed: 2,
        seconds: 120,
    };
    let seen = fleet.run();
    let total: u64 = seen.calls_of_priority.values().sum();
    for (priority, weight) in [("p1", 5.0), ("p2", 3.0), ("p3", 2.0)] {
        let share = seen.calls_of_priority[priority] as f64 / total as f64;
        assert!(
            (share / (weight / 10.0) - 1.0).abs() < 0.05,
            "{priority} got {share}"
        );
    }
    let tokens: u64 = seen
        .arrivals
        .iter()
        .filter(|(at, _)| *at > WARM_UP)
        .map(|(_, units)| units[1])
        .sum();
    let used = tokens as f64 / (400_000.0 * 10.0);
    assert!(used > 0.93, "used {used} of the cap");
    let worst = worst_window(&seen.arrivals, 1, 10 * SECOND);
    assert!(worst <= 404_000, "worst window {worst}");
    let asks = seen.asks as f64 / total as f64;
    assert!(asks < 5.0, "{asks} asks per call");
    eprintln!(
        "used {used} asks {asks} worst {worst} longest {}",
        seen.longest_wait
    );
}
