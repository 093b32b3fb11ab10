//! The RPCs a client speaks. tonic's generated clients appear only here.

use crate::limits::ANSWER_BYTES_MAX;
use std::future::Future;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use weir_proto::v1::{
    self, admission_service_client::AdmissionServiceClient,
    cluster_service_client::ClusterServiceClient, targets_service_client::TargetsServiceClient,
};

/// A request that knows its service, its method and its answer.
pub(crate) trait Rpc: Clone + Send + Sync + 'static {
    /// What is answered.
    type Answer: Send + 'static;

    /// True if an answer shows that the shard commits: only then is an outage over.
    const COMMITS: bool;

    /// Sends it once.
    fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> impl Future<Output = Result<Response<Self::Answer>, Status>> + Send;
}

macro_rules! rpc {
    ($($client:ident . $method:ident ( $request:ident ) -> $answer:ident, commits $commits:literal;)*) => {$(
        impl Rpc for v1::$request {
            type Answer = v1::$answer;
            const COMMITS: bool = $commits;

            async fn send(
                request: Request<Self>,
                channel: Channel,
            ) -> Result<Response<Self::Answer>, Status> {
                let client = $client::new(channel);
                client.max_decoding_message_size(ANSWER_BYTES_MAX).$method(request).await
            }
        }
    )*};
}

rpc! {
    AdmissionServiceClient.admit(AdmitRequest) -> AdmitResponse, commits true;
    AdmissionServiceClient.release(ReleaseRequest) -> ReleaseResponse, commits true;
    AdmissionServiceClient.cancel(CancelRequest) -> CancelResponse, commits true;
    AdmissionServiceClient.extend(ExtendRequest) -> ExtendResponse, commits true;
    AdmissionServiceClient.report(ReportRequest) -> ReportResponse, commits true;
    TargetsServiceClient.put_target(PutTargetRequest) -> PutTargetResponse, commits true;
    TargetsServiceClient.get_target(GetTargetRequest) -> GetTargetResponse, commits false;
    TargetsServiceClient.list_targets(ListTargetsRequest) -> ListTargetsResponse, commits false;
    TargetsServiceClient.delete_target(DeleteTargetRequest) -> DeleteTargetResponse, commits true;
    ClusterServiceClient.routes(RoutesRequest) -> RoutesResponse, commits false;
    ClusterServiceClient.status(StatusRequest) -> StatusResponse, commits false;
    ClusterServiceClient.transfer(TransferRequest) -> TransferResponse, commits false;
}
