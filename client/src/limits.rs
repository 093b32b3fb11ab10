//! Every bound of the client, with its unit and its reason, and the relations between them.

use std::time::Duration;
use weir_admission::limits::{CLIENT_RETRY_MAX, EXPIRE_MIN, RELEASED_MEMORY};

/// Seed addresses of one client. A seed is only the way in; three or five are usual.
pub const SEEDS_MAX: usize = 64;
/// Nodes a client knows at once. Larger routes are cut: no cluster is near it.
pub const NODES_MAX: usize = 1_024;
/// Shards a client believes in. Larger routes are refused: each shard has a breaker here.
pub const SHARDS_MAX: u32 = 4_096;

/// Bytes of one answer; statuses of large clusters and lists of targets are the largest.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest time one attempt, release, cancel, extension or report is retried. The cluster remembers a
/// settled admission longer than this, so a retry always meets the memory of its first try.
pub const RETRY_MAX: Duration = Duration::from_micros(CLIENT_RETRY_MAX);
/// A try that a deadline cuts shorter than this (or than the try timeout, if that is less) blames
/// nobody when it goes unanswered: it says more about the deadline than about the cluster. Neither does one that
/// was handed over later than this, or than half its time if that is less, before its end.
pub const FAIR_TRY_MIN: Duration = Duration::from_millis(50);
/// Sends of one decision. Reached only if nodes answer at once and wrongly.
pub const SENDS_PER_DECISION_MAX: u32 = 64;
/// Sends of one delivery: followed hints and the pauses between them, for [`RETRY_MAX`].
pub const SENDS_PER_DELIVERY_MAX: u32 = 512;
/// Hints followed in a row without a pause: nodes that name each other must not make a hot loop.
pub const HINTS_IN_A_ROW_MAX: u32 = 3;
/// Times a decision asks again at once after a stale answer. One is a straggler's doing; more mean
/// that a newer attempt took this one's place.
pub const STALE_IN_A_ROW_MAX: u32 = 2;
/// Longest pause between two sends of one decision.
pub const BACKOFF_MAX: Duration = Duration::from_millis(200);
/// First pause between two sends; doubles up to [`BACKOFF_MAX`].
pub const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// Tries that earn one retry: retries add a tenth to what a slow shard has to bear.
pub const TRIES_PER_RETRY: u32 = 10;
/// Retries that a client may spend at one shard before it has earned any, so that a client with few calls
/// repeats them as well: twice as many as one call spends until an outage of three seconds is known as one.
pub const RETRY_RESERVE: u32 = 10;
/// Retries that a client saves for one shard at most, so that a calm day does not pay for a storm.
pub const RETRY_SAVED_MAX: u32 = 100;

/// Shortest and longest `retry_in` of a deferral that the client decided itself.
pub const LOCAL_RETRY_MIN: Duration = Duration::from_millis(100);
/// See [`LOCAL_RETRY_MIN`]: short, because most outages are failovers; jittered, because a whole fleet
/// meets them together.
pub const LOCAL_RETRY_MAX: Duration = Duration::from_millis(400);
/// Rounds of visits in vain after which a shard is strained: then nothing is repeated within a visit, and
/// pauses begin to double. A short stall is over by then, and costs no caller more than before.
pub const STRAINED_AFTER: u32 = 2;
/// Times that the pause of a strained shard doubles: up to 6.4 s. A fleet of 10 000 then comes some 2 500
/// times a second, a twentieth of what a leader can do, and no place in line is lost for the pause.
pub const STRAIN_DOUBLINGS_MAX: u32 = 4;
/// Silence that becomes an outage within this is not strain: the mode ends it. This is the usual
/// [`crate::Options::ungated_after`], so that short outages are met as ever.
pub const OUTAGE_NEAR: Duration = Duration::from_secs(3);
/// Strain that was not felt for this long is forgotten: the next call finds out by itself.
pub const STRAIN_FORGOTTEN: Duration = Duration::from_secs(30);
/// Callers that an answer of use calls back from their pause: where all answers are of use, twice as many
/// come back with every round trip, and where one in two is, no more than leave.
pub const RELIEF_CALLS: usize = 2;
/// Longest time a deferral keeps a caller away, whoever decided it.
pub const RETRY_IN_MAX: Duration = Duration::from_micros(weir_admission::limits::RETRY_IN_MAX);

/// Shortest pause between two probes of a shard that does not answer.
pub const PROBE_MIN: Duration = Duration::from_millis(250);
/// Longest pause between two probes.
pub const PROBE_MAX: Duration = Duration::from_millis(750);
/// Probes in a row that must be answered before calls ask again: one answer in an unsteady hour must
/// not send the whole fleet back to waiting.
pub const PROBES_TO_CLOSE: u32 = 2;
/// Probing stops when no call wanted the shard for this long and nothing is left to report.
pub const PROBE_IDLE: Duration = Duration::from_secs(30);
/// How much slower a shard is probed that no call wants, while something is left to report.
pub const PROBE_IDLE_SLOWDOWN: u32 = 8;
/// Late answers of one shard are warned of at most this often.
pub const LATE_WARNING_EVERY: Duration = Duration::from_secs(60);
/// How often the background looks whether something is due while a shard is out, reports are pending
/// or routes are wanted. Otherwise it sleeps until it is called.
pub const TICK: Duration = Duration::from_millis(50);
/// Shortest pause between two refreshes of the routes.
pub const REFRESH_MIN: Duration = Duration::from_millis(100);
/// A node that did not answer is asked last for this long.
pub const SUSPECT_FOR: Duration = Duration::from_millis(500);
/// Blame for a connection that failed or broke. Asking again costs nothing, and packets get lost.
pub const BLAME_BROKEN: u32 = 1;
/// Blame for a whole try without an answer.
pub const BLAME_HUNG: u32 = 2;
/// Blame, gathered without an answer in between, from which on not even a hint to the node is followed
/// while it is suspect: followers name a dead leader until they have elected another.
pub const BLAME_TO_AVOID: u32 = 4;
/// Unanswered tries in a row, without a word from the node, after which it gets a new connection: one that lost
/// its packets for a while may take a minute to notice that they flow again.
pub const TRIES_PER_CONNECTION_MAX: u32 = 2;
/// Shortest life of a connection over which the node never said anything, or that took the place of such a one;
/// doubles up to [`RENEW_MAX`]. A node that is slow to open connections must not have to open one for every two
/// tries.
pub const RENEW_MIN: Duration = CONNECT_MAX;
/// See [`RENEW_MIN`].
pub const RENEW_MAX: Duration = Duration::from_secs(2);

/// Operations that wait for a frame in one session: every caller of a busy process has one.
pub const SESSION_QUEUE_MAX: usize = 64 * 1024;
/// Pause before a session is opened again that could not be opened; doubles up to [`REOPEN_MAX`]. Calls
/// fail meanwhile, and try another node.
pub const REOPEN_MIN: Duration = Duration::from_millis(10);
/// See [`REOPEN_MIN`].
pub const REOPEN_MAX: Duration = Duration::from_millis(200);
/// A node that knows no sessions is asked by unary calls for this long, then it may know them.
pub const UNARY_FOR: Duration = Duration::from_secs(60);
/// Calls that wait in a session that ended ask again within this: the next leader meets them spread out.
pub const RESUME_SPREAD: Duration = Duration::from_millis(500);
/// Longest time a connection may take to be made.
pub const CONNECT_MAX: Duration = Duration::from_secs(1);
/// How long an operator's question to one node may take: nodes ask each other to answer it.
pub const ADMIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long it may take at first, one after the other; then [`ADMIN_TIMEOUT`]. A leader that hangs holds an operator
/// up for two of them: followers name it until they have elected another one, after the first.
pub const ADMIN_FIRST_TIMEOUTS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// Releases and cancels that wait for the background. Beyond it they are dropped and counted: their
/// charge leaves the cap by itself.
pub const CHORES_QUEUED_MAX: usize = 4_096;
/// Releases and cancels that the background sends at once.
pub const CHORES_IN_FLIGHT_MAX: usize = 64;
/// Ungated calls kept for the report. Beyond it they are dropped, counted and warned of once an outage.
pub const UNGATED_MAX: usize = 10_000;
/// Ungated calls in one report; the wire allows no more.
pub const REPORT_CALLS_MAX: usize = 256;
/// Targets whose policy is kept for the local mode. The oldest is forgotten first.
pub const LOCAL_TARGETS_MAX: usize = 1_000;
/// Shortest pause between two looks at the policy of one target.
pub const POLICY_TRY_MIN: Duration = Duration::from_secs(1);
/// How often the policy of a target in use is looked at again in the local mode.
pub const POLICY_REFRESH: Duration = Duration::from_secs(60);
/// Time the background has after the last client is dropped.
pub const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Shortest and longest values of the options of the same names.
pub const TRY_TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// See [`TRY_TIMEOUT_MIN`].
pub const TRY_TIMEOUT_MAX: Duration = RETRY_MAX;
/// Longest `ungated_after`.
pub const UNGATED_AFTER_MAX: Duration = Duration::from_secs(3_600);

const _: () = assert!(CLIENT_RETRY_MAX < RELEASED_MEMORY);
const _: () = assert!(ADMIN_FIRST_TIMEOUTS[2].as_micros() < ADMIN_TIMEOUT.as_micros());
const _: () = assert!(LOCAL_RETRY_MIN.as_micros() < LOCAL_RETRY_MAX.as_micros());
// A caller is back before its place is forgotten, with seconds to spare for its visits.
const _: () =
    assert!((LOCAL_RETRY_MAX.as_micros() << STRAIN_DOUBLINGS_MAX) + 2_000_000 < EXPIRE_MIN as u128);
const _: () = assert!(
    STRAIN_FORGOTTEN.as_micros() > 2 * (LOCAL_RETRY_MAX.as_micros() << STRAIN_DOUBLINGS_MAX)
);
const _: () = assert!(BACKOFF_MIN.as_micros() < BACKOFF_MAX.as_micros());
const _: () = assert!(RETRY_RESERVE <= RETRY_SAVED_MAX);
const _: () = assert!(PROBE_MIN.as_micros() < PROBE_MAX.as_micros());
// Back to normal within five seconds: the connection is made anew, then two probes are answered.
const _: () =
    assert!(RENEW_MAX.as_millis() + PROBE_MAX.as_millis() * (PROBES_TO_CLOSE as u128 + 1) < 5_000);
