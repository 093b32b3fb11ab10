//! Sockets: bound with a check that plain text stays on this machine, and connections that can be counted
//! and cut.

use crate::limits::ACCEPT_PAUSE;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

/// Why a socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address is not one.
    #[error("{key} {address:?}: {error}")]
    Resolve {
        /// What the socket is for.
        key: &'static str,
        /// As configured.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// Others could read and change what is said.
    #[error(
        "{key} {address:?} is reachable from other machines, and traffic is not encrypted; \
         use a loopback address, or start with --insecure if the network is trusted"
    )]
    Exposed {
        /// What the socket is for.
        key: &'static str,
        /// As configured.
        address: String,
    },
    /// The system refuses it.
    #[error("{key} {address:?}: {error}")]
    Bind {
        /// What the socket is for.
        key: &'static str,
        /// As configured.
        address: String,
        /// Why.
        error: io::Error,
    },
}

/// Binds `host:port`. Addresses beyond this machine need `insecure`.
pub async fn bind(
    key: &'static str,
    address: &str,
    insecure: bool,
) -> Result<TcpListener, BindError> {
    let owned = || address.to_owned();
    let resolved: Vec<SocketAddr> = tokio::net::lookup_host(address)
        .await
        .map_err(|error| BindError::Resolve {
            key,
            address: owned(),
            error,
        })?
        .collect();
    if !insecure && resolved.iter().any(|resolved| !resolved.ip().is_loopback()) {
        return Err(BindError::Exposed {
            key,
            address: owned(),
        });
    }
    TcpListener::bind(&resolved[..])
        .await
        .map_err(|error| BindError::Bind {
            key,
            address: owned(),
            error,
        })
}

/// A stream of connections, at most so many at once, all of which end with one token.
///
/// The stream of the inner connections is handed in: a TCP listener in production, a simulated network in
/// tests.
pub struct Incoming<S> {
    inner: S,
    room: Arc<Semaphore>,
    cut: CancellationToken,
}

impl<S> Incoming<S> {
    /// Connections of `inner`, at most `connections_max` at once; further ones are closed at once. When
    /// `cut` is cancelled every connection fails, as if the process had died.
    pub fn new(inner: S, connections_max: usize, cut: CancellationToken) -> Incoming<S> {
        Incoming {
            inner,
            room: Arc::new(Semaphore::new(connections_max)),
            cut,
        }
    }
}

/// Connections of a TCP listener, without delay for small writes.
pub fn tcp(listener: TcpListener) -> BoxStream<'static, io::Result<TcpStream>> {
    futures::stream::unfold(listener, |listener| async move {
        let stream = accept(&listener).await;
        Some((Ok(stream), listener))
    })
    .boxed()
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        let accepted = listener.accept().await.and_then(|(stream, _)| {
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        match accepted {
            Ok(stream) => return stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl<S, IO> Stream for Incoming<S>
where
    S: Stream<Item = io::Result<IO>> + Unpin,
{
    type Item = io::Result<Connection<IO>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let io = match std::task::ready!(Pin::new(&mut self.inner).poll_next(context)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(io)) => io,
            };
            match self.room.clone().try_acquire_owned() {
                Ok(permit) => {
                    let cut = Box::pin(self.cut.clone().cancelled_owned());
                    return Poll::Ready(Some(Ok(Connection {
                        io,
                        cut,
                        _permit: permit,
                    })));
                }
                Err(_full) => tracing::warn!("too many connections, one was closed at once"),
            }
        }
    }
}

/// One connection.
pub struct Connection<IO> {
    io: IO,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    _permit: OwnedSemaphorePermit,
}

impl<IO> Connection<IO> {
    fn check_cut(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl<IO: Connected> Connected for Connection<IO> {
    type ConnectInfo = IO::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.io.connect_info()
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Connection<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_cut(context)?;
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Connection<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_cut(context)?;
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_cut(context)?;
        Pin::new(&mut self.io).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_cut(context)?;
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
