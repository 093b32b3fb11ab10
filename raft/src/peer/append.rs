//! A replication session: requests one way, answers in the same order the other way.

use super::body;
use super::client::{Cut, unreachable, within};
use super::link::Link;
use super::tap::{Tap, tap};
use crate::types::{AppendAnswer, AppendRequest, Payload, RpcError};
use futures::{Stream, StreamExt, stream};
use openraft::OptionalSend;
use openraft::base::BoxStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tonic::{Status, Streaming};
use weir_proto::peer::v1::Envelope;

/// Bytes set aside for a request without its batches, and for each entry beside its batch.
const REQUEST_BYTES: usize = 64;
const ENTRY_BYTES: usize = 16;

/// What bounds a session.
pub(super) struct Session {
    pub(super) group: u32,
    pub(super) open_within: Duration,
    pub(super) answer_within: Duration,
    pub(super) cut: Cut,
}

/// Opens a stream to the peer and runs a session on it.
pub(super) async fn run<'s, S>(
    link: Link,
    session: Session,
    mut input: S,
) -> Result<BoxStream<'s, Result<AppendAnswer, RpcError>>, RpcError>
where
    S: Stream<Item = AppendRequest> + OptionalSend + Unpin + 'static,
{
    // openraft sleeps between attempts inside this stream. Whoever dials first and asks for the first
    // request afterwards dials a dead peer in an endless loop.
    let Some(first) = input.next().await else {
        return Ok(Box::pin(stream::empty()));
    };
    let (tap, input) = tap(input);
    let sent = Arc::new(AtomicU64::new(0));
    let requests = requests(&link, session.group, first, input, Arc::clone(&sent));
    let mut client = link.client();
    let opened = within(session.open_within, client.append(requests)).await;
    link.heard(&opened);
    let answers = opened.map_err(|status| unreachable(&status))?.into_inner();
    let reader = Reader {
        link,
        session,
        answers,
        sent,
        answered: 0,
        _tap: tap,
    };
    Ok(Box::pin(stream::unfold(Some(reader), |reader| async {
        let mut reader = reader?;
        match reader.next().await {
            Ok(None) => None,
            Ok(Some(answer)) => Some((Ok(answer), Some(reader))),
            Err(status) => {
                reader.link.heard(&Err::<(), _>(status.clone()));
                // With it goes its tap, before openraft learns of the end.
                drop(reader);
                Some((Err(unreachable(&status)), None))
            }
        }
    })))
}

fn requests<S>(
    link: &Link,
    group: u32,
    first: AppendRequest,
    rest: S,
    sent: Arc<AtomicU64>,
) -> impl Stream<Item = Envelope> + Send + 'static
where
    S: Stream<Item = AppendRequest> + OptionalSend + Unpin + 'static,
{
    let (sender, to) = (link.sender.clone(), link.to);
    let encode = |request: &AppendRequest| {
        check(request)?;
        body::encode(request, capacity(request))
    };
    let encoded = move |request: AppendRequest| match encode(&request) {
        Ok(body) => {
            let sequence = sent.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            Some(sender.envelope(to, group, sequence, body))
        }
        Err(status) => {
            tracing::error!(group, %status, "replication session ends");
            None
        }
    };
    let requests = stream::iter([first]).chain(rest);
    requests.scan(encoded, |encoded, request| {
        std::future::ready(encoded(request))
    })
}

/// Refuses entries that do not follow each other and the one before them. A log with a hole would be
/// the end of whoever stores it.
pub(super) fn check(request: &AppendRequest) -> Result<(), Status> {
    let first = request
        .prev_log_id
        .map_or(0, |id| id.index.saturating_add(1));
    for (due, entry) in (first..).zip(&request.entries) {
        let found = entry.log_id.index;
        if found != due {
            return Err(Status::data_loss(format!(
                "entry {found} where {due} is due"
            )));
        }
    }
    Ok(())
}

fn capacity(request: &AppendRequest) -> usize {
    let batches = request.entries.iter().map(|entry| match &entry.payload {
        Payload::Normal(batch) => batch.0.len() + ENTRY_BYTES,
        Payload::Blank | Payload::Membership(_) => ENTRY_BYTES,
    });
    REQUEST_BYTES + batches.sum::<usize>()
}

/// Reads the answers of a session.
struct Reader {
    link: Link,
    session: Session,
    answers: Streaming<Envelope>,
    sent: Arc<AtomicU64>,
    answered: u64,
    /// Ends the requests with the answers.
    _tap: Tap,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<AppendAnswer>, Status> {
        let Some(envelope) = self.receive().await? else {
            return Ok(None);
        };
        self.link.sender.check_answer(&envelope, self.link.to)?;
        self.answered = self.answered.wrapping_add(1);
        if envelope.sequence != self.answered {
            let text = format!(
                "answer {} where {} is due",
                envelope.sequence, self.answered
            );
            return Err(Status::data_loss(text));
        }
        let answer: AppendAnswer = body::decode(envelope.version, &envelope.body)?;
        if let Ok(Some(stored)) = &answer
            && self.session.cut.reaches(stored.index)
        {
            return Err(Status::out_of_range(
                "the log is cut above what the peer has",
            ));
        }
        Ok(Some(answer))
    }

    /// The next answer. A peer that owes one for a whole `answer_within` has failed; while nothing is
    /// asked, nothing is owed.
    async fn receive(&mut self) -> Result<Option<Envelope>, Status> {
        loop {
            let owed = self.sent.load(Ordering::Relaxed) > self.answered;
            let answer = tokio::time::timeout(self.session.answer_within, self.answers.message());
            match answer.await {
                Ok(answer) => return answer,
                Err(_) if owed => return Err(Status::deadline_exceeded("the peer owes an answer")),
                Err(_) => {}
            }
        }
    }
}
