//! What one session carries: operations that wait for a frame, and those that wait for an answer. No
//! socket, no task.

use crate::failure::{Failure, Silence};
use crate::limits::SESSION_QUEUE_MAX;
use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use weir_proto::limits::{FRAME_BYTES_MAX, FRAME_OPERATIONS_MAX};
use weir_proto::v1::session_answer::Answer;
use weir_proto::v1::session_operation::Operation;
use weir_proto::v1::{ClientFrame, SessionAnswer, SessionLimits, SessionOperation};

/// Bytes of an operation besides its message: keys, lengths, sequence and timeout.
const OPERATION_BYTES: usize = 32;
/// Bytes of a frame besides its operations.
const FRAME_BYTES: usize = 16;

/// An answer, and when its operation was handed to the stream: the client rule counts from there.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) handed_at: Instant,
    pub(crate) answer: Answer,
}

/// What a caller gets.
pub(super) type Reply = Result<Heard, Unheard>;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unheard {
    /// The node knows no sessions. Nothing happened.
    Unimplemented,
    /// As told.
    Failed(Failure),
}

/// An operation that waits for a frame.
struct Queued {
    sequence: u64,
    operation: Operation,
    bytes: usize,
    until: Instant,
    reply: oneshot::Sender<Reply>,
}

/// An operation that waits for its answer.
struct Flying {
    handed_at: Instant,
    reply: oneshot::Sender<Reply>,
}

/// See the module.
pub(super) struct Lane {
    queue: VecDeque<Queued>,
    flying: BTreeMap<u64, Flying>,
    next_sequence: u64,
    /// What the node allows; `None` until its hello is here, and nothing is sent.
    limits: Option<Limits>,
    /// When the node last said something.
    heard_at: Option<Instant>,
    /// Why nothing goes any more.
    over: Option<Unheard>,
    /// Calls that have not ended.
    calls: usize,
    /// No further calls; the session ends with the last one.
    retired: bool,
    /// Whoever writes frames, while there is nothing to write.
    pub(super) writer: Option<Waker>,
}

/// What the node allows in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    operations: usize,
    bytes: usize,
    in_flight: usize,
}

impl Limits {
    /// At most what this client would do anyhow; at least one operation, or nothing would ever go.
    fn of(told: &SessionLimits) -> Limits {
        let number = |told: u32| usize::try_from(told).unwrap_or(usize::MAX);
        Limits {
            operations: number(told.frame_operations).clamp(1, FRAME_OPERATIONS_MAX),
            bytes: number(told.frame_bytes).min(FRAME_BYTES_MAX),
            in_flight: number(told.operations_in_flight).max(1),
        }
    }
}

/// What a caller's patience ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Handed to the node at that time, which may have done it.
    Handed(Instant),
    /// Not handed: the session is not open, or the node answers nothing.
    Unsent,
    /// Not handed: others filled the session, and the node answers.
    Crowded,
}

impl Lane {
    pub(super) fn new() -> Lane {
        Lane {
            queue: VecDeque::new(),
            flying: BTreeMap::new(),
            next_sequence: 1,
            limits: None,
            heard_at: None,
            over: None,
            calls: 0,
            retired: false,
            writer: None,
        }
    }

    /// Queues an operation for the next frame. Answers its sequence and where the reply comes.
    pub(super) fn push(
        &mut self,
        operation: Operation,
        until: Instant,
    ) -> Result<(u64, oneshot::Receiver<Reply>), Unheard> {
        if let Some(over) = &self.over {
            return Err(over.clone());
        }
        if self.queue.len() >= SESSION_QUEUE_MAX {
            return Err(Unheard::Failed(Failure::not_taken_up()));
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let (reply, answer) = oneshot::channel();
        let bytes = operation.encoded_len() + OPERATION_BYTES;
        self.queue.push_back(Queued {
            sequence,
            operation,
            bytes,
            until,
            reply,
        });
        self.calls += 1;
        Ok((sequence, answer))
    }

    /// A call has ended, however. True if the session has nothing left to do.
    pub(super) fn call_ended(&mut self) -> bool {
        self.calls = self.calls.saturating_sub(1);
        self.is_finished()
    }

    /// No further calls. True if there is nothing left to do.
    pub(super) fn retire(&mut self) -> bool {
        self.retired = true;
        self.is_finished()
    }

    fn is_finished(&self) -> bool {
        self.retired && self.calls == 0
    }

    /// Why calls have to go elsewhere; `None` while they need not.
    pub(super) fn why_over(&self) -> Option<&Unheard> {
        self.over.as_ref()
    }

    /// Where an operation stands whose caller, who came at `since`, waits no longer.
    pub(super) fn stage(&self, sequence: u64, since: Instant) -> Stage {
        if let Some(flying) = self.flying.get(&sequence) {
            return Stage::Handed(flying.handed_at);
        }
        match self.heard_at {
            Some(heard_at) if self.limits.is_some() && heard_at >= since => Stage::Crowded,
            Some(_) | None => Stage::Unsent,
        }
    }

    /// The node said hello.
    pub(super) fn opened(&mut self, limits: &SessionLimits, now: Instant) {
        self.limits = Some(Limits::of(limits));
        self.heard_at = Some(now);
    }

    /// True if the node said hello.
    pub(super) fn was_open(&self) -> bool {
        self.limits.is_some()
    }

    /// The node said something after that time.
    pub(super) fn was_heard_after(&self, at: Instant) -> bool {
        self.heard_at.is_some_and(|heard_at| heard_at > at)
    }

    /// The next frame, if something waits and the node has room for it.
    pub(super) fn next_frame(&mut self, now: Instant) -> Option<ClientFrame> {
        let limits = self.limits?;
        if self.is_room_too_small(limits) {
            return None;
        }
        let mut operations = Vec::new();
        let mut bytes = FRAME_BYTES;
        while operations.len() < limits.operations && self.flying.len() < limits.in_flight {
            let room = operations.is_empty()
                || self
                    .queue
                    .front()
                    .is_some_and(|next| bytes + next.bytes <= limits.bytes);
            let Some(next) = self.queue.pop_front_if(|_| room) else {
                break;
            };
            // Nobody waits for it any more: it is not sent.
            if next.reply.is_closed() {
                continue;
            }
            bytes += next.bytes;
            operations.push(SessionOperation {
                sequence: next.sequence,
                timeout_us: micros_left(next.until, now),
                operation: Some(next.operation),
            });
            let flying = Flying {
                handed_at: now,
                reply: next.reply,
            };
            self.flying.insert(next.sequence, flying);
        }
        (!operations.is_empty()).then_some(ClientFrame { operations })
    }

    /// True while more waits than the node has room for, and the room is small: one answer would make room
    /// for one operation, whose answer makes room for the next, and every frame would carry just one. So
    /// a crowd waits for half a frame's room (D. Clark, RFC 813, on silly windows). An empty session has it.
    fn is_room_too_small(&self, limits: Limits) -> bool {
        let room = limits.in_flight.saturating_sub(self.flying.len());
        let worth = limits.operations.min(limits.in_flight).div_ceil(2);
        room < worth.min(self.queue.len())
    }

    /// The node answered.
    pub(super) fn answered(&mut self, answers: Vec<SessionAnswer>, now: Instant) {
        self.heard_at = Some(now);
        for SessionAnswer { sequence, answer } in answers {
            let Some(Flying { handed_at, reply }) = self.flying.remove(&sequence) else {
                tracing::debug!(sequence, "an answer to nothing that was asked");
                continue;
            };
            let heard = match answer {
                Some(Answer::Error(error)) => Err(Unheard::Failed(Failure::of_session(error))),
                Some(answer) => Ok(Heard { handed_at, answer }),
                None => Err(Unheard::Failed(Failure::unread())),
            };
            // Whoever asked may wait no longer.
            let _ = reply.send(heard);
        }
    }

    /// The node takes up nothing after `last`, and has answered the rest.
    pub(super) fn goodbye(&mut self, last: u64, failure: &Failure) {
        for (_, flying) in self.flying.split_off(&last.saturating_add(1)) {
            let _ = flying.reply.send(Err(Unheard::Failed(failure.clone())));
        }
        self.end(Unheard::Failed(failure.clone()), "the node said goodbye");
    }

    /// Nothing goes any more: what was not handed fails as told, what was handed may have happened.
    pub(super) fn end(&mut self, unsent: Unheard, message: &str) {
        let handed = match &unsent {
            // Not an outage, and it must not look like one.
            Unheard::Failed(failure @ Failure::Fault(_)) => Unheard::Failed(failure.clone()),
            Unheard::Failed(
                Failure::NoAnswer { .. } | Failure::NotLeader { .. } | Failure::Overloaded { .. },
            )
            | Unheard::Unimplemented => Unheard::Failed(Failure::NoAnswer {
                message: message.to_owned(),
                may_have_happened: true,
                retry_in: None,
                silence: Silence::Node,
            }),
        };
        let flying = std::mem::take(&mut self.flying).into_values();
        let queued = std::mem::take(&mut self.queue).into_iter();
        let replies = flying
            .map(|flying| (flying.reply, &handed))
            .chain(queued.map(|queued| (queued.reply, &unsent)));
        let mut blamed = false;
        for (reply, why) in replies {
            let why = if blamed { why.again() } else { why.clone() };
            blamed |= reply.send(Err(why)).is_ok();
        }
        self.over.get_or_insert(unsent.again());
    }
}

impl Unheard {
    /// The same, as a further call hears it: the node is blamed once for all of them.
    fn again(&self) -> Unheard {
        let mut again = self.clone();
        if let Unheard::Failed(Failure::NoAnswer { silence, .. }) = &mut again
            && *silence == Silence::Node
        {
            *silence = Silence::Session;
        }
        again
    }
}

/// Zero would mean that somebody always waits.
fn micros_left(until: Instant, now: Instant) -> u64 {
    let left: Duration = until.saturating_duration_since(now);
    u64::try_from(left.as_micros()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests;
