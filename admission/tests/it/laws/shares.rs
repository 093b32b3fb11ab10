//! Tenants and priorities that always have somebody waiting are served by weight.
//!
//! Let W be the dominant share served to one and w its part of the weights. The ticket of one, k, that
//! stands furthest of all of k's that were served, was served at some moment while the tickets before it
//! could start within the horizon H: together they were worth no more than H, and what the pacer lagged
//! behind (L: while a step of the log runs out, nobody starts, and the pacer stands still). So of every
//! other one, j, who had more than that waiting, no more than H + L before this ticket was left unserved:
//! `W_j / w_j` lies at most `(H + L) / w_j` below the ticket's tag, and `W_k / w_k` at most a call above it.
//! Hence `W_k / w_k - W_j / w_j <= call_k / w_k + (H + L) / w_j`, at every moment. This holds among the
//! priorities, and among the tenants of one. L is seen from outside: how much later than the calls before it
//! allow, at the pace of the cap, a call ever started.

use crate::history::{cases, target};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weir_admission::{
    Admit, AdmitOutcome, Amounts, CallOutcome, DimensionName, EnforcedBy, GrantId, Headroom,
    InitialUse, Kind, Limit, LimitName, Operation, Outcome, Policy, Principal, Priority,
    PriorityName, PutPolicy, Release, Stamp, State, TenantName,
};

const CAP: u64 = 400;
const PER: u64 = 10_000_000;
const HORIZON: u64 = 30_000;
/// Tickets that each tenant keeps: more than H + L are worth while none is cheaper than 1/400 of the cap.
const TICKETS: usize = 8;

/// A tenant in a priority: weight and cost of its calls.
type Tenant = (u32, u64);

#[derive(Clone, Debug)]
struct Fleet {
    /// Weight of each priority, and its tenants.
    priorities: Vec<(u32, Vec<Tenant>)>,
}

/// Cap time in ns that each tenant was served, how far the pace of the cap is used up, and the longest lag.
#[derive(Default)]
struct Served {
    of: BTreeMap<(usize, usize), u64>,
    spent_ns: u64,
    lag_ns: u64,
}

fn name(priority: usize, tenant: usize) -> TenantName {
    TenantName::new(&format!("{priority}-{tenant}")).unwrap()
}

impl Fleet {
    fn policy(&self) -> Policy {
        let limit = Limit {
            name: LimitName::new("tokens").unwrap(),
            dimension: DimensionName::new("tokens").unwrap(),
            cap: CAP,
            per: PER,
            kind: Kind::Sliding,
            enforced_by: EnforcedBy::Provider,
            burst: Some(0),
            initial_use: InitialUse::Empty,
        };
        let priorities = self.priorities.iter().enumerate();
        let tenants = priorities.clone().flat_map(|(place, (_, tenants))| {
            let tenants = tenants.iter().enumerate();
            tenants.map(move |(tenant, (weight, _))| (name(place, tenant), *weight))
        });
        Policy {
            limits: vec![limit],
            tenant_weights: tenants.collect(),
            priorities: priorities
                .map(|(place, (weight, _))| (place, *weight))
                .chain([(self.priorities.len(), 1)])
                .map(|(place, weight)| Priority {
                    name: PriorityName::new(&format!("p{place}")).unwrap(),
                    weight,
                })
                .collect(),
            horizon: HORIZON,
            headroom: Headroom::Auto,
            ..Policy::default()
        }
    }

    /// Cap time of a call in ns.
    fn share(&self, (priority, tenant): (usize, usize)) -> u64 {
        self.priorities[priority].1[tenant].1 * PER * 1_000 / CAP
    }

    fn judge(&self, served: &Served) -> Result<(), TestCaseError> {
        let early = HORIZON * 1_000 + served.lag_ns;
        for (place, (_, tenants)) in self.priorities.iter().enumerate() {
            let lanes: Vec<Lane> = (0..tenants.len())
                .map(|tenant| Lane {
                    weight: tenants[tenant].0,
                    served: served.of.get(&(place, tenant)).copied().unwrap_or(0),
                    call: self.share((place, tenant)),
                })
                .collect();
            balanced(&lanes, early)?;
        }
        let lanes: Vec<Lane> = self
            .priorities
            .iter()
            .enumerate()
            .map(|(place, (weight, tenants))| {
                let each = || 0..tenants.len();
                let of = |tenant| served.of.get(&(place, tenant)).copied().unwrap_or(0);
                Lane {
                    weight: *weight,
                    served: each().map(of).sum(),
                    call: each()
                        .map(|tenant| self.share((place, tenant)))
                        .max()
                        .unwrap_or(0),
                }
            })
            .collect();
        balanced(&lanes, early)
    }
}

/// Somebody with a weight.
#[derive(Debug)]
struct Lane {
    weight: u32,
    served: u64,
    call: u64,
}

fn balanced(lanes: &[Lane], early: u64) -> Result<(), TestCaseError> {
    for k in lanes {
        for j in lanes {
            // Both sides times both weights.
            let (w_k, w_j) = (i128::from(k.weight), i128::from(j.weight));
            let ahead = i128::from(k.served) * w_j - i128::from(j.served) * w_k;
            let bound = i128::from(k.call) * w_j + i128::from(early) * w_k;
            prop_assert!(
                ahead <= bound,
                "{k:?} is ahead of {j:?} by {ahead}, not {bound}"
            );
        }
    }
    Ok(())
}

/// When a call is asked for again, its number, priority and tenant, and the number of the ask.
type Due = (u64, usize, (usize, usize), u32);

/// The fleet at work for a while.
struct Run<'a> {
    fleet: &'a Fleet,
    state: State,
    index: u64,
    served: Served,
    due: BinaryHeap<Reverse<Due>>,
    calls: usize,
    /// The guarded period.
    period: u64,
}

impl Run<'_> {
    /// Nothing starts before everybody stands in line: a throttled call of the lowest priority, which
    /// nobody else has, holds the target for a little more than the horizon.
    fn hold(&mut self) {
        let admit = self.admit(
            name(self.fleet.priorities.len(), 0),
            self.fleet.priorities.len(),
            1,
        );
        let throttled = Operation::Release(Box::new(Release {
            target: target(0),
            principal: admit.principal.clone(),
            grant: GrantId {
                index: 2,
                offset: 0,
            },
            actual: Amounts::default(),
            outcome: CallOutcome::Throttled {
                retry_after: HORIZON + 1_000,
            },
        }));
        self.index = 2;
        let batch = [Operation::Admit(Box::new(admit)), throttled];
        self.state.apply(2, Stamp::ZERO, &batch);
    }

    fn admit(&self, tenant: TenantName, priority: usize, cost: u64) -> Admit {
        let tokens = DimensionName::new("tokens").unwrap();
        Admit {
            target: target(0),
            tenant,
            principal: Principal::new("fleet").unwrap(),
            priority: PriorityName::new(&format!("p{priority}")).unwrap(),
            admission_id: "hold".as_bytes().into(),
            attempt: 1,
            ask: 1,
            cost: Amounts::new(vec![(tokens, cost)]).unwrap(),
            cost_max: Amounts::default(),
            labels_digest: 0,
            deadline: None,
            dry_run: false,
            wake: false,
        }
    }

    fn ask(
        &mut self,
        now: u64,
        call: usize,
        who: (usize, usize),
        number: u32,
    ) -> Result<(), TestCaseError> {
        let cost = self.fleet.priorities[who.0].1[who.1].1;
        let mut admit = self.admit(name(who.0, who.1), who.0, cost);
        admit.admission_id = format!("{call}").into_bytes().into();
        admit.ask = number;
        let operation = Operation::Admit(Box::new(admit));
        self.index += 1;
        let outcomes = self
            .state
            .apply(self.index, Stamp::from_micros(now), &[operation]);
        match &outcomes[0] {
            Outcome::Admit(AdmitOutcome::Admitted(admitted)) => {
                let start = now + admitted.start_in;
                let served = &mut self.served;
                let start_ns = start * 1_000;
                served.lag_ns = served.lag_ns.max(start_ns.saturating_sub(served.spent_ns));
                let pace = cost * self.period * 1_000 / CAP;
                served.spent_ns = served.spent_ns.max(start_ns) + pace;
                *served.of.entry(who).or_default() += self.fleet.share(who);
                // Another call of the tenant takes a place at once.
                self.calls += 1;
                self.due.push(Reverse((now, self.calls, who, 1)));
                self.fleet.judge(&self.served)
            }
            Outcome::Admit(AdmitOutcome::Deferred(deferred)) => {
                let back = now + deferred.retry_in;
                self.due.push(Reverse((back, call, who, number + 1)));
                Ok(())
            }
            other => {
                prop_assert!(false, "an ask was answered {other:?}");
                Ok(())
            }
        }
    }
}

fn run(fleet: &Fleet) -> Result<(), TestCaseError> {
    let mut run = Run {
        fleet,
        state: State::default(),
        index: 1,
        served: Served::default(),
        due: BinaryHeap::new(),
        calls: 0,
        period: PER,
    };
    let put = Operation::PutPolicy(Box::new(PutPolicy {
        target: target(0),
        principal: Principal::new("anonymous").unwrap(),
        policy: fleet.policy(),
        expected_version: None,
    }));
    run.state.apply(1, Stamp::ZERO, &[put]);
    run.period += run.state.view(&target(0)).unwrap().limits[0].guard;
    run.hold();
    for _ in 0..TICKETS {
        for (place, (_, tenants)) in fleet.priorities.iter().enumerate() {
            for tenant in 0..tenants.len() {
                run.calls += 1;
                run.due.push(Reverse((0, run.calls, (place, tenant), 1)));
            }
        }
    }
    while let Some(Reverse((now, call, who, number))) = run.due.pop() {
        if now > 3 * PER {
            break;
        }
        run.ask(now, call, who, number)?;
    }
    prop_assert!(
        run.served.of.values().sum::<u64>() > 2 * PER * 1_000,
        "little was served"
    );
    Ok(())
}

fn fleet() -> impl Strategy<Value = Fleet> {
    let tenant = (1..20u32, 1..20u64);
    let priority = (1..10u32, prop::collection::vec(tenant, 1..4));
    prop::collection::vec(priority, 1..4).prop_map(|priorities| Fleet { priorities })
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn who_always_waits_is_served_by_weight(fleet in fleet()) {
        run(&fleet)?;
    }
}
