//! Whoever is told that its turn is near is admitted when it asks, and whoever is not told would be deferred.

use crate::make::{amounts, limit, policy, principal, priority, put, target, tenant};
use proptest::prelude::*;
use weir_admission::{
    Admit, AdmitOutcome, Amounts, Kind, Limit, Operation, Outcome, Policy, Stamp, State,
};

const TARGET: &str = "api/x";
const PRIORITIES: [&str; 3] = ["p1", "p2", "p3"];
const CALLERS: usize = 24;
/// All tickets fit, and more are passed over in a search than there are callers.
const MOST: usize = CALLERS;

/// A bucket as deep as its cap takes every call, so the burst is the sliding limit's alone.
fn two_limits(requests: u64, tokens: u64, burst: Option<u64>) -> Policy {
    let per = 10_000_000;
    let requests = Limit {
        burst,
        ..limit("requests", requests, per)
    };
    let tokens = Limit {
        kind: Kind::Bucket,
        ..limit("tokens", tokens, per)
    };
    let weights = PRIORITIES.into_iter().zip([5, 3, 2]);
    policy(vec![requests, tokens], &weights.collect::<Vec<_>>())
}

/// A caller with one call after the other.
#[derive(Clone, Copy, Default)]
struct Caller {
    call: u64,
    ask: u32,
    tokens: u64,
    /// Its ticket, and when it is due back at the latest.
    waits: Option<(u64, u64)>,
}

struct World {
    state: State,
    index: u64,
    now: u64,
    callers: [Caller; CALLERS],
}

impl World {
    fn apply(&mut self, batch: &[Operation]) -> Vec<Outcome> {
        self.index += 1;
        self.state
            .apply(self.index, Stamp::from_micros(self.now), batch)
    }

    fn ask(&mut self, who: usize, tokens: u64) -> Result<(), TestCaseError> {
        self.apply(&[]);
        let near = self
            .state
            .near(&target(TARGET), Stamp::from_micros(self.now), MOST);
        let caller = &mut self.callers[who];
        if caller.waits.is_none() {
            (caller.call, caller.ask, caller.tokens) = (caller.call + 1, 0, tokens);
        }
        caller.ask += 1;
        let caller = *caller;
        let outcome = self.apply(&[ask(who, caller)]).remove(0);
        let waited = caller.waits.filter(|(_, due)| self.now <= *due);
        let told = waited.is_some_and(|(ticket, _)| near.contains(&ticket));
        match outcome {
            Outcome::Admit(AdmitOutcome::Admitted(_)) => {
                prop_assert!(told || waited.is_none(), "{who} was not among {near:?}");
                self.callers[who].waits = None;
            }
            Outcome::Admit(AdmitOutcome::Deferred(deferred)) => {
                prop_assert!(!told, "{who} was told in vain: {deferred:?}");
                let due = self.now + deferred.retry_in;
                self.callers[who].waits = deferred.ticket.map(|ticket| (ticket, due));
            }
            other => prop_assert!(false, "{other:?}"),
        }
        Ok(())
    }
}

fn ask(who: usize, caller: Caller) -> Operation {
    Operation::Admit(Box::new(Admit {
        target: target(TARGET),
        tenant: tenant(&format!("tenant-{}", who % 7)),
        principal: principal(),
        priority: priority(PRIORITIES[who % 3]),
        admission_id: format!("{who}-{}", caller.call).into_bytes().into(),
        attempt: 1,
        ask: caller.ask,
        cost: amounts(&[("requests", 1), ("tokens", caller.tokens)]),
        cost_max: Amounts::default(),
        labels_digest: 0,
        deadline: None,
        dry_run: false,
        wake: true,
    }))
}

proptest! {
    #[test]
    fn who_is_told_is_admitted_and_nobody_else(
        (requests, tokens) in (5..200u64, 50..5_000u64),
        burst in prop_oneof![Just(None), Just(Some(0)), Just(Some(1_000_000))],
        steps in prop::collection::vec((0..CALLERS, 1..=50u64, 0..150_000u64), 1..300),
    ) {
        let mut world = World {
            state: State::default(),
            index: 0,
            now: 0,
            callers: [Caller::default(); CALLERS],
        };
        world.apply(&[put(TARGET, two_limits(requests, tokens, burst))]);
        for (who, tokens, step) in steps {
            world.now += step;
            world.ask(who, tokens)?;
        }
    }
}
