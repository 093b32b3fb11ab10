//! From the queue to the collector.

use crate::limits::{OTLP_BATCH_MAX, OTLP_EXPORT_WITHIN, OTLP_INTERVAL, OTLP_PAUSE};
use crate::metrics::SpanMetrics;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Sends spans in batches, one after the other.
pub(super) struct Sender<E> {
    spans: Receiver<SpanData>,
    exporter: E,
    metrics: SpanMetrics,
    /// Cancelled: what waits is sent, and nothing more is taken.
    closing: CancellationToken,
    /// Whether the last batch arrived: each change is told once.
    works: bool,
}

impl<E: SpanExporter> Sender<E> {
    pub(super) fn new(
        spans: Receiver<SpanData>,
        exporter: E,
        metrics: SpanMetrics,
        closing: CancellationToken,
    ) -> Sender<E> {
        Sender {
            spans,
            exporter,
            metrics,
            closing,
            works: true,
        }
    }

    /// Works until it is closed and everything that waited was sent or given up.
    pub(super) async fn run(mut self) {
        while let Some(batch) = self.next_batch().await {
            self.send(batch).await;
            if !self.works {
                let closing = self.closing.clone();
                tokio::select! {
                    () = closing.cancelled() => {}
                    () = sleep(OTLP_PAUSE) => {}
                }
            }
        }
    }

    /// What has come within [`OTLP_INTERVAL`] of the first span, or [`OTLP_BATCH_MAX`] spans. `None`: nothing
    /// comes any more.
    async fn next_batch(&mut self) -> Option<Vec<SpanData>> {
        let closing = self.closing.clone();
        let mut batch = Vec::new();
        let mut due = None;
        while batch.len() < OTLP_BATCH_MAX {
            let room = OTLP_BATCH_MAX - batch.len();
            let over = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = closing.cancelled(), if !self.spans.is_closed() => self.spans.close(),
                more = self.spans.recv_many(&mut batch, room) => {
                    if more == 0 {
                        break;
                    }
                    due = due.or_else(|| Instant::now().checked_add(OTLP_INTERVAL));
                }
                () = over => break,
            }
        }
        (!batch.is_empty()).then_some(batch)
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let spans = batch.len() as u64;
        let sent = timeout(OTLP_EXPORT_WITHIN, self.exporter.export(batch)).await;
        let failure = match sent {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {OTLP_EXPORT_WITHIN:?}")),
        };
        let worked = std::mem::replace(&mut self.works, failure.is_none());
        match failure {
            None => {
                self.metrics.exported(spans);
                if !worked {
                    tracing::info!("the OTLP collector takes spans again");
                }
            }
            Some(error) => {
                self.metrics.failed(spans);
                if worked {
                    tracing::warn!(
                        error,
                        "the OTLP collector does not take spans: they are lost"
                    );
                }
            }
        }
    }
}
