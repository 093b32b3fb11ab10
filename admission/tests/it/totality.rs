//! Bytes from elsewhere: refused, or another sound state; never a panic.

use proptest::prelude::*;
use weir_admission::{
    EnforcedBy, InitialUse, Kind, Limit, Operation, Policy, Principal, Priority, PutPolicy, Stamp,
    State,
};

/// A state with a policy and nothing else.
fn state() -> State {
    let limit = Limit {
        name: weir_admission::LimitName::new("requests").unwrap(),
        dimension: weir_admission::DimensionName::new("requests").unwrap(),
        cap: 10,
        per: 60_000_000,
        kind: Kind::Sliding,
        enforced_by: EnforcedBy::Provider,
        burst: None,
        initial_use: InitialUse::Full,
    };
    let priority = Priority {
        name: weir_admission::PriorityName::new("p1").unwrap(),
        weight: 1,
    };
    let put = PutPolicy {
        target: weir_admission::TargetName::new("api/x").unwrap(),
        principal: Principal::new("anonymous").unwrap(),
        policy: Policy {
            limits: vec![limit],
            priorities: vec![priority],
            ..Policy::default()
        },
        expected_version: None,
    };
    let mut state = State::default();
    let batch = [
        Operation::Seed([7; 16]),
        Operation::PutPolicy(Box::new(put)),
    ];
    state.apply(1, Stamp::from_micros(5), &batch);
    state
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_no_state(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(State::decode(&bytes).is_err());
    }

    #[test]
    fn a_cut_or_changed_state_is_refused_or_sound(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = state().encode();
        let at = at.index(bytes.len());
        prop_assert!(State::decode(&bytes[..at]).is_err());
        bytes[at] = byte;
        if let Ok(other) = State::decode(&bytes) {
            prop_assert_eq!(other.check(), Ok(()));
            prop_assert_eq!(other.encode(), bytes);
        }
    }
}

#[test]
fn what_was_encoded_reads_back() {
    let state = state();
    let again = State::decode(&state.encode()).unwrap();
    assert_eq!(again.encode(), state.encode());
    assert_eq!(again.digest(), state.digest());
    assert!(again.is_seeded());
}

/// It would be written as another one.
#[test]
fn a_window_without_a_period_is_refused() {
    let mut bytes = state().encode();
    // The period of the policy, with its guard: 100 ms for replies, 100 ms of spread, 12 ms of drift.
    let period = 60_212_000_u64.to_le_bytes();
    let at = bytes.windows(8).position(|word| word == period).unwrap();
    bytes[at..at + 8].fill(0);
    assert!(State::decode(&bytes).is_err());
}
