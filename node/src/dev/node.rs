//! One node of a cluster on a thread of its own.
//!
//! Nodes of a real cluster are processes: one that is busy delays neither the others nor those who ask.
//! In one process this takes a thread and a runtime for each.

use crate::config::{Config, Member};
use crate::history::wall;
use crate::limits::{CONNECTIONS_MAX, STOP_WITHIN};
use crate::listen::{BindError, bind, tcp};
use crate::metrics::SpanMetrics;
use crate::server::{Ended, Parts, Server};
use crate::shards::Shards;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use weir_raft::{Connector, MonotonicClock, NodeId, StartError};

/// Why a node did not start.
pub(super) enum NodeError {
    /// It gets no thread.
    Thread(io::Error),
    /// It refuses.
    Start(StartError),
}

impl From<io::Error> for NodeError {
    fn from(error: io::Error) -> NodeError {
        NodeError::Thread(error)
    }
}

/// The sockets of one node.
pub(super) struct Sockets<L> {
    client: L,
    peer: L,
    admin: L,
}

impl Sockets<TcpListener> {
    pub(super) async fn bind(member: &Member) -> Result<Sockets<TcpListener>, BindError> {
        Ok(Sockets {
            client: bind("client port", &member.client, false).await?,
            peer: bind("peer port", &member.peer, false).await?,
            admin: bind("admin port", &member.admin, false).await?,
        })
    }

    /// Where they are really bound.
    pub(super) fn addresses(&self) -> io::Result<Member> {
        Ok(Member {
            client: self.client.local_addr()?.to_string(),
            peer: self.peer.local_addr()?.to_string(),
            admin: self.admin.local_addr()?.to_string(),
        })
    }

    /// Takes them from this thread's runtime.
    fn detached(self) -> io::Result<Sockets<std::net::TcpListener>> {
        Ok(Sockets {
            client: self.client.into_std()?,
            peer: self.peer.into_std()?,
            admin: self.admin.into_std()?,
        })
    }
}

impl Sockets<std::net::TcpListener> {
    /// Gives them to this thread's runtime.
    fn attached(self) -> io::Result<Sockets<TcpListener>> {
        Ok(Sockets {
            client: TcpListener::from_std(self.client)?,
            peer: TcpListener::from_std(self.peer)?,
            admin: TcpListener::from_std(self.admin)?,
        })
    }
}

/// How a node shall end.
#[derive(Clone, Copy)]
enum Order {
    /// As SIGTERM does.
    Stop,
    /// As SIGKILL does.
    Kill,
}

/// One node that runs. Dropping it kills it and waits for the end of its thread.
pub(super) struct Running {
    shards: Shards,
    order: Option<oneshot::Sender<Order>>,
    /// Told when nothing of the node is left.
    ended: oneshot::Receiver<Ended>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts a node. Returns once it serves.
    pub(super) async fn start(
        node: NodeId,
        config: Config,
        sockets: Sockets<TcpListener>,
    ) -> Result<Running, NodeError> {
        let sockets = sockets.detached()?;
        // As in a process of its own, see `cli::main`.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (order, ordered) = oneshot::channel();
        let (serves, started) = oneshot::channel();
        let (tell, ended) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(format!("node-{node}"))
            .spawn(move || {
                let end = runtime.block_on(live(config, sockets, serves, ordered));
                // What still runs is cut, as at the end of a process.
                runtime.shutdown_timeout(STOP_WITHIN);
                // Whoever wanted to know may be gone.
                let _told = tell.send(end);
            })?;
        match started.await {
            Ok(Ok(shards)) => Ok(Running {
                shards,
                order: Some(order),
                ended,
                thread: Some(thread),
            }),
            Ok(Err(error)) => Err(error),
            Err(_panicked) => Err(io::Error::other("the thread ended at once").into()),
        }
    }

    pub(super) fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Stops the node as SIGTERM does, and says how it ended.
    pub(super) async fn stop(self) -> Ended {
        self.end(Order::Stop).await
    }

    /// Ends the node at once.
    pub(super) async fn kill(self) {
        self.end(Order::Kill).await;
    }

    async fn end(mut self, order: Order) -> Ended {
        if let Some(sender) = self.order.take() {
            // A node that failed has ended by itself.
            let _sent = sender.send(order);
        }
        // A thread that panicked served nobody any more.
        (&mut self.ended).await.unwrap_or(Ended::Stopped)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.order.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a node's thread panicked");
        }
    }
}

/// The life of a node: tells once it serves, and returns when nothing of it may go on.
async fn live(
    config: Config,
    sockets: Sockets<std::net::TcpListener>,
    serves: oneshot::Sender<Result<Shards, NodeError>>,
    ordered: oneshot::Receiver<Order>,
) -> Ended {
    let server = match open(config, sockets).await {
        Ok(server) => server,
        Err(error) => {
            // Nobody waits any more: then nobody needs to know.
            let _told = serves.send(Err(error));
            return Ended::Stopped;
        }
    };
    let groups = server.shards().groups().clone();
    if serves.send(Ok(server.shards().clone())).is_err() {
        return Ended::Stopped;
    }
    let (stop, stopped) = oneshot::channel();
    let killed = async {
        match ordered.await {
            Ok(Order::Stop) => {
                let _sent = stop.send(());
                pending().await
            }
            Ok(Order::Kill) | Err(_) => {}
        }
    };
    let stopped = async {
        if stopped.await.is_err() {
            pending().await
        }
    };
    let ended = tokio::select! {
        biased;
        ended = server.run(stopped) => Some(ended),
        () = killed => None,
    };
    match ended {
        Some(ended) => ended,
        None => {
            // Connections broke with the server, before the groups stop: nobody hears of it.
            groups.shutdown().await;
            Ended::Stopped
        }
    }
}

async fn open(
    config: Config,
    sockets: Sockets<std::net::TcpListener>,
) -> Result<Server, NodeError> {
    let sockets = sockets.attached()?;
    let connector: Connector = Arc::new(|endpoint| endpoint.connect_lazy());
    Server::start(Parts {
        config,
        client: tcp(sockets.client),
        connections_max: CONNECTIONS_MAX,
        peer: tcp(sockets.peer),
        admin: Some(sockets.admin),
        connector,
        clock: Arc::new(MonotonicClock::new()),
        wall: wall(),
        spans: SpanMetrics::default(),
    })
    .await
    .map_err(NodeError::Start)
}
