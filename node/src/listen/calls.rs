//! Who calls is no stranger, and is at work until it has its answer.

use super::Visitor;
use futures::future::BoxFuture;
use std::task::{Context, Poll};
use tonic::body::Body;
use tower::{Layer, Service};

/// Notes the calls of the services that are served here. Who has the wrong port stays a stranger.
#[derive(Clone, Copy, Debug)]
pub struct NoteCalls {
    /// Paths of the services.
    pub own: &'static [&'static str],
}

/// See [`NoteCalls`].
#[derive(Clone, Debug)]
pub struct Noting<S> {
    inner: S,
    own: &'static [&'static str],
}

impl<S> Layer<S> for NoteCalls {
    type Service = Noting<S>;

    fn layer(&self, inner: S) -> Noting<S> {
        Noting {
            inner,
            own: self.own,
        }
    }
}

impl<S> Service<http::Request<Body>> for Noting<S>
where
    S: Service<http::Request<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path();
        let is_own = self.own.iter().any(|service| path.starts_with(service));
        let visitor = request.extensions().get::<Visitor>().filter(|_| is_own);
        // What goes on after its answer has begun, a session for one, says so itself.
        let works = visitor.map(|visitor| {
            visitor.calls();
            visitor.works()
        });
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            drop(works);
            answer
        })
    }
}
