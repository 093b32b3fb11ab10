//! Connections over real sockets that can be cut. A cut is silent, as in a real partition: bytes wait,
//! nobody is told.

use hyper_util::rt::TokioIo;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use weir_raft::{Connector, NodeId};

/// Which pairs of nodes cannot hear each other.
#[derive(Default)]
pub(crate) struct Gate {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    cut: BTreeSet<(NodeId, NodeId)>,
    waiting: Vec<Waker>,
}

impl Gate {
    /// Cuts both directions between a node and each of the others.
    pub(crate) fn isolate(&self, node: NodeId, others: impl IntoIterator<Item = NodeId>) {
        let mut inner = self.inner.lock().unwrap();
        for other in others.into_iter().filter(|other| *other != node) {
            inner.cut.insert((node, other));
            inner.cut.insert((other, node));
        }
    }

    /// Everybody hears everybody.
    pub(crate) fn heal(&self) {
        let mut inner = self.inner.lock().unwrap();
        inner.cut.clear();
        inner.waiting.drain(..).for_each(Waker::wake);
    }

    fn poll_open(&self, from: NodeId, to: NodeId, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.inner.lock().unwrap();
        if inner.cut.contains(&(from, to)) {
            inner.waiting.push(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Connects `from` to the node that `to_node` finds behind an address.
    pub(crate) fn connector(
        self: &Arc<Self>,
        from: NodeId,
        to_node: impl Fn(&str) -> NodeId + Clone + Send + Sync + 'static,
    ) -> Connector {
        let gate = Arc::clone(self);
        Arc::new(move |endpoint| {
            let (gate, to_node) = (Arc::clone(&gate), to_node.clone());
            endpoint.connect_with_connector_lazy(tower::service_fn(move |uri: http::Uri| {
                let gate = Arc::clone(&gate);
                let address = uri.authority().unwrap().to_string();
                let to = to_node(&address);
                async move {
                    poll_fn(|cx| gate.poll_open(from, to, cx)).await;
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    Ok::<_, io::Error>(TokioIo::new(Gated {
                        stream,
                        gate,
                        from,
                        to,
                    }))
                }
            }))
        })
    }
}

/// A connection through the gate.
struct Gated {
    stream: TcpStream,
    gate: Arc<Gate>,
    from: NodeId,
    to: NodeId,
}

impl AsyncRead for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.gate.poll_open(self.to, self.from, cx) {
            Poll::Ready(()) => Pin::new(&mut self.stream).poll_read(cx, buf),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for Gated {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.gate.poll_open(self.from, self.to, cx) {
            Poll::Ready(()) => Pin::new(&mut self.stream).poll_write(cx, bytes),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
