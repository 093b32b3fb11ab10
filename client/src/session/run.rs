//! The two halves of a session's stream: frames out, answers in.

use super::Shared;
use super::lane::Unheard;
use crate::failure::Failure;
use crate::limits::{ANSWER_BYTES_MAX, RESUME_SPREAD};
use crate::lock::lock;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tokio_stream::Stream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use weir_proto::v1::session_request::Message as Out;
use weir_proto::v1::session_response::Message as In;
use weir_proto::v1::session_service_client::SessionServiceClient;
use weir_proto::v1::{
    ClientHello, Goodbye, GoodbyeReason, ServerFrame, SessionRequest, SessionResponse,
};

/// Serves one session until it ends, and tells everybody in it.
pub(super) async fn run(shared: Arc<Shared>, channel: Channel, hello: ClientHello) {
    let outgoing = Outgoing {
        shared: shared.clone(),
        hello: Some(hello),
    };
    let ended = tokio::select! {
        biased;
        ended = listen(&shared, channel, outgoing) => ended,
        () = shared.finished.notified() => Ended::Retired,
    };
    let writer = {
        let mut lane = lock(&shared.lane);
        match &ended {
            Ended::Unimplemented => lane.end(Unheard::Unimplemented, "sessions are not known"),
            Ended::Broken(status) => {
                let failure = Failure::of(status).of_unsent();
                lane.end(Unheard::Failed(failure), &told(status));
            }
            Ended::Goodbye(goodbye) => {
                lane.goodbye(goodbye.last_sequence, &failure_of(goodbye.reason()));
            }
            Ended::Retired => {
                let status = Status::cancelled("the session was given up");
                lane.end(
                    Unheard::Failed(Failure::of(&status).of_unsent()),
                    "given up",
                );
            }
        }
        lane.writer.take()
    };
    if let Some(writer) = writer {
        writer.wake();
    }
    shared.waits.session_ended(shared.id, RESUME_SPREAD);
}

/// How a session ended.
enum Ended {
    Unimplemented,
    Broken(Status),
    Goodbye(Goodbye),
    Retired,
}

fn told(status: &Status) -> String {
    format!(
        "the session ended: {}: {}",
        status.code().description(),
        status.message()
    )
}

/// What an operation hears that was not taken up.
fn failure_of(reason: GoodbyeReason) -> Failure {
    match reason {
        GoodbyeReason::Stopping => Failure::NotLeader { hint: None },
        GoodbyeReason::Idle | GoodbyeReason::Unspecified => Failure::not_taken_up(),
    }
}

async fn listen(shared: &Shared, channel: Channel, outgoing: Outgoing) -> Ended {
    let mut client = SessionServiceClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    let mut incoming = match client.session(outgoing).await {
        Ok(response) => response.into_inner(),
        Err(status) => return refused(status),
    };
    loop {
        match next(&mut incoming).await {
            Ok(Some(In::Hello(hello))) => {
                let limits = hello.limits.unwrap_or_default();
                let mut lane = lock(&shared.lane);
                lane.opened(&limits, Instant::now());
                let writer = lane.writer.take();
                drop(lane);
                if let Some(writer) = writer {
                    writer.wake();
                }
            }
            Ok(Some(In::Frame(frame))) => hear(shared, frame),
            Ok(Some(In::Goodbye(goodbye))) => return Ended::Goodbye(goodbye),
            Ok(None) => return Ended::Broken(Status::unavailable("the node ended it")),
            Err(status) => return refused(status),
        }
    }
}

fn refused(status: Status) -> Ended {
    if status.code() == Code::Unimplemented {
        Ended::Unimplemented
    } else {
        Ended::Broken(status)
    }
}

/// The next message; what this client does not know is passed over.
async fn next(incoming: &mut Streaming<SessionResponse>) -> Result<Option<In>, Status> {
    loop {
        match incoming.message().await? {
            None => return Ok(None),
            Some(SessionResponse { message: Some(it) }) => return Ok(Some(it)),
            Some(SessionResponse { message: None }) => {}
        }
    }
}

fn hear(shared: &Shared, frame: ServerFrame) {
    let writer = {
        let mut lane = lock(&shared.lane);
        lane.answered(frame.answers, Instant::now());
        // Answers make room for what waits.
        lane.writer.take()
    };
    if let Some(writer) = writer {
        writer.wake();
    }
    for wake in frame.wakes {
        let spread = Duration::from_micros(wake.spread_us);
        shared.waits.wake(wake.attempt, spread);
    }
}

/// What gRPC writes: a frame whenever it has room for one and there is something to say.
struct Outgoing {
    shared: Arc<Shared>,
    hello: Option<ClientHello>,
}

impl Stream for Outgoing {
    type Item = SessionRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let request = |message| SessionRequest {
            message: Some(message),
        };
        if let Some(hello) = self.hello.take() {
            return Poll::Ready(Some(request(Out::Hello(hello))));
        }
        let mut lane = lock(&self.shared.lane);
        if let Some(frame) = lane.next_frame(Instant::now()) {
            return Poll::Ready(Some(request(Out::Frame(frame))));
        }
        if lane.why_over().is_some() {
            return Poll::Ready(None);
        }
        lane.writer = Some(context.waker().clone());
        Poll::Pending
    }
}
