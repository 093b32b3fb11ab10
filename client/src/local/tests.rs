use super::*;
use proptest::prelude::*;
use weir_proto::v1::{Limit, LimitUse, Policy};

const MINUTE: Duration = Duration::from_secs(60);

fn name(text: &str) -> TargetName {
    TargetName::new(text).unwrap()
}

fn limit(name: &str, dimension: &str, cap: u64, per_us: u64) -> Limit {
    Limit {
        name: name.into(),
        dimension: dimension.into(),
        cap,
        per_us,
        ..Limit::default()
    }
}

fn target(version: u64, limits: Vec<Limit>) -> Target {
    let policy = Policy {
        limits,
        ..Policy::default()
    };
    Target {
        name: "t".into(),
        version,
        policy: Some(policy),
        ..Target::default()
    }
}

fn shares(share_ppm: u32, limits: Vec<Limit>, now: Instant) -> LocalShares {
    let mut shares = LocalShares::new(share_ppm);
    assert!(shares.decided_by(&name("t"), 1, now));
    shares.learn(&name("t"), &target(1, limits));
    shares
}

fn cost(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs
        .iter()
        .map(|(name, units)| ((*name).to_owned(), *units))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_bucket_starts_empty_and_fills_to_a_quarter_of_the_share() {
    let since = Instant::now();
    // A tenth of 4 000 a minute: 400, refilled with 5 a second, at most 100 at once.
    let mut shares = shares(
        100_000,
        vec![limit("rpm", "requests", 4_000, 60_000_000)],
        since,
    );
    let one = cost(&[("requests", 1)]);
    let target = name("t");
    assert_eq!(
        shares.take(&target, &one, since, since),
        Take::Wait(Duration::from_millis(200))
    );
    let later = since + Duration::from_millis(200);
    assert_eq!(shares.take(&target, &one, since, later), Take::Go);
    assert!(matches!(
        shares.take(&target, &one, since, later),
        Take::Wait(_)
    ));
    let idle = since + MINUTE * 10;
    let at_once = (0..1_000)
        .take_while(|_| shares.take(&target, &one, since, idle) == Take::Go)
        .count();
    assert_eq!(at_once, 100);
}

#[tokio::test(start_paused = true)]
async fn a_call_larger_than_the_bucket_goes_when_it_is_full_and_leaves_a_debt() {
    let since = Instant::now();
    let mut shares = shares(
        100_000,
        vec![limit("rpm", "requests", 400, 60_000_000)],
        since,
    );
    let (target, large) = (name("t"), cost(&[("requests", 40)]));
    // The share is 40, the bucket 10, the refill 30 a minute.
    assert_eq!(
        shares.take(&target, &large, since, since),
        Take::Wait(Duration::from_secs(20))
    );
    let full = since + Duration::from_secs(20);
    assert_eq!(shares.take(&target, &large, since, full), Take::Go);
    assert_eq!(
        shares.take(&target, &large, since, full),
        Take::Wait(Duration::from_secs(80))
    );
}

#[tokio::test(start_paused = true)]
async fn all_limits_are_taken_from_or_none() {
    let since = Instant::now();
    let limits = vec![
        limit("rpm", "requests", 4_000, 60_000_000),
        limit("tpm", "tokens", 40, 60_000_000),
    ];
    let mut shares = shares(100_000, limits, since);
    let (target, now) = (name("t"), since + MINUTE);
    let both = cost(&[("requests", 1), ("tokens", 1)]);
    assert_eq!(shares.take(&target, &both, since, now), Take::Go);
    assert!(matches!(
        shares.take(&target, &both, since, now),
        Take::Wait(_)
    ));
    let requests = cost(&[("requests", 99)]);
    assert_eq!(
        shares.take(&target, &requests, since, now),
        Take::Go,
        "nothing was taken above"
    );
    assert!(matches!(
        shares.take(&target, &cost(&[("requests", 1)]), since, now),
        Take::Wait(_)
    ));
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_without_a_policy_a_cap_or_a_limit_to_hold() {
    let now = Instant::now();
    let mut closed = shares(100_000, vec![limit("rpm", "requests", 0, 60_000_000)], now);
    let one = cost(&[("requests", 1)]);
    assert_eq!(
        closed.take(&name("t"), &one, now, now + MINUTE),
        Take::Never
    );
    assert_eq!(
        closed.take(&name("other"), &one, now, now + MINUTE),
        Take::Never
    );
    assert_eq!(
        closed.take(&name("t"), &cost(&[("tokens", 9)]), now, now),
        Take::Go
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_outage_gives_no_credit_for_the_time_before_and_keeps_the_debt() {
    let first = Instant::now();
    let limits = || vec![limit("rpm", "requests", 400, 60_000_000)];
    let mut shares = shares(100_000, limits(), first);
    let (target, large) = (name("t"), cost(&[("requests", 40)]));
    let full = first + Duration::from_secs(20);
    assert_eq!(shares.take(&target, &large, first, full), Take::Go);
    // 30 units of debt are refilled at one in two seconds; ten seconds later 25 remain.
    let second = full + Duration::from_secs(10);
    let wait = shares.take(&target, &cost(&[("requests", 1)]), second, second);
    assert_eq!(wait, Take::Wait(Duration::from_secs(52)));
    // A policy read again does not forgive it.
    shares.learn(&target, &super::tests::target(2, limits()));
    let wait = shares.take(&target, &cost(&[("requests", 1)]), second, second);
    assert_eq!(wait, Take::Wait(Duration::from_secs(52)));
    let third = second + MINUTE * 60;
    let wait = shares.take(&target, &cost(&[("requests", 1)]), third, third);
    assert_eq!(wait, Take::Wait(Duration::from_secs(2)));
}

#[tokio::test(start_paused = true)]
async fn the_guard_lengthens_the_period() {
    let now = Instant::now();
    let mut read = target(3, vec![limit("rpm", "requests", 4_000, 60_000_000)]);
    read.limits = vec![LimitUse {
        name: "rpm".into(),
        guard_us: 60_000_000,
        ..LimitUse::default()
    }];
    let mut shares = LocalShares::new(100_000);
    assert!(shares.decided_by(&name("t"), 3, now));
    shares.learn(&name("t"), &read);
    let wait = shares.take(&name("t"), &cost(&[("requests", 1)]), now, now);
    assert_eq!(wait, Take::Wait(Duration::from_millis(400)));
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_read_when_it_is_new_changed_or_old_but_not_all_the_time() {
    let start = Instant::now();
    let mut shares = LocalShares::new(100_000);
    let target = name("t");
    assert!(shares.decided_by(&target, 7, start), "new");
    assert_eq!(shares.next_wanted(), Some(target.clone()));
    assert_eq!(shares.next_wanted(), None);
    assert!(
        !shares.decided_by(&target, 7, start + POLICY_TRY_MIN / 2),
        "asked just now"
    );
    assert!(
        shares.decided_by(&target, 7, start + POLICY_TRY_MIN),
        "the read failed"
    );
    shares.learn(&target, &super::tests::target(7, vec![]));
    assert!(
        !shares.decided_by(&target, 7, start + POLICY_REFRESH),
        "up to date"
    );
    assert!(
        shares.decided_by(&target, 8, start + POLICY_REFRESH),
        "changed"
    );
    shares.learn(&target, &super::tests::target(8, vec![]));
    assert!(
        shares.decided_by(&target, 8, start + POLICY_REFRESH * 2),
        "old"
    );
}

#[tokio::test(start_paused = true)]
async fn targets_are_bounded_and_the_oldest_goes_first() {
    let start = Instant::now();
    let mut shares = LocalShares::new(1_000);
    for n in 0..=LOCAL_TARGETS_MAX {
        let at = start + Duration::from_millis(n as u64);
        assert!(shares.decided_by(&name(&format!("t{n}")), 1, at));
    }
    assert_eq!(shares.targets.len(), LOCAL_TARGETS_MAX);
    assert_eq!(shares.wanted.len(), LOCAL_TARGETS_MAX);
    assert!(!shares.targets.contains_key(&name("t0")));
    assert!(shares.targets.contains_key(&name("t1")));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// In any window of a period, starts are within 3/4 of the share plus the larger of 1/4 of the
    /// share and the largest call; and a waiting time, once waited, is enough.
    #[test]
    fn any_window_keeps_the_bound(
        cap in 1u64..5_000,
        share_ppm in 1_000u32..=1_000_000,
        per_us in prop_oneof![Just(1_000_000u64), Just(60_000_000), 1_000_000u64..100_000_000],
        calls in prop::collection::vec((0u64..4_000_000, 1u64..300), 1..60),
    ) {
        let since = tokio_instant();
        let mut shares = shares(share_ppm, vec![limit("l", "requests", cap, per_us)], since);
        let target = name("t");
        let mut now_us = 0u64;
        let mut started: Vec<(u64, u64)> = Vec::new();
        for (pause_us, units) in calls {
            now_us += pause_us;
            let cost = cost(&[("requests", units)]);
            let at = |us: u64| since + Duration::from_micros(us);
            match shares.take(&target, &cost, since, at(now_us)) {
                Take::Go => started.push((now_us, units)),
                Take::Wait(wait) => {
                    now_us += u64::try_from(wait.as_micros()).unwrap();
                    prop_assert_eq!(shares.take(&target, &cost, since, at(now_us)), Take::Go);
                    started.push((now_us, units));
                }
                Take::Never => prop_assert!(false, "a cap above zero always fits some time"),
            }
        }
        let largest = started.iter().map(|(_, units)| *units).max().unwrap_or(0);
        let share_ppm_units = u128::from(cap) * u128::from(share_ppm);
        let bound_ppm = share_ppm_units * 3 / 4
            + (share_ppm_units / 4 + 1).max(u128::from(largest) * 1_000_000);
        for (from, _) in &started {
            let sum: u64 = started
                .iter()
                .filter(|(at, _)| (*from..*from + per_us).contains(at))
                .map(|(_, units)| *units)
                .sum();
            prop_assert!(u128::from(sum) * 1_000_000 <= bound_ppm + 1, "{sum} from {from}");
        }
    }
}

fn tokio_instant() -> Instant {
    Instant::from_std(std::time::Instant::now())
}
