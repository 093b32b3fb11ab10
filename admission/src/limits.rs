//! Every bound of the rules, with its unit and its reason, and the relations between them.

use crate::Micros;

const SECOND: Micros = 1_000_000;

/// Bytes of a name: long enough for a model path or a UUID with a prefix, short enough to copy.
pub const NAME_BYTES_MAX: usize = 128;
/// Bytes of a caller's admission id.
pub const ADMISSION_ID_BYTES_MAX: usize = 128;
/// Dimensions of a policy and of a cost. Providers count requests, tokens in, tokens out, images, money.
pub const DIMENSIONS_MAX: usize = 8;
/// Limits of a policy: four periods for each of eight dimensions.
pub const LIMITS_MAX: usize = 32;
/// Priorities of a policy. The order is searched class by class.
pub const PRIORITIES_MAX: usize = 8;
/// Tenants whose weight a policy names.
pub const TENANT_WEIGHTS_MAX: usize = 10_000;
/// Labels of an ask.
pub const LABELS_MAX: usize = 8;
/// Units of a cap or a cost. Sums over all waiting tickets stay below 2^63.
pub const UNITS_MAX: u64 = 1 << 46;
/// Weight of a priority or tenant.
pub const WEIGHT_MAX: u32 = 10_000;
/// Weight of a tenant that the policy does not name, if it says nothing.
pub const TENANT_WEIGHT_DEFAULT: u32 = 100;
/// Shortest period of a limit: below it the reply window would eat the cap.
pub const PERIOD_MIN: Micros = SECOND;
/// Longest period of a limit: a month.
pub const PERIOD_MAX: Micros = 31 * 86_400 * SECOND;
/// Longest reply window or send spread.
pub const WINDOW_KNOB_MAX: Micros = 10 * SECOND;
/// Shortest and longest commit horizon.
pub const HORIZON_MIN: Micros = 1_000;
/// See [`HORIZON_MIN`].
pub const HORIZON_MAX: Micros = SECOND;
/// Commit horizon if the policy says nothing: a slot this near is granted with `start_in`.
pub const HORIZON_DEFAULT: Micros = 30_000;
/// Standard deviations of estimated cost held back, in thousandths, at most and by default.
pub const SIGMAS_MILLI_MAX: u32 = 10_000;
/// See [`SIGMAS_MILLI_MAX`]. Measured: 0 gives 0.6 % 429s, 1250 suffices for fixed windows.
pub const SIGMAS_MILLI_DEFAULT: u32 = 2_500;
/// Longest deadline, retry-after or age a caller may name.
pub const CALLER_DURATION_MAX: Micros = PERIOD_MAX;

/// Targets of one shard.
pub const TARGETS_MAX: usize = 10_000;
/// Policies of one target that are remembered after another took their place.
pub const FORMER_POLICIES_MAX: usize = 15;
/// Tenants that the remembered policies of one target may name together: what makes a policy large.
pub const FORMER_TENANT_WEIGHTS_MAX: usize = 2 * TENANT_WEIGHTS_MAX;
/// Tickets of one target.
pub const TICKETS_PER_TARGET_MAX: u64 = 100_000;
/// Tickets of one tenant at one target.
pub const TICKETS_PER_TENANT_MAX: u32 = 10_000;
/// Admission ids remembered at one target. Beyond it the oldest without a waiting place are forgotten
/// as spent.
pub const IDS_PER_TARGET_MAX: usize = 400_000;
/// Idle tenants remembered at one target for their share and learned estimates.
pub const IDLE_TENANTS_MAX: usize = 100_000;
/// Older attempts of one admission that are recognised as stragglers.
pub const CLOSED_ATTEMPTS_MAX: usize = 8;
/// Operations of one batch.
pub const BATCH_OPERATIONS_MAX: usize = 512;
/// Operations whose records are read before the first of them is applied: enough for the reads to overlap,
/// and few enough for what was read, about a KiB for each, to be near still when it is wanted.
pub(crate) const LOOK_AHEAD_MAX: usize = 64;
/// Tickets whose state one operation may change because their time passed; keeps an operation short.
pub const SWEEP_PER_OPERATION_MAX: usize = 64;

/// Starts at which a pacer remembers how much its credit lacked. Fewer would give back less cap time after
/// a call that cost less than thought; each takes 24 bytes per limit.
pub const PACER_MARKS_MAX: usize = 64;

/// Clients retry one attempt for at most this long.
pub const CLIENT_RETRY_MAX: Micros = 10 * SECOND;
/// A settled admission is remembered this long.
pub const RELEASED_MEMORY: Micros = 15 * SECOND;
/// An unreleased grant is remembered at least this long.
pub const UNRELEASED_MEMORY_MIN: Micros = 600 * SECOND;
/// A ticket whose caller is this late, in horizons, blocks nobody.
pub const LAPSE_HORIZONS: u64 = 4;
/// Burst while others wait, in horizons.
pub const BUSY_BURST_HORIZONS: u64 = 4;
/// A lapsed ticket keeps its place at least this long.
pub const EXPIRE_MIN: Micros = 10 * SECOND;
/// An idle tenant's share and learned estimates are remembered at least this long, at most twice.
pub const TENANT_MEMORY: Micros = 600 * SECOND;
/// Longest claim lateness that counts in its average.
pub const LATENESS_MAX: Micros = 200_000;
/// Average claim lateness before anything was measured.
pub const LATENESS_START: Micros = 35_000;
/// A higher priority that asked within this, or within the longest period, is given headroom.
pub const HEADROOM_MEMORY_MIN: Micros = 10 * SECOND;
/// Automatic headroom costs at most this part of a cap.
pub const HEADROOM_AUTO_PART: u64 = 200;
/// Longest `retry_in`.
pub const RETRY_IN_MAX: Micros = 60 * SECOND;
/// A caller that is told of its turn comes back by itself after twice the expected wait and this much
/// more, in case it was not told.
pub const WAKE_PATIENCE: Micros = SECOND;
/// A slot this far beyond the horizon is worth telling of; a nearer one is waited for by the clock.
pub const WAKE_WORTH: Micros = 20_000;
/// Tickets looked at beyond one whose turn is not near yet: a smaller call may fit before a larger one.
pub const NEAR_SKIPS_MAX: usize = 8;
/// Shortest `retry_in`.
pub const RETRY_IN_MIN: Micros = 1_000;
/// Credit of a priority that comes back from idling, in nanoseconds of cap time.
pub const PRIORITY_CREDIT_NS: i128 = 200_000_000;
/// Credit of a tenant that comes back from idling, in nanoseconds of cap time.
pub const TENANT_CREDIT_NS: i128 = 100_000_000;

const _: () = assert!(
    RELEASED_MEMORY > CLIENT_RETRY_MAX,
    "a retry must meet the memory of its first try"
);
const _: () = assert!(
    FORMER_TENANT_WEIGHTS_MAX >= TENANT_WEIGHTS_MAX,
    "the policy that was just replaced is remembered, however large"
);
const _: () = assert!(UNRELEASED_MEMORY_MIN > RELEASED_MEMORY);
const _: () = assert!((TICKETS_PER_TARGET_MAX as u128) * (UNITS_MAX as u128) < (1 << 63));
const _: () = assert!(IDS_PER_TARGET_MAX as u64 > TICKETS_PER_TARGET_MAX);
const _: () = assert!(HORIZON_MIN <= HORIZON_DEFAULT && HORIZON_DEFAULT <= HORIZON_MAX);
