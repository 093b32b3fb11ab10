//! Spans along the road of a request: `receive`, in it `batch` (the wait for an entry) and `answer`; and for
//! each entry `propose` and `apply`, in the span of the submission that has waited longest. An entry follows
//! from the others that it carries.
//!
//! They are of level DEBUG and this module's target: without `weir_node::road=debug` in `log.filter` they cost
//! a look at a flag.

use crate::traceparent::TraceParent;
use tracing::{Span, debug_span, field};
use weir_admission::{ShardId, TargetName};

/// A call of its own came in. What it is about is told once it is read, see [`about`].
pub(crate) fn call(rpc: &'static str, parent: Option<TraceParent>) -> Span {
    let span = debug_span!(
        "receive",
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
        "receive",
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

/// An entry is handed to the log. `carried` are the spans of what it carries, the first of them that which
/// has waited longest.
pub(crate) fn propose(carried: &[Span], shard: Option<ShardId>, operations: usize) -> Span {
    let Some(first) = carried.first() else {
        return Span::none();
    };
    let span = debug_span!(
        parent: first,
        "propose",
        shard = shard.map(|shard| shard.0),
        operations,
        submissions = carried.len(),
    );
    for other in carried.iter().skip(1) {
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

fn adopt(span: &Span, parent: Option<TraceParent>) {
    let Some(parent) = parent.filter(|_| !span.is_disabled()) else {
        return;
    };
    span.record(
        "trace_id",
        field::display(format_args!("{:032x}", parent.trace_id)),
    );
}
