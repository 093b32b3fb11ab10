//! Where a caller's trace goes on: the W3C trace context of a call.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tonic::metadata::MetadataMap;

/// The metadata key.
const TRACEPARENT: &str = "traceparent";

/// The span of a caller that a call belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace. Not 0.
    pub trace_id: u128,
    /// The caller's span. Not 0.
    pub span_id: u64,
    /// True if the caller records the trace.
    pub sampled: bool,
}

impl TraceParent {
    /// What a call says; `None` if it says nothing or nothing of use, which is no error: tracing must not
    /// refuse a call.
    pub fn of(metadata: &MetadataMap) -> Option<TraceParent> {
        TraceParent::parse(metadata.get(TRACEPARENT)?.to_str().ok()?)
    }

    /// What spans of this call have as their parent when they are exported.
    pub(crate) fn context(self) -> Context {
        let flags = TraceFlags::default().with_sampled(self.sampled);
        Context::new().with_remote_span_context(SpanContext::new(
            TraceId::from(self.trace_id),
            SpanId::from(self.span_id),
            flags,
            true,
            TraceState::NONE,
        ))
    }

    /// Reads `version-trace id-span id-flags`, all in lower-case hex. Later versions may have more behind.
    fn parse(text: &str) -> Option<TraceParent> {
        let mut parts = text.splitn(5, '-');
        let mut part = |width: usize| {
            let part = parts.next()?;
            let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            (part.len() == width && part.bytes().all(hex)).then_some(part)
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let parent = TraceParent {
            trace_id: u128::from_str_radix(trace, 16).ok()?,
            span_id: u64::from_str_radix(span, 16).ok()?,
            sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
        };
        (parent.trace_id != 0 && parent.span_id != 0).then_some(parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn the_examples_of_the_standard_are_read() {
        let expected = TraceParent {
            trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            span_id: 0x00f0_67aa_0ba9_02b7,
            sampled: true,
        };
        for (text, sampled) in [
            (format!("00-{TRACE}-00f067aa0ba902b7-01"), true),
            (format!("00-{TRACE}-00f067aa0ba902b7-00"), false),
            (format!("cc-{TRACE}-00f067aa0ba902b7-03-what-comes"), true),
        ] {
            let expected = TraceParent {
                sampled,
                ..expected
            };
            assert_eq!(TraceParent::parse(&text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_of_use_is_left_out() {
        for text in [
            String::new(),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-+{}-00f067aa0ba902b7-01", &TRACE[1..]),
        ] {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_left_out(text: String) {
            let _ = TraceParent::parse(&text);
        }
    }
}
