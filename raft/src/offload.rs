//! Work that would hold up the thread that serves everybody: encoding and writing snapshots.

use std::io;

/// Runs blocking work on a thread of its own.
pub(crate) async fn offload<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}
