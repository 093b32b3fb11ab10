//! Large answers are not kept for readers who do not read.
//!
//! HTTP/2 lets a client open a thousand calls and take no byte of any answer. Small answers may lie there;
//! listings of policies are megabytes each, and milliseconds of work. So there is room for the largest of them
//! before one is made: it is encoded as a whole, counted until it is taken, and given out in pieces. A
//! connection on which one is not taken in time is cut.

use crate::limits::{
    ANSWER_BYTES_MAX, ANSWER_PIECE_BYTES, ANSWER_TAKEN_WITHIN, ANSWER_WAIT_MAX,
    ANSWERS_WAITING_MAX, PIECE_TAKEN_WITHIN, UNREAD_BYTES_MAX,
};
use crate::listen::{Visitor, Works};
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Body as _, Frame};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use weir_proto::error::{Reason, WireError};

/// A unary service, the large answers of which are counted until they are taken.
#[derive(Clone)]
pub struct Unread<S> {
    inner: S,
    /// Names of its methods with large answers.
    large: &'static [&'static str],
    room: Room,
}

impl<S> Unread<S> {
    /// Counts the answers of `inner` to the methods `large`.
    pub fn new(inner: S, large: &'static [&'static str]) -> Unread<S> {
        Unread {
            inner,
            large,
            room: Room::new(),
        }
    }
}

impl<S: NamedService> NamedService for Unread<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Unread<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        if !self.large.contains(&method) {
            return Box::pin(self.inner.call(request));
        }
        let visitor = request.extensions().get::<Visitor>().cloned();
        let spare = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, spare);
        let room = self.room.clone();
        Box::pin(async move {
            let place = match room.find().await {
                Ok(place) => place,
                Err(status) => return Ok(status.into_http()),
            };
            let (head, body) = ready.call(request).await?.into_parts();
            match hold(body, place, visitor).await {
                Ok(held) => Ok(http::Response::from_parts(head, Body::new(held))),
                Err(status) => Ok(status.into_http()),
            }
        })
    }
}

/// Room for large answers. Cheap to clone.
#[derive(Clone)]
struct Room {
    /// One permit for each byte.
    bytes: Arc<Semaphore>,
    /// One permit for each call that waits for them.
    waiting: Arc<Semaphore>,
}

impl Room {
    fn new() -> Room {
        Room {
            bytes: Arc::new(Semaphore::new(UNREAD_BYTES_MAX)),
            waiting: Arc::new(Semaphore::new(ANSWERS_WAITING_MAX)),
        }
    }

    /// Room for one answer, as large as it may become.
    async fn find(&self) -> Result<OwnedSemaphorePermit, Status> {
        let full = || {
            Status::from(WireError {
                retry_after: Some(ANSWER_WAIT_MAX),
                ..WireError::new(Reason::Overloaded, "too many large answers wait to be read")
            })
        };
        let _waits = self.waiting.try_acquire().map_err(|_full| full())?;
        let bytes = self.bytes.clone().acquire_many_owned(PERMITS_MAX);
        let found = timeout(ANSWER_WAIT_MAX, bytes).await;
        found.map_err(|_elapsed| full())?.map_err(|_closed| full())
    }
}

/// Permits of the largest answer.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a constant, and checked beside its definition"
)]
const PERMITS_MAX: u32 = ANSWER_BYTES_MAX as u32;

/// Encodes an answer, and keeps as much of its room as it takes.
async fn hold(
    body: Body,
    mut place: OwnedSemaphorePermit,
    visitor: Option<Visitor>,
) -> Result<Held, Status> {
    let mut body = pin!(body);
    let (mut frames, mut bytes) = (VecDeque::new(), 0);
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let frame = frame?;
        bytes += frame.data_ref().map_or(0, Bytes::len);
        frames.push_back(frame);
    }
    let taken = place.split(bytes);
    let pieces = Arc::new(Notify::new());
    let works = visitor.as_ref().map(Visitor::works);
    let cut = visitor.map(|visitor| {
        AbortOnDropHandle::new(tokio::spawn(cut_if_untaken(visitor, pieces.clone())))
    });
    Ok(Held {
        frames,
        pieces,
        _room: taken.unwrap_or(place),
        _cut: cut,
        _works: works,
    })
}

/// Cuts a connection when no piece was taken for a while, or the whole not in time.
async fn cut_if_untaken(visitor: Visitor, pieces: Arc<Notify>) {
    let taking = async { while timeout(PIECE_TAKEN_WITHIN, pieces.notified()).await.is_ok() {} };
    // Either way: it is aborted when the answer was taken.
    let _late = timeout(ANSWER_TAKEN_WITHIN, taking).await;
    tracing::warn!("a connection was cut: its client does not take an answer");
    visitor.cut();
}

/// An answer that waits to be taken.
struct Held {
    frames: VecDeque<Frame<Bytes>>,
    /// Told of each piece that is taken.
    pieces: Arc<Notify>,
    _room: OwnedSemaphorePermit,
    _cut: Option<AbortOnDropHandle<()>>,
    /// The connection is at work until the answer is taken.
    _works: Option<Works>,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = Status;

    /// At most a piece: whoever writes it asks for the next one only when the reader has taken this one.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(frame) = self.frames.pop_front() else {
            return Poll::Ready(None);
        };
        self.pieces.notify_one();
        let frame = match frame.into_data() {
            Ok(mut bytes) if bytes.len() > ANSWER_PIECE_BYTES => {
                let piece = bytes.split_to(ANSWER_PIECE_BYTES);
                self.frames.push_front(Frame::data(bytes));
                Frame::data(piece)
            }
            Ok(bytes) => Frame::data(bytes),
            Err(trailers) => trailers,
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::time::Duration;
    use tokio::time::Instant;

    fn of(bytes: usize) -> Body {
        let frame = Frame::data(Bytes::from(vec![7; bytes]));
        Body::new(Held {
            frames: VecDeque::from([frame, Frame::trailers(http::HeaderMap::new())]),
            pieces: Arc::default(),
            _room: Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap(),
            _cut: None,
            _works: None,
        })
    }

    async fn held(bytes: usize, room: &Room) -> Held {
        let place = room.find().await.unwrap();
        hold(of(bytes), place, None).await.unwrap()
    }

    #[tokio::test]
    async fn an_answer_comes_through_in_pieces() {
        let room = Room::new();
        for bytes in [0, 1, ANSWER_PIECE_BYTES, 10 * ANSWER_PIECE_BYTES + 1] {
            let mut held = Box::pin(held(bytes, &room).await);
            let (mut taken, mut trailers) = (0, 0);
            while let Some(frame) = poll_fn(|context| held.as_mut().poll_frame(context)).await {
                match frame.unwrap().into_data() {
                    Ok(piece) => {
                        assert!(piece.len() <= ANSWER_PIECE_BYTES);
                        assert!(piece.iter().all(|byte| *byte == 7));
                        taken += piece.len();
                    }
                    Err(_trailers) => trailers += 1,
                }
            }
            assert_eq!((taken, trailers), (bytes, 1));
        }
        assert_eq!(room.bytes.available_permits(), UNREAD_BYTES_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_taken_counts_until_it_is_dropped() {
        let room = Room::new();
        let first = held(1_000, &room).await;
        assert_eq!(room.bytes.available_permits(), UNREAD_BYTES_MAX - 1_000);
        let second = held(ANSWER_BYTES_MAX, &room).await;
        let begun = Instant::now();
        let status = room.find().await.unwrap_err();
        assert_eq!(begun.elapsed(), ANSWER_WAIT_MAX);
        let error = WireError::from_status(&status).unwrap();
        assert_eq!(error.reason, Reason::Overloaded);
        assert!(error.retry_after.is_some());
        drop(first);
        let third = room.find().await.unwrap();
        drop((second, third));
        assert_eq!(room.bytes.available_permits(), UNREAD_BYTES_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_are_served_in_turn_and_too_many_refused_at_once() {
        let room = Room::new();
        let _held = held(UNREAD_BYTES_MAX - ANSWER_BYTES_MAX, &room).await;
        let making = room.find().await.unwrap();
        let mut waiting: Vec<_> = (0..ANSWERS_WAITING_MAX)
            .map(|_| Box::pin(room.find()))
            .collect();
        for one in &mut waiting {
            assert!(one.now_or_never().is_none());
        }
        let begun = Instant::now();
        room.find().await.unwrap_err();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        drop(making);
        let mut last = None;
        for one in waiting {
            drop(last.take());
            last = Some(one.now_or_never().expect("it is this one's turn").unwrap());
        }
    }
}
