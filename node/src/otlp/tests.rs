use super::send::Sender;
use super::*;
use crate::limits::{OTLP_BATCH_MAX, OTLP_INTERVAL, OTLP_PAUSE};
use opentelemetry::trace::{Tracer, TracerProvider};
use opentelemetry_sdk::error::OTelSdkError;
use proptest::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// What a collector does with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Takes,
    Refuses,
    Hangs,
}

/// A collector that changes its manner as it is told.
#[derive(Clone, Debug)]
struct Collector(Arc<Mutex<(Manner, Vec<Vec<SpanData>>)>>);

impl Collector {
    fn that(manner: Manner) -> Collector {
        Collector(Arc::new(Mutex::new((manner, Vec::new()))))
    }

    fn lock(&self) -> MutexGuard<'_, (Manner, Vec<Vec<SpanData>>)> {
        self.0.lock().unwrap()
    }

    /// Sizes of the batches that it took.
    fn taken(&self) -> Vec<usize> {
        self.lock().1.iter().map(Vec::len).collect()
    }
}

impl opentelemetry_sdk::trace::SpanExporter for Collector {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let manner = self.lock().0;
        match manner {
            Manner::Takes => {
                self.lock().1.push(batch);
                Ok(())
            }
            Manner::Refuses => Err(OTelSdkError::InternalFailure("refused".into())),
            Manner::Hangs => std::future::pending().await,
        }
    }
}

/// Both ends of a queue, and what is between them.
struct Fixture {
    provider: SdkTracerProvider,
    metrics: SpanMetrics,
    closing: CancellationToken,
    collector: Collector,
    sender: Option<Sender<Collector>>,
}

impl Fixture {
    fn new(manner: Manner) -> Fixture {
        let metrics = SpanMetrics::default();
        let (queue, spans) = queue(OTLP_QUEUE_MAX, metrics.clone());
        let closing = CancellationToken::new();
        let collector = Collector::that(manner);
        let sender = Sender::new(spans, collector.clone(), metrics.clone(), closing.clone());
        Fixture {
            provider: SdkTracerProvider::builder()
                .with_span_processor(queue)
                .build(),
            metrics,
            closing,
            collector,
            sender: Some(sender),
        }
    }

    fn end(&self, spans: usize) {
        let tracer = self.provider.tracer("test");
        for _ in 0..spans {
            drop(tracer.start("span"));
        }
    }

    /// Begins to send.
    fn run(&mut self) -> JoinHandle<()> {
        tokio::spawn(self.sender.take().unwrap().run())
    }
}

#[tokio::test(start_paused = true)]
async fn spans_go_in_batches_and_the_last_ones_when_it_closes() {
    let mut fixture = Fixture::new(Manner::Takes);
    fixture.end(2 * OTLP_BATCH_MAX + 7);
    fixture.closing.cancel();
    fixture.run().await.unwrap();
    assert_eq!(
        fixture.collector.taken(),
        [OTLP_BATCH_MAX, OTLP_BATCH_MAX, 7]
    );
    assert_eq!(
        fixture.metrics.told(),
        [2 * OTLP_BATCH_MAX as u64 + 7, 0, 0]
    );
    // What ends afterwards is counted too.
    fixture.end(1);
    assert_eq!(fixture.metrics.told()[2], 1);
}

#[tokio::test(start_paused = true)]
async fn a_few_spans_do_not_wait_for_more() {
    let mut fixture = Fixture::new(Manner::Takes);
    let running = fixture.run();
    fixture.end(3);
    sleep(OTLP_INTERVAL / 2).await;
    fixture.end(2);
    assert_eq!(fixture.collector.taken(), [0; 0]);
    sleep(OTLP_INTERVAL).await;
    assert_eq!(fixture.collector.taken(), [5]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_never_answers_costs_spans_and_holds_nobody() {
    let mut fixture = Fixture::new(Manner::Hangs);
    let begun = Instant::now();
    fixture.end(OTLP_QUEUE_MAX + 9);
    assert_eq!(fixture.metrics.told(), [0, 0, 9]);
    let running = fixture.run();
    sleep(OTLP_EXPORT_WITHIN / 2).await;
    // One batch is on its way; there is room for as many.
    fixture.end(OTLP_BATCH_MAX + 2);
    assert_eq!(fixture.metrics.told(), [0, 0, 11]);
    sleep(OTLP_EXPORT_WITHIN / 2 + OTLP_PAUSE / 2).await;
    let batch = OTLP_BATCH_MAX as u64;
    assert_eq!(fixture.metrics.told(), [0, batch, 11]);
    // It answers again, and the rest arrives.
    fixture.collector.lock().0 = Manner::Takes;
    fixture.closing.cancel();
    running.await.unwrap();
    let rest = OTLP_QUEUE_MAX as u64;
    assert_eq!(fixture.metrics.told(), [rest, batch, 11]);
    assert!(begun.elapsed() < OTLP_EXPORT_WITHIN + OTLP_PAUSE);
}

#[tokio::test(start_paused = true)]
async fn after_a_refusal_the_next_batch_waits_a_little() {
    let mut fixture = Fixture::new(Manner::Refuses);
    fixture.end(OTLP_BATCH_MAX + 1);
    let running = fixture.run();
    sleep(OTLP_PAUSE / 2).await;
    assert_eq!(fixture.metrics.told(), [0, OTLP_BATCH_MAX as u64, 0]);
    fixture.collector.lock().0 = Manner::Takes;
    sleep(OTLP_PAUSE + OTLP_INTERVAL).await;
    assert_eq!(fixture.metrics.told(), [1, OTLP_BATCH_MAX as u64, 0]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_received_call_is_that_of_a_server() {
    let mut fixture = Fixture::new(Manner::Takes);
    let tracer = fixture.provider.tracer("test");
    drop(tracer.start(RECEIVE));
    drop(tracer.start("batch"));
    fixture.closing.cancel();
    fixture.run().await.unwrap();
    let taken = fixture.collector.lock().1.concat();
    let kinds: Vec<_> = taken.into_iter().map(|span| span.span_kind).collect();
    assert_eq!(kinds, [SpanKind::Server, SpanKind::Internal]);
}

#[derive(Clone, Copy, Debug)]
enum Act {
    End(usize),
    Wait(u64),
    Become(Manner),
}

fn act() -> impl Strategy<Value = Act> {
    let manner = prop::sample::select(vec![Manner::Takes, Manner::Refuses, Manner::Hangs]);
    prop_oneof![
        (0..2 * OTLP_BATCH_MAX).prop_map(Act::End),
        (0..7_000u64).prop_map(Act::Wait),
        manner.prop_map(Act::Become),
    ]
}

/// Ended spans, and what was told of them and taken.
async fn play(acts: &[Act]) -> (u64, [u64; 3], Vec<usize>) {
    let mut fixture = Fixture::new(Manner::Takes);
    let running = fixture.run();
    let mut ended = 0;
    for act in acts {
        match act {
            Act::End(spans) => {
                fixture.end(*spans);
                ended += *spans as u64;
            }
            Act::Wait(ms) => sleep(Duration::from_millis(*ms)).await,
            Act::Become(manner) => fixture.collector.lock().0 = *manner,
        }
    }
    fixture.closing.cancel();
    running.await.unwrap();
    (ended, fixture.metrics.told(), fixture.collector.taken())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_span_is_counted_once(acts in prop::collection::vec(act(), 0..24)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let (ended, told, taken) = runtime.block_on(play(&acts));
        prop_assert_eq!(told.iter().sum::<u64>(), ended);
        prop_assert_eq!(taken.iter().sum::<usize>() as u64, told[0]);
        prop_assert!(taken.iter().all(|batch| (1..=OTLP_BATCH_MAX).contains(batch)));
    }
}
