//! Sessions of the fake cluster: each operation is done as the unary call would do it. What a proxy or a
//! broken connection makes of one operation ends the whole stream.

use super::fake::{Fake, Node};
use std::pin::Pin;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use weir_proto::error::WireError;
use weir_proto::v1::admission_service_server::AdmissionService;
use weir_proto::v1::session_answer::Answer;
use weir_proto::v1::session_operation::Operation;
use weir_proto::v1::session_response::Message;
use weir_proto::v1::session_service_server::SessionService;
use weir_proto::v1::*;

type Out = mpsc::Sender<Result<SessionResponse, Status>>;

/// A session that a client opened.
pub(crate) struct Opened {
    pub(crate) node: u64,
    /// Operations of each frame that came.
    pub(crate) frames: Vec<usize>,
    out: Out,
}

impl Opened {
    /// The node says something of its own accord.
    pub(crate) fn say(&self, message: Message) {
        let _ = self.out.try_send(Ok(response(message)));
    }

    /// The node ends it.
    pub(crate) fn end(&self, status: Status) {
        let _ = self.out.try_send(Err(status));
    }
}

impl Fake {
    /// Every node wakes the attempt.
    pub(crate) fn wake(&self, attempt: u64, spread_us: u64) {
        let wakes = vec![Wake { attempt, spread_us }];
        for session in &self.world().sessions {
            let frame = ServerFrame {
                answers: Vec::new(),
                wakes: wakes.clone(),
            };
            session.say(Message::Frame(frame));
        }
    }
}

fn response(message: Message) -> SessionResponse {
    SessionResponse {
        message: Some(message),
    }
}

impl Node {
    async fn perform(&self, operation: Operation) -> Result<Answer, Status> {
        Ok(match operation {
            Operation::Admit(it) => Answer::Admit(self.admit(Request::new(it)).await?.into_inner()),
            Operation::Release(it) => {
                Answer::Release(self.release(Request::new(it)).await?.into_inner())
            }
            Operation::Cancel(it) => {
                Answer::Cancel(self.cancel(Request::new(it)).await?.into_inner())
            }
            Operation::Extend(it) => {
                Answer::Extend(self.extend(Request::new(it)).await?.into_inner())
            }
            Operation::Report(_) => return Err(Status::unimplemented("reports are calls")),
        })
    }

    async fn answer(self, operation: SessionOperation, out: Out) {
        let answer = match self.perform(operation.operation.unwrap()).await {
            Ok(answer) => answer,
            Err(status) => match WireError::from_status(&status) {
                Some(error) => Answer::Error(error.to_session()),
                None => {
                    let _ = out.send(Err(status)).await;
                    return;
                }
            },
        };
        let answer = SessionAnswer {
            sequence: operation.sequence,
            answer: Some(answer),
        };
        let frame = ServerFrame {
            answers: vec![answer],
            wakes: Vec::new(),
        };
        // The session may have ended meanwhile.
        let _ = out.send(Ok(response(Message::Frame(frame)))).await;
    }

    async fn serve(self, mut incoming: Streaming<SessionRequest>, number: usize, out: Out) {
        let mut last = 0;
        while let Ok(Some(request)) = incoming.message().await {
            match request.message.unwrap() {
                session_request::Message::Hello(hello) => {
                    assert_ne!(hello.instance, 0);
                    let limits = SessionLimits {
                        frame_operations: 256,
                        frame_bytes: 256 * 1024,
                        operations_in_flight: self.world().in_flight,
                        idle_timeout_us: 0,
                    };
                    let hello = ServerHello {
                        node_id: self.id,
                        protocol_version: hello.protocol_version,
                        limits: Some(limits),
                        ..ServerHello::default()
                    };
                    let _ = out.send(Ok(response(Message::Hello(hello)))).await;
                }
                session_request::Message::Frame(frame) => {
                    let count = frame.operations.len();
                    self.world().sessions[number].frames.push(count);
                    for operation in frame.operations {
                        assert!(operation.sequence > last, "sequences rise");
                        assert!(operation.timeout_us > 0, "somebody waits for so long");
                        last = operation.sequence;
                        tokio::spawn(self.clone().answer(operation, out.clone()));
                    }
                }
            }
        }
    }
}

#[tonic::async_trait]
impl SessionService for Node {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<SessionResponse, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (out, answers) = mpsc::channel(64 * 1024);
        let number = {
            let mut world = self.world();
            world.sessions.push(Opened {
                node: self.id,
                frames: Vec::new(),
                out: out.clone(),
            });
            world.sessions.len() - 1
        };
        tokio::spawn(self.clone().serve(request.into_inner(), number, out));
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}
