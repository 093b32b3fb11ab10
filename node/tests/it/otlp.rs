//! Spans of a real process, and collectors of every manner.

use crate::process::Node;
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
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tonic::{Request, Response, Status};
use weir_node::limits::OTLP_EXPORT_WITHIN;

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

/// Spans that a node counts under this outcome.
async fn spans(node: &Node, outcome: &str) -> f64 {
    let sample = format!(r#"weir_otlp_spans_total{{outcome="{outcome}"}}"#);
    node.metric(&sample).await.unwrap()
}

/// Asks, and tells how long the answer took.
async fn ask_in(node: &Node, id: &str, traceparent: Option<&str>) -> Duration {
    let mut request = Request::new(ask(id));
    if let Some(traceparent) = traceparent {
        let metadata = request.metadata_mut();
        metadata.insert("traceparent", traceparent.parse().unwrap());
    }
    let begun = Instant::now();
    node.admission().admit(request).await.unwrap();
    begun.elapsed()
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
    // Calls of which no caller says anything are not exported, and the name is another.
    let variables = [
        ("OTEL_TRACES_SAMPLER", "parentbased_always_off"),
        ("OTEL_SERVICE_NAME", "gate"),
    ];
    let node = Node::start("", &["--otlp-endpoint", &endpoint], &variables).await;
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let other = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let sampled = format!("00-{trace}-{parent}-01");
    ask_in(&node, "told", Some(&sampled)).await;
    let not_sampled = format!("00-{other}-{parent}-00");
    ask_in(&node, "not told", Some(&not_sampled)).await;
    ask_in(&node, "of nobody", None).await;
    // What is not sent yet is sent at the end.
    node.stop().await;
    serves.abort();

    let kept = collector.0.lock().unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let road = &*kept;
    let others = road.iter().filter(|(_, span)| hex(&span.trace_id) != trace);
    assert_eq!(others.count(), 0, "{road:?}");
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
    for (_, span) in road {
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(receive.start_time_unix_nano <= span.start_time_unix_nano);
    }
    for (key, value) in [
        ("service.name", "gate"),
        ("service.namespace", "alone"),
        ("service.instance.id", "1"),
    ] {
        assert_eq!(road[0].0[key], value);
    }
}

/// Asks until the node counts spans under this outcome: no answer waits for the collector.
async fn ask_until(node: &Node, outcome: &str) {
    let deadline = Instant::now() + PATIENCE;
    let mut round = 0;
    while spans(node, outcome).await == 0.0 {
        assert!(Instant::now() < deadline, "no span is {outcome}");
        let calls = (0..50).map(|call| {
            let id = format!("{round}-{call}");
            async move { ask_in(node, &id, None).await }
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
    let node = Node::start("", &["--otlp-endpoint", &endpoint], &[]).await;
    ask_until(&node, "failed").await;
    assert_eq!(spans(&node, "exported").await, 0.0);
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
    let node = Node::start("", &["--otlp-endpoint", &endpoint], &[]).await;
    ask_until(&node, "dropped").await;
    assert_eq!(spans(&node, "exported").await, 0.0);
    node.stop().await;
    hangs.abort();
}
