//! Random histories of operations, made so that they meet: few targets, tenants and ids, and steps of time
//! that land on, just before and just after the moments at which something changes.
//!
//! A [`History`] is symbolic ("release the last but two grant", "wait until a microsecond before the next
//! deadline"), so that it still means something when proptest leaves parts of it away. A [`Driver`] makes
//! operations of it, with what a fleet of clients would know from the answers so far.

mod driver;
mod policies;
mod tell;

pub(crate) use driver::{Driver, Entry, target};
pub(crate) use policies::{Scope, policy};
pub(crate) use tell::tell;

use proptest::prelude::*;
use std::fmt;
use weir_admission::{Policy, State};

/// Targets, tenants and ids that a history talks of.
pub(crate) const TARGETS: usize = 2;
pub(crate) const TENANTS: usize = 3;
pub(crate) const IDS: usize = 4;

/// Policies to put, and what happens.
#[derive(Clone)]
pub(crate) struct History {
    pub(crate) policies: Vec<Policy>,
    pub(crate) steps: Vec<Step>,
}

/// One step to a line: what came of it is told by the test that fails.
impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a history of {} policies and", self.policies.len())?;
        let steps = self.steps.iter();
        steps
            .map(|step| format!("{step:?}"))
            .try_for_each(|step| writeln!(f, "{step}"))
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Wait(Wait),
    /// One log entry.
    Batch(Vec<Act>),
}

#[derive(Clone, Debug)]
pub(crate) enum Wait {
    For(u64),
    /// To the n-th of the coming moments at which something changes, and this much more or less.
    To(usize, i64),
}

impl History {
    /// The whole history on a new state.
    pub(crate) fn run(&self) -> (Vec<Entry>, State) {
        let (mut driver, first) = Driver::start(self);
        let mut entries = vec![first];
        entries.extend(self.steps.iter().filter_map(|step| driver.step(step)));
        (entries, driver.state)
    }
}

/// A call that the fleet wants to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Who {
    pub(crate) target: usize,
    pub(crate) tenant: usize,
    pub(crate) id: usize,
}

/// Which attempt and ask an operation names, as the fleet counts them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// The next ask of the newest attempt.
    Next,
    /// The last one once more.
    Same,
    /// One before, or one that was left out.
    Off(i8),
    /// The first ask of a new attempt.
    Fresh,
    /// An ask of an older attempt.
    Old(usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Ask {
        who: Who,
        which: Which,
        cost: Cost,
        /// From now, in milliseconds.
        deadline: Option<u64>,
        dry: bool,
        stranger: bool,
    },
    Release {
        /// Counted from the last grant backwards.
        grant: usize,
        end: End,
        stranger: bool,
    },
    Cancel {
        who: Who,
        which: Which,
        stranger: bool,
    },
    Unwake {
        who: Who,
        which: Which,
        stranger: bool,
    },
    Extend {
        grant: usize,
    },
    Report {
        who: Who,
        which: Which,
        cost: Cost,
        age: u64,
    },
    Put {
        target: usize,
        policy: usize,
        expect: Option<u64>,
    },
    Delete {
        target: usize,
        expect: Option<u64>,
    },
}

/// What a call costs: for a call that was asked for before, its cost then, unless it is to differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Parts of the smallest cap, in 1/16.
    pub(crate) sixteenths: [u64; 2],
    /// How much the upper bound lies above.
    pub(crate) span: u64,
    pub(crate) priority: usize,
    pub(crate) differs: bool,
}

/// How a call ends: used as a part of the charge in quarters (`None` is what was charged), and the outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) quarters: Option<u64>,
    pub(crate) how: How,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Ok,
    Failed,
    NotSent,
    /// Retry-After in milliseconds.
    Throttled(u64),
}

/// As many cases as `PROPTEST_CASES` says, or else this many.
pub(crate) fn cases(usual: u32) -> ProptestConfig {
    let usual = ProptestConfig {
        failure_persistence: None,
        cases: usual,
        ..ProptestConfig::default()
    };
    match std::env::var("PROPTEST_CASES").map(|cases| cases.parse()) {
        Ok(Ok(cases)) => ProptestConfig { cases, ..usual },
        Ok(Err(_)) | Err(_) => usual,
    }
}

pub(crate) fn history(scope: Scope, steps: usize) -> impl Strategy<Value = History> {
    let policies = prop::collection::vec(policy(scope), 1..4);
    let steps = prop::collection::vec(step(scope), 1..steps);
    (policies, steps).prop_map(move |(mut policies, steps)| {
        if let (Scope::Exact, Some((first, others))) = (scope, policies.split_first_mut()) {
            for other in others {
                other.limits.clone_from(&first.limits);
                other.reply_window = first.reply_window;
                other.send_spread = first.send_spread;
            }
        }
        History { policies, steps }
    })
}

fn step(scope: Scope) -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => wait().prop_map(Step::Wait),
        3 => prop::collection::vec(act(scope), 0..4).prop_map(Step::Batch),
    ]
}

fn wait() -> impl Strategy<Value = Wait> {
    const MS: u64 = 1_000;
    const S: u64 = 1_000_000;
    prop_oneof![
        2 => (0..4u64).prop_map(Wait::For),
        2 => (0..60 * MS).prop_map(Wait::For),
        2 => (0..3 * S).prop_map(Wait::For),
        1 => prop::sample::select(vec![10 * S, 15 * S, 60 * S, 200 * S, 600 * S, 4_000 * S])
            .prop_map(Wait::For),
        8 => (0..4usize, -1..=1i64).prop_map(|(nth, off)| Wait::To(nth, off)),
        2 => (0..40usize, -1..=1i64).prop_map(|(nth, off)| Wait::To(nth, off)),
    ]
}

fn who() -> impl Strategy<Value = Who> {
    // The first target is the busy one.
    let target = prop_oneof![4 => Just(0), 1 => 0..TARGETS];
    (target, 0..TENANTS, 0..IDS).prop_map(|(target, tenant, id)| Who { target, tenant, id })
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        8 => Just(Which::Next),
        2 => Just(Which::Same),
        1 => prop::sample::select(vec![-2i8, -1, 2, 3]).prop_map(Which::Off),
        2 => Just(Which::Fresh),
        2 => (1..10usize).prop_map(Which::Old),
    ]
}

fn cost() -> impl Strategy<Value = Cost> {
    let part = prop_oneof![4 => 0..5u64, 2 => 4..17u64, 1 => 16..20u64];
    let span = prop_oneof![2 => Just(0u64), 1 => 1..40u64];
    (
        [part.clone(), part],
        span,
        0..4usize,
        prop::bool::weighted(0.05),
    )
        .prop_map(|(sixteenths, span, priority, differs)| Cost {
            sixteenths,
            span,
            priority,
            differs,
        })
}

fn end() -> impl Strategy<Value = End> {
    let how = prop_oneof![
        6 => Just(How::Ok),
        1 => Just(How::Failed),
        2 => Just(How::NotSent),
        1 => prop::sample::select(vec![0, 1, 500, 20_000, 700_000]).prop_map(How::Throttled),
    ];
    let quarters = prop_oneof![1 => Just(None), 2 => (0..7u64).prop_map(Some)];
    (quarters, how).prop_map(|(quarters, how)| End { quarters, how })
}

fn act(scope: Scope) -> BoxedStrategy<Act> {
    let rarely = || prop::bool::weighted(0.03);
    let deadline =
        prop_oneof![3 => Just(None), 1 => prop_oneof![Just(0), 0..100_000u64].prop_map(Some)];
    let ask = (
        who(),
        which(),
        cost(),
        deadline,
        prop::bool::weighted(0.1),
        rarely(),
    )
        .prop_map(|(who, which, cost, deadline, dry, stranger)| Act::Ask {
            who,
            which,
            cost,
            deadline,
            dry,
            stranger,
        });
    let release = (0..8usize, end(), rarely()).prop_map(|(grant, end, stranger)| Act::Release {
        grant,
        end,
        stranger,
    });
    let cancel = (who(), which(), rarely()).prop_map(|(who, which, stranger)| Act::Cancel {
        who,
        which,
        stranger,
    });
    let unwake = (who(), which(), rarely()).prop_map(|(who, which, stranger)| Act::Unwake {
        who,
        which,
        stranger,
    });
    let extend = (0..8usize).prop_map(|grant| Act::Extend { grant });
    let age = prop_oneof![Just(0), 0..2_000_000u64, 0..700_000_000u64];
    let report = (who(), which(), cost(), age).prop_map(|(who, which, cost, age)| Act::Report {
        who,
        which,
        cost,
        age,
    });
    let expect = || prop_oneof![4 => Just(None), 1 => (0..4u64).prop_map(Some)];
    let put = (0..TARGETS, 0..4usize, expect()).prop_map(|(target, policy, expect)| Act::Put {
        target,
        policy,
        expect,
    });
    let delete = (0..TARGETS, expect()).prop_map(|(target, expect)| Act::Delete { target, expect });
    match scope {
        Scope::Everything => prop_oneof![
            30 => ask, 10 => release, 3 => cancel, 3 => unwake, 1 => extend, 3 => report, 2 => put,
            1 => delete
        ]
        .boxed(),
        Scope::Exact => prop_oneof![
            30 => ask, 10 => release, 3 => cancel, 3 => unwake, 1 => extend, 1 => put, 1 => delete
        ]
        .boxed(),
    }
}
