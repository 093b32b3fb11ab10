//! Signals that ask the process to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves at the first SIGTERM or SIGINT after the call.
pub async fn stop() {
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(error) => {
                tracing::warn!(%error, "a signal cannot be waited for");
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        biased;
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::interrupt()) => {}
    }
}
