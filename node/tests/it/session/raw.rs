//! A session without a client behind it: a test says every message itself.

use crate::support::*;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use weir_node::dev::Cluster;
use weir_proto::v1 as wire;
use weir_proto::v1::session_operation::Operation;
use weir_proto::v1::session_response::Message;
use weir_proto::v1::session_service_client::SessionServiceClient;
use weir_raft::NodeId;

/// One session.
pub(super) struct Raw {
    out: Option<mpsc::Sender<wire::SessionRequest>>,
    incoming: Streaming<wire::SessionResponse>,
    next: u64,
}

/// The half that asks.
pub(super) struct Asker {
    out: mpsc::Sender<wire::SessionRequest>,
    next: u64,
}

pub(super) fn hello() -> wire::session_request::Message {
    wire::session_request::Message::Hello(wire::ClientHello {
        protocol_version: 1,
        instance: 7,
        name: "test".into(),
        features: Vec::new(),
    })
}

pub(super) fn admit_operation(target: &str, id: &str) -> Operation {
    Operation::Admit(wire::AdmitRequest {
        target: target.to_owned(),
        ..ask(id)
    })
}

/// Opens a session in which nothing was said yet.
pub(super) async fn open(cluster: &Cluster, node: NodeId) -> Raw {
    let (out, messages) = mpsc::channel(64);
    let mut client = SessionServiceClient::new(channel(cluster, node));
    let opened = client.session(ReceiverStream::new(messages)).await;
    Raw {
        out: Some(out),
        incoming: opened.unwrap().into_inner(),
        next: 1,
    }
}

fn frame(next: &mut u64, operations: Vec<Operation>) -> wire::SessionRequest {
    let operations = operations.into_iter().map(|operation| {
        *next += 1;
        wire::SessionOperation {
            sequence: *next - 1,
            timeout_us: 0,
            operation: Some(operation),
        }
    });
    let frame = wire::ClientFrame {
        operations: operations.collect(),
    };
    wire::SessionRequest {
        message: Some(wire::session_request::Message::Frame(frame)),
    }
}

impl Raw {
    /// A session after the hellos.
    pub(super) async fn greeted(cluster: &Cluster, node: NodeId) -> Raw {
        let mut session = open(cluster, node).await;
        session.say(hello()).await;
        let answer = session.hear().await.unwrap();
        assert!(matches!(answer, Message::Hello(_)), "{answer:?}");
        session
    }

    pub(super) async fn say(&mut self, message: wire::session_request::Message) {
        let message = Some(message);
        // A session that has ended takes nothing: its end is what the test looks at.
        if let Some(out) = &self.out {
            let _ = out.send(wire::SessionRequest { message }).await;
        }
    }

    /// Sends one frame; answers the sequence of its first operation.
    pub(super) async fn ask(&mut self, operations: Vec<Operation>) -> u64 {
        let first = self.next;
        let frame = frame(&mut self.next, operations);
        self.out.as_ref().unwrap().send(frame).await.unwrap();
        first
    }

    /// Sends one frame, unless the connection is full of them.
    pub(super) fn try_ask(&mut self, operations: Vec<Operation>) {
        let frame = frame(&mut self.next, operations);
        let _ = self.out.as_ref().unwrap().try_send(frame);
    }

    /// The half that asks, from now on.
    pub(super) fn asker(&mut self) -> Asker {
        Asker {
            out: self.out.take().unwrap(),
            next: self.next,
        }
    }

    /// Closes this side.
    pub(super) fn close(&mut self) {
        self.out = None;
    }

    /// The next message; `None` at the end.
    pub(super) async fn hear(&mut self) -> Option<Message> {
        let heard = timeout(PATIENCE, self.incoming.message()).await;
        let response = heard.expect("a message in time").unwrap()?;
        Some(response.message.unwrap())
    }

    /// As many answers, by sequence.
    pub(super) async fn answers(&mut self, count: usize) -> BTreeMap<u64, wire::SessionAnswer> {
        let mut answers = BTreeMap::new();
        while answers.len() < count {
            let Some(Message::Frame(frame)) = self.hear().await else {
                panic!("no frame after {} answers", answers.len())
            };
            assert!(!frame.answers.is_empty() || !frame.wakes.is_empty());
            for answer in frame.answers {
                let twice = answers.insert(answer.sequence, answer);
                assert!(twice.is_none(), "answered twice: {twice:?}");
            }
        }
        answers
    }

    /// How the stream ends, whatever comes before.
    pub(super) async fn end(&mut self) -> Option<Status> {
        let end = async {
            loop {
                match self.incoming.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(status) => return Some(status),
                }
            }
        };
        timeout(PATIENCE, end).await.expect("an end in time")
    }
}

impl Asker {
    /// Sends one frame. False if the session has ended.
    pub(super) async fn ask(&mut self, operations: Vec<Operation>) -> bool {
        let frame = frame(&mut self.next, operations);
        self.out.send(frame).await.is_ok()
    }
}

/// What the first node's metrics say.
pub(super) async fn metrics(cluster: &Cluster) -> String {
    let (_, config) = cluster.nodes().next().unwrap();
    let mut stream = tokio::net::TcpStream::connect(&config.listen.admin)
        .await
        .unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut text = String::new();
    let read = timeout(Duration::from_secs(10), stream.read_to_string(&mut text));
    read.await.unwrap().unwrap();
    text
}
