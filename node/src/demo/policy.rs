//! The policy under which the cluster shares the mock provider.

use super::provider::ProviderConfig;
use super::window::Dimension;
use super::workload::Workload;
use std::time::Duration;
use weir_client::wire;

/// The provider as the cluster knows it.
pub const TARGET: &str = "mock/chat";

/// Shortest and longest ask-to-answer time after which a grant is used; in between a fortieth of the
/// window. The whole demo (provider, fleet and three nodes) shares one machine that may be busy with other
/// things; the default of 17 ms for a 10 s window is for workers that have their processors to themselves.
/// After the longest time the client asks again anyway.
const REPLY_WINDOW_MIN: Duration = Duration::from_millis(100);
/// See [`REPLY_WINDOW_MIN`].
const REPLY_WINDOW_MAX: Duration = Duration::from_millis(250);
/// Spread of the time from a worker's send to the provider's count, wide for the same reason. Both
/// together lengthen the period by 0.35 s: 3.4 % of the cap of a 10 s window.
const SEND_SPREAD: Duration = Duration::from_millis(100);

/// Both limits of the provider and the priorities of the load.
///
/// A sliding limit keeps the cap in every window of any alignment, so it is right for a provider with
/// fixed windows too, whose phase nobody knows. The provider is new, so its counters are known to be
/// empty; for one that is in use already `initial_use` stays unset.
pub fn policy(workload: &Workload, provider: &ProviderConfig) -> wire::Policy {
    let limit = |dimension: Dimension, cap| wire::Limit {
        name: dimension.name().into(),
        dimension: dimension.name().into(),
        cap,
        per_us: micros(provider.window),
        kind: wire::LimitKind::Sliding.into(),
        enforced_by: wire::EnforcedBy::Provider.into(),
        initial_use: wire::InitialUse::Empty.into(),
        ..Default::default()
    };
    let rejected_counts = if provider.rejected_counts {
        wire::RejectedCounts::Yes
    } else {
        wire::RejectedCounts::No
    };
    let reply_window = (provider.window / 40).clamp(REPLY_WINDOW_MIN, REPLY_WINDOW_MAX);
    let classes = workload.classes.iter();
    wire::Policy {
        limits: vec![
            limit(Dimension::Requests, provider.cap_requests),
            limit(Dimension::Tokens, provider.cap_tokens),
        ],
        priorities: classes
            .map(|class| wire::Priority {
                name: class.name.into(),
                weight: class.weight,
            })
            .collect(),
        reply_window_us: Some(micros(reply_window)),
        send_spread_us: Some(micros(SEND_SPREAD)),
        rejected_counts: rejected_counts.into(),
        ..Default::default()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
