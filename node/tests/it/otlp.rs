//! Spans of a real process, and collectors of every manner.

use crate::command::{file, weir};
use crate::support::*;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use weir_node::limits::{OTLP_EXPORT_WITHIN, STOP_WITHIN};
use weir_proto::v1 as wire;
use weir_proto::v1::admission_service_client::AdmissionServiceClient;
use weir_proto::v1::targets_service_client::TargetsServiceClient;

/// A node of its own cluster. Dropping it kills it.
struct Node {
    process: Child,
    channel: Channel,
    admin: String,
    _dir: tempfile::TempDir,
}

/// An address that only one test of this process uses.
fn host() -> String {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    let mixed = std::process::id().wrapping_mul(0x85eb_ca6b);
    let [a, b, ..] = mixed.to_be_bytes();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("127.{}.{b}.{}", a.clamp(1, 254), 100 + count)
}

impl Node {
    /// A node with the target, whose spans go to `collector`.
    async fn start(collector: &str) -> Node {
        let (dir, host) = (tempfile::tempdir().unwrap(), host());
        let data = dir.path().join("data");
        let config = format!(
            "[node]\ndata_dir = {data:?}\n[cluster]\nname = \"otlp\"\nshards = 1\n[[cluster.member]]\nid = 1\n\
             client = \"{host}:7400\"\npeer = \"{host}:7401\"\nadmin = \"{host}:7402\"\n"
        );
        let config = file(dir.path(), "weir.toml", &config);
        let mut command = weir(&["server", "--config", &config, "--otlp-endpoint", collector]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let address = format!("{host}:7400");
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(&address).await.is_err() {
            assert!(Instant::now() < deadline, "the node does not listen");
            sleep(Duration::from_millis(20)).await;
        }
        let channel = channel_to(&address);
        let put = wire::PutTargetRequest {
            target: TARGET.into(),
            policy: Some(policy()),
            expected_version: None,
        };
        patiently(async || {
            TargetsServiceClient::new(channel.clone())
                .put_target(put.clone())
                .await
        })
        .await;
        Node {
            process,
            channel,
            admin: format!("http://{host}:7402/metrics"),
            _dir: dir,
        }
    }

    /// Spans that the node counts under this outcome.
    async fn spans(&self, outcome: &str) -> u64 {
        let text = reqwest::get(&self.admin).await.unwrap();
        let text = text.text().await.unwrap();
        let name = format!(r#"weir_otlp_spans_total{{outcome="{outcome}"}} "#);
        let value = text.lines().find_map(|line| line.strip_prefix(&name));
        value.unwrap().parse().unwrap()
    }

    /// Asks, and tells how long the answer took.
    async fn ask(&self, id: &str, traceparent: Option<&str>) -> Duration {
        let mut request = Request::new(ask(id));
        if let Some(traceparent) = traceparent {
            let metadata = request.metadata_mut();
            metadata.insert("traceparent", traceparent.parse().unwrap());
        }
        let begun = Instant::now();
        AdmissionServiceClient::new(self.channel.clone())
            .admit(request)
            .await
            .unwrap();
        begun.elapsed()
    }

    /// SIGTERM: it ends well, within the time for it.
    async fn stop(mut self) {
        let pid = i32::try_from(self.process.id().unwrap()).unwrap();
        let begun = Instant::now();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
        let ended = timeout(PATIENCE, self.process.wait()).await.unwrap();
        assert!(ended.unwrap().success());
        assert!(begun.elapsed() < STOP_WITHIN, "{:?}", begun.elapsed());
    }
}

/// Keeps what it is sent: who sent it, and the spans.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(Who, Span)>>>);

/// Attributes of who sent a span.
type Who = BTreeMap<String, String>;

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for sent in request.into_inner().resource_spans {
            let attributes = sent.resource.unwrap_or_default().attributes;
            let texts = attributes.into_iter().filter_map(|told| {
                let any_value::Value::StringValue(text) = told.value?.value? else {
                    return None;
                };
                Some((told.key, text))
            });
            let who: Who = texts.collect();
            let spans = sent.scope_spans.into_iter().flat_map(|scope| scope.spans);
            let mut kept = self.0.lock().unwrap();
            kept.extend(spans.map(|span| (who.clone(), span)));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    (listener, endpoint)
}

#[tokio::test]
async fn a_collector_is_sent_the_road_of_a_call_in_the_callers_trace() {
    let (listener, endpoint) = listen().await;
    let collector = Collector::default();
    let serves = tonic::transport::Server::builder()
        .add_service(TraceServiceServer::new(collector.clone()))
        .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener));
    let serves = tokio::spawn(serves);
    let node = Node::start(&endpoint).await;
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let other = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    node.ask("told", Some(&format!("00-{trace}-{parent}-01")))
        .await;
    node.ask("not told", Some(&format!("00-{other}-{parent}-00")))
        .await;
    // What is not sent yet is sent at the end.
    node.stop().await;
    serves.abort();

    let kept = collector.0.lock().unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let of = |id: &str| {
        let own = kept.iter().filter(|(_, span)| hex(&span.trace_id) == id);
        own.collect::<Vec<_>>()
    };
    assert!(of(other).is_empty(), "its caller records nothing");
    let road = of(trace);
    let names: BTreeMap<&str, &Span> = road
        .iter()
        .map(|(_, span)| (span.name.as_str(), span))
        .collect();
    let expected = ["answer", "apply", "batch", "propose", "receive"];
    assert_eq!(names.keys().copied().collect::<Vec<_>>(), expected);
    assert_eq!(road.len(), expected.len());
    let receive = names["receive"];
    assert_eq!(hex(&receive.parent_span_id), parent);
    assert_eq!(receive.kind(), SpanKind::Server);
    for (child, of) in [
        ("batch", "receive"),
        ("propose", "receive"),
        ("apply", "propose"),
        ("answer", "receive"),
    ] {
        assert_eq!(names[child].parent_span_id, names[of].span_id, "{child}");
        assert_eq!(names[child].kind(), SpanKind::Internal, "{child}");
    }
    for (_, span) in &road {
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(receive.start_time_unix_nano <= span.start_time_unix_nano);
    }
    for (key, value) in [
        ("service.name", "weir"),
        ("service.namespace", "otlp"),
        ("service.instance.id", "1"),
    ] {
        assert_eq!(road[0].0[key], value);
    }
}

/// Asks until the node counts spans under this outcome: no answer waits for the collector.
async fn ask_until(node: &Node, outcome: &str) {
    let deadline = Instant::now() + PATIENCE;
    let mut round = 0;
    while node.spans(outcome).await == 0 {
        assert!(Instant::now() < deadline, "no span is {outcome}");
        let calls = (0..50).map(|call| {
            let id = format!("{round}-{call}");
            async move { node.ask(&id, None).await }
        });
        let slowest = futures::future::join_all(calls).await.into_iter().max();
        assert!(slowest.unwrap() < OTLP_EXPORT_WITHIN, "{slowest:?}");
        round += 1;
    }
}

#[tokio::test]
async fn a_collector_that_refuses_costs_spans_only() {
    let (listener, endpoint) = listen().await;
    // Nobody listens there any more.
    drop(listener);
    let node = Node::start(&endpoint).await;
    ask_until(&node, "failed").await;
    assert_eq!(node.spans("exported").await, 0);
    node.stop().await;
}

#[tokio::test]
async fn a_collector_that_never_answers_costs_spans_only() {
    let (listener, endpoint) = listen().await;
    let hangs = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.unwrap());
        }
    });
    let node = Node::start(&endpoint).await;
    ask_until(&node, "dropped").await;
    assert_eq!(node.spans("exported").await, 0);
    node.stop().await;
    hangs.abort();
}
