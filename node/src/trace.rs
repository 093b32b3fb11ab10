//! Where log lines go.

use crate::config::{LogConfig, LogFormat};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Sends this process's log to stderr. The first call decides; later ones change nothing.
pub fn init(log: &LogConfig) {
    // The configuration checked the filter; one that is wrong all the same means "info".
    let filter = EnvFilter::try_new(&log.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let terminal = std::io::stderr().is_terminal();
    let json = match log.format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Only of spans that the filter lets through: those of the road of a request, if asked for.
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(std::io::stderr);
    let colors = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // An error means that somebody else, a test harness, set a subscriber before.
    let _ = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.with_ansi(colors).try_init()
    };
}
