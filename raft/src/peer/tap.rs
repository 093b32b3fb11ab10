//! A stream that another task reads and that can be closed from here.
//!
//! The requests of a replication session are read by the connection's own task, which goes on for a
//! moment after the session has ended on our side. openraft does not expect that: once it has learnt of
//! the end it may purge what the session was about to send, and a request built then would have a hole
//! between its first entry and the one before it. So the session closes its requests before it tells of
//! its end; when [`Tap`] is dropped, nothing is read any more and the source is gone.

use futures::{Stream, StreamExt};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

struct Inner<S> {
    /// None once closed.
    source: Option<S>,
    /// Who waits for the next item.
    reader: Option<Waker>,
}

type Shared<S> = Arc<Mutex<Inner<S>>>;

fn lock<S>(shared: &Shared<S>) -> MutexGuard<'_, Inner<S>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes the stream when it is dropped.
pub(super) struct Tap {
    close: Option<Box<dyn FnOnce() + Send>>,
}

impl Drop for Tap {
    fn drop(&mut self) {
        if let Some(close) = self.close.take() {
            close();
        }
    }
}

/// The stream behind a tap.
pub(super) struct Tapped<S> {
    shared: Shared<S>,
}

/// Puts a tap on a stream.
pub(super) fn tap<S>(source: S) -> (Tap, Tapped<S>)
where
    S: Stream + Unpin + Send + 'static,
{
    let inner = Inner {
        source: Some(source),
        reader: None,
    };
    let shared = Arc::new(Mutex::new(inner));
    let closing = Arc::clone(&shared);
    let close = move || {
        // Waits for a read that is under way.
        let (source, reader) = {
            let mut inner = lock(&closing);
            (inner.source.take(), inner.reader.take())
        };
        drop(source);
        if let Some(reader) = reader {
            reader.wake();
        }
    };
    (
        Tap {
            close: Some(Box::new(close)),
        },
        Tapped { shared },
    )
}

impl<S: Stream + Unpin> Stream for Tapped<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let mut inner = lock(&self.shared);
        let Some(source) = &mut inner.source else {
            return Poll::Ready(None);
        };
        let item = source.poll_next_unpin(cx);
        inner.reader = item.is_pending().then(|| cx.waker().clone());
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::stream;

    #[test]
    fn items_pass_until_the_tap_is_closed() {
        let (tap, mut tapped) = tap(stream::iter(1..10));
        assert_eq!(tapped.next().now_or_never(), Some(Some(1)));
        assert_eq!(tapped.next().now_or_never(), Some(Some(2)));
        drop(tap);
        assert_eq!(tapped.next().now_or_never(), Some(None));
    }

    #[tokio::test]
    async fn closing_drops_the_source_and_wakes_who_waits() {
        let alive = Arc::new(());
        let held = Arc::clone(&alive);
        let source = stream::poll_fn(move |_| {
            let _held = &held;
            Poll::<Option<()>>::Pending
        });
        let (tap, mut tapped) = tap(source);
        let reading = tokio::spawn(async move { tapped.next().await });
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(tap);
        assert_eq!(Arc::strong_count(&alive), 1);
        assert_eq!(reading.await.unwrap(), None);
    }
}
