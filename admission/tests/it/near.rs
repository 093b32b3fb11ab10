//! Whoever is told that its turn is near is admitted when it asks, and whoever is not told would be deferred.

use proptest::prelude::*;
use weir_admission::{
    Admit, AdmitOutcome, Amounts, DimensionName, EnforcedBy, InitialUse, Kind, Limit, LimitName,
    Operation, Outcome, Policy, Principal, Priority, PriorityName, PutPolicy, Stamp, State,
    TargetName, TenantName,
};

const PRIORITIES: [&str; 3] = ["p1", "p2", "p3"];
const CALLERS: usize = 24;
/// All tickets fit, and more are passed over in a search than there are callers.
const MOST: usize = CALLERS;

fn target() -> TargetName {
    TargetName::new("api/x").unwrap()
}

fn policy(requests: u64, tokens: u64, burst: Option<u64>) -> Policy {
    let limit = |name: &str, cap, kind| Limit {
        name: LimitName::new(name).unwrap(),
        dimension: DimensionName::new(name).unwrap(),
        cap,
        per: 10_000_000,
        kind,
        enforced_by: EnforcedBy::Provider,
        burst,
        initial_use: InitialUse::Empty,
    };
    let priority = |(name, weight): (&&str, u32)| Priority {
        name: PriorityName::new(name).unwrap(),
        weight,
    };
    Policy {
        limits: vec![
            limit("requests", requests, Kind::Sliding),
            limit("tokens", tokens, Kind::Bucket),
        ],
        priorities: PRIORITIES.iter().zip([5, 3, 2]).map(priority).collect(),
        ..Policy::default()
    }
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
            .near(&target(), Stamp::from_micros(self.now), MOST);
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
    let cost = [("requests", 1), ("tokens", caller.tokens)];
    let cost = cost.map(|(name, units)| (DimensionName::new(name).unwrap(), units));
    Operation::Admit(Box::new(Admit {
        target: target(),
        tenant: TenantName::new(&format!("tenant-{}", who % 7)).unwrap(),
        principal: Principal::new("anonymous").unwrap(),
        priority: PriorityName::new(PRIORITIES[who % 3]).unwrap(),
        admission_id: format!("{who}-{}", caller.call).into_bytes().into(),
        attempt: 1,
        ask: caller.ask,
        cost: Amounts::new(cost.to_vec()).unwrap(),
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
        // A bucket as deep as its cap takes every call.
        let mut policy = policy(requests, tokens, burst);
        policy.limits[1].burst = None;
        world.apply(&[Operation::PutPolicy(Box::new(PutPolicy {
            target: target(),
            principal: Principal::new("anonymous").unwrap(),
            policy,
            expected_version: None,
        }))]);
        for (who, tokens, step) in steps {
            world.now += step;
            world.ask(who, tokens)?;
        }
    }
}
