//! The RPCs a client speaks. tonic's generated clients appear only here, and where a session is opened.

use crate::limits::ANSWER_BYTES_MAX;
use std::future::Future;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use weir_proto::v1::session_answer::Answer;
use weir_proto::v1::session_operation::Operation;
use weir_proto::v1::{
    self, admission_service_client::AdmissionServiceClient,
    cluster_service_client::ClusterServiceClient, history_service_client::HistoryServiceClient,
    targets_service_client::TargetsServiceClient,
};

/// A request that knows its service, its method and its answer.
pub(crate) trait Rpc: Clone + Send + Sync + 'static {
    /// What is answered.
    type Answer: Send + 'static;

    /// True if an answer shows that the shard commits: only then is an outage over.
    const COMMITS: bool;

    /// True if it gives capacity back, or charges what was used: it must not be lost for want of a retry
    /// budget.
    const MUST_ARRIVE: bool = false;

    /// Sends it once, as a call of its own.
    fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> impl Future<Output = Result<Response<Self::Answer>, Status>> + Send;

    /// True if sessions carry it.
    const IN_SESSIONS: bool = false;

    /// What a session carries for it.
    fn operation(self) -> Option<Operation> {
        None
    }

    /// The answer, out of a session's.
    fn read(_: Answer) -> Option<Self::Answer> {
        None
    }
}

macro_rules! rpc {
    ($($client:ident . $method:ident ( $request:ident ) -> $answer:ident, commits $commits:literal
        $(, must arrive $must_arrive:literal)?
        $(, in sessions $kind:ident, elsewhere $without:expr)?;)*) => {$(
        impl Rpc for v1::$request {
            type Answer = v1::$answer;
            const COMMITS: bool = $commits;
            $(const MUST_ARRIVE: bool = $must_arrive;)?

            async fn send(
                request: Request<Self>,
                channel: Channel,
            ) -> Result<Response<Self::Answer>, Status> {
                $(let request = request.map($without);)?
                let client = $client::new(channel);
                client.max_decoding_message_size(ANSWER_BYTES_MAX).$method(request).await
            }

            $(
                const IN_SESSIONS: bool = true;

                fn operation(self) -> Option<Operation> {
                    Some(Operation::$kind(self))
                }

                fn read(answer: Answer) -> Option<Self::Answer> {
                    if let Answer::$kind(answer) = answer {
                        Some(answer)
                    } else {
                        None
                    }
                }
            )?
        }
    )*};
}

/// Nobody can be woken by the answer to a call of its own.
fn without_wake(ask: v1::AdmitRequest) -> v1::AdmitRequest {
    v1::AdmitRequest { wake: false, ..ask }
}

rpc! {
    AdmissionServiceClient.admit(AdmitRequest) -> AdmitResponse, commits true,
        in sessions Admit, elsewhere without_wake;
    AdmissionServiceClient.release(ReleaseRequest) -> ReleaseResponse, commits true, must arrive true,
        in sessions Release, elsewhere std::convert::identity;
    AdmissionServiceClient.cancel(CancelRequest) -> CancelResponse, commits true, must arrive true,
        in sessions Cancel, elsewhere std::convert::identity;
    AdmissionServiceClient.extend(ExtendRequest) -> ExtendResponse, commits true,
        in sessions Extend, elsewhere std::convert::identity;
    AdmissionServiceClient.report(ReportRequest) -> ReportResponse, commits true, must arrive true;
    TargetsServiceClient.put_target(PutTargetRequest) -> PutTargetResponse, commits true;
    TargetsServiceClient.get_target(GetTargetRequest) -> GetTargetResponse, commits false;
    TargetsServiceClient.list_targets(ListTargetsRequest) -> ListTargetsResponse, commits false;
    TargetsServiceClient.delete_target(DeleteTargetRequest) -> DeleteTargetResponse, commits true;
    TargetsServiceClient.list_versions(ListVersionsRequest) -> ListVersionsResponse, commits false;
    TargetsServiceClient.explain(ExplainRequest) -> ExplainResponse, commits true;
    ClusterServiceClient.routes(RoutesRequest) -> RoutesResponse, commits false;
    ClusterServiceClient.status(StatusRequest) -> StatusResponse, commits false;
    ClusterServiceClient.transfer(TransferRequest) -> TransferResponse, commits false;
    HistoryServiceClient.read_history(ReadHistoryRequest) -> ReadHistoryResponse, commits false;
}
