//! Metrics and probes over HTTP.

use crate::health::Readiness;
use crate::limits::ADMIN_CONNECTIONS_MAX;
use crate::listen::{Connection, Incoming, tcp};
use crate::metrics::{Door, Metrics};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use futures::StreamExt;
use futures::stream::BoxStream;
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The media type of [`Metrics::render`].
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// The media type of [`Metrics::render_classic`].
const CLASSIC: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Connections of the admin port, counted and cut like all others. Here everybody stays a stranger, so that
/// whoever comes gets in and the oldest goes.
pub(crate) struct AdminConnections {
    incoming: Incoming<BoxStream<'static, io::Result<TcpStream>>, TcpStream>,
    address: SocketAddr,
}

impl AdminConnections {
    /// Connections of `listener`; when `cut` is cancelled they end.
    pub(crate) fn new(
        listener: TcpListener,
        door: Door,
        cut: CancellationToken,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        Ok(Self {
            incoming: Incoming::new(tcp(listener), ADMIN_CONNECTIONS_MAX, door, cut),
            address,
        })
    }
}

impl Listener for AdminConnections {
    type Io = Connection<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            match self.incoming.next().await {
                Some(Ok(connection)) => return (connection, self.address),
                // A listener that accepts nothing now tells so itself, and goes on.
                Some(Err(_)) => {}
                None => return std::future::pending().await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

#[derive(Clone)]
struct Parts {
    metrics: Metrics,
    readiness: watch::Receiver<Readiness>,
}

/// `/metrics` for Prometheus; `/livez`: the process works; `/readyz`: asks are answered here, or are told
/// where.
pub(crate) fn router(metrics: Metrics, readiness: watch::Receiver<Readiness>) -> Router {
    Router::new()
        .route("/metrics", get(serve_metrics))
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(serve_readiness))
        .with_state(Parts { metrics, readiness })
}

/// In OpenMetrics for those who ask for it, as Prometheus does.
async fn serve_metrics(State(parts): State<Parts>, headers: HeaderMap) -> Response {
    let accepts = headers.get_all(header::ACCEPT).iter();
    let mut accepts = accepts.filter_map(|accept| accept.to_str().ok());
    let open = accepts.any(|accept| accept.contains("application/openmetrics-text"));
    let (media, text) = if open {
        (OPEN_METRICS, parts.metrics.render())
    } else {
        (CLASSIC, parts.metrics.render_classic())
    };
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, media)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn serve_readiness(State(parts): State<Parts>) -> Response {
    let readiness = parts.readiness.borrow().clone();
    let status = if readiness == Readiness::Ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, format!("{readiness}\n")).into_response()
}
