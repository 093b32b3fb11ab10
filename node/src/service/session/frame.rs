//! One frame taken apart, and one submission put together again as answers.

use super::Context;
use crate::batch::{Answer as BatchAnswer, Completion, Refused, SubmitError, gives_back};
use crate::limits::RETRY_HINT_MIN;
use crate::metrics::LastDecisions;
use crate::service::wire_error;
use crate::wakes::{Line, Seat, Waiters, name_of};
use futures::FutureExt;
use futures::future::{BoxFuture, Either};
use std::time::Duration;
use tokio::time::Instant;
use weir_admission::{
    AdmitOutcome, AskName, CallOutcome, DimensionName, Operation, Outcome, Principal, PriorityName,
    ReleaseOutcome, ShardId, TargetName,
};
use weir_proto::convert::session::{Kind, answer, read_operation};
use weir_proto::convert::{self, Caller};
use weir_proto::error::{Reason, WireError};
use weir_proto::v1 as wire;
use weir_proto::v1::session_answer::Answer;

/// What is kept of an operation until its outcome is here.
#[derive(Debug)]
pub(super) struct Asked {
    sequence: u64,
    target: TargetName,
    what: What,
}

#[derive(Debug)]
enum What {
    Admit {
        priority: PriorityName,
        /// True if its caller is told of its turn.
        wake: bool,
        /// The name of the ask, if it matters to anybody who waits.
        name: Option<Box<AskName>>,
    },
    Release {
        throttled: bool,
        /// What the provider named then.
        dimension: Option<DimensionName>,
    },
    Cancel {
        name: Box<AskName>,
    },
    Extend,
    Report,
}

impl What {
    fn kind(&self) -> Kind {
        match self {
            What::Admit { .. } => Kind::Admit,
            What::Release { .. } => Kind::Release,
            What::Cancel { .. } => Kind::Cancel,
            What::Extend => Kind::Extend,
            What::Report => Kind::Report,
        }
    }
}

/// Operations of one frame that go to one shard, in order: those that give capacity back, or the others.
struct Part {
    shard: ShardId,
    gives_back: bool,
    asked: Vec<Asked>,
    operations: Vec<Operation>,
    deadline: Option<Instant>,
}

/// When nobody waits for an operation any more; `None` if somebody always does.
fn deadline_of(timeout_us: u64, now: Instant) -> Option<Instant> {
    let timeout = (timeout_us > 0).then(|| Duration::from_micros(timeout_us))?;
    now.checked_add(timeout)
}

/// When nobody waits for either of two operations any more.
fn longest(one: Option<Instant>, two: Option<Instant>) -> Option<Instant> {
    Some(one?.max(two?))
}

/// A submission on its way.
pub(super) struct Submitted {
    pub(super) shard: ShardId,
    pub(super) arrived: Instant,
    pub(super) asked: Vec<Asked>,
    /// How many of them may be asks: they count against the room for asks.
    pub(super) asks: usize,
    pub(super) completion: Either<Completion, BoxFuture<'static, BatchAnswer>>,
}

/// What became of a frame at once.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) submitted: Vec<Submitted>,
    /// Answers to operations that go nowhere.
    pub(super) answers: Vec<wire::SessionAnswer>,
    /// True if some of them were asks for which there was no room.
    pub(super) crowded: bool,
}

impl Taken {
    fn refuse(&mut self, context: &Context, sequence: u64, error: WireError) {
        self.answers.push(refusal(context, sequence, error));
    }
}

/// An error as the answer to one operation, counted.
fn refusal(context: &Context, sequence: u64, error: WireError) -> wire::SessionAnswer {
    context.metrics.refused(error.reason.as_str());
    wire::SessionAnswer {
        sequence,
        answer: Some(Answer::Error(error.to_session())),
    }
}

/// Takes a checked frame: reads every operation, and submits those that are right, of which at most
/// `asks_max` may be asks. What gives capacity back is submitted first, and apart: it has room of its own,
/// and must not be dropped with asks that wait too long.
pub(super) fn take(
    context: &Context,
    principal: &Principal,
    frame: wire::ClientFrame,
    mut asks_max: usize,
) -> Taken {
    let arrived = Instant::now();
    let caller = Caller {
        principal,
        shards: context.shards.identity().shards,
        wakes: true,
    };
    let anybody_waits = context.wakes.anybody();
    let mut taken = Taken::default();
    // A client sends a node what that node leads: mostly a few shards.
    let mut parts: Vec<Part> = Vec::new();
    for operation in frame.operations {
        let sequence = operation.sequence;
        let deadline = deadline_of(operation.timeout_us, arrived);
        if matches!(
            operation.operation,
            Some(wire::session_operation::Operation::Admit(_))
        ) {
            // Before it is read: to refuse too much must cost little.
            let Some(left) = asks_max.checked_sub(1) else {
                taken.crowded = true;
                taken.refuse(context, sequence, too_many_asks());
                continue;
            };
            asks_max = left;
        }
        let dimension = dimension_of(operation.operation.as_ref());
        let operation = match read_operation(operation.operation, caller) {
            Ok(operation) => operation,
            Err(violations) => {
                taken.refuse(context, sequence, violations.into());
                continue;
            }
        };
        let Some(asked) = Asked::of(sequence, &operation, anybody_waits, dimension) else {
            taken.refuse(context, sequence, not_of_a_session());
            continue;
        };
        let (shard, gives_back) = (
            context.shards.shard_of(&asked.target),
            gives_back(&operation),
        );
        let same = |part: &&mut Part| part.shard == shard && part.gives_back == gives_back;
        match parts.iter_mut().find(same) {
            Some(part) => {
                part.asked.push(asked);
                part.operations.push(operation);
                part.deadline = longest(part.deadline, deadline);
            }
            None => parts.push(Part {
                shard,
                gives_back,
                asked: vec![asked],
                operations: vec![operation],
                deadline,
            }),
        }
    }
    // Stable: the shards keep their order.
    parts.sort_by_key(|part| !part.gives_back);
    for part in parts {
        submit(context, part, arrived, &mut taken);
    }
    taken
}

/// What a provider named that refused the call of a release.
fn dimension_of(operation: Option<&wire::session_operation::Operation>) -> Option<DimensionName> {
    match operation? {
        wire::session_operation::Operation::Release(release) => {
            convert::release::throttled_dimension(release)
        }
        wire::session_operation::Operation::Admit(_)
        | wire::session_operation::Operation::Cancel(_)
        | wire::session_operation::Operation::Extend(_)
        | wire::session_operation::Operation::Report(_) => None,
    }
}

fn too_many_asks() -> WireError {
    WireError::new(
        Reason::Overloaded,
        "the session has too many asks without an answer",
    )
    .retry_after(RETRY_HINT_MIN)
}

fn not_of_a_session() -> WireError {
    WireError::new(Reason::Internal, "an operation that no session carries")
}

/// Puts a part into its shard's queue. If the queue is full, asks are refused, and what frees capacity waits
/// for room.
fn submit(context: &Context, part: Part, arrived: Instant, taken: &mut Taken) {
    let Part {
        shard,
        gives_back,
        asked,
        operations,
        deadline,
    } = part;
    let completion = match context.shards.enqueue(shard, operations, deadline) {
        Ok(completion) => Either::Left(completion),
        Err(Refused {
            error: SubmitError::Overloaded { .. },
            operations,
        }) if gives_back => {
            let shards = context.shards.clone();
            let answer = async move { shards.submit(shard, operations, deadline).await };
            Either::Right(answer.boxed())
        }
        Err(Refused { error, .. }) => {
            taken.crowded |= matches!(error, SubmitError::Overloaded { .. });
            let error = wire_error(error, &context.shards);
            for asked in asked {
                taken.refuse(context, asked.sequence, error.clone());
            }
            return;
        }
    };
    taken.submitted.push(Submitted {
        shard,
        arrived,
        asks: if gives_back { 0 } else { asked.len() },
        asked,
        completion,
    });
}

impl Asked {
    /// `None` for operations that no session carries. An ask may take over the place of somebody who waits, if
    /// anybody does.
    fn of(
        sequence: u64,
        operation: &Operation,
        anybody_waits: bool,
        dimension: Option<DimensionName>,
    ) -> Option<Asked> {
        let (target, what) = match operation {
            Operation::Admit(admit) => {
                let matters = admit.wake || (anybody_waits && !admit.dry_run);
                let what = What::Admit {
                    priority: admit.priority.clone(),
                    wake: admit.wake,
                    name: matters.then(|| Box::new(name_of(admit))),
                };
                (&admit.target, what)
            }
            Operation::Release(release) => {
                let throttled = matches!(release.outcome, CallOutcome::Throttled { .. });
                let what = What::Release {
                    throttled,
                    dimension,
                };
                (&release.target, what)
            }
            Operation::Cancel(cancel) => {
                let name = cancel.clone();
                (&cancel.target, What::Cancel { name })
            }
            Operation::Extend(extend) => (&extend.target, What::Extend),
            Operation::Report(report) => (&report.target, What::Report),
            Operation::Unwake(_)
            | Operation::PutPolicy(_)
            | Operation::DeletePolicy(_)
            | Operation::Seed(_) => {
                return None;
            }
        };
        Some(Asked {
            sequence,
            target: target.clone(),
            what,
        })
    }
}

/// The answers to a submission.
pub(super) fn answers(
    context: &Context,
    shard: ShardId,
    arrived: Instant,
    asked: Vec<Asked>,
    result: Result<Vec<Outcome>, SubmitError>,
    (last, waiters): (&mut LastDecisions, &Waiters),
) -> Vec<wire::SessionAnswer> {
    let outcomes = match result {
        Ok(outcomes) => outcomes,
        Err(error) => {
            let refuse = |asked: Asked| {
                let error = wire_error(error.clone(), &context.shards);
                refusal(context, asked.sequence, error)
            };
            return asked.into_iter().map(refuse).collect();
        }
    };
    let after = arrived.elapsed();
    let told = asked.into_iter().zip(outcomes);
    told.map(|(mut asked, outcome)| {
        count(context, &asked, &outcome, after, last);
        note_waiter(waiters, shard, &mut asked, &outcome);
        match answer(asked.what.kind(), outcome, &asked.target, shard) {
            Ok(answer) => wire::SessionAnswer {
                sequence: asked.sequence,
                answer: Some(answer),
            },
            Err(error) => refusal(context, asked.sequence, error),
        }
    })
    .collect()
}

/// Notes who waits from now on to be told of its turn, and who waits no longer.
fn note_waiter(waiters: &Waiters, shard: ShardId, asked: &mut Asked, outcome: &Outcome) {
    match &mut asked.what {
        What::Admit { wake, name, .. } => {
            let Some(name) = name.take() else { return };
            if *wake
                && let Outcome::Admit(AdmitOutcome::Deferred(deferred)) = outcome
                && let Some(ticket) = deferred.ticket
            {
                let line = Line {
                    shard,
                    target: asked.target.clone(),
                };
                waiters.wait(Seat { line, ticket }, name);
            } else {
                waiters.end(&name, outcome);
            }
        }
        What::Cancel { name } => waiters.end(name, outcome),
        What::Release { .. } | What::Extend | What::Report => {}
    }
}

fn count(
    context: &Context,
    asked: &Asked,
    outcome: &Outcome,
    after: Duration,
    last: &mut LastDecisions,
) {
    if let (What::Admit { priority, .. }, Outcome::Admit(decided)) = (&asked.what, outcome) {
        let metrics = &context.metrics;
        metrics.decided_after(last, &asked.target, priority, decided, after);
    }
    let applied = matches!(outcome, Outcome::Release(ReleaseOutcome::Applied));
    if let What::Release {
        throttled: true,
        dimension,
    } = &asked.what
        && applied
    {
        let dimensions = || context.shards.dimensions(&asked.target);
        let metrics = &context.metrics;
        metrics.throttled(&asked.target, dimension.as_ref(), dimensions);
    }
}
