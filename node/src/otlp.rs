//! Spans on their way to an OTLP collector.
//!
//! Who ends a span only puts it into a bounded queue. A thread of its own takes batches out and sends them, so
//! that a collector that is slow, silent or away costs spans, which are counted, and never time.

mod send;
#[cfg(test)]
mod tests;

use self::send::Sender;
use crate::config::Config;
use crate::limits::{OTLP_CLOSE_WITHIN, OTLP_EXPORT_WITHIN, OTLP_QUEUE_MAX};
use crate::metrics::SpanMetrics;
use crate::road::RECEIVE;
use opentelemetry::trace::{SpanKind, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span, SpanData, SpanProcessor};
use std::io;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// There is no thread to send them.
    #[error("a thread for the export of spans: {0}")]
    Thread(#[from] io::Error),
    /// Something of what the environment says about OTLP is of no use.
    #[error("export of spans: {0}")]
    Exporter(String),
}

/// Sends the spans of this process to a collector. Dropping it gives up what waits.
#[derive(Debug)]
pub struct Exporter {
    provider: SdkTracerProvider,
    closing: CancellationToken,
    /// Told when the thread has sent everything.
    ended: oneshot::Receiver<()>,
}

impl Exporter {
    /// Starts to send to the collector at `endpoint`, `http://host:port`, over gRPC; what becomes of the spans
    /// is counted in `metrics`. Resource, sampling, headers and limits are what the variables of OpenTelemetry
    /// say. Does not wait for the collector.
    ///
    /// # Errors
    /// No thread, or variables that contradict what this program can do.
    pub async fn start(
        endpoint: &str,
        config: &Config,
        metrics: SpanMetrics,
    ) -> Result<Exporter, OtlpError> {
        let (queue, spans) = queue(OTLP_QUEUE_MAX, metrics.clone());
        let closing = CancellationToken::new();
        let resource = resource(config);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue)
            .with_resource(resource.clone())
            .build();
        let (tell, begun) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let (endpoint, told) = (endpoint.to_owned(), closing.clone());
        let life = async move {
            let exporter = match exporter(endpoint, &resource) {
                Ok(exporter) => exporter,
                Err(error) => return drop(tell.send(Err(OtlpError::Exporter(error)))),
            };
            if tell.send(Ok(())).is_ok() {
                Sender::new(spans, exporter, metrics, told).run().await;
            }
        };
        std::thread::Builder::new()
            .name("otlp".into())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                // Without a runtime `begun` is told by the end of `tell`.
                if let Ok(runtime) = runtime {
                    runtime.block_on(life);
                }
                // Whoever wanted to know may be gone.
                let _told = end.send(());
            })?;
        match begun.await {
            Ok(begun) => begun?,
            Err(_) => return Err(io::Error::other("it ended at once").into()),
        }
        Ok(Exporter {
            provider,
            closing,
            ended,
        })
    }

    /// Makes spans that are exported.
    pub(crate) fn tracer(&self) -> SdkTracer {
        self.provider.tracer("weir")
    }

    /// Sends what waits and ends, within [`OTLP_CLOSE_WITHIN`].
    pub async fn close(self) {
        self.closing.cancel();
        if timeout(OTLP_CLOSE_WITHIN, self.ended).await.is_err() {
            tracing::warn!("the last spans did not reach the OTLP collector in time");
        }
    }
}

/// The client of a collector. Needs a running tokio runtime.
fn exporter(endpoint: String, resource: &Resource) -> Result<SpanExporter, String> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(OTLP_EXPORT_WITHIN)
        // What fails is given up: nothing may wait behind it for long.
        .with_retry_policy(RetryPolicy::disabled())
        .build();
    let mut exporter = exporter.map_err(|error| error.to_string())?;
    opentelemetry_sdk::trace::SpanExporter::set_resource(&mut exporter, resource);
    Ok(exporter)
}

/// Who the spans are of. What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say wins.
fn resource(config: &Config) -> Resource {
    let named = std::env::var("OTEL_SERVICE_NAME")
        .ok()
        .filter(|name| !name.is_empty())
        .map(|name| KeyValue::new("service.name", name));
    Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", "weir"),
            KeyValue::new("service.namespace", config.cluster.clone()),
            KeyValue::new("service.instance.id", config.node.to_string()),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        ])
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()))
        .with_attributes(named)
        .build()
}

/// Where spans wait, with both ends.
fn queue(most: usize, metrics: SpanMetrics) -> (Queue, mpsc::Receiver<SpanData>) {
    let (spans, taken) = mpsc::channel(most);
    (Queue { spans, metrics }, taken)
}

/// Takes every span that ended and is sampled.
#[derive(Debug)]
struct Queue {
    spans: mpsc::Sender<SpanData>,
    metrics: SpanMetrics,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        if span.name == RECEIVE {
            // Tools draw who calls whom from this.
            span.span_kind = SpanKind::Server;
        }
        if self.spans.try_send(span).is_err() {
            self.metrics.dropped();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
