//! Makes operations of a history, one log entry after the other.

use super::policies::{DIMENSIONS, dimension, tenant};
use super::{Act, Cost, End, History, How, Step, Wait, Which, Who};
use std::collections::{BTreeMap, BTreeSet};
use weir_admission::{
    Admit, AdmitOutcome, Amounts, AskName, CallOutcome, DeletePolicy, Extend, GrantId, Operation,
    Outcome, Policy, Principal, PriorityName, PutPolicy, Release, Report, Stamp, State, TargetName,
};

const SECOND: u64 = 1_000_000;

/// One log entry and its answers.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) index: u64,
    pub(crate) now: u64,
    pub(crate) batch: Vec<Operation>,
    pub(crate) outcomes: Vec<Outcome>,
}

/// What the fleet knows of one call.
#[derive(Default)]
struct Book {
    /// Attempts, each with its highest ask.
    attempts: Vec<(u64, u32)>,
    body: Option<(PriorityName, Amounts, Amounts)>,
}

/// The product under a history.
pub(crate) struct Driver<'a> {
    history: &'a History,
    pub(crate) state: State,
    index: u64,
    now: u64,
    /// Moments at which something changes.
    moments: BTreeSet<u64>,
    books: BTreeMap<Who, Book>,
    grants: Vec<(TargetName, GrantId, Amounts)>,
}

pub(crate) fn target(place: usize) -> TargetName {
    TargetName::new(["api/x", "api/y"][place % super::TARGETS]).unwrap()
}

fn principal(stranger: bool) -> Principal {
    Principal::new(if stranger { "mallory" } else { "fleet" }).unwrap()
}

impl<'a> Driver<'a> {
    /// The first entry puts a policy on every target.
    pub(crate) fn start(history: &'a History) -> (Driver<'a>, Entry) {
        let mut driver = Driver {
            history,
            state: State::default(),
            index: 0,
            now: 0,
            moments: BTreeSet::new(),
            books: BTreeMap::new(),
            grants: Vec::new(),
        };
        let mut batch = vec![Operation::Seed([9; 16])];
        for place in 0..super::TARGETS {
            let policy = history.policies[place % history.policies.len()].clone();
            batch.push(driver.put(place, policy, None));
        }
        let entry = driver.apply(batch);
        (driver, entry)
    }

    /// What a step does; `None` if it only waits.
    pub(crate) fn step(&mut self, step: &Step) -> Option<Entry> {
        match step {
            Step::Wait(Wait::For(us)) => self.now += us,
            Step::Wait(Wait::To(nth, off)) => {
                let coming = self.moments.range(self.now + 1..);
                if let Some(moment) = coming.take(nth + 1).last().copied() {
                    self.now = moment.saturating_add_signed(*off).max(self.now);
                }
            }
            Step::Batch(acts) => {
                let batch = acts.iter().filter_map(|act| self.operation(act)).collect();
                return Some(self.apply(batch));
            }
        }
        None
    }

    fn apply(&mut self, batch: Vec<Operation>) -> Entry {
        self.index += 1;
        let stamp = Stamp::from_micros(self.now);
        let outcomes = self.state.apply(self.index, stamp, &batch);
        assert_eq!(outcomes.len(), batch.len(), "one answer for each");
        for (operation, outcome) in batch.iter().zip(&outcomes) {
            self.note(operation, outcome);
        }
        Entry {
            index: self.index,
            now: self.now,
            batch,
            outcomes,
        }
    }

    fn operation(&mut self, act: &Act) -> Option<Operation> {
        Some(match act {
            Act::Ask { .. } => return self.ask(act),
            Act::Release {
                grant,
                end,
                stranger,
            } => self.release(*grant, *end, *stranger)?,
            Act::Cancel {
                who,
                which,
                stranger,
            } => Operation::Cancel(self.ask_name(*who, *which, *stranger)),
            Act::Unwake {
                who,
                which,
                stranger,
            } => Operation::Unwake(self.ask_name(*who, *which, *stranger)),
            Act::Extend { grant } => {
                let (target, grant, _) = self.grant(*grant)?;
                Operation::Extend(Extend {
                    target,
                    principal: principal(false),
                    grant,
                })
            }
            Act::Report {
                who,
                which,
                cost,
                age,
            } => {
                let (attempt, _) = self.number(*who, *which);
                let (priority, actual, _) = self.body(*who, *cost);
                Operation::Report(Box::new(Report {
                    target: target(who.target),
                    tenant: tenant(who.tenant),
                    principal: principal(false),
                    priority,
                    admission_id: id(*who),
                    attempt,
                    actual,
                    age: *age,
                }))
            }
            Act::Put {
                target,
                policy,
                expect,
            } => {
                let policies = &self.history.policies;
                let policy = policies[policy % policies.len()].clone();
                self.put(*target, policy, *expect)
            }
            Act::Delete {
                target: place,
                expect,
            } => Operation::DeletePolicy(DeletePolicy {
                target: target(*place),
                expected_version: *expect,
            }),
        })
    }

    fn ask_name(&mut self, who: Who, which: Which, stranger: bool) -> Box<AskName> {
        let (attempt, ask) = self.number(who, which);
        Box::new(AskName {
            target: target(who.target),
            tenant: tenant(who.tenant),
            principal: principal(stranger),
            admission_id: id(who),
            attempt,
            ask,
        })
    }

    fn put(&self, place: usize, policy: Policy, expected_version: Option<u64>) -> Operation {
        Operation::PutPolicy(Box::new(PutPolicy {
            target: target(place),
            principal: principal(false),
            policy,
            expected_version,
        }))
    }

    fn ask(&mut self, act: &Act) -> Option<Operation> {
        let Act::Ask {
            who,
            which,
            cost,
            deadline,
            dry,
            stranger,
        } = act
        else {
            return None;
        };
        let (attempt, ask) = self.number(*who, *which);
        let (priority, cost, cost_max) = self.body(*who, *cost);
        Some(Operation::Admit(Box::new(Admit {
            target: target(who.target),
            tenant: tenant(who.tenant),
            principal: principal(*stranger),
            priority,
            admission_id: id(*who),
            attempt,
            ask,
            cost,
            cost_max,
            labels_digest: 0,
            deadline: deadline.map(|ms| ms * 1_000),
            dry_run: *dry,
            // Every third ask comes from somebody who stays connected.
            wake: ask % 3 == 0 && !*dry,
        })))
    }

    fn number(&mut self, who: Who, which: Which) -> (u64, u32) {
        let book = self.books.entry(who).or_default();
        let count = book.attempts.len() as u64;
        if count == 0 || matches!(which, Which::Fresh) {
            book.attempts.push((count + 1, 1));
            return (count + 1, 1);
        }
        let newest = book.attempts.len() - 1;
        let (attempt, highest) = &mut book.attempts[newest];
        match which {
            Which::Next | Which::Fresh => {
                *highest += 1;
                (*attempt, *highest)
            }
            Which::Same => (*attempt, *highest),
            Which::Off(off) => {
                let ask = highest.saturating_add_signed(off.into()).max(1);
                *highest = ask.max(*highest);
                (*attempt, ask)
            }
            Which::Old(back) => book.attempts[newest.saturating_sub(back)],
        }
    }

    /// Priority and costs of a call: those it had before, or new ones that fit the policy in force.
    fn body(&mut self, who: Who, cost: Cost) -> (PriorityName, Amounts, Amounts) {
        if let Some(body) = &self.books.entry(who).or_default().body
            && !cost.differs
        {
            return body.clone();
        }
        let view = self.state.view(&target(who.target));
        let names = ["high", "mid", "low", "none"];
        let known = view.as_ref().map_or(4, |view| view.priorities.len());
        let priority = PriorityName::new(names[cost.priority % known.max(1)]).unwrap();
        let (mut least, mut most) = (Vec::new(), Vec::new());
        for place in 0..DIMENSIONS.len() {
            let name = dimension(place);
            let limits = view.iter().flat_map(|view| &view.policy.limits);
            let caps = limits.filter(|l| l.dimension == name).map(|l| l.cap);
            let Some(cap) = caps.min() else { continue };
            let units = (cap * cost.sixteenths[place]).div_ceil(16);
            least.push((name.clone(), units));
            if cost.span > 0 {
                most.push((name, units + cap * cost.span / 32));
            }
        }
        if least.iter().all(|(_, units)| *units == 0) {
            // A cost needs a unit; a dimension that nobody counts comes in here, too.
            least = vec![(dimension(cost.priority), 1)];
            most.clear();
        }
        let amounts = |list| Amounts::new(list).unwrap();
        let body = (priority, amounts(least), amounts(most));
        self.books.entry(who).or_default().body = Some(body.clone());
        body
    }

    fn grant(&self, back: usize) -> Option<(TargetName, GrantId, Amounts)> {
        let place = self.grants.len().checked_sub(back + 1)?;
        Some(self.grants[place].clone())
    }

    fn release(&self, grant: usize, end: End, stranger: bool) -> Option<Operation> {
        let (target, grant, charged) = self.grant(grant)?;
        let used = charged.iter().filter_map(|(name, units)| {
            let quarters = end.quarters?;
            Some((name.clone(), units * quarters / 4))
        });
        let actual = Amounts::new(used.collect()).unwrap();
        let outcome = match end.how {
            How::Ok => CallOutcome::Ok,
            How::Failed => CallOutcome::Failed,
            How::NotSent => CallOutcome::NotSent,
            How::Throttled(ms) => CallOutcome::Throttled {
                retry_after: ms * 1_000,
            },
        };
        Some(Operation::Release(Box::new(Release {
            target,
            principal: principal(stranger),
            grant,
            actual,
            outcome,
        })))
    }

    /// Keeps what clients keep of an answer, and the moments that it makes interesting.
    fn note(&mut self, operation: &Operation, outcome: &Outcome) {
        self.moments.insert(self.now + 15 * SECOND);
        if let Operation::DeletePolicy(_) = operation {
            for policy in &self.history.policies {
                for limit in &policy.limits {
                    self.moments.insert(self.now + limit.per);
                }
            }
        }
        let Operation::Admit(admit) = operation else {
            return;
        };
        let Some(view) = self.state.view(&admit.target) else {
            return;
        };
        let lapse = 4 * view.policy.horizon;
        match outcome {
            Outcome::Admit(AdmitOutcome::Admitted(admitted)) => {
                let start = self.now + admitted.start_in;
                self.moments.insert(start);
                self.moments.insert(start + admitted.reply_window);
                self.moments.insert(start + 600 * SECOND);
                for (limit, of) in view.limits.iter().zip(&view.policy.limits) {
                    let period = of.per + limit.guard;
                    self.moments.insert(start + period);
                    self.moments.insert(start + period + period.div_ceil(256));
                }
                if let Some(grant) = admitted.grant {
                    let new = self.grants.iter().all(|(_, known, _)| *known != grant);
                    if new {
                        let charged = admitted.charged.clone();
                        self.grants.push((admit.target.clone(), grant, charged));
                    }
                }
            }
            Outcome::Admit(AdmitOutcome::Deferred(deferred)) => {
                let due = self.now + deferred.retry_in;
                self.moments.insert(due);
                self.moments.insert(due + lapse);
                self.moments.insert(self.now + deferred.earliest_in);
                self.moments.insert(self.now + deferred.place_until);
            }
            Outcome::Admit(AdmitOutcome::Rejected(_)) | Outcome::Refused(_) => {}
            other => panic!("an ask was answered {other:?}"),
        }
    }
}

fn id(who: Who) -> Box<[u8]> {
    format!("call-{}", who.id).into_bytes().into()
}
