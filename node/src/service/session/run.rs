//! The task of one session.

use super::Context;
use super::crowd::Pause;
use super::frame::{self, Asked, Submitted, Taken};
use super::outbox::Outbox;
use crate::batch::Answer;
use crate::limits::{
    SESSION_ASKS_MAX, SESSION_HELLO_WITHIN, SESSION_IDLE_MAX, SESSION_OPERATIONS_MAX,
    SESSION_TAKEN_WITHIN,
};
use crate::listen::{Visitor, Works};
use crate::metrics::{LastDecisions, OpenSession};
use crate::road;
use crate::traceparent::TraceParent;
use crate::wakes::Waiters;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, interval_at, sleep_until, timeout};
use tonic::{Code, Status, Streaming};
use tracing::Span;
use weir_admission::{Principal, ShardId, Violation};
use weir_proto::convert::session::{PROTOCOL_VERSION, check_frame, read_hello};
use weir_proto::error::{Reason, WireError};
use weir_proto::limits::{FRAME_BYTES_MAX, FRAME_OPERATIONS_MAX};
use weir_proto::v1 as wire;
use weir_proto::v1::session_request::Message;

/// See the module.
pub(super) struct Session {
    context: Context,
    principal: Principal,
    outbox: Outbox,
    waiters: Waiters,
    /// The highest sequence taken up.
    last: u64,
    /// Operations without an answer, and how many of them are asks.
    operations: usize,
    asks: usize,
    /// Asks found no room: nothing is read for a while.
    pause: Option<Pause>,
    flights: FuturesUnordered<BoxFuture<'static, Landed>>,
    decisions: LastDecisions,
    /// The span of the client in which it opened the session.
    parent: Option<TraceParent>,
    /// Whose connection it is, and that the session is at work.
    visitor: Option<Visitor>,
    works: Option<Works>,
    _open: OpenSession,
}

/// A submission that has its answer.
struct Landed {
    receive: Span,
    shard: ShardId,
    arrived: Instant,
    asked: Vec<Asked>,
    asks: usize,
    answer: Answer,
}

/// Why a session ends.
enum End {
    /// The client is gone: there is nobody to tell.
    Gone,
    /// The client closed its side, and everything is answered.
    Done,
    Goodbye(wire::GoodbyeReason),
    /// The client broke a rule, or its connection broke.
    Refused(Status),
    /// The client did not read; it was told.
    CutOff,
}

/// A rule of the stream that was broken.
fn refused(field: &str, rule: String) -> End {
    let error = WireError {
        violations: vec![Violation {
            field: field.to_owned(),
            description: rule.clone(),
        }],
        ..WireError::new(Reason::Malformed, format!("{field} {rule}"))
    };
    End::Refused(error.into())
}

impl Session {
    pub(super) fn new(
        context: Context,
        principal: Principal,
        outbox: Outbox,
        parent: Option<TraceParent>,
        visitor: Option<Visitor>,
    ) -> Session {
        let waiters = context.wakes.session(Arc::new(outbox.clone()));
        let open = context.metrics.session();
        Session {
            context,
            principal,
            outbox,
            waiters,
            last: 0,
            operations: 0,
            asks: 0,
            pause: None,
            flights: FuturesUnordered::new(),
            decisions: LastDecisions::default(),
            parent,
            works: visitor.as_ref().map(Visitor::works),
            visitor,
            _open: open,
        }
    }

    /// Serves until the session ends, and tells the client how it ended.
    pub(super) async fn run(mut self, mut incoming: Streaming<wire::SessionRequest>) {
        let end = match self.greet(&mut incoming).await {
            Ok(()) => self.serve(incoming).await,
            Err(end) => end,
        };
        match end {
            End::Gone => {}
            End::Done => self.outbox.end(Ok(())),
            End::Goodbye(reason) => self.outbox.goodbye(wire::Goodbye {
                reason: reason.into(),
                last_sequence: self.last,
            }),
            End::Refused(status) => {
                tracing::debug!(code = ?status.code(), message = status.message(), "session refused");
                self.outbox.end(Err(status));
            }
            End::CutOff => {
                self.context.metrics.session_cut_off();
                tracing::warn!("a session was cut off: its client does not read its answers");
            }
        }
    }

    /// Hears the client's hello and answers it.
    async fn greet(&mut self, incoming: &mut Streaming<wire::SessionRequest>) -> Result<(), End> {
        let closing = self.context.closing.clone();
        let first = tokio::select! {
            biased;
            () = self.outbox.gone() => return Err(End::Gone),
            () = closing.cancelled() => return Err(End::Goodbye(wire::GoodbyeReason::Stopping)),
            first = timeout(SESSION_HELLO_WITHIN, incoming.next()) => first,
        };
        let first = first.map_err(|_| {
            let within = SESSION_HELLO_WITHIN.as_secs();
            refused("hello", format!("must come within {within} s"))
        })?;
        let hello = match heard(first)? {
            Some(Message::Hello(hello)) => hello,
            Some(Message::Frame(_)) | None => {
                return Err(refused("hello", "must be the first message".into()));
            }
        };
        let hello = read_hello(hello)
            .map_err(|violations| End::Refused(WireError::from(violations).into()))?;
        tracing::debug!(
            instance = hello.instance,
            name = hello.name,
            "session opened"
        );
        let identity = self.context.shards.identity();
        self.outbox.hello(wire::ServerHello {
            cluster_id: identity.cluster_id.clone(),
            node_id: identity.node.0,
            protocol_version: PROTOCOL_VERSION,
            features: Vec::new(),
            principal: self.principal.as_str().to_owned(),
            limits: Some(limits()),
        });
        Ok(())
    }

    async fn serve(&mut self, mut incoming: Streaming<wire::SessionRequest>) -> End {
        let (outbox, closing) = (self.outbox.clone(), self.context.closing.clone());
        let mut gone = pin!(outbox.gone());
        let mut closing = pin!(closing.cancelled());
        let mut idle = pin!(tokio::time::sleep(SESSION_IDLE_MAX));
        let mut look = interval_at(Instant::now() + SESSION_TAKEN_WITHIN, SESSION_TAKEN_WITHIN);
        let mut heard_at = Instant::now();
        // Set once nothing more is read: how the session ends when everything is answered.
        let mut ending: Option<End> = None;
        loop {
            self.note_rest();
            if self.flights.is_empty()
                && let Some(end) = ending
            {
                return end;
            }
            let room = self.operations + FRAME_OPERATIONS_MAX <= SESSION_OPERATIONS_MAX;
            let may_read = room && ending.is_none() && self.pause.is_none();
            let pause = self.pause.as_ref().map(|pause| pause.until);
            tokio::select! {
                biased;
                () = &mut gone => return End::Gone,
                _ = look.tick() => {
                    if self.outbox.cut_off_if_untaken() {
                        return End::CutOff;
                    }
                }
                Some(landed) = self.flights.next(), if !self.flights.is_empty() => {
                    if !self.land(landed) {
                        return End::CutOff;
                    }
                }
                () = &mut closing, if ending.is_none() => {
                    ending = Some(End::Goodbye(wire::GoodbyeReason::Stopping));
                }
                () = sleep_until(pause.unwrap_or(heard_at)), if pause.is_some() => self.pause = None,
                message = incoming.next(), if may_read => {
                    heard_at = Instant::now();
                    match self.hear(message) {
                        Ok(()) => {}
                        Err(End::Done) => ending = Some(End::Done),
                        Err(end) => return end,
                    }
                }
                () = &mut idle, if ending.is_none() => {
                    if heard_at.elapsed() >= SESSION_IDLE_MAX && self.is_idle() {
                        return End::Goodbye(wire::GoodbyeReason::Idle);
                    }
                    let left = SESSION_IDLE_MAX.saturating_sub(heard_at.elapsed());
                    idle.as_mut().reset(Instant::now() + left.max(Duration::from_secs(1)));
                }
            }
        }
    }

    /// While nothing is asked and nobody waits the session rests: its connection may make room for another.
    fn note_rest(&mut self) {
        if !self.flights.is_empty() || !self.waiters.is_empty() {
            self.work();
        } else {
            self.works = None;
        }
    }

    fn work(&mut self) {
        if self.works.is_none() {
            self.works = self.visitor.as_ref().map(Visitor::works);
        }
    }

    fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.waiters.count() == 0
    }

    /// Takes up what came in.
    fn hear(&mut self, message: Incoming) -> Result<(), End> {
        let frame = match message {
            None => return Err(End::Done),
            Some(_) => match heard(message)? {
                Some(Message::Frame(frame)) => frame,
                Some(Message::Hello(_)) => {
                    return Err(refused("hello", "must be sent once".into()));
                }
                None => {
                    return Err(refused(
                        "message",
                        "must be one that this node knows".into(),
                    ));
                }
            },
        };
        let begun = Instant::now();
        self.work();
        self.last = check_frame(&frame, self.last)
            .map_err(|violations| End::Refused(WireError::from(violations).into()))?;
        self.context.metrics.session_frame(frame.operations.len());
        let asks_max = SESSION_ASKS_MAX.saturating_sub(self.asks);
        let receive = road::frame(self.last, frame.operations.len(), self.parent);
        let Taken {
            submitted,
            answers,
            crowded,
        } = receive.in_scope(|| frame::take(&self.context, &self.principal, frame, asks_max));
        if crowded {
            let now = Instant::now();
            self.pause = Some(self.context.crowd.pause(now, now - begun));
        }
        for submitted in submitted {
            self.depart(submitted, receive.clone());
        }
        if answers.is_empty() || self.outbox.answers(answers) {
            Ok(())
        } else {
            Err(End::CutOff)
        }
    }

    fn depart(&mut self, submitted: Submitted, receive: Span) {
        let Submitted {
            shard,
            arrived,
            asked,
            asks,
            completion,
        } = submitted;
        self.operations += asked.len();
        self.asks += asks;
        self.flights.push(Box::pin(async move {
            Landed {
                receive,
                shard,
                arrived,
                asked,
                asks,
                answer: completion.await,
            }
        }));
    }

    /// Answers a submission. False if the client does not read.
    fn land(&mut self, landed: Landed) -> bool {
        let Landed {
            receive,
            shard,
            arrived,
            asked,
            asks,
            answer,
        } = landed;
        self.operations = self.operations.saturating_sub(asked.len());
        self.asks = self.asks.saturating_sub(asks);
        let _answer = road::answer(&receive).entered();
        let noted = (&mut self.decisions, &self.waiters);
        let answers = frame::answers(&self.context, shard, arrived, asked, answer, noted);
        self.outbox.answers(answers)
    }
}

/// What a stream of frames yields.
type Incoming = Option<Result<wire::SessionRequest, Status>>;

/// The message that came in, or why there is none.
fn heard(message: Incoming) -> Result<Option<Message>, End> {
    match message {
        Some(Ok(request)) => Ok(request.message),
        // What tonic says of a message that is too large.
        Some(Err(status)) if status.code() == Code::OutOfRange => Err(refused(
            "frame",
            format!("must be at most {FRAME_BYTES_MAX} bytes"),
        )),
        Some(Err(status)) => Err(End::Refused(status)),
        None => Err(End::Gone),
    }
}

fn limits() -> wire::SessionLimits {
    let number = |bound: usize| u32::try_from(bound).unwrap_or(u32::MAX);
    wire::SessionLimits {
        frame_operations: number(FRAME_OPERATIONS_MAX),
        frame_bytes: number(FRAME_BYTES_MAX),
        operations_in_flight: number(SESSION_ASKS_MAX),
        idle_timeout_us: u64::try_from(SESSION_IDLE_MAX.as_micros()).unwrap_or(u64::MAX),
    }
}
