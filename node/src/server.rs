//! A node, put together from its parts: groups, batchers, services, listeners.
//!
//! Everything that touches the world is handed in ([`Parts`]), so that tests and simulations run this
//! very code.

use crate::collect::ShardCollector;
use crate::config::Config;
use crate::health::Health;
use crate::history::{History, Wall};
use crate::http::{self, AdminConnections};
use crate::limits::{
    ANSWER_BYTES_MAX, BROKEN_CALLS_MAX, CALL_DURATION_MAX, CLIENT_MESSAGE_BYTES_MAX, CLOSE_WITHIN,
    DRAIN_WITHIN, HAND_OVER_WITHIN, HEADER_BYTES_MAX, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT,
    OTLP_CLOSE_WITHIN, PEER_CONNECTIONS_MAX, PENDING_RESETS_MAX, POLICY_MESSAGE_BYTES_MAX,
    STOP_WITHIN, STREAMS_PER_CONNECTION_MAX, UNHEARD_BYTES_MAX,
};
use crate::listen::{Incoming, NoteCalls};
use crate::metrics::{Door, Metrics, SpanMetrics};
use crate::service::admission::Admission;
use crate::service::cluster::ClusterApi;
use crate::service::history::HistoryApi;
use crate::service::session::Sessions;
use crate::service::targets::Targets;
use crate::service::unread::Unread;
use crate::shards::Shards;
use crate::wakes::Wakes;
use futures::Stream;
use std::future::Future;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;
use tonic::transport::server::Connected;
use tonic_health::pb::health_server::HealthServer;
use weir_proto::limits::FRAME_BYTES_MAX;
use weir_proto::v1::admission_service_server::AdmissionServiceServer;
use weir_proto::v1::cluster_service_server::ClusterServiceServer;
use weir_proto::v1::history_service_server::HistoryServiceServer;
use weir_proto::v1::session_service_server::SessionServiceServer;
use weir_proto::v1::targets_service_server::TargetsServiceServer;
use weir_raft::{Clock, Connector, Failure, Groups, StartError, peer_server};

/// What a node needs from the world.
pub struct Parts<C, P> {
    /// What the node is told.
    pub config: Config,
    /// Connections of clients.
    pub client: C,
    /// How many connections of clients at once.
    pub connections_max: usize,
    /// Connections of other nodes.
    pub peer: P,
    /// Where metrics and probes are served; `None` serves none.
    pub admin: Option<TcpListener>,
    /// Makes connections to other nodes.
    pub connector: Connector,
    /// The monotonic clock that cluster time is made of.
    pub clock: Arc<dyn Clock>,
    /// The wall clock, for the minutes of the history of use.
    pub wall: Wall,
    /// What this process counts of exported spans, to be told with what the node counts.
    pub spans: SpanMetrics,
}

/// Where the history of use lies in the data directory.
const HISTORY_DIR: &str = "history";

/// How a node ended.
#[derive(Debug)]
pub enum Ended {
    /// It was asked to stop.
    Stopped,
    /// It could not go on.
    Failed(Failure),
}

/// A stream of connections.
pub trait Connections: Stream<Item = io::Result<Self::Io>> + Send + Unpin + 'static {
    /// One connection.
    type Io: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static;
}

impl<S, IO> Connections for S
where
    S: Stream<Item = io::Result<IO>> + Send + Unpin + 'static,
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    type Io = IO;
}

/// A running node. Dropping it ends it at once, as a crash would: connections are cut, nothing is handed
/// over.
pub struct Server {
    shards: Shards,
    health: Health,
    history: History,
    /// The listener for clients.
    client: AbortOnDropHandle<()>,
    /// The other listeners, and the watchers of health and of waiters.
    _others: [AbortOnDropHandle<()>; 6],
    /// Cancelled: clients are told to go, no new ones are accepted.
    closing: CancellationToken,
    /// Cancelled: the same for peers.
    closing_peer: CancellationToken,
    _cut_when_dropped: DropGuard,
}

impl Server {
    /// Opens the data directory and starts to serve. Leaders are elected later.
    pub async fn start<C: Connections, P: Connections>(
        parts: Parts<C, P>,
    ) -> Result<Server, StartError> {
        let groups =
            Groups::start(parts.config.raft(), parts.connector.clone(), parts.clock).await?;
        let metrics = Metrics::new(parts.spans);
        let history = History::start(
            parts.config.data_dir.join(HISTORY_DIR),
            parts.config.history,
            parts.wall,
            metrics.history(),
        );
        let members = parts.config.members.clone();
        let shards = Shards::start(groups.clone(), members, &metrics, &history.recorder());
        metrics.collect(Box::new(ShardCollector(shards.clone())));
        let (reporter, health_service) = tonic_health::server::health_reporter();
        let health = Health::new(reporter).await;

        let cut = CancellationToken::new();
        let closing = CancellationToken::new();
        let closing_peer = CancellationToken::new();
        let wakes = Wakes::default();
        let sessions = Sessions::new(
            shards.clone(),
            metrics.clone(),
            wakes.clone(),
            closing.clone(),
        );
        let admission = Admission::new(shards.clone(), metrics.clone(), wakes.clone());
        let routes = client_routes(
            health_service,
            &shards,
            admission,
            sessions,
            parts.connector,
            history.clone(),
        );
        let door = metrics.door("client");
        let client = Incoming::new(parts.client, parts.connections_max, door, cut.clone());
        let client = spawn(serve(
            client_server(),
            routes,
            CLIENT_SERVICES,
            client.let_rest(),
            closing.clone(),
        ));
        let door = metrics.door("peer");
        let peer = Incoming::new(parts.peer, PEER_CONNECTIONS_MAX, door, cut.clone());
        let peer = spawn(serve(
            peer_server(),
            groups.peer_service(),
            PEER_SERVICES,
            peer,
            closing_peer.clone(),
        ));
        let admin_door = metrics.door("admin");
        let router = http::router(metrics, health.readiness());
        let admin = spawn(serve_admin(parts.admin, router, admin_door, cut.clone()));
        let watcher = spawn(health.clone().follow(shards.clone()));
        let sender_on = spawn(wakes.clone().follow(shards.clone()));
        let finder = spawn(wakes.clone().give_up_lost(shards.clone()));
        let watchman = spawn(wakes.watch(shards.clone()));
        Ok(Server {
            shards,
            health,
            history,
            client,
            _others: [peer, admin, watcher, sender_on, finder, watchman],
            closing,
            closing_peer,
            _cut_when_dropped: cut.drop_guard(),
        })
    }

    /// The shards of this node.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Serves until `shutdown` resolves, then stops gracefully; or until the node cannot go on.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Ended {
        let failure = tokio::select! {
            biased;
            failure = self.shards.groups().failed() => Some(failure),
            () = shutdown => None,
        };
        match failure {
            Some(failure) => {
                tracing::error!(%failure, "this node cannot go on; it ends at once");
                Ended::Failed(failure)
            }
            None => {
                self.stop().await;
                Ended::Stopped
            }
        }
    }

    /// Stops so that clients lose nothing: leaderships are handed over, what was accepted is answered.
    /// Takes at most [`STOP_WITHIN`] but for [`OTLP_CLOSE_WITHIN`], which is the process's.
    async fn stop(mut self) {
        tracing::info!("stopping: leaderships are handed over, accepted operations are answered");
        let steps = async {
            self.health.stopping().await;
            let groups = self.shards.groups();
            groups.hand_over(HAND_OVER_WITHIN).await;
            if timeout(DRAIN_WITHIN, self.shards.drain()).await.is_err() {
                tracing::warn!("some accepted operations got no outcome; their callers were told");
            }
            self.history.close().await;
            // Clients are told to go, sessions with a goodbye; those that stay have their connections cut at the end.
            self.closing.cancel();
            let _ = timeout(CLOSE_WITHIN, &mut self.client).await;
            self.closing_peer.cancel();
            groups.shutdown().await;
        };
        if timeout(STOP_WITHIN - OTLP_CLOSE_WITHIN, steps)
            .await
            .is_err()
        {
            tracing::warn!("the stop took too long and was cut short");
        } else {
            tracing::info!("stopped");
        }
    }
}

/// Where the paths of the services of the client port begin, ...
const CLIENT_SERVICES: &[&str] = &["/weir.v1.", "/grpc."];
/// ... and of the peer port.
const PEER_SERVICES: &[&str] = &["/weir.peer."];

/// HTTP/2 as clients may use it.
fn client_server() -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .initial_stream_window_size(UNHEARD_BYTES_MAX)
        .initial_connection_window_size(UNHEARD_BYTES_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS_MAX))
        .http2_max_local_error_reset_streams(Some(BROKEN_CALLS_MAX))
        .timeout(CALL_DURATION_MAX)
}

async fn serve<C: Connections>(
    server: tonic::transport::Server,
    routes: Routes,
    own: &'static [&'static str],
    connections: Incoming<C, C::Io>,
    closing: CancellationToken,
) {
    let served = server
        .layer(NoteCalls { own })
        .add_routes(routes)
        .serve_with_incoming_shutdown(connections, closing.cancelled_owned())
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "a listener ended");
    }
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

async fn serve_admin(
    listener: Option<TcpListener>,
    router: axum::Router,
    door: Door,
    cut: CancellationToken,
) {
    let Some(listener) = listener else { return };
    let served = async { axum::serve(AdminConnections::new(listener, door, cut)?, router).await };
    if let Err(error) = served.await {
        tracing::error!(%error, "the listener for metrics and probes ended");
    }
}

/// Everything a client may call.
fn client_routes(
    health: HealthServer<impl tonic_health::pb::health_server::Health>,
    shards: &Shards,
    admission: Admission,
    sessions: Sessions,
    connector: Connector,
    history: History,
) -> Routes {
    let admission =
        AdmissionServiceServer::new(admission).max_decoding_message_size(CLIENT_MESSAGE_BYTES_MAX);
    let sessions = SessionServiceServer::new(sessions).max_decoding_message_size(FRAME_BYTES_MAX);
    let targets = TargetsServiceServer::new(Targets::new(shards.clone()))
        .max_decoding_message_size(POLICY_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    let cluster = ClusterServiceServer::new(ClusterApi::new(shards.clone(), connector))
        .max_decoding_message_size(CLIENT_MESSAGE_BYTES_MAX);
    let node = shards.identity().node;
    let history = HistoryServiceServer::new(HistoryApi::new(history, node))
        .max_decoding_message_size(CLIENT_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    let routes = Routes::new(health)
        .add_service(admission)
        .add_service(sessions)
        .add_service(Unread::new(targets, Targets::LARGE))
        .add_service(cluster)
        .add_service(Unread::new(history, HistoryApi::LARGE));
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(weir_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1();
    match reflection {
        Ok(reflection) => routes.add_service(reflection),
        Err(error) => {
            tracing::error!(%error, "the schema cannot be told by reflection");
            routes
        }
    }
}
