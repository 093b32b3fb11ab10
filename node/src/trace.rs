//! Where log lines and spans go.

use crate::config::{LogConfig, LogFormat};
use crate::otlp::Exporter;
use crate::road;
use opentelemetry_sdk::trace::SdkTracer;
use std::io::IsTerminal;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

/// Sends this process's log to stderr, and the spans along the road of every request to `spans`. The first call
/// decides; later ones change nothing.
pub fn init(log: &LogConfig, spans: Option<&Exporter>) {
    // The configuration checked the filter; one that is wrong all the same means "info".
    let filter = EnvFilter::try_new(&log.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    // An error means that somebody else, a test harness, set a subscriber before.
    let _ = match spans {
        None => registry().with(filter).with(lines(log)).try_init(),
        // Which spans are exported is not the log's to say.
        Some(exporter) => registry()
            .with(exported(exporter.tracer()))
            .with(lines(log).with_filter(filter))
            .try_init(),
    };
}

/// Lines on stderr.
fn lines<S>(log: &LogConfig) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let terminal = std::io::stderr().is_terminal();
    let json = match log.format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let layer = fmt::layer()
        // Only of spans that the filter lets through: those of the road of a request, if asked for.
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(std::io::stderr);
    let colors = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if json {
        layer.json().flatten_event(true).boxed()
    } else {
        layer.with_ansi(colors).boxed()
    }
}

/// Spans of the road of requests as OpenTelemetry has them.
pub(crate) fn exported<S>(tracer: SdkTracer) -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        // Where in the source a span begins, on which thread and how long it was busy there is noise to callers.
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        // Spans find their parents as they do in the log.
        .with_context_activation(false)
        .with_filter(Targets::new().with_target(road::TARGET, LevelFilter::DEBUG))
}
