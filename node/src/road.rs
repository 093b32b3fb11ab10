//! Spans along the road of a request: `receive`, in it `batch` (the wait for an entry) and `answer`; and for
//! each entry `propose` and `apply`, in the span of the submission that has waited longest, of those whose
//! trace is exported if there are any. An entry follows from the others that it carries.
//!
//! They are of level DEBUG and this module's target: without `weir_node::road=debug` in `log.filter`, and
//! without a collector, they cost a look at a flag.

use crate::traceparent::TraceParent;
use opentelemetry::trace::TraceContextExt;
use tracing::{Span, debug_span, field};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use weir_admission::{ShardId, TargetName};

/// What these spans are filtered by.
pub(crate) const TARGET: &str = module_path!();
/// The name of the span of a call, or of a frame.
pub(crate) const RECEIVE: &str = "receive";

/// A call of its own came in. What it is about is told once it is read, see [`about`].
pub(crate) fn call(rpc: &'static str, parent: Option<TraceParent>) -> Span {
    let span = debug_span!(
        RECEIVE,
        rpc,
        operations = 1,
        target = field::Empty,
        shard = field::Empty,
        trace_id = field::Empty,
    );
    adopt(&span, parent);
    span
}

/// A frame of a session came in.
pub(crate) fn frame(last_sequence: u64, operations: usize, parent: Option<TraceParent>) -> Span {
    let span = debug_span!(
        RECEIVE,
        rpc = "session",
        last_sequence,
        operations,
        trace_id = field::Empty,
    );
    adopt(&span, parent);
    span
}

/// What the call of this span is about.
pub(crate) fn about(target: &TargetName, shard: ShardId) {
    let span = Span::current();
    if !span.is_disabled() {
        span.record("target", target.as_str());
        span.record("shard", shard.0);
    }
}

/// Operations wait for an entry.
pub(crate) fn batch(operations: usize) -> Span {
    debug_span!("batch", operations)
}

/// An entry is handed to the log. `carried` are the spans of what it carries, from that which has waited
/// longest.
pub(crate) fn propose(carried: &[Span], shard: Option<ShardId>, operations: usize) -> Span {
    let exported = carried.iter().find(|span| is_exported(span));
    let Some(first) = exported.or(carried.first()) else {
        return Span::none();
    };
    let span = debug_span!(
        parent: first,
        "propose",
        shard = shard.map(|shard| shard.0),
        operations,
        submissions = carried.len(),
    );
    for other in carried.iter().filter(|other| *other != first) {
        span.follows_from(other);
    }
    span
}

/// The log took an entry: it is being written, committed and applied.
pub(crate) fn apply(propose: &Span) -> Span {
    if propose.is_disabled() {
        return Span::none();
    }
    debug_span!(parent: propose, "apply", index = field::Empty)
}

/// Outcomes become answers.
pub(crate) fn answer(receive: &Span) -> Span {
    if receive.is_disabled() {
        return Span::none();
    }
    debug_span!(parent: receive, "answer")
}

fn is_exported(span: &Span) -> bool {
    span.context().span().span_context().is_sampled()
}

fn adopt(span: &Span, parent: Option<TraceParent>) {
    let Some(parent) = parent.filter(|_| !span.is_disabled()) else {
        return;
    };
    span.record(
        "trace_id",
        field::display(format_args!("{:032x}", parent.trace_id)),
    );
    // Refused if nothing is exported: then nothing is lost.
    let _ = span.set_parent(parent.context());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace;
    use opentelemetry::Context;
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SdkTracerProvider, Span as Started, SpanData, SpanProcessor};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use tracing::subscriber::with_default;
    use tracing_subscriber::layer::SubscriberExt;

    /// Keeps the spans that would be exported.
    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl SpanProcessor for Kept {
        fn on_start(&self, _: &mut Started, _: &Context) {}

        fn on_end(&self, span: SpanData) {
            self.0.lock().unwrap().push(span);
        }

        fn force_flush(&self) -> OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
            Ok(())
        }
    }

    /// Proposes an entry that carries calls of traces 1, 2, ... whose callers record them or not. Tells the
    /// trace of `propose` and those that it follows from, if it is exported.
    fn proposed(sampled: &[bool]) -> Option<(u128, Vec<u128>)> {
        let kept = Kept::default();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(kept.clone())
            .build();
        let layer = trace::exported(provider.tracer("test"));
        with_default(tracing_subscriber::registry().with(layer), || {
            let call = |(sampled, trace_id): (&bool, u128)| {
                let parent = TraceParent {
                    trace_id,
                    span_id: 7,
                    sampled: *sampled,
                };
                super::call("admit", Some(parent))
            };
            let carried: Vec<Span> = sampled.iter().zip(1..).map(call).collect();
            drop(apply(&propose(&carried, None, carried.len())));
        });
        let kept = kept.0.lock().unwrap();
        let trace = |span: &SpanData| u128::from_be_bytes(span.span_context.trace_id().to_bytes());
        let propose = kept.iter().find(|span| span.name == "propose")?;
        let apply = kept.iter().find(|span| span.name == "apply").unwrap();
        assert_eq!(trace(propose), trace(apply));
        let links = propose
            .links
            .iter()
            .map(|link| link.span_context.trace_id());
        let links = links.map(|id| u128::from_be_bytes(id.to_bytes()));
        Some((trace(propose), links.collect()))
    }

    #[test]
    fn an_entry_stands_in_the_trace_that_waited_longest_of_those_exported() {
        assert_eq!(proposed(&[true]), Some((1, vec![])));
        assert_eq!(proposed(&[true, true, false]), Some((1, vec![2, 3])));
        assert_eq!(
            proposed(&[false, false, true, true]),
            Some((3, vec![1, 2, 4]))
        );
        assert_eq!(proposed(&[false, false]), None);
        assert_eq!(proposed(&[]), None);
    }
}
