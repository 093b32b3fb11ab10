//! No window of the period holds more than the cap, and no bucket is ever short, by the time at which
//! calls arrive at the provider.

use crate::history::{
    Act, Cost, Entry, History, Scope, Step, Wait, Which, Who, cases, history, tell,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::BTreeMap;
use weir_admission::{
    Admit, AdmitOutcome, Amounts, CallOutcome, CancelOutcome, DimensionName, EnforcedBy, GrantId,
    InitialUse, Kind, Limit, LimitName, Operation, Outcome, Policy, Priority, PriorityName,
    Rejected, Release, ReleaseOutcome, TargetName,
};

/// A call that may have gone out.
struct Sent {
    target: TargetName,
    call: (weir_admission::TenantName, Box<[u8]>),
    attempt: u64,
    ask: u32,
    /// The start as the first answer had it. The answer to a duplicate of the ask says "now" once the
    /// start has passed, but the client measures from its own ask, which was before the first answer:
    /// it sends within the reply window of this start, whichever answer it gets.
    start: u64,
    reply_window: u64,
    units: Amounts,
    /// The call certainly did not reach the count.
    void: bool,
}

/// What the fleet sent, by the client rule.
#[derive(Default)]
struct Fleet(BTreeMap<GrantId, Sent>);

impl Fleet {
    fn of(entries: &[Entry]) -> Fleet {
        let mut fleet = Fleet::default();
        let mut rejected_counts = BTreeMap::new();
        for entry in entries {
            for (operation, outcome) in entry.batch.iter().zip(&entry.outcomes) {
                match operation {
                    Operation::Admit(admit) if !admit.dry_run => {
                        fleet.asked(entry.now, admit, outcome);
                    }
                    Operation::Release(release) => {
                        let counts = rejected_counts.get(&release.target).copied();
                        fleet.released(release, outcome, counts.unwrap_or(true));
                    }
                    Operation::Cancel(cancel)
                        if *outcome == Outcome::Cancel(CancelOutcome::GrantRefunded) =>
                    {
                        let call = (cancel.tenant.clone(), cancel.admission_id.clone());
                        fleet.undone(&cancel.target, &call, cancel.attempt);
                    }
                    Operation::PutPolicy(put) => {
                        if let Outcome::Policy(weir_admission::PolicyOutcome::Put { .. }) = outcome
                        {
                            let counts = put.policy.rejected_counts;
                            rejected_counts.insert(put.target.clone(), counts);
                        }
                    }
                    Operation::DeletePolicy(delete) => {
                        if *outcome == Outcome::Policy(weir_admission::PolicyOutcome::Deleted) {
                            rejected_counts.remove(&delete.target);
                        }
                    }
                    Operation::Admit(_)
                    | Operation::Cancel(_)
                    | Operation::Extend(_)
                    | Operation::Unwake(_)
                    | Operation::Report(_)
                    | Operation::Seed(_) => {}
                }
            }
        }
        fleet
    }

    /// A client that asks again has not sent: whatever its attempt was granted by an earlier ask is void,
    /// unless the same grant is the answer.
    fn asked(&mut self, now: u64, admit: &Admit, outcome: &Outcome) {
        let call = (admit.tenant.clone(), admit.admission_id.clone());
        let granted = match outcome {
            Outcome::Admit(AdmitOutcome::Admitted(admitted)) => {
                let grant = admitted.grant.unwrap();
                let known = self.0.entry(grant).or_insert_with(|| Sent {
                    target: admit.target.clone(),
                    call: call.clone(),
                    attempt: admit.attempt,
                    ask: admit.ask,
                    start: now + admitted.start_in,
                    reply_window: admitted.reply_window,
                    units: admitted.charged.clone(),
                    void: false,
                });
                known.ask = known.ask.max(admit.ask);
                Some(grant)
            }
            Outcome::Admit(AdmitOutcome::Deferred(_)) => None,
            Outcome::Admit(AdmitOutcome::Rejected(
                Rejected::NeverFits { .. } | Rejected::QueueFull { .. } | Rejected::Deadline { .. },
            )) => None,
            // The answer is about another ask or another call.
            _ => return,
        };
        for (id, sent) in &mut self.0 {
            let earlier = sent.target == admit.target
                && sent.call == call
                && sent.attempt == admit.attempt
                && sent.ask < admit.ask;
            sent.void |= earlier && granted != Some(*id);
        }
    }

    fn undone(
        &mut self,
        target: &TargetName,
        call: &(weir_admission::TenantName, Box<[u8]>),
        attempt: u64,
    ) {
        // The newest grant of the attempt is the one that was given back.
        let mine = |sent: &&mut Sent| {
            sent.target == *target && sent.call == *call && sent.attempt == attempt
        };
        if let Some(sent) = self.0.values_mut().rev().find(mine) {
            sent.void = true;
        }
    }

    fn released(&mut self, release: &Release, outcome: &Outcome, rejected_counts: bool) {
        if *outcome != Outcome::Release(ReleaseOutcome::Applied) {
            return;
        }
        let sent = self.0.get_mut(&release.grant).unwrap();
        match release.outcome {
            // What goes beyond the estimate could not be known.
            CallOutcome::Ok | CallOutcome::Failed => {
                let least = sent.units.iter().map(|(name, units)| {
                    let used = release.actual.get(name).unwrap_or(units);
                    (name.clone(), units.min(used))
                });
                sent.units = Amounts::new(least.collect()).unwrap();
            }
            CallOutcome::Throttled { .. } => sent.void |= !rejected_counts,
            CallOutcome::NotSent => sent.void = true,
        }
    }

    /// Start and units of what counts under a limit, by start.
    fn counted(&self, target: &TargetName, limit: &Limit) -> Vec<(u64, u64)> {
        let mut counted: Vec<(u64, u64)> = self
            .0
            .values()
            .filter(|sent| sent.target == *target && !sent.void)
            .filter_map(|sent| Some((sent.start, sent.units.get(&limit.dimension)?)))
            .collect();
        counted.sort();
        counted
    }

    /// How far apart two calls that start together may arrive.
    fn spread(&self, target: &TargetName, policy: &Policy, limit: &Limit) -> u64 {
        if limit.enforced_by == EnforcedBy::Us {
            return 0;
        }
        let windows = self.0.values().filter(|sent| sent.target == *target);
        let reply_window = windows.map(|sent| sent.reply_window).max().unwrap_or(0);
        let usual = (limit.per / 600).clamp(10_000, 100_000);
        reply_window + policy.send_spread.unwrap_or(usual)
    }
}

/// The most that can arrive within one period, each call as late within its spread as is worst.
fn worst_window(counted: &[(u64, u64)], reach: u64) -> (u64, u64) {
    let window = |from: u64| {
        let within = counted
            .iter()
            .filter(|(start, _)| (from..from + reach).contains(start));
        (within.map(|(_, units)| units).sum::<u64>(), from)
    };
    let worst = counted.iter().map(|(start, _)| window(*start)).max();
    worst.unwrap_or((0, 0))
}

/// A bucket that holds `burst` of cap time must have, for any calls in a row, what they cost: its depth and
/// what flows in between the latest arrival of the first and the earliest of the last.
fn bucket_is_short(counted: &[(u64, u64)], limit: &Limit, spread: u64) -> Option<(u64, u64)> {
    let burst = limit.burst.unwrap_or(limit.per);
    for (place, (first, _)) in counted.iter().enumerate() {
        let mut cost = 0;
        for (start, units) in &counted[place..] {
            cost += u128::from(*units);
            let flows = (start - first).saturating_sub(spread) + burst;
            if cost * u128::from(limit.per) > u128::from(limit.cap) * u128::from(flows) {
                return Some((*first, *start));
            }
        }
    }
    None
}

fn judge(history: &History) -> Result<(), TestCaseError> {
    let (entries, _) = history.run();
    let fleet = Fleet::of(&entries);
    let policy = &history.policies[0];
    for place in 0..crate::history::TARGETS {
        let target = crate::history::target(place);
        for limit in &policy.limits {
            let counted = fleet.counted(&target, limit);
            let spread = fleet.spread(&target, policy, limit);
            let what = match limit.kind {
                Kind::Sliding => {
                    let (worst, from) = worst_window(&counted, limit.per + spread);
                    (worst > limit.cap).then(|| format!("{worst} of {} from {from}", limit.cap))
                }
                Kind::Bucket => bucket_is_short(&counted, limit, spread)
                    .map(|(first, last)| format!("short between {first} and {last}")),
            };
            if let Some(what) = what {
                let told: String = entries.iter().map(tell).collect();
                let name = &limit.name;
                return Err(TestCaseError::fail(format!(
                    "{told}{target} {name}: {what}"
                )));
            }
        }
    }
    Ok(())
}

/// The answer to a late duplicate reads like a later start, and with that start the window would be over
/// full. The client of the ask sends by the first answer's start all the same.
#[test]
fn a_duplicate_is_no_later_start() {
    let limit = Limit {
        name: LimitName::new("requests").unwrap(),
        dimension: DimensionName::new("requests").unwrap(),
        cap: 1,
        per: 1_000_000,
        kind: Kind::Sliding,
        enforced_by: EnforcedBy::Provider,
        burst: None,
        initial_use: InitialUse::Full,
    };
    let policy = Policy {
        limits: vec![limit.clone()],
        priorities: vec![Priority {
            name: PriorityName::new("high").unwrap(),
            weight: 1,
        }],
        ..Policy::default()
    };
    let ask = |id, which| {
        Step::Batch(vec![Act::Ask {
            who: Who {
                target: 0,
                tenant: 0,
                id,
            },
            which,
            cost: Cost {
                sixteenths: [16, 0],
                span: 0,
                priority: 0,
                differs: false,
            },
            deadline: None,
            dry: false,
            stranger: false,
        }])
    };
    // The reply window is 12 ms, the guarded period 1.0222 s and a step of it 4 ms.
    let (late, other) = (12_000, 1_026_300);
    let history = History {
        policies: vec![policy.clone()],
        steps: vec![
            ask(0, Which::Next),
            Step::Wait(Wait::For(late)),
            ask(0, Which::Same),
            Step::Wait(Wait::For(other - late)),
            ask(1, Which::Next),
        ],
    };
    let (entries, _) = history.run();
    let fleet = Fleet::of(&entries);
    let target = crate::history::target(0);
    let reach = limit.per + fleet.spread(&target, &policy, &limit);
    let counted = fleet.counted(&target, &limit);
    assert_eq!(counted, [(0, 1), (other, 1)]);
    assert_eq!(worst_window(&counted, reach).0, 1);
    assert_eq!(worst_window(&[(late, 1), (other, 1)], reach).0, 2);
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn no_window_holds_more_than_the_cap(history in history(Scope::Exact, 160)) {
        judge(&history)?;
    }
}
