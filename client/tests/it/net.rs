//! A network in memory, in which nodes can be up, hang, be cut off or be dead. With it a whole cluster
//! runs on the paused clock of a test: what takes seconds is exact and costs nothing.

use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tonic::transport::{Endpoint, Uri};
use weir_client::Connector;

/// What the network does with one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Everything passes.
    Up,
    /// The process is stopped: connections are made, bytes wait until it runs again.
    Hung,
    /// Packets are dropped: no connection is made, and those that were open never work again.
    Dropped,
    /// The process is gone: connections are refused and broken.
    Dead,
}

type Incoming = mpsc::Sender<io::Result<DuplexStream>>;

/// A node's link, and where connections to it arrive.
type Node = (watch::Sender<Link>, Incoming);

/// All nodes by their address.
#[derive(Clone, Default)]
pub(crate) struct Net {
    nodes: Arc<Mutex<BTreeMap<String, Node>>>,
}

impl Net {
    /// A node's address, and the connections that are made to it.
    pub(crate) fn listen(&self, address: &str) -> mpsc::Receiver<io::Result<DuplexStream>> {
        let (incoming, accepted) = mpsc::channel(64);
        let link = watch::Sender::new(Link::Up);
        self.nodes
            .lock()
            .unwrap()
            .insert(address.to_owned(), (link, incoming));
        accepted
    }

    pub(crate) fn set(&self, address: &str, link: Link) {
        self.nodes.lock().unwrap()[address].0.send_replace(link);
    }

    pub(crate) fn set_all(&self, link: Link) {
        for (node, _) in self.nodes.lock().unwrap().values() {
            node.send_replace(link);
        }
    }

    /// Connects clients to this network.
    pub(crate) fn connector(&self) -> Connector {
        let net = self.clone();
        Arc::new(move |endpoint: Endpoint| {
            let net = net.clone();
            endpoint.connect_with_connector_lazy(tower::service_fn(move |uri: Uri| {
                let net = net.clone();
                async move { net.connect(&uri).await.map(TokioIo::new) }
            }))
        })
    }

    async fn connect(&self, uri: &Uri) -> io::Result<DuplexStream> {
        let address = uri.authority().map(ToString::to_string).unwrap_or_default();
        let node = self.nodes.lock().unwrap().get(&address).cloned();
        let Some((link, incoming)) = node else {
            return Err(refused());
        };
        let mut link = link.subscribe();
        let now = *link
            .wait_for(|link| *link != Link::Dropped)
            .await
            .map_err(|_| refused())?;
        if now == Link::Dead {
            return Err(refused());
        }
        let (ours, near) = tokio::io::duplex(64 * 1024);
        let (far, theirs) = tokio::io::duplex(64 * 1024);
        incoming.send(Ok(theirs)).await.map_err(|_| refused())?;
        tokio::spawn(relay(near, far, link));
        Ok(ours)
    }
}

fn refused() -> io::Error {
    io::Error::from(io::ErrorKind::ConnectionRefused)
}

/// Carries bytes both ways until one side closes or the node dies. Packets dropped once are lost: the
/// connection stays open and silent.
async fn relay(near: DuplexStream, far: DuplexStream, link: watch::Receiver<Link>) {
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    let mut dying = link.clone();
    tokio::select! {
        () = carry(near_read, far_write, link.clone()) => {}
        () = carry(far_read, near_write, link) => {}
        _ = dying.wait_for(|link| *link == Link::Dead) => {}
    }
}

async fn carry(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    mut link: watch::Receiver<Link>,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut lost = false;
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        lost |= *link.borrow() == Link::Dropped;
        if link.wait_for(|link| *link != Link::Hung).await.is_err() {
            return;
        }
        lost |= *link.borrow() == Link::Dropped;
        if !lost && to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
