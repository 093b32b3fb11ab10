//! Former policies are bounded by what they hold, not by their number alone.

use weir_admission::limits::{FORMER_TENANT_WEIGHTS_MAX, TENANT_WEIGHTS_MAX};
use weir_admission::{
    DimensionName, EnforcedBy, InitialUse, Kind, Limit, LimitName, Operation, Policy, Principal,
    Priority, PriorityName, PutPolicy, Stamp, State, TargetName, TenantName,
};

fn put(state: &mut State, index: u64, tenants: usize) {
    let policy = Policy {
        limits: vec![Limit {
            name: LimitName::new("requests").unwrap(),
            dimension: DimensionName::new("requests").unwrap(),
            cap: index,
            per: 60_000_000,
            kind: Kind::Sliding,
            enforced_by: EnforcedBy::Us,
            burst: None,
            initial_use: InitialUse::Empty,
        }],
        priorities: vec![Priority {
            name: PriorityName::new("p1").unwrap(),
            weight: 1,
        }],
        tenant_weights: (0..tenants)
            .map(|tenant| (TenantName::new(&tenant.to_string()).unwrap(), 1))
            .collect(),
        ..Policy::default()
    };
    let put = PutPolicy {
        target: TargetName::new("api/x").unwrap(),
        principal: Principal::new("anonymous").unwrap(),
        policy,
        expected_version: None,
    };
    let operation = Operation::PutPolicy(Box::new(put));
    state.apply(index, Stamp::from_micros(index), &[operation]);
    state.check().unwrap();
}

fn remembered(state: &State) -> Vec<u64> {
    let versions = state.versions(&TargetName::new("api/x").unwrap()).unwrap();
    versions.iter().map(|version| version.version).collect()
}

#[test]
fn large_policies_are_forgotten_sooner() {
    let mut state = State::default();
    for index in 1..=4 {
        put(&mut state, index, TENANT_WEIGHTS_MAX);
    }
    let kept = FORMER_TENANT_WEIGHTS_MAX / TENANT_WEIGHTS_MAX;
    assert_eq!(remembered(&state).len(), 1 + kept);
    for index in 5..=10 {
        put(&mut state, index, 0);
    }
    assert_eq!(remembered(&state), [10, 9, 8, 7, 6, 5, 4, 3]);
    let again = State::decode(&state.encode()).unwrap();
    assert_eq!(remembered(&again), remembered(&state));
}
