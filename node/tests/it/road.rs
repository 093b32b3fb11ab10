//! Spans along the road of a request, seen by a subscriber.

use crate::support::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tonic::Request;
use tonic::transport::Channel;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber, subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};
use weir_admission::ShardId;
use weir_node::config::{Config, HistoryConfig, LogConfig, LogFormat, Member, TraceConfig};
use weir_node::limits::CONNECTIONS_MAX;
use weir_node::listen::{bind, tcp};
use weir_node::metrics::SpanMetrics;
use weir_node::server::{Parts, Server};
use weir_proto::v1 as wire;
use weir_proto::v1::admission_service_client::AdmissionServiceClient;
use weir_proto::v1::targets_service_client::TargetsServiceClient;
use weir_raft::{MonotonicClock, NodeId};

/// One span: its parent, its fields as text, and whether it ended.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<usize>,
    fields: BTreeMap<&'static str, String>,
    ended: bool,
}

/// Keeps the spans of the road, in the order in which they began.
#[derive(Clone, Default)]
struct Watcher(Arc<Mutex<Vec<Seen>>>);

/// Place of a span in the list: ids are given away again.
#[derive(Clone, Copy)]
struct Place(usize);

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

fn place<S: Subscriber + for<'a> LookupSpan<'a>>(context: &Context<'_, S>, id: &Id) -> usize {
    let span = context.span(id).unwrap();
    let Place(place) = *span.extensions().get().unwrap();
    place
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Watcher {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target() == "weir_node::road"
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let mut seen = Seen {
            name: attributes.metadata().name(),
            parent: span.parent().map(|parent| place(&context, &parent.id())),
            ..Seen::default()
        };
        attributes.record(&mut Fields(&mut seen.fields));
        let mut spans = self.0.lock().unwrap();
        span.extensions_mut().insert(Place(spans.len()));
        spans.push(seen);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let place = place(&context, id);
        record.record(&mut Fields(&mut self.0.lock().unwrap()[place].fields));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let place = place(&context, &id);
        self.0.lock().unwrap()[place].ended = true;
    }
}

impl Watcher {
    /// The spans under the first `receive` of this kind, each with the name of its parent.
    fn road(&self, rpc: &str) -> Vec<(Seen, &'static str)> {
        let spans = self.0.lock().unwrap();
        let is = |seen: &Seen| seen.name == "receive" && seen.fields["rpc"] == rpc;
        let root = spans.iter().position(is).unwrap();
        let belongs = |mut place: usize| loop {
            if place == root {
                return true;
            }
            match spans[place].parent {
                Some(parent) => place = parent,
                None => return false,
            }
        };
        let own = (0..spans.len()).filter(|place| belongs(*place));
        own.map(|place| {
            let parent = spans[place].parent.map_or("", |parent| spans[parent].name);
            (spans[place].clone(), parent)
        })
        .collect()
    }
}

/// A place in the code asks who watches it once, when it is first passed: in whatever thread, and while there is only
/// one subscriber it asks that thread's (tracing-core 0.1). With a second one it asks both, also in other tests.
fn second_watcher() -> tracing::Dispatch {
    tracing::Dispatch::new(Registry::default())
}

/// What was passed by another test just before asks again.
fn watch_anew() {
    tracing::callsite::rebuild_interest_cache();
}

/// A node on this thread, and its address: a subscriber of one thread sees all of its road.
async fn node(dir: &std::path::Path) -> (Server, String) {
    let listener = async || bind("port", "127.0.0.1:0", false).await.unwrap();
    let (client, peer) = (listener().await, listener().await);
    let member = Member {
        client: client.local_addr().unwrap().to_string(),
        peer: peer.local_addr().unwrap().to_string(),
        admin: "127.0.0.1:1".into(),
    };
    let options = options();
    let config = Config {
        node: NodeId(1),
        data_dir: dir.to_owned(),
        cluster: "weir-road".into(),
        shards: 1,
        members: [(NodeId(1), member.clone())].into(),
        listen: member.clone(),
        heartbeat_ms: options.timing.heartbeat_ms,
        election_min_ms: options.timing.election_min_ms,
        election_max_ms: options.timing.election_max_ms,
        history: HistoryConfig::default(),
        log: LogConfig {
            format: LogFormat::Auto,
            filter: "info".into(),
        },
        trace: TraceConfig::default(),
    };
    let server = Server::start(Parts {
        config,
        client: tcp(client),
        connections_max: CONNECTIONS_MAX,
        peer: tcp(peer),
        admin: None,
        connector: Arc::new(|endpoint| endpoint.connect_lazy()),
        clock: Arc::new(MonotonicClock::new()),
        wall: weir_node::history::wall(),
        spans: SpanMetrics::default(),
    })
    .await
    .unwrap();
    (server, member.client)
}

/// Every span of a call of its own, in order, and the one it is in.
const ROAD: [(&str, &str); 5] = [
    ("receive", ""),
    ("batch", "receive"),
    ("propose", "receive"),
    ("apply", "propose"),
    ("answer", "receive"),
];

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The way to a node that has the target.
async fn channel_with_target(address: &str) -> Channel {
    let put = wire::PutTargetRequest {
        target: TARGET.into(),
        policy: Some(policy()),
        expected_version: None,
    };
    let channel = channel_to(address);
    patiently(async || {
        TargetsServiceClient::new(channel.clone())
            .put_target(put.clone())
            .await
    })
    .await;
    channel
}

fn is_whole(watcher: &Watcher, rpc: &str) {
    let road = watcher.road(rpc);
    let order: Vec<_> = road
        .iter()
        .map(|(seen, parent)| (seen.name, *parent))
        .collect();
    assert_eq!(order, ROAD, "{rpc}");
    assert!(road.iter().all(|(seen, _)| seen.ended), "{road:?}");
}

#[tokio::test]
async fn a_call_leaves_the_spans_of_its_road_in_the_right_order() {
    let watcher = Watcher::default();
    let _second = second_watcher();
    let _guard = subscriber::set_default(Registry::default().with(watcher.clone()));
    let dir = tempfile::tempdir().unwrap();
    let (server, address) = node(dir.path()).await;
    let channel = channel_with_target(&address).await;
    watch_anew();

    let mut request = Request::new(ask("job"));
    let metadata = request.metadata_mut();
    metadata.insert("traceparent", TRACEPARENT.parse().unwrap());
    let answer = AdmissionServiceClient::new(channel)
        .admit(request)
        .await
        .unwrap();
    let grant = admitted(answer.get_ref()).grant.unwrap();

    is_whole(&watcher, "admit");
    let road = watcher.road("admit");
    let field = |span: usize, name: &str| road[span].0.fields[name].clone();
    assert_eq!(field(0, "target"), TARGET);
    assert_eq!(field(0, "trace_id"), TRACEPARENT[3..35]);
    assert_eq!(field(0, "shard"), ShardId(0).0.to_string());
    assert_eq!(field(2, "shard"), ShardId(0).0.to_string());
    assert_eq!(field(2, "operations"), "1");
    assert_eq!(field(3, "index"), grant.index.to_string());
    drop(server);
}

#[tokio::test]
async fn every_kind_of_call_ends_with_its_answer() {
    let watcher = Watcher::default();
    let _second = second_watcher();
    let _guard = subscriber::set_default(Registry::default().with(watcher.clone()));
    let dir = tempfile::tempdir().unwrap();
    let (server, address) = node(dir.path()).await;
    let mut client = AdmissionServiceClient::new(channel_with_target(&address).await);

    let answer = client.admit(ask("job")).await.unwrap();
    let grant = admitted(answer.get_ref()).grant.unwrap();
    let extend = wire::ExtendRequest {
        target: TARGET.into(),
        grant: Some(grant),
    };
    client.extend(extend).await.unwrap();
    client.release(release(grant)).await.unwrap();
    let cancel = wire::CancelRequest {
        target: TARGET.into(),
        tenant: "acme".into(),
        admission_id: "job".into(),
        attempt: 1,
        ask: 1,
    };
    client.cancel(cancel).await.unwrap();
    let ungated = wire::UngatedCall {
        target: TARGET.into(),
        tenant: "acme".into(),
        priority: "high".into(),
        admission_id: "other".into(),
        attempt: 1,
        ..wire::UngatedCall::default()
    };
    let calls = vec![ungated];
    client.report(wire::ReportRequest { calls }).await.unwrap();
    for rpc in ["extend", "release", "cancel", "report"] {
        is_whole(&watcher, rpc);
    }
    drop(server);
}
