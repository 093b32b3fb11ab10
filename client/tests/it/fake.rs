//! A cluster that does what a test tells it: three nodes, one leader, and a script for its answers.
//!
//! It keeps to the numbering of the real rules as far as a client can notice: a higher number decides
//! anew and undoes what the attempt held, the same or a lower one is stale.

use super::net::{Link, Net};
use super::streams::Opened;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};
use weir_client::{Client, Options};
use weir_proto::error::{LeaderHint, Reason, WireError};
use weir_proto::v1::admission_service_server::{AdmissionService, AdmissionServiceServer};
use weir_proto::v1::admit_response::Decision;
use weir_proto::v1::cluster_service_server::{ClusterService, ClusterServiceServer};
use weir_proto::v1::session_service_server::SessionServiceServer;
use weir_proto::v1::targets_service_server::{TargetsService, TargetsServiceServer};
use weir_proto::v1::*;

pub(crate) const NODES: [&str; 3] = ["n1.test:7400", "n2.test:7400", "n3.test:7400"];
pub(crate) const SHARDS: u32 = 4;

/// What becomes of one ask at the leader.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Admitted, to start after this many microseconds.
    Admit {
        start_in_us: u64,
    },
    /// Deferred for this long.
    Defer {
        retry_in_us: u64,
    },
    Reject(RejectReason),
    /// As told, but the answer comes later than it was decided.
    Late(Duration, Box<Act>),
    /// Decided as told, but no answer ever comes.
    Silent(Box<Act>),
    /// Decided as told, then the connection breaks: what a proxy or a dying node makes of it.
    Broken(Box<Act>),
    /// Decided as told, but a proxy sent the ask twice and the answer to its copy came first: stale.
    Duplicated(Box<Act>),
    /// Nothing is decided.
    Error(WireError),
    Raw(Status),
}

pub(crate) fn admit() -> Act {
    Act::Admit { start_in_us: 0 }
}

type Script = Box<dyn FnMut(&AdmitRequest) -> Act + Send>;

pub(crate) struct World {
    /// Who leads all shards; `None` while there is no leader.
    pub(crate) leader: Option<u64>,
    /// Whom the others believe to lead, if that is not the leader.
    pub(crate) believed: Option<u64>,
    pub(crate) term: u64,
    pub(crate) no_quorum: bool,
    pub(crate) cluster_id: String,
    pub(crate) reply_window_us: u64,
    pub(crate) script: Script,
    /// Every ask that reached the leader, with what was decided.
    pub(crate) asks: Vec<AdmitRequest>,
    pub(crate) probes: u64,
    pub(crate) releases: Vec<ReleaseRequest>,
    pub(crate) cancels: Vec<CancelRequest>,
    pub(crate) extends: Vec<ExtendRequest>,
    pub(crate) reports: Vec<ReportRequest>,
    /// Requests answered with NOT_LEADER.
    pub(crate) turned_away: u64,
    /// Fails this many releases, cancels, extensions or reports after doing them.
    pub(crate) lose_answers: u32,
    /// How long the answer to a release takes.
    pub(crate) release_takes: Duration,
    pub(crate) report_status: ReportStatus,
    pub(crate) targets: BTreeMap<String, Target>,
    /// The grant an attempt holds, by attempt, with the number of the ask that got it.
    pub(crate) held: BTreeMap<u64, (u32, Grant)>,
    /// Every grant ever given, by its index.
    pub(crate) granted: BTreeMap<u64, Granted>,
    /// The highest number that was decided, by attempt.
    pub(crate) highest: BTreeMap<u64, u32>,
    /// The asks whose grants a test used, by attempt.
    pub(crate) used: BTreeMap<u64, u32>,
    /// Whether nodes that start from now on know sessions.
    pub(crate) knows_sessions: bool,
    /// What a node allows in a session.
    pub(crate) in_flight: u32,
    /// Every session that was opened.
    pub(crate) sessions: Vec<Opened>,
    addresses: Vec<String>,
    next_index: u64,
}

/// What is known of a grant that was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) attempt: u64,
    pub(crate) ask: u32,
    pub(crate) start_at: Instant,
}

#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) net: Net,
    world: Arc<Mutex<World>>,
}

#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) id: u64,
    world: Arc<Mutex<World>>,
}

impl Fake {
    /// Three nodes that are up; the first one leads and admits everything.
    pub(crate) fn start() -> Fake {
        Fake::start_nodes(true)
    }

    /// The same, of nodes that know no sessions.
    pub(crate) fn start_without_sessions() -> Fake {
        Fake::start_nodes(false)
    }

    fn start_nodes(knows_sessions: bool) -> Fake {
        let fake = Fake::new(NODES.map(str::to_owned).to_vec());
        fake.world().knows_sessions = knows_sessions;
        for (at, address) in NODES.iter().enumerate() {
            let incoming = ReceiverStream::new(fake.net.listen(address));
            let server = fake.server(at as u64 + 1);
            tokio::spawn(server.serve_with_incoming(incoming));
        }
        fake
    }

    /// A cluster of nodes that nobody serves yet.
    pub(crate) fn new(addresses: Vec<String>) -> Fake {
        let world = World {
            leader: Some(1),
            believed: None,
            term: 1,
            no_quorum: false,
            cluster_id: "fake".into(),
            reply_window_us: 100_000,
            script: Box::new(|_| admit()),
            asks: Vec::new(),
            probes: 0,
            releases: Vec::new(),
            cancels: Vec::new(),
            extends: Vec::new(),
            reports: Vec::new(),
            turned_away: 0,
            lose_answers: 0,
            release_takes: Duration::ZERO,
            report_status: ReportStatus::Charged,
            targets: BTreeMap::new(),
            held: BTreeMap::new(),
            granted: BTreeMap::new(),
            highest: BTreeMap::new(),
            used: BTreeMap::new(),
            knows_sessions: true,
            in_flight: 1_024,
            sessions: Vec::new(),
            addresses,
            next_index: 1,
        };
        Fake {
            net: Net::default(),
            world: Arc::new(Mutex::new(world)),
        }
    }

    /// Serves the first node on a real socket until the future is dropped.
    pub(crate) async fn serve_tcp(self, listener: TcpListener) {
        let incoming = TcpListenerStream::new(listener);
        self.server(1).serve_with_incoming(incoming).await.unwrap();
    }

    fn server(&self, id: u64) -> Router {
        let node = Node {
            id,
            world: self.world.clone(),
        };
        let sessions = self.world().knows_sessions;
        let sessions = sessions.then(|| SessionServiceServer::new(node.clone()));
        Server::builder()
            .add_service(AdmissionServiceServer::new(node.clone()))
            .add_optional_service(sessions)
            .add_service(TargetsServiceServer::new(node.clone()))
            .add_service(ClusterServiceServer::new(node))
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// What becomes of every ask from now on.
    pub(crate) fn script(&self, script: impl FnMut(&AdmitRequest) -> Act + Send + 'static) {
        self.world().script = Box::new(script);
    }

    /// What becomes of the next asks, in order; later ones are admitted.
    pub(crate) fn acts(&self, acts: impl IntoIterator<Item = Act>) {
        let mut acts = acts.into_iter().collect::<Vec<_>>().into_iter();
        self.script(move |_| acts.next().unwrap_or_else(admit));
    }

    pub(crate) fn options(&self) -> Options {
        Options::new(NODES)
            .connector(self.net.connector())
            .transport(super::TRANSPORT)
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.options()).unwrap()
    }

    /// Leadership moves; the old leader knows.
    pub(crate) fn elect(&self, leader: u64) {
        let mut world = self.world();
        world.leader = Some(leader);
        world.believed = None;
        world.term += 1;
    }

    /// The leader's process dies and nobody knows a new one; the others believe it still leads.
    pub(crate) fn kill_leader(&self) -> u64 {
        let dead = self.world().leader.take().unwrap();
        self.world().believed = Some(dead);
        self.net.set(address(dead), Link::Dead);
        dead
    }
}

pub(crate) fn address(node: u64) -> &'static str {
    NODES[usize::try_from(node).unwrap() - 1]
}

/// The asks of one attempt, by number, in the order in which they came.
pub(crate) fn numbers(asks: &[AdmitRequest]) -> Vec<u32> {
    asks.iter().map(|ask| ask.ask).collect()
}

impl World {
    fn address(&self, node: u64) -> String {
        self.addresses[usize::try_from(node).unwrap() - 1].clone()
    }

    fn believed(&self) -> Option<u64> {
        self.believed.or(self.leader)
    }

    fn decide(&mut self, ask: &AdmitRequest, act: &Act) -> Result<AdmitResponse, Status> {
        let decision = match act {
            Act::Admit { start_in_us } => self.grant(ask, *start_in_us),
            Act::Defer { retry_in_us } => {
                self.decided(ask);
                Decision::Deferred(Deferred {
                    retry_in_us: *retry_in_us,
                    earliest_in_us: 2 * retry_in_us,
                    place: 3,
                    limit: "rpm".into(),
                    place_until_us: 10_000_000,
                })
            }
            Act::Reject(reason) => {
                self.decided(ask);
                rejected(*reason)
            }
            Act::Late(_, act) | Act::Silent(act) | Act::Broken(act) => {
                return self.decide(ask, act);
            }
            Act::Duplicated(act) => {
                self.decide(ask, act)?;
                rejected(RejectReason::Stale)
            }
            Act::Error(error) => return Err(error.to_status()),
            Act::Raw(status) => return Err(status.clone()),
        };
        Ok(AdmitResponse {
            decision: Some(decision),
            policy_version: 1,
        })
    }

    /// A higher number undoes what the attempt holds.
    fn decided(&mut self, ask: &AdmitRequest) {
        self.highest.insert(ask.attempt, ask.ask);
        self.held.remove(&ask.attempt);
    }

    fn grant(&mut self, ask: &AdmitRequest, start_in_us: u64) -> Decision {
        self.decided(ask);
        let grant = Grant {
            shard: 0,
            index: self.next_index,
            offset: 0,
        };
        self.next_index += 1;
        self.held.insert(ask.attempt, (ask.ask, grant));
        let start_at = Instant::now() + Duration::from_micros(start_in_us);
        let granted = Granted {
            attempt: ask.attempt,
            ask: ask.ask,
            start_at,
        };
        self.granted.insert(grant.index, granted);
        Decision::Admitted(Admitted {
            start_in_us,
            reply_window_us: self.reply_window_us,
            grant: Some(grant),
            charged: ask.cost.clone(),
        })
    }
}

fn rejected(reason: RejectReason) -> Decision {
    Decision::Rejected(Rejected {
        reason: reason.into(),
        message: "no".into(),
        ..Rejected::default()
    })
}

impl Node {
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn leads(&self) -> Result<MutexGuard<'_, World>, Status> {
        let mut world = self.world();
        if world.leader != Some(self.id) {
            world.turned_away += 1;
            let hint = world.believed().filter(|believed| *believed != self.id);
            let hint = hint.map(|id| LeaderHint {
                node_id: id,
                address: world.address(id),
            });
            return Err(WireError::not_leader(hint).to_status());
        }
        if world.no_quorum {
            return Err(WireError::new(Reason::NoQuorum, "no quorum").to_status());
        }
        Ok(world)
    }

    /// Does something at the leader that may lose its answer.
    fn deliver<T>(&self, act: impl FnOnce(&mut World) -> T) -> Result<Response<T>, Status> {
        let mut world = self.leads()?;
        let answer = act(&mut world);
        if world.lose_answers > 0 {
            world.lose_answers -= 1;
            return Err(Status::unavailable("connection reset by peer"));
        }
        Ok(Response::new(answer))
    }
}

#[tonic::async_trait]
impl AdmissionService for Node {
    async fn admit(
        &self,
        request: Request<AdmitRequest>,
    ) -> Result<Response<AdmitResponse>, Status> {
        let ask = request.into_inner();
        let (mut act, answer) = {
            let mut world = self.leads()?;
            if ask.dry_run {
                world.probes += 1;
                let admitted = Decision::Admitted(Admitted::default());
                let answer = AdmitResponse {
                    decision: Some(admitted),
                    policy_version: 1,
                };
                return Ok(Response::new(answer));
            }
            world.asks.push(ask.clone());
            let highest = world.highest.get(&ask.attempt).copied().unwrap_or(0);
            let act = if ask.ask <= highest {
                Act::Reject(RejectReason::Stale)
            } else {
                (world.script)(&ask)
            };
            let answer = if ask.ask <= highest {
                let decision = Some(rejected(RejectReason::Stale));
                Ok(AdmitResponse {
                    decision,
                    policy_version: 1,
                })
            } else {
                world.decide(&ask, &act)
            };
            (act, answer)
        };
        loop {
            match act {
                Act::Late(by, then) => {
                    tokio::time::sleep(by).await;
                    act = *then;
                }
                Act::Silent(_) => std::future::pending().await,
                Act::Broken(_) => return Err(Status::unavailable("connection reset by peer")),
                Act::Admit { .. }
                | Act::Defer { .. }
                | Act::Duplicated(_)
                | Act::Reject(_)
                | Act::Error(_)
                | Act::Raw(_) => return answer.map(Response::new),
            }
        }
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        let takes = self.world().release_takes;
        let answer = self.deliver(|world| {
            let release = request.into_inner();
            let again = world
                .releases
                .iter()
                .any(|other| other.grant == release.grant);
            world.releases.push(release);
            let status = if again {
                ReleaseStatus::Already
            } else {
                ReleaseStatus::Applied
            };
            ReleaseResponse {
                status: status.into(),
            }
        });
        tokio::time::sleep(takes).await;
        answer
    }

    async fn cancel(
        &self,
        request: Request<CancelRequest>,
    ) -> Result<Response<CancelResponse>, Status> {
        self.deliver(|world| {
            let cancel = request.into_inner();
            let held = world.held.remove(&cancel.attempt);
            world.cancels.push(cancel);
            let status = match held {
                Some(_) => CancelStatus::GrantRefunded,
                None => CancelStatus::PlaceDropped,
            };
            CancelResponse {
                status: status.into(),
            }
        })
    }

    async fn extend(
        &self,
        request: Request<ExtendRequest>,
    ) -> Result<Response<ExtendResponse>, Status> {
        self.deliver(|world| {
            world.extends.push(request.into_inner());
            let status = ExtendStatus::Extended.into();
            ExtendResponse {
                status,
                expires_in_us: 60_000_000,
            }
        })
    }

    async fn report(
        &self,
        request: Request<ReportRequest>,
    ) -> Result<Response<ReportResponse>, Status> {
        self.deliver(|world| {
            let report = request.into_inner();
            let statuses = vec![world.report_status.into(); report.calls.len()];
            world.reports.push(report);
            ReportResponse { statuses }
        })
    }
}

#[tonic::async_trait]
impl TargetsService for Node {
    async fn put_target(
        &self,
        request: Request<PutTargetRequest>,
    ) -> Result<Response<PutTargetResponse>, Status> {
        let put = request.into_inner();
        let mut world = self.leads()?;
        let version = world
            .targets
            .get(&put.target)
            .map_or(0, |target| target.version);
        if put
            .expected_version
            .is_some_and(|expected| expected != version)
        {
            let mut error = WireError::new(Reason::VersionConflict, "another version");
            error.version = Some(version);
            return Err(error.to_status());
        }
        let name = put.target.clone();
        let target = Target {
            name,
            version: version + 1,
            policy: put.policy,
            ..Target::default()
        };
        world.targets.insert(put.target, target);
        Ok(Response::new(PutTargetResponse {
            version: version + 1,
            changed: true,
        }))
    }

    async fn get_target(
        &self,
        request: Request<GetTargetRequest>,
    ) -> Result<Response<GetTargetResponse>, Status> {
        let name = request.into_inner().target;
        let world = self.leads()?;
        match world.targets.get(&name) {
            Some(target) => Ok(Response::new(GetTargetResponse {
                target: Some(target.clone()),
            })),
            None => Err(WireError::target_unknown(&name).to_status()),
        }
    }

    async fn list_targets(
        &self,
        _: Request<ListTargetsRequest>,
    ) -> Result<Response<ListTargetsResponse>, Status> {
        let world = self.world();
        let leads = world.leader == Some(self.id);
        Ok(Response::new(ListTargetsResponse {
            targets: if leads {
                world.targets.values().cloned().collect()
            } else {
                Vec::new()
            },
            shards: if leads {
                (0..SHARDS).collect()
            } else {
                Vec::new()
            },
        }))
    }

    async fn delete_target(
        &self,
        request: Request<DeleteTargetRequest>,
    ) -> Result<Response<DeleteTargetResponse>, Status> {
        let name = request.into_inner().target;
        match self.leads()?.targets.remove(&name) {
            Some(_) => Ok(Response::new(DeleteTargetResponse {})),
            None => Err(WireError::target_unknown(&name).to_status()),
        }
    }

    async fn list_versions(
        &self,
        request: Request<ListVersionsRequest>,
    ) -> Result<Response<ListVersionsResponse>, Status> {
        let name = request.into_inner().target;
        match self.leads()?.targets.get(&name) {
            Some(target) => Ok(Response::new(ListVersionsResponse {
                versions: vec![PolicyVersion {
                    version: target.version,
                    policy: target.policy.clone(),
                    ..PolicyVersion::default()
                }],
            })),
            None => Err(WireError::target_unknown(&name).to_status()),
        }
    }

    async fn explain(
        &self,
        _: Request<ExplainRequest>,
    ) -> Result<Response<ExplainResponse>, Status> {
        drop(self.leads()?);
        Ok(Response::new(ExplainResponse::default()))
    }
}

#[tonic::async_trait]
impl ClusterService for Node {
    async fn routes(&self, _: Request<RoutesRequest>) -> Result<Response<RoutesResponse>, Status> {
        let world = self.world();
        let leader = world.believed().unwrap_or(0);
        let ids = 1..=world.addresses.len() as u64;
        let nodes = ids.map(|node_id| NodeAddress {
            node_id,
            address: world.address(node_id),
        });
        let routes = (0..SHARDS).map(|shard| ShardRoute {
            shard,
            leader,
            term: world.term,
        });
        Ok(Response::new(RoutesResponse {
            cluster_id: world.cluster_id.clone(),
            shards: SHARDS,
            nodes: nodes.collect(),
            routes: routes.collect(),
        }))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let cluster_id = self.world().cluster_id.clone();
        Ok(Response::new(StatusResponse {
            cluster_id,
            shards: SHARDS,
            nodes: Vec::new(),
        }))
    }

    async fn transfer(
        &self,
        request: Request<TransferRequest>,
    ) -> Result<Response<TransferResponse>, Status> {
        let mut world = self.leads()?;
        world.leader = Some(request.into_inner().to);
        world.term += 1;
        Ok(Response::new(TransferResponse {}))
    }

    async fn drain(&self, _: Request<DrainRequest>) -> Result<Response<DrainResponse>, Status> {
        Err(Status::unimplemented("no client asks for it"))
    }

    async fn undrain(
        &self,
        _: Request<UndrainRequest>,
    ) -> Result<Response<UndrainResponse>, Status> {
        Err(Status::unimplemented("no client asks for it"))
    }
}
