//! Every bound of the demo, with its unit and its reason.

use std::time::Duration;

/// Arrivals that one window of the mock provider remembers. A fleet of 48 slots sends a few hundred calls
/// a second; beyond the bound the provider refuses to serve and says so.
pub const ARRIVALS_PER_WINDOW_MAX: usize = 1 << 20;
/// Pairs of tenant and priority that the provider keeps books on; later ones share the last book.
pub const BOOKS_MAX: usize = 64;
/// Seconds that the provider keeps books on, an hour; later ones are added to the last second.
pub const BOOK_SECONDS_MAX: usize = 3_600;
/// Bytes of one request to the provider: the demo's prompts are a few hundred bytes.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a tenant or priority in a request; longer ones are cut.
pub const LABEL_BYTES_MAX: usize = 128;
/// Longest HTTP call. The mock answers within 150 ms; a stalled machine may take longer.
pub const HTTP_TIMEOUT: Duration = Duration::from_secs(10);

/// Shortest run of one fleet, in seconds: below it nothing is left after the warm-up.
pub const SECONDS_MIN: u64 = 6;
/// Longest run of one fleet, in seconds: less than the provider's books hold.
pub const SECONDS_MAX: u64 = 3_000;
/// Shortest window of the provider: the shortest period of a policy's limit.
pub const WINDOW_MIN: Duration = Duration::from_micros(weir_admission::limits::PERIOD_MIN);
/// Longest window of the provider: a run should hold some.
pub const WINDOW_MAX: Duration = Duration::from_secs(600);
/// How often progress is told.
pub const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// A call that failed for another reason than a 429 is run again after this.
pub const RETRY_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Longest wait for calls in flight when a fleet stops; a call takes at most 150 ms.
pub const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Longest wait for a new cluster's leaders, and again for it to take the policy.
pub const CLUSTER_START_MAX: Duration = Duration::from_secs(30);
/// A policy that was not taken is put again after this.
pub const POLICY_RETRY: Duration = Duration::from_millis(200);
/// A time without answers belongs to the failover if it begins within this after the kill. A new leader
/// is elected in about a second.
pub const FAILOVER_WITHIN: Duration = Duration::from_secs(10);

const _: () = assert!((SECONDS_MAX as usize) < BOOK_SECONDS_MAX);
