//! What goes out of a session: answers and wakes pile up here while the last frame is being written, and
//! leave together in the next. The pile is bounded: a reader that lets it grow is cut off.

use crate::limits::{SESSION_ANSWERS_MAX, SESSION_OUTGOING_BYTES_MAX, SESSION_TAKEN_WITHIN};
use crate::wakes::Waker;
use futures::Stream;
use prost::Message as _;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;
use weir_proto::error::{Reason, WireError};
use weir_proto::v1::session_response::Message;
use weir_proto::v1::{Goodbye, ServerFrame, ServerHello, SessionAnswer, SessionResponse, Wake};

/// Bytes of a key and a length in front of an answer in its frame.
const PREFIX_BYTES: usize = 4;

/// The way in. Cheap to clone.
#[derive(Clone)]
pub(super) struct Outbox {
    shared: Arc<Shared>,
    /// Cancelled when nobody reads any more.
    gone: CancellationToken,
}

/// The way out: what gRPC writes. Dropped when the client is gone.
pub struct Outgoing {
    shared: Arc<Shared>,
    _gone: DropGuard,
}

#[derive(Default)]
struct Shared(Mutex<Pile>);

#[derive(Default)]
struct Pile {
    hello: Option<ServerHello>,
    answers: VecDeque<SessionAnswer>,
    wakes: Vec<Wake>,
    bytes: usize,
    /// Since when something lies here, the end included, and nothing was taken.
    untaken: Option<Instant>,
    goodbye: Option<Goodbye>,
    /// Nothing is added any more. After what lies here comes this.
    end: Option<Result<(), Status>>,
    reader: Option<std::task::Waker>,
}

/// Both ends of a new outbox.
pub(super) fn outbox() -> (Outbox, Outgoing) {
    let shared = Arc::new(Shared::default());
    let gone = CancellationToken::new();
    let outgoing = Outgoing {
        shared: shared.clone(),
        _gone: gone.clone().drop_guard(),
    };
    (Outbox { shared, gone }, outgoing)
}

impl Shared {
    fn pile(&self) -> MutexGuard<'_, Pile> {
        // A poisoned pile is still whole: no code that can panic runs while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the pile, unless it has ended, and tells the reader.
    fn add(&self, add: impl FnOnce(&mut Pile)) {
        let reader = {
            let mut pile = self.pile();
            if pile.end.is_some() {
                return;
            }
            add(&mut pile);
            if pile.untaken.is_none() && pile.lies() {
                pile.untaken = Some(Instant::now());
            }
            pile.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Pile {
    /// The next message, if there is one.
    fn next(&mut self) -> Option<Message> {
        if let Some(hello) = self.hello.take() {
            return Some(Message::Hello(hello));
        }
        if self.answers.is_empty() && self.wakes.is_empty() {
            return self.goodbye.take().map(Message::Goodbye);
        }
        let count = self.answers.len().min(SESSION_ANSWERS_MAX);
        let frame = ServerFrame {
            answers: self.answers.drain(..count).collect(),
            wakes: std::mem::take(&mut self.wakes),
        };
        self.bytes = if self.answers.is_empty() {
            0
        } else {
            self.bytes.saturating_sub(frame.encoded_len())
        };
        Some(Message::Frame(frame))
    }

    fn lies(&self) -> bool {
        let said = self.hello.is_some() || self.end.is_some();
        said || !self.answers.is_empty() || !self.wakes.is_empty()
    }

    fn cut_off(&mut self) {
        self.hello = None;
        self.answers.clear();
        self.wakes.clear();
        self.bytes = 0;
        self.untaken = Some(Instant::now());
        let error = WireError::new(
            Reason::Overloaded,
            "the session's answers are not read: too many wait",
        );
        self.end = Some(Err(error.into()));
    }
}

impl Outbox {
    /// The first message.
    pub(super) fn hello(&self, hello: ServerHello) {
        self.shared.add(|pile| pile.hello = Some(hello));
    }

    /// Adds answers. False if too many wait by now: the reader was cut off.
    #[must_use]
    pub(super) fn answers(&self, answers: Vec<SessionAnswer>) -> bool {
        let more: usize = answers
            .iter()
            .map(|answer| answer.encoded_len() + PREFIX_BYTES)
            .sum();
        let mut fits = true;
        self.shared.add(|pile| {
            if pile.bytes + more > SESSION_OUTGOING_BYTES_MAX {
                pile.cut_off();
                fits = false;
                return;
            }
            pile.bytes += more;
            pile.answers.extend(answers);
        });
        fits
    }

    /// Cuts the reader off if something has waited for it too long. True if it did.
    pub(super) fn cut_off_if_untaken(&self) -> bool {
        let mut cut_off = false;
        self.shared.add(|pile| {
            let untaken = pile.untaken.map_or(Duration::ZERO, |since| since.elapsed());
            if untaken >= SESSION_TAKEN_WITHIN {
                pile.cut_off();
                cut_off = true;
            }
        });
        cut_off
    }

    /// The last message, behind everything that waits.
    pub(super) fn goodbye(&self, goodbye: Goodbye) {
        self.shared.add(|pile| {
            pile.goodbye = Some(goodbye);
            pile.end = Some(Ok(()));
        });
    }

    /// Ends the stream behind everything that waits.
    pub(super) fn end(&self, end: Result<(), Status>) {
        self.shared.add(|pile| pile.end = Some(end));
    }

    /// Resolves when nobody reads any more.
    pub(super) async fn gone(&self) {
        self.gone.cancelled().await;
    }

    /// Resolves when the reader of an ended stream has taken its end, or is gone: true. False if it has taken
    /// nothing for [`SESSION_TAKEN_WITHIN`]: then what lay here is dropped.
    pub(super) async fn taken(&self) -> bool {
        loop {
            let since = self.shared.pile().untaken.unwrap_or_else(Instant::now);
            let until = since + SESSION_TAKEN_WITHIN;
            if timeout_at(until, self.gone()).await.is_ok() {
                return true;
            }
            let mut pile = self.shared.pile();
            if pile.untaken == Some(since) {
                pile.cut_off();
                return false;
            }
        }
    }
}

impl Waker for Outbox {
    fn wake(&self, attempt: u64, spread: Duration) {
        let spread_us = u64::try_from(spread.as_micros()).unwrap_or(u64::MAX);
        let wake = Wake { attempt, spread_us };
        let bytes = wake.encoded_len() + PREFIX_BYTES;
        self.shared.add(|pile| {
            // A hint that does not fit is not worth an end.
            if pile.bytes + bytes <= SESSION_OUTGOING_BYTES_MAX {
                pile.bytes += bytes;
                pile.wakes.push(wake);
            }
        });
    }
}

impl Stream for Outgoing {
    type Item = Result<SessionResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut pile = self.shared.pile();
        if let Some(message) = pile.next() {
            pile.untaken = pile.lies().then(Instant::now);
            return Poll::Ready(Some(Ok(SessionResponse {
                message: Some(message),
            })));
        }
        match &mut pile.end {
            Some(end) => {
                let end = std::mem::replace(end, Ok(()));
                Poll::Ready(end.err().map(Err))
            }
            None => {
                pile.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, StreamExt};

    fn answer(sequence: u64, message_bytes: usize) -> SessionAnswer {
        let error = WireError::new(Reason::Internal, "x".repeat(message_bytes));
        SessionAnswer {
            sequence,
            answer: Some(weir_proto::v1::session_answer::Answer::Error(
                error.to_session(),
            )),
        }
    }

    fn next(outgoing: &mut Outgoing) -> Option<Option<Result<Message, Status>>> {
        let next = outgoing.next().now_or_never()?;
        Some(next.map(|it| it.map(|response| response.message.unwrap())))
    }

    fn sequences(message: Message) -> Vec<u64> {
        let Message::Frame(frame) = message else {
            panic!("no frame: {message:?}")
        };
        frame.answers.iter().map(|it| it.sequence).collect()
    }

    #[test]
    fn what_waits_leaves_together_and_in_order() {
        let (outbox, mut outgoing) = outbox();
        assert!(next(&mut outgoing).is_none());
        outbox.hello(ServerHello::default());
        assert!(outbox.answers(vec![answer(1, 1), answer(2, 1)]));
        assert!(outbox.answers(vec![answer(3, 1)]));
        outbox.wake(9, Duration::from_millis(2));
        outbox.goodbye(Goodbye::default());
        // Nothing comes behind a goodbye.
        assert!(outbox.answers(vec![answer(4, 1)]));
        let hello = next(&mut outgoing).unwrap().unwrap().unwrap();
        assert!(matches!(hello, Message::Hello(_)));
        let frame = next(&mut outgoing).unwrap().unwrap().unwrap();
        let Message::Frame(told) = &frame else {
            panic!("no frame: {frame:?}")
        };
        assert_eq!((told.wakes[0].attempt, told.wakes[0].spread_us), (9, 2_000));
        assert_eq!(sequences(frame), [1, 2, 3]);
        let goodbye = next(&mut outgoing).unwrap().unwrap().unwrap();
        assert!(matches!(goodbye, Message::Goodbye(_)));
        assert!(next(&mut outgoing).unwrap().is_none());
    }

    #[test]
    fn a_reader_that_lets_answers_pile_up_is_cut_off() {
        let (outbox, mut outgoing) = outbox();
        let large = SESSION_OUTGOING_BYTES_MAX / 8;
        let fitting = (1..).take_while(|n| outbox.answers(vec![answer(*n, large)]));
        assert_eq!(fitting.count(), 7);
        let status = next(&mut outgoing).unwrap().unwrap().unwrap_err();
        let error = WireError::from_status(&status).unwrap();
        assert_eq!(error.reason, Reason::Overloaded);
        assert!(next(&mut outgoing).unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_cut_off_in_time() {
        let (outbox, mut outgoing) = outbox();
        let almost = SESSION_TAKEN_WITHIN - Duration::from_millis(1);
        tokio::time::advance(SESSION_TAKEN_WITHIN * 2).await;
        assert!(!outbox.cut_off_if_untaken(), "there was nothing to take");
        assert!(outbox.answers(vec![answer(1, 1)]));
        tokio::time::advance(almost).await;
        assert!(outbox.answers(vec![answer(2, 1)]));
        assert!(!outbox.cut_off_if_untaken());
        next(&mut outgoing).unwrap().unwrap().unwrap();
        tokio::time::advance(almost).await;
        assert!(outbox.answers(vec![answer(3, 1)]));
        assert!(!outbox.cut_off_if_untaken(), "all was taken in between");
        tokio::time::advance(SESSION_TAKEN_WITHIN).await;
        assert!(outbox.cut_off_if_untaken());
        assert!(!outbox.cut_off_if_untaken(), "once");
        let status = next(&mut outgoing).unwrap().unwrap().unwrap_err();
        let error = WireError::from_status(&status).unwrap();
        assert_eq!(error.reason, Reason::Overloaded);
    }

    #[tokio::test(start_paused = true)]
    async fn what_lies_behind_an_end_is_waited_for_and_then_dropped() {
        let (outbox, mut outgoing) = outbox();
        let many = (1..=2 * SESSION_ANSWERS_MAX as u64).map(|n| answer(n, 1));
        assert!(outbox.answers(many.collect()));
        outbox.end(Ok(()));
        let begun = Instant::now();
        let mut taken = Box::pin(outbox.taken());
        assert!(taken.as_mut().now_or_never().is_none());
        tokio::time::advance(SESSION_TAKEN_WITHIN / 2).await;
        assert_eq!(
            sequences(next(&mut outgoing).unwrap().unwrap().unwrap()).len(),
            SESSION_ANSWERS_MAX
        );
        // The time starts again with everything that is taken.
        assert!(!taken.await);
        assert_eq!(begun.elapsed(), SESSION_TAKEN_WITHIN * 3 / 2);
        next(&mut outgoing).unwrap().unwrap().unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_is_taken_is_not_waited_for() {
        let (outbox, mut outgoing) = outbox();
        assert!(outbox.answers(vec![answer(1, 1)]));
        outbox.end(Ok(()));
        let begun = Instant::now();
        while next(&mut outgoing).unwrap().is_some() {}
        drop(outgoing);
        assert!(outbox.taken().await);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let (outbox, outgoing) = super::outbox();
        outbox.end(Ok(()));
        // Nothing lay there, and the reader does not even hear that: what HTTP/2 holds of it still counts.
        assert!(!outbox.taken().await);
        assert_eq!(begun.elapsed(), SESSION_TAKEN_WITHIN);
        drop(outgoing);
    }

    #[test]
    fn what_was_read_makes_room() {
        let (outbox, mut outgoing) = outbox();
        for round in 0..100 {
            let many = (1..=SESSION_ANSWERS_MAX as u64 + 1).map(|n| answer(n, 100));
            assert!(outbox.answers(many.collect()), "round {round}");
            let first = next(&mut outgoing).unwrap().unwrap().unwrap();
            assert_eq!(sequences(first).len(), SESSION_ANSWERS_MAX);
            let second = next(&mut outgoing).unwrap().unwrap().unwrap();
            assert_eq!(sequences(second), [SESSION_ANSWERS_MAX as u64 + 1]);
        }
    }

    #[test]
    fn a_client_that_went_away_is_noticed() {
        let (outbox, outgoing) = outbox();
        assert!(outbox.gone().now_or_never().is_none());
        drop(outgoing);
        assert!(outbox.gone().now_or_never().is_some());
    }
}
