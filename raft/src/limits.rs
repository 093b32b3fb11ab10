//! Every bound of this crate, with its unit and its reason.

use std::time::Duration;
use weir_proto::limits::STORED_BATCH_BYTES_MAX;

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

/// Snapshots kept of each group: the newest, and the one before it in case the newest is damaged.
pub const SNAPSHOTS_KEPT: usize = 2;

/// Bytes of a snapshot's state. A million waiting tickets are about 320 MB.
pub const SNAPSHOT_BYTES: u64 = 1024 * MIB as u64;

/// Bytes read at once when a snapshot is checked after it was written.
pub const SNAPSHOT_READ_BYTES: usize = MIB;

/// Bytes of the file that says whose a data directory is. Its five lines take about 120.
pub const IDENTITY_BYTES: u64 = 4096;

/// Bytes of the file that says which peers were met: a line of some 30 for each of a few.
pub const MET_BYTES: u64 = 4096;

/// How often a peer that was not met yet is asked for a word ...
pub const MEET_EVERY: Duration = Duration::from_millis(500);
/// ... and how long it may take to answer.
pub const MEET_WITHIN: Duration = Duration::from_secs(1);

/// Entries of one group that may be proposed and not applied yet. The batcher keeps 4 in flight; this
/// only stops a caller that does not, and keeps the log's tail far longer than what may wait to be
/// applied.
pub const IN_FLIGHT_ENTRIES: usize = 64;
/// Bytes of such entries. One of the largest batches always fits.
pub const IN_FLIGHT_BYTES: usize = 16 * MIB;

/// Entries after which a group takes a snapshot: at 1 000 entries/s every 10 s, replayed in about one.
pub const SNAPSHOT_ENTRIES: u64 = 10_000;
/// Bytes of batches of all groups after which snapshots are taken; each group has its share.
pub const SNAPSHOT_ALL_BYTES: u64 = 256 * MIB as u64;
/// Smallest share of one group: a snapshot costs two syncs and an encode.
pub const SNAPSHOT_GROUP_BYTES_MIN: u64 = MIB as u64;
/// Largest share of one group: about what is replayed in a second. A state whose last snapshot was larger is
/// saved after as many bytes as that had.
pub const SNAPSHOT_GROUP_BYTES_MAX: u64 = 32 * MIB as u64;
/// Entries kept behind a snapshot, so that a peer that was away for a moment needs no snapshot, and so
/// that purging stays far behind applying.
pub const TAIL_ENTRIES: u64 = 2_000;
/// Entries kept behind a snapshot even when the log has grown too long in bytes.
pub const TAIL_ENTRIES_MIN: u64 = 256;
/// Log bytes of one group, in multiples of those after which a snapshot is due, above which the tail is cut to
/// [`TAIL_ENTRIES_MIN`] and a peer that lags behind that is given a snapshot instead of the log.
pub const LOG_BYTES_SHARES_MAX: u64 = 4;
/// Entries that are purged at once, so that purging is rare.
pub const PURGE_ENTRIES: u64 = 256;
/// Entries that a peer gets in one message.
pub const APPEND_ENTRIES: u64 = 64;

/// Bytes of a message between peers: what the log hands out at once, and one of the largest batches.
pub const PEER_MESSAGE_BYTES: usize = 8 * MIB;
/// Bytes of one piece of a snapshot on its way to a peer.
pub const PEER_CHUNK_BYTES: usize = MIB;
/// Bytes of one stream between peers that may be under way and not yet taken: a few full batches.
pub const PEER_STREAM_WINDOW_BYTES: u32 = MIB as u32;
/// The same for a connection: so many that all groups' streams can be full and none starves.
pub const PEER_CONNECTION_WINDOW_BYTES: u32 = 256 * MIB as u32;
/// Streams of one connection: replication, heartbeats, votes and a snapshot of each of 256 groups.
pub const PEER_STREAMS: u32 = 1024;
/// Streams of one connection that may be given up before they were looked at; more end the connection. All groups
/// give up votes at one moment when a peer is slow, and must not lose their connection for it.
pub const PEER_RESETS: usize = PEER_STREAMS as usize;
/// Snapshots that a node receives at once; each may take [`SNAPSHOT_BYTES`] of memory.
pub const PEER_SNAPSHOTS_AT_ONCE: usize = 2;
/// Leases for which a peer may owe the answer to an append before its session is given up. A disk that
/// stalls for longer than this only costs sending the same entries again.
pub const ANSWER_LEASES: u32 = 4;
/// Leases of silence after which a leader is no longer told of: it, or the way to it, is gone.
pub const SILENCE_LEASES: u32 = 2;
/// Time to connect to a peer.
pub const PEER_CONNECT_WITHIN: Duration = Duration::from_millis(500);
/// How often a connection is probed ...
pub const PEER_KEEP_ALIVE_EVERY: Duration = Duration::from_millis(500);
/// ... and how long the answer may take. A peer that is starved for this long is as good as gone.
pub const PEER_KEEP_ALIVE_WITHIN: Duration = Duration::from_millis(1500);
/// A peer that was not reached is tried again after this.
pub const PEER_RETRY_AFTER: Duration = Duration::from_millis(100);
/// Time to send a snapshot and have it installed.
pub const PEER_SNAPSHOT_WITHIN: Duration = Duration::from_secs(120);
/// Time between two pieces of a snapshot.
pub const PEER_CHUNK_WITHIN: Duration = Duration::from_secs(5);

/// How often a group looks whether its log should be cut or its leader moved.
pub const KEEP_EVERY: Duration = Duration::from_secs(1);
/// Looks in a row at which the preferred leader must be ready before it is given the lead.
pub const READY_LOOKS: u32 = 3;
/// Looks before a move that did not work is tried again, at first; it doubles each time ...
pub const MOVE_AGAIN_LOOKS: u32 = 4;
/// ... up to this many.
pub const MOVE_AGAIN_LOOKS_MAX: u32 = 64;
/// Looks during which a lead that was handed over on purpose stays, unless the preferred leader goes
/// away in between.
pub const PLACED_LOOKS: u32 = 600;
/// Entries by which a peer may be behind and still be given the lead: what is under way at full load.
pub const READY_LAG_ENTRIES: u64 = 2 * IN_FLIGHT_ENTRIES as u64;

/// Shards of a cluster.
pub const SHARDS_MAX: u32 = 256;
/// Nodes of a cluster with static members.
pub const MEMBERS_MAX: usize = 7;
/// Bytes of a cluster's name.
pub const CLUSTER_NAME_BYTES: usize = 128;

const _: () = assert!(LOG_WRITE_BYTES <= LOG_QUEUE_BYTES);
const _: () = assert!(LOG_FILE_BYTES * 2 <= LOG_FILES_BYTES);
const _: () = assert!(LOG_READ_BYTES <= LOG_WRITE_BYTES);
// Permits of the queue's semaphore are counted in u32.
const _: () = assert!(LOG_QUEUE_BYTES <= u32::MAX as usize);
const _: () = assert!(TAIL_ENTRIES_MIN >= 4 * IN_FLIGHT_ENTRIES as u64);
const _: () = assert!(TAIL_ENTRIES >= TAIL_ENTRIES_MIN && TAIL_ENTRIES < SNAPSHOT_ENTRIES);
const _: () = assert!(
    2 * SHARDS_MAX as u64 * PEER_STREAM_WINDOW_BYTES as u64 / 2
        <= PEER_CONNECTION_WINDOW_BYTES as u64
);
const _: () = assert!(PEER_STREAMS >= 4 * SHARDS_MAX);
const _: () = assert!(PEER_CHUNK_BYTES < PEER_MESSAGE_BYTES);
// What the log hands out at once, where the last entry may be one of the largest.
const _: () = assert!(LOG_READ_BYTES + 2 * STORED_BATCH_BYTES_MAX <= PEER_MESSAGE_BYTES);
const _: () = assert!(STORED_BATCH_BYTES_MAX <= IN_FLIGHT_BYTES);
