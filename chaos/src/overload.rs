//! More asks than a node can take, offered at a fixed rate whatever it answers.
//!
//! Callers are sessions with the leader, as the client library has them, but without its restraint: they
//! neither retry later nor slow down. Every grant is released at once, so that the work of a node is asks
//! and releases in equal parts.

use crate::cluster::Cluster;
use anyhow::Context;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tonic::Streaming;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use weir_proto::error::{Reason, WireError};
use weir_proto::v1 as wire;
use weir_proto::v1::session_answer::Answer;
use weir_proto::v1::session_operation::Operation;
use weir_proto::v1::session_request::Message as Request;
use weir_proto::v1::session_response::Message as Response;
use weir_proto::v1::session_service_client::SessionServiceClient;

/// Operations of one frame.
const FRAME_OPERATIONS: usize = 256;
/// Frames that wait for HTTP/2 to take them. Further asks count as held back by the node's flow control.
const FRAMES_WAITING: usize = 4;
/// Pause between two frames of an open loop.
const FRAME_EVERY: Duration = Duration::from_millis(10);
/// How long answers are waited for after the last ask.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// What is asked for.
pub const TARGET: &str = "load/api";
pub(crate) const PRIORITY: &str = "only";

/// A policy that counts and holds nobody back.
pub fn policy() -> wire::Policy {
    let limit = wire::Limit {
        name: "requests".into(),
        dimension: "requests".into(),
        cap: 1 << 40,
        per_us: 1_000_000,
        kind: wire::LimitKind::Sliding.into(),
        enforced_by: wire::EnforcedBy::Us.into(),
        burst_us: Some(1_000_000),
        initial_use: wire::InitialUse::Empty.into(),
    };
    wire::Policy {
        limits: vec![limit],
        priorities: vec![wire::Priority {
            name: PRIORITY.into(),
            weight: 1,
        }],
        ..wire::Policy::default()
    }
}

/// A cluster to load: one shard, so that one node has it all.
pub struct Loaded {
    /// The nodes.
    pub cluster: Cluster,
    /// The node that has it all.
    pub leader: u64,
}

impl Loaded {
    /// Starts nodes of a program, with the target.
    pub async fn start(program: &Path) -> anyhow::Result<Loaded> {
        let mut cluster = Cluster::new(program, 1)?;
        cluster.start().await?;
        cluster.client()?.put_target(TARGET, policy(), None).await?;
        let leader = cluster.leader(TARGET).await?;
        Ok(Loaded { cluster, leader })
    }

    /// A load of the leader, for so many seconds.
    pub fn load(&self, name: &str, sessions: usize, pace: Pace, seconds: u64) -> Load {
        Load {
            address: self.cluster.address(self.leader),
            name: name.into(),
            sessions,
            pace,
            lasts: Duration::from_secs(seconds),
        }
    }

    /// Memory that the leader has, in bytes.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        self.cluster.node(self.leader)?.resident_bytes()
    }

    /// Processor time that all nodes have used so far.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        let ids = self.cluster.ids();
        let times = ids.iter().map(|id| self.cluster.node(*id)?.cpu_time());
        times.sum()
    }
}

/// How the sessions ask.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Each session has so many asks without an answer, always.
    Closed {
        /// Asks of one session.
        outstanding: usize,
    },
    /// All sessions together ask so many times a second, whatever comes back.
    Open {
        /// Asks of all sessions.
        per_second: u64,
    },
}

/// What is offered.
#[derive(Clone, Debug)]
pub struct Load {
    /// Client address of the target's leader.
    pub address: String,
    /// Distinguishes the ids of this load from those of others.
    pub name: String,
    /// How many sessions, each over a connection of its own.
    pub sessions: usize,
    /// How they ask.
    pub pace: Pace,
    /// For how long.
    pub lasts: Duration,
}

/// What came back.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Asks that were sent.
    pub asked: u64,
    /// Asks that flow control held back, and that were not sent.
    pub held_back: u64,
    /// Asks that were decided.
    pub decided: u64,
    /// Asks refused as too many, each with its hint.
    pub overloaded: u64,
    /// Asks with another error that says that nothing happened, or that it is not known.
    pub unanswered: u64,
    /// Releases that were answered.
    pub released: u64,
    /// Releases that were refused as too many: must be none.
    pub releases_overloaded: u64,
    /// Time from ask to decision, in microseconds.
    pub decision_us: Vec<u64>,
    /// Time from ask to refusal, in microseconds.
    pub refusal_us: Vec<u64>,
    /// Time from release to answer, in microseconds.
    pub release_us: Vec<u64>,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.asked += other.asked;
        self.held_back += other.held_back;
        self.decided += other.decided;
        self.overloaded += other.overloaded;
        self.unanswered += other.unanswered;
        self.released += other.released;
        self.releases_overloaded += other.releases_overloaded;
        self.decision_us.extend(other.decision_us);
        self.refusal_us.extend(other.refusal_us);
        self.release_us.extend(other.release_us);
    }
}

impl Seen {
    /// One line for a reader, of a load that lasted so long.
    pub fn told(&self, seconds: u64) -> String {
        let quantiles = |values: &[u64]| {
            let of = |part| Duration::from_micros(quantile_us(values, part));
            format!("{:.1?}, {:.1?}, {:.1?}", of(500), of(990), of(1000))
        };
        format!(
            "{} asked/s, {} decided/s, {} refused/s, {} held back/s, {} unanswered; p50, p99, max: decisions {}; \
             refusals {}; releases {}",
            self.asked / seconds,
            self.decided / seconds,
            self.overloaded / seconds,
            self.held_back / seconds,
            self.unanswered,
            quantiles(&self.decision_us),
            quantiles(&self.refusal_us),
            quantiles(&self.release_us),
        )
    }
}

/// The value below which this many thousandths of the values lie; 0 of nothing.
pub fn quantile_us(values: &[u64], thousandths: usize) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    sorted
        .get(last.saturating_mul(thousandths) / 1000)
        .copied()
        .unwrap_or(0)
}

impl Load {
    /// Offers it from a thread of its own, so that two loads do not wait for each other.
    pub async fn run_apart(self) -> anyhow::Result<Seen> {
        let (done, seen) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let seen = match runtime {
                Ok(runtime) => runtime.block_on(self.run()),
                Err(error) => Err(error.into()),
            };
            // Whoever started it may have given up.
            drop(done.send(seen));
        });
        seen.await?
    }

    /// Offers it, and tells what came back.
    pub async fn run(&self) -> anyhow::Result<Seen> {
        let mut sessions = JoinSet::new();
        for number in 0..self.sessions {
            let (load, until) = (self.clone(), Instant::now() + self.lasts);
            sessions.spawn(async move { Session::open(&load, number).await?.run(until).await });
        }
        let mut seen = Seen::default();
        while let Some(session) = sessions.join_next().await {
            seen.add(session??);
        }
        Ok(seen)
    }
}

/// What waits for an answer.
struct Waiting {
    since: Instant,
    is_release: bool,
}

struct Session {
    load: Load,
    number: usize,
    out: mpsc::Sender<wire::SessionRequest>,
    incoming: Streaming<wire::SessionResponse>,
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    asks_waiting: usize,
    releases: VecDeque<wire::Grant>,
    seen: Seen,
}

impl Session {
    async fn open(load: &Load, number: usize) -> anyhow::Result<Session> {
        let channel = Endpoint::from_shared(format!("http://{}", load.address))?;
        let channel: Channel = channel.connect().await?;
        let (out, messages) = mpsc::channel(FRAMES_WAITING);
        let hello = Request::Hello(wire::ClientHello {
            protocol_version: 1,
            instance: number as u64 + 1,
            name: load.name.clone(),
            features: Vec::new(),
        });
        out.send(wire::SessionRequest {
            message: Some(hello),
        })
        .await?;
        let mut client = SessionServiceClient::new(channel);
        let opened = client.session(ReceiverStream::new(messages)).await?;
        Ok(Session {
            load: load.clone(),
            number,
            out,
            incoming: opened.into_inner(),
            next: 1,
            waiting: BTreeMap::new(),
            asks_waiting: 0,
            releases: VecDeque::new(),
            seen: Seen::default(),
        })
    }

    async fn run(mut self, until: Instant) -> anyhow::Result<Seen> {
        let mut due = interval(FRAME_EVERY);
        due.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let last_answers = until + LAST_ANSWERS;
        let begun = Instant::now();
        let mut offered = 0;
        loop {
            let asking = Instant::now() < until;
            if !asking && self.waiting.is_empty() && self.releases.is_empty() {
                return Ok(self.seen);
            }
            tokio::select! {
                heard = self.incoming.message() => {
                    let response = heard?.context("the session ended")?;
                    self.hear(response);
                    if asking && let Pace::Closed { outstanding } = self.load.pace {
                        self.send(outstanding.saturating_sub(self.asks_waiting));
                    }
                }
                _ = due.tick() => {
                    let asks = match self.load.pace {
                        _ if !asking => 0,
                        Pace::Closed { outstanding } => outstanding.saturating_sub(self.asks_waiting),
                        Pace::Open { per_second } => {
                            let own = per_second / self.load.sessions as u64;
                            let now = u64::try_from(begun.elapsed().as_millis())? * own / 1000;
                            let asks = now.saturating_sub(offered);
                            offered = now;
                            usize::try_from(asks)?
                        }
                    };
                    self.send(asks);
                }
                () = tokio::time::sleep_until(last_answers) => {
                    self.seen.unanswered += self.waiting.len() as u64;
                    return Ok(self.seen);
                }
            }
        }
    }

    /// Sends what is to be released and so many asks, in frames, as far as they are taken.
    fn send(&mut self, mut asks: usize) {
        while asks > 0 || !self.releases.is_empty() {
            let permit = match self.out.try_reserve() {
                Ok(permit) => permit,
                Err(TrySendError::Full(()) | TrySendError::Closed(())) => {
                    self.seen.held_back += asks as u64;
                    return;
                }
            };
            let since = Instant::now();
            let releases = self.releases.len().min(FRAME_OPERATIONS);
            let mut operations = Vec::with_capacity(FRAME_OPERATIONS);
            for grant in self.releases.drain(..releases) {
                operations.push(Operation::Release(release(grant)));
            }
            let fresh = asks.min(FRAME_OPERATIONS - releases);
            for place in 0..fresh {
                let id = self.next + (releases + place) as u64;
                operations.push(Operation::Admit(ask(&self.load, self.number, id)));
            }
            asks -= fresh;
            self.asks_waiting += fresh;
            self.seen.asked += fresh as u64;
            let mut frame = wire::ClientFrame::default();
            for (place, operation) in operations.into_iter().enumerate() {
                let is_release = place < releases;
                self.waiting
                    .insert(self.next, Waiting { since, is_release });
                frame.operations.push(wire::SessionOperation {
                    sequence: self.next,
                    timeout_us: 0,
                    operation: Some(operation),
                });
                self.next += 1;
            }
            permit.send(wire::SessionRequest {
                message: Some(Request::Frame(frame)),
            });
        }
    }

    fn hear(&mut self, response: wire::SessionResponse) {
        let Some(Response::Frame(frame)) = response.message else {
            return;
        };
        for answer in frame.answers {
            let Some(waiting) = self.waiting.remove(&answer.sequence) else {
                continue;
            };
            let took = u64::try_from(waiting.since.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.asks_waiting -= usize::from(!waiting.is_release);
            match answer.answer {
                Some(Answer::Admit(answer)) => {
                    self.seen.decided += 1;
                    self.seen.decision_us.push(took);
                    if let Some(wire::admit_response::Decision::Admitted(admitted)) =
                        answer.decision
                    {
                        self.releases.extend(admitted.grant);
                    }
                }
                Some(Answer::Release(_)) => {
                    self.seen.released += 1;
                    self.seen.release_us.push(took);
                }
                Some(Answer::Error(error)) => self.refused(&waiting, took, error),
                Some(Answer::Cancel(_) | Answer::Extend(_) | Answer::Report(_)) | None => {
                    self.seen.unanswered += 1
                }
            }
        }
    }

    fn refused(&mut self, waiting: &Waiting, took: u64, error: wire::SessionError) {
        let overloaded =
            WireError::from_session(error).is_some_and(|error| error.reason == Reason::Overloaded);
        match (overloaded, waiting.is_release) {
            (true, true) => self.seen.releases_overloaded += 1,
            (true, false) => {
                self.seen.overloaded += 1;
                self.seen.refusal_us.push(took);
            }
            (false, _) => self.seen.unanswered += 1,
        }
    }
}

fn ask(load: &Load, session: usize, id: u64) -> wire::AdmitRequest {
    wire::AdmitRequest {
        target: TARGET.into(),
        tenant: format!("tenant-{}", session % 8),
        priority: PRIORITY.into(),
        admission_id: format!("{}.{session}.{id}", load.name),
        attempt: id,
        ask: 1,
        cost: BTreeMap::from([("requests".to_owned(), 1)]),
        ..wire::AdmitRequest::default()
    }
}

fn release(grant: wire::Grant) -> wire::ReleaseRequest {
    wire::ReleaseRequest {
        target: TARGET.into(),
        grant: Some(grant),
        actual: BTreeMap::new(),
        outcome: wire::CallOutcome::Ok.into(),
        retry_after_us: 0,
        throttled_dimension: String::new(),
    }
}
