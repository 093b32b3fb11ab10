//! Every bound of this crate, with its unit and its reason.

/// Bytes in a mebibyte.
const MIB: usize = 1024 * 1024;

/// Commands (appends, votes, purges) of all groups that may wait for the log writer. 64 groups with
/// four entries in flight fill a quarter of it.
pub const LOG_QUEUE_COMMANDS: usize = 1024;

/// Bytes of entries of all groups that may wait for the log writer. What waits cannot be dropped from
/// memory, so this is added to the cache's bound.
pub const LOG_QUEUE_BYTES: usize = 32 * MIB;

/// Bytes of entries after which the writer stops gathering and syncs: about what a slow disk writes
/// in 40 ms, so that a full queue does not turn into one long wait.
pub const LOG_WRITE_BYTES: usize = 4 * MIB;

/// Bytes of log tails kept in memory for readers, all groups together. Peers that keep up and the
/// state machine read from here and not from the disk.
pub const LOG_CACHE_BYTES: usize = 64 * MIB;

/// Bytes of one log file. A file is deleted or reused as a whole, so small files give space back
/// early; each rotation costs two syncs.
pub const LOG_FILE_BYTES: u64 = 16 * MIB as u64;

/// Bytes of log files above which old ones are reused. Groups bound their own live bytes
/// (`LogStore::bytes`); this bounds what is kept beyond them.
pub const LOG_FILES_BYTES: u64 = 64 * MIB as u64;

/// Milliseconds between two looks for log files that nobody needs.
pub const LOG_PURGE_EVERY_MS: u64 = 1000;

/// Bytes of entries handed to a reader at once (at least one entry): bounds the memory that a lagging
/// peer takes.
pub const LOG_READ_BYTES: usize = MIB;

/// Times a read is tried again because the log was cut or purged below it. Both are rare, so a reader
/// that meets this many in a row has found an error of ours.
pub const LOG_READ_ATTEMPTS: usize = 16;

/// Bytes of a vote, log position or membership in stored form. The largest, a membership of seven
/// nodes with long addresses, is under 4 KiB.
pub const STORED_META_BYTES: usize = 64 * 1024;

const _: () = assert!(LOG_WRITE_BYTES <= LOG_QUEUE_BYTES);
const _: () = assert!(LOG_FILE_BYTES * 2 <= LOG_FILES_BYTES);
const _: () = assert!(LOG_READ_BYTES <= LOG_WRITE_BYTES);
// Permits of the queue's semaphore are counted in u32.
const _: () = assert!(LOG_QUEUE_BYTES <= u32::MAX as usize);
