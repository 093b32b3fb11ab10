//! The door of clients that stay: one stream of many operations, see `session.proto`.
//!
//! A session is one task (`Session`) between the stream of frames that comes in and the `outbox` of
//! what goes out. It checks a frame once, hands the operations of each shard to its batcher as one
//! submission, and answers each submission as a whole. Nothing in it waits for another operation.

mod crowd;
mod frame;
mod outbox;
mod run;

use self::crowd::Crowd;
use self::outbox::Outgoing;
use self::run::Session;
use super::principal_of;
use crate::limits::SESSIONS_MAX;
use crate::listen::Visitor;
use crate::metrics::Metrics;
use crate::shards::Shards;
use crate::traceparent::TraceParent;
use crate::wakes::Wakes;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use weir_proto::error::{Reason, WireError};
use weir_proto::v1 as wire;
use weir_proto::v1::session_service_server::SessionService;

/// Opens sessions with the shards of this node.
pub struct Sessions {
    context: Context,
    room: Arc<Semaphore>,
}

/// What every session of a node shares.
#[derive(Clone)]
struct Context {
    shards: Shards,
    metrics: Metrics,
    wakes: Wakes,
    crowd: Crowd,
    /// Cancelled when the node has answered what it accepted and wants its clients to go.
    closing: CancellationToken,
}

impl Sessions {
    /// Sessions that end gracefully once `closing` is cancelled.
    pub fn new(
        shards: Shards,
        metrics: Metrics,
        wakes: Wakes,
        closing: CancellationToken,
    ) -> Sessions {
        Sessions {
            context: Context {
                shards,
                metrics,
                wakes,
                crowd: Crowd::default(),
                closing,
            },
            room: Arc::new(Semaphore::new(SESSIONS_MAX)),
        }
    }
}

#[tonic::async_trait]
impl SessionService for Sessions {
    type SessionStream = Outgoing;

    async fn session(
        &self,
        request: Request<Streaming<wire::SessionRequest>>,
    ) -> Result<Response<Outgoing>, Status> {
        let principal = principal_of(&request)?;
        let parent = TraceParent::of(request.metadata());
        let Ok(permit) = self.room.clone().try_acquire_owned() else {
            self.context.metrics.refused(Reason::Overloaded.as_str());
            let error = WireError::new(Reason::Overloaded, "the node has too many sessions");
            return Err(error.into());
        };
        let visitor = request.extensions().get::<Visitor>().cloned();
        let (outbox, outgoing) = outbox::outbox();
        let session = Session::new(
            self.context.clone(),
            principal,
            outbox.clone(),
            parent,
            visitor.clone(),
        );
        tokio::spawn(async move {
            session.run(request.into_inner()).await;
            // What was said last takes room until it is read.
            if !outbox.taken().await {
                tracing::warn!(
                    "a connection was cut: its client does not read the end of a session"
                );
                visitor.inspect(Visitor::cut);
            }
            drop(permit);
        });
        Ok(Response::new(outgoing))
    }
}
