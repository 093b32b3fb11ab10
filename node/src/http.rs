//! Metrics and probes over HTTP.

use crate::health::Readiness;
use crate::metrics::Metrics;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;

/// The media type of [`Metrics::render`].
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

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

async fn serve_metrics(State(parts): State<Parts>) -> Response {
    match parts.metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
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
