//! Every bound of a node, with its unit and its reason.

use std::time::Duration;
use weir_admission::limits::{BATCH_OPERATIONS_MAX, DIMENSIONS_MAX};
use weir_proto::limits::FRAME_OPERATIONS_MAX;

/// Operations of one log entry. An entry costs about a hundred times what an operation costs, so
/// entries are few and large.
pub const ENTRY_OPERATIONS_MAX: usize = BATCH_OPERATIONS_MAX;
/// Bytes of one log entry, unless a single submission is larger.
pub const ENTRY_BYTES_MAX: usize = 256 * 1024;
/// Entries of one shard on their way at once. More gave nothing when it was measured.
pub const ENTRIES_IN_FLIGHT_MAX: usize = 4;
/// While an entry is on its way, the next one goes only with this many operations (or full): single
/// operations that follow each other closely share an entry.
pub const ENTRY_OPERATIONS_WORTH: usize = 32;
/// An entry that is on its way for longer than this holds nothing back any more.
pub const ENTRY_PATIENCE: Duration = Duration::from_millis(20);

/// Operations of one submission: one frame of a session.
pub const SUBMISSION_OPERATIONS_MAX: usize = 256;
/// Operations that wait in one shard's queue: an eighth of a second at the rate one leader decides.
pub const QUEUE_OPERATIONS_MAX: usize = 16 * 1024;
/// Bytes that wait in one shard's queue.
pub const QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Part of the queue, in operations, kept for Release, Extend, Cancel and Report: what frees the cap
/// must get through when asks do not.
pub const QUEUE_OPERATIONS_RESERVED: usize = QUEUE_OPERATIONS_MAX / 4;
/// Part of the queue, in bytes, kept for the same.
pub const QUEUE_BYTES_RESERVED: usize = QUEUE_BYTES_MAX / 4;
/// A queue that has held more than this, as many as are in flight at once, for [`QUEUE_CROWDED_AFTER`] takes asks
/// only up to it, until less than an entry waits: the log stays busy with it, and a longer queue would be a
/// longer wait for everybody, for what gives capacity back too. A burst is over sooner and may fill the queue.
pub const QUEUE_CROWDED_OPERATIONS: usize = ENTRIES_IN_FLIGHT_MAX * ENTRY_OPERATIONS_MAX;
/// See [`QUEUE_CROWDED_OPERATIONS`].
pub const QUEUE_CROWDED_AFTER: Duration = Duration::from_millis(100);
/// Longest wait of an ask in the queue; of what gives capacity back only while no entry lands. Then the
/// operation is dropped, and its caller told that nothing happened.
pub const QUEUE_WAIT_MAX: Duration = Duration::from_secs(1);
/// Longest wait for an entry to commit. Then the caller is told that the outcome is unknown.
pub const COMMIT_WAIT_MAX: Duration = Duration::from_secs(2);
/// How often waiting operations are held against their deadlines.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(20);
/// Shortest and longest hint to come back when the queue is full.
pub const RETRY_HINT_MIN: Duration = Duration::from_millis(10);
/// See [`RETRY_HINT_MIN`].
pub const RETRY_HINT_MAX: Duration = Duration::from_secs(1);

/// Bytes of one message of a client, except policies.
pub const CLIENT_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of one message that carries a policy: 10 000 tenant weights with names of 128 bytes.
pub const POLICY_MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Sessions at once; a client has one with each node. Further ones are refused at once.
pub const SESSIONS_MAX: usize = CONNECTIONS_MAX;
/// Asks of one session without an answer: far more than a client needs to fill every entry. Further ones
/// are answered with OVERLOADED at once.
pub const SESSION_ASKS_MAX: usize = 1024;
/// Operations of one session without an answer. What gives capacity back has the room above
/// [`SESSION_ASKS_MAX`]; without room for a whole frame the session is not read.
pub const SESSION_OPERATIONS_MAX: usize = SESSION_ASKS_MAX + 2 * SUBMISSION_OPERATIONS_MAX;
/// All that is done to refuse asks for which there is no room takes at most one part in so many of one
/// processor. What a frame costs before it is looked at comes to as much again. A larger share was measured to
/// leave less for decisions and to serve small sessions worse (benches/RESULTS.md).
pub const REFUSING_SHARE: u32 = 100;
/// Longest time for which a session is not read because its asks found no room: who is refused for the first
/// time, in a frame of the usual size, is not read for a few milliseconds.
pub const CROWDED_PAUSE_MAX: Duration = Duration::from_millis(500);
/// Bytes of answers that wait for the reader of one session. A reader that lets more pile up is cut off.
/// HTTP/2 holds a few hundred kilobytes more.
pub const SESSION_OUTGOING_BYTES_MAX: usize = 512 * 1024;
/// Answers in one frame of a node.
pub const SESSION_ANSWERS_MAX: usize = 512;
/// A session begins with a hello within this.
pub const SESSION_HELLO_WITHIN: Duration = Duration::from_secs(5);
/// A session in which nothing is asked and nobody waits ends after this: a client that still lives opens
/// another one when it needs it.
pub const SESSION_IDLE_MAX: Duration = Duration::from_secs(300);
/// Waiters of one node that are woken when their turn is near: the lines of some full targets. Further
/// ones come back by the clock.
pub const WAKES_MAX: usize = 256 * 1024;
/// How often the rules are asked whose turn is near: a small part of the horizon within which a turn counts
/// as near.
pub const WAKE_INTERVAL: Duration = Duration::from_millis(5);
/// Lines that are looked at each time; with more lines each one's turn comes a little later.
pub const WAKE_LINES_MAX: usize = 256;
/// Tickets of one line that are looked at each time: more than a horizon's calls at ten thousand a second.
pub const WAKE_NEAR_MAX: usize = 512;
/// Who was told to wait is told to ask again no sooner than this: should the rules' hint and their answer
/// differ, it costs an ask in this time and not one at every look.
pub const WAKE_REST: Duration = Duration::from_millis(20);
/// Waiters of a shard that is no longer led here come back within this: a fleet that comes at one moment
/// meets a leader that has just begun.
pub const WAKE_SPREAD: Duration = Duration::from_millis(500);
/// Waiters of one shard that are given up in one submission: half an entry, so that asks get through.
pub const LOST_AT_ONCE: usize = 256;
/// When a submission of them finds no room, the next one waits for this. Nobody waits for it.
pub const LOST_AGAIN: Duration = Duration::from_millis(100);
/// Bytes of one answer of a node: a listing of policies is the largest.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of answers about targets that are made or wait to be taken by their readers, all connections
/// together; as many of the history. Each takes the room of the largest while it is made, so that two are made at
/// once.
pub const UNREAD_BYTES_MAX: usize = 2 * ANSWER_BYTES_MAX;
/// Calls that wait for such room: some operators and their dashboards. Further ones are refused at once ...
pub const ANSWERS_WAITING_MAX: usize = 64;
/// ... and those after this.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(2);
/// Such an answer is taken within this, or its connection is cut: the largest at 9 Mbit/s.
pub const ANSWER_TAKEN_WITHIN: Duration = Duration::from_secs(60);
/// The same for each piece of it.
pub const PIECE_TAKEN_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of it that HTTP/2 is given at once, and may hold for a reader that takes none.
pub const ANSWER_PIECE_BYTES: usize = 16 * 1024;
/// A session whose reader has taken nothing for this long, although something lay there, is cut off. It is
/// looked for as often, so that nothing lies for more than twice as long. If it does not take the end either within
/// this, its connection is cut.
pub const SESSION_TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// Calls at once on one client connection.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 1024;
/// Bytes that a client may send on one connection before the node has looked at them: the largest frame of a
/// session, and 16 000 small asks a second at 200 ms from here. A gibibyte if all connections do so and the
/// node reads none.
pub const UNHEARD_BYTES_MAX: u32 = 256 * 1024;
/// Bytes of the headers of one call.
pub const HEADER_BYTES_MAX: u32 = 8 * 1024;
/// Connections of clients at once, where the system gives as many file descriptors. When all are taken the
/// oldest that never called makes room, then the one that has rested longest; if all work or have only just come, a
/// further one is closed at once.
pub const CONNECTIONS_MAX: usize = 4096;
/// Connections of other nodes at once: one of each, and some that are lost and not noticed yet.
pub const PEER_CONNECTIONS_MAX: usize = 32;
/// Connections at once to metrics and probes: a few scrapers and an operator. The oldest makes room.
pub const ADMIN_CONNECTIONS_MAX: usize = 32;
/// Files of a node beside the connections that come in: log and snapshots, connections to other nodes, what
/// the runtime and the standard streams take.
pub const FILES_OWN: usize = 96;
/// With fewer connections of clients a node does not start.
pub const CONNECTIONS_MIN: usize = 16;
/// Bytes that must have come over a connection ...
pub const GREETING_BYTES: usize = 24;
/// ... within this: they are HTTP/2's first words, and less than a request of HTTP/1. What is silent for
/// longer is no caller, and is closed.
pub const GREETING_WITHIN: Duration = Duration::from_secs(5);
/// Who comes has this to make a first call, and until then is not sent away for who comes next: a client says
/// it together with its greeting.
pub const STRANGER_SAFE: Duration = Duration::from_millis(50);
/// A connection that has called makes room for another one when nothing of it was at work for this long: short,
/// because who comes waits for it, and longer than the pauses of who calls all the time.
pub const REST_MIN: Duration = Duration::from_millis(250);
/// How often all connections are looked at for who rests, while others stand at the door in vain.
pub const REST_LOOK_EVERY: Duration = Duration::from_millis(10);
/// Connections that the system holds until they are accepted, if its own bound (`net.core.somaxconn`) allows:
/// who finds no room there comes again after a second.
pub const ACCEPT_QUEUE: u32 = 4096;
/// A call is answered within this, whatever deadline its client set.
pub const CALL_DURATION_MAX: Duration = Duration::from_secs(10);
/// How often an idle connection is asked for a sign of life ...
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// ... and how long the answer may take.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Calls of one client connection that may be given up before the node looked at them; more end the connection. As
/// many as may be open: after a moment in which the node stood still a client gives all of them up, and must not have
/// to connect again with everybody else.
pub const PENDING_RESETS_MAX: usize = STREAMS_PER_CONNECTION_MAX as usize;
/// Calls of one connection that the node itself ended since they broke the protocol; more end the connection.
pub const BROKEN_CALLS_MAX: usize = 64;

/// What could be logged for every connection is logged once in this time.
pub const SAY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Pause after a connection could not be accepted, for example for want of file descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long another node may take to tell its status.
pub const STATUS_WAIT: Duration = Duration::from_millis(500);
/// How long a drain may take to move every lead: some tries for each shard, all at once.
pub const DRAIN_LEADS_WITHIN: Duration = Duration::from_secs(5);
/// Longest time a stop may take from the signal to the end of the process.
pub const STOP_WITHIN: Duration = Duration::from_secs(5);
/// Part of [`STOP_WITHIN`] for handing leaderships over ...
pub const HAND_OVER_WITHIN: Duration = Duration::from_millis(1500);
/// ... for answering what was accepted ...
pub const DRAIN_WITHIN: Duration = Duration::from_millis(1500);
/// ... and for letting clients close their connections.
pub const CLOSE_WITHIN: Duration = Duration::from_millis(1000);

/// Pairs of target and priority with metrics of their own. Further ones are counted as `other`, so that
/// a scrape stays small.
pub const METRIC_SERIES_MAX: usize = 1000;
/// What a policy knows is looked up at most once in this time when a release names a dimension that it did not
/// know before: a policy is copied for it.
pub const DIMENSIONS_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pairs of target and dimension with a histogram of their own, of some 15 samples each. Further ones are counted
/// as `other`.
pub const METRIC_HISTOGRAMS_MAX: usize = 200;

/// Targets, priorities and tenants together that have a row of their own in one minute of the history of use:
/// some 5 MB. Further ones are counted with their target.
pub const HISTORY_KEYS_MAX: usize = 8_192;
/// Targets that have such a row for the rest in one minute, the one for the rest of all included.
pub const HISTORY_TARGETS_MAX: usize = 1_024;
/// Dimensions of one row: those of two policies that follow each other in a minute. Further ones are counted
/// together.
pub const HISTORY_DIMENSIONS_MAX: usize = 2 * DIMENSIONS_MAX;
/// Minutes that wait to be written; more are given up from the oldest. With a disk that works there are two.
pub const HISTORY_MINUTES_MAX: usize = 5;
/// How often they are written: as much is lost with a crash.
pub const HISTORY_INTERVAL: Duration = Duration::from_secs(10);
/// Rows written or removed at once.
pub const HISTORY_BATCH_MAX: usize = 1_000;
/// Batches of rows removed in one [`HISTORY_INTERVAL`]: twice what can be counted in it.
pub const HISTORY_TRIM_BATCHES_MAX: usize = 20;
/// When a store that does not work is opened again.
pub const HISTORY_REOPEN: Duration = Duration::from_secs(10);
/// The same for one that the last life of the node in this process has not let go of yet.
pub const HISTORY_REOPEN_IN_USE: Duration = Duration::from_millis(200);
/// Bytes of the store that are held in memory.
pub const HISTORY_CACHE_BYTES: u64 = 8 * 1024 * 1024;
/// Reads of the history that wait: operators are few. Further ones are refused at once.
pub const HISTORY_COMMANDS_MAX: usize = 16;
/// Part of [`STOP_WITHIN`] for writing the history.
pub const HISTORY_CLOSE_WITHIN: Duration = Duration::from_millis(500);

/// Spans that wait for the OTLP collector: those of some 400 calls. Further ones are dropped and counted.
pub const OTLP_QUEUE_MAX: usize = 2_048;
/// Spans sent at once.
pub const OTLP_BATCH_MAX: usize = 512;
/// Spans are sent after this even if they are few.
pub const OTLP_INTERVAL: Duration = Duration::from_secs(1);
/// How long the collector may take to answer. Then the spans are given up.
pub const OTLP_EXPORT_WITHIN: Duration = Duration::from_secs(5);
/// After spans were given up the next ones are sent after this.
pub const OTLP_PAUSE: Duration = Duration::from_secs(1);
/// Part of [`STOP_WITHIN`] for sending the last spans: a few round trips to a collector nearby.
pub const OTLP_CLOSE_WITHIN: Duration = Duration::from_millis(400);

const _: () = assert!(OTLP_BATCH_MAX <= OTLP_QUEUE_MAX);
const _: () = assert!(SUBMISSION_OPERATIONS_MAX <= ENTRY_OPERATIONS_MAX);
// A frame that belongs to one shard is one submission.
const _: () = assert!(FRAME_OPERATIONS_MAX == SUBMISSION_OPERATIONS_MAX);
const _: () = assert!(SESSION_ASKS_MAX + FRAME_OPERATIONS_MAX <= SESSION_OPERATIONS_MAX);
const _: () = assert!(ENTRY_OPERATIONS_WORTH <= ENTRY_OPERATIONS_MAX);
const _: () = assert!(QUEUE_OPERATIONS_RESERVED >= SUBMISSION_OPERATIONS_MAX);
const _: () = assert!(QUEUE_OPERATIONS_MAX > QUEUE_OPERATIONS_RESERVED + QUEUE_CROWDED_OPERATIONS);
const _: () = assert!(QUEUE_BYTES_MAX - QUEUE_BYTES_RESERVED > POLICY_MESSAGE_BYTES_MAX);
const _: () = assert!(UNHEARD_BYTES_MAX as usize >= weir_proto::limits::FRAME_BYTES_MAX);
// Permits of a semaphore are counted in u32.
const _: () = assert!(UNREAD_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(ANSWER_WAIT_MAX.as_millis() < CALL_DURATION_MAX.as_millis());
const _: () = assert!(DRAIN_LEADS_WITHIN.as_millis() < CALL_DURATION_MAX.as_millis());
const _: () = assert!(
    HAND_OVER_WITHIN.as_millis()
        + DRAIN_WITHIN.as_millis()
        + HISTORY_CLOSE_WITHIN.as_millis()
        + CLOSE_WITHIN.as_millis()
        + OTLP_CLOSE_WITHIN.as_millis()
        < STOP_WITHIN.as_millis()
);
const _: () = assert!(
    HISTORY_TRIM_BATCHES_MAX * HISTORY_BATCH_MAX > 2 * (HISTORY_KEYS_MAX + HISTORY_TARGETS_MAX)
);
