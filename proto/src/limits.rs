//! Every bound of the wire and of stored bytes, with its unit and its reason.

use weir_admission::limits::{
    BATCH_OPERATIONS_MAX, LIMITS_MAX, NAME_BYTES_MAX, PRIORITIES_MAX, TENANT_WEIGHTS_MAX,
};

/// Calls of one report. One report becomes one batch, with room left for others.
pub const REPORT_CALLS_MAX: usize = 256;
/// Operations of one frame of a session: half a log entry, so that the frames of two clients share one.
pub const FRAME_OPERATIONS_MAX: usize = 256;
/// Bytes of one frame of a session: a full one of ordinary operations, as in a log entry.
pub const FRAME_BYTES_MAX: usize = 256 * 1024;
/// Features that one side of a session names in its hello.
pub const FEATURES_MAX: usize = 32;
/// Field violations told in one answer. They travel in the trailers, which receivers commonly bound at
/// 8 or 16 KiB; a caller with more mistakes than this reads the first ones and how many there are.
pub const VIOLATIONS_MAX: usize = 16;
/// Bytes of the field path and of the rule of one violation, so that [`VIOLATIONS_MAX`] of them fit.
pub const VIOLATION_TEXT_BYTES_MAX: usize = 192;
/// Bytes of a label's value: a model or region name.
pub const LABEL_VALUE_BYTES_MAX: usize = NAME_BYTES_MAX;
/// Steps of one read of the history of use: a day of minutes.
pub const HISTORY_STEPS_MAX: u64 = 1440;
/// Points of one answer to such a read, in all steps together: a few megabytes.
pub const HISTORY_POINTS_MAX: usize = 20_000;

/// Bytes of a stored batch: a full batch of ordinary operations (256 KiB) and one policy with every
/// tenant named.
pub const STORED_BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes of any other stored value or message between nodes: several batches.
pub const STORED_VALUE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes that the decoder may set aside for one value. Integers are stored in as little as one byte and
/// take eight in memory.
pub(crate) const DECODER_BYTES_MAX: usize = 8 * STORED_VALUE_BYTES_MAX;

/// Bytes that a policy can take when stored: names with their length, and numbers at their widest.
const POLICY_BYTES_MAX: usize = LIMITS_MAX * (2 * (NAME_BYTES_MAX + 1) + 6 * 9)
    + PRIORITIES_MAX * (NAME_BYTES_MAX + 1 + 5)
    + TENANT_WEIGHTS_MAX * (NAME_BYTES_MAX + 1 + 5)
    + 128;

const _: () = assert!(POLICY_BYTES_MAX + 256 * 1024 < STORED_BATCH_BYTES_MAX);
const _: () = assert!(STORED_BATCH_BYTES_MAX < STORED_VALUE_BYTES_MAX);
const _: () = assert!(REPORT_CALLS_MAX < BATCH_OPERATIONS_MAX);
const _: () = assert!(FRAME_OPERATIONS_MAX <= BATCH_OPERATIONS_MAX);
