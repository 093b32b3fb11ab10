//! Signals that ask the process to stop.

use std::future::Future;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Resolves at the first SIGTERM or SIGINT after this call, whenever it is first waited for.
///
/// Needs a running tokio runtime.
pub fn stop() -> impl Future<Output = ()> + Send {
    // Signals are caught from here on, not only once somebody waits.
    let terminate = caught(SignalKind::terminate());
    let interrupt = caught(SignalKind::interrupt());
    async move {
        tokio::select! {
            biased;
            () = wait(terminate) => {}
            () = wait(interrupt) => {}
        }
    }
}

fn caught(kind: SignalKind) -> Option<Signal> {
    signal(kind)
        .map_err(|error| tracing::warn!(%error, "a signal cannot be caught"))
        .ok()
}

async fn wait(signal: Option<Signal>) {
    match signal {
        Some(mut signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
