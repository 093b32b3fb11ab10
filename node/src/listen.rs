//! Sockets: bound with a check that plain text stays on this machine, and connections that can be counted
//! and cut.

mod calls;
mod incoming;
mod seldom;

pub use self::calls::NoteCalls;
pub use self::incoming::{Connection, Incoming, Visitor, Works};

use self::seldom::Seldom;
use crate::limits::{ACCEPT_PAUSE, ACCEPT_QUEUE};
use futures::StreamExt;
use futures::stream::BoxStream;
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

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
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for resolved in resolved {
        match listen(resolved) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(BindError::Bind {
        key,
        address: owned(),
        error: last,
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // A node that starts again takes its port although connections of its last life are not forgotten yet.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_QUEUE)
}

/// Connections of a TCP listener, without delay for small writes.
pub fn tcp(listener: TcpListener) -> BoxStream<'static, io::Result<TcpStream>> {
    let state = (listener, Seldom::default());
    futures::stream::unfold(state, |(listener, mut seldom)| async move {
        let stream = accept(&listener, &mut seldom).await;
        Some((Ok(stream), (listener, seldom)))
    })
    .boxed()
}

async fn accept(listener: &TcpListener, seldom: &mut Seldom) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match stream.set_nodelay(true) {
                Ok(()) => return stream,
                // Its caller is gone already.
                Err(error) => tracing::debug!(%error, "a new connection was lost"),
            },
            Err(error) if is_callers(&error) => {
                tracing::debug!(%error, "a new connection was lost");
            }
            // Ours: file descriptors or memory are lacking, and trying at once would not help.
            Err(error) => {
                if let Some(missed) = seldom.say() {
                    tracing::warn!(%error, missed, "a connection could not be accepted");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// True for the errors of one connection that its caller gave up.
fn is_callers(error: &io::Error) -> bool {
    [
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::ConnectionReset,
    ]
    .contains(&error.kind())
}
