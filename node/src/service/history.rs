//! The history of use, as this node counted it.

use super::principal_of;
use crate::history::{Answer, History, ReadError};
use crate::limits::RETRY_HINT_MAX;
use tonic::{Request, Response, Status};
use weir_proto::convert;
use weir_proto::error::{Reason, WireError};
use weir_proto::limits::HISTORY_POINTS_MAX;
use weir_proto::v1 as wire;
use weir_proto::v1::history_service_server::HistoryService;
use weir_raft::NodeId;

/// Tells what this node counted.
pub struct HistoryApi {
    history: History,
    node: NodeId,
}

impl HistoryApi {
    /// Methods that tell thousands of points.
    pub const LARGE: &'static [&'static str] = &["ReadHistory"];

    /// Reads the history of `node`.
    pub fn new(history: History, node: NodeId) -> HistoryApi {
        HistoryApi { history, node }
    }
}

#[tonic::async_trait]
impl HistoryService for HistoryApi {
    async fn read_history(
        &self,
        request: Request<wire::ReadHistoryRequest>,
    ) -> Result<Response<wire::ReadHistoryResponse>, Status> {
        principal_of(&request)?;
        let read = convert::history::read(request.get_ref()).map_err(WireError::from)?;
        let Answer {
            points,
            oldest_minute,
            trouble,
        } = self.history.read(read).await.map_err(wire_error)?;
        Ok(Response::new(wire::ReadHistoryResponse {
            node_id: self.node.0,
            points,
            oldest_unix_s: oldest_minute.map_or(0, |minute| u64::from(minute) * 60),
            trouble,
        }))
    }
}

fn wire_error(error: ReadError) -> WireError {
    match error {
        ReadError::TooManyPoints => convert::history::too_many_points(HISTORY_POINTS_MAX).into(),
        ReadError::Busy => WireError::new(Reason::Overloaded, "too many reads of the history wait")
            .retry_after(RETRY_HINT_MAX),
        ReadError::Stopped => WireError::new(Reason::Stopping, "the node stops"),
    }
}
