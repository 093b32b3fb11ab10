//! One connection per node, made when it is first needed, and one session over it.

use crate::Transport;
use crate::dice::Dice;
use crate::failure::Failure;
use crate::limits::{
    CONNECT_MAX, NODES_MAX, RENEW_MAX, RENEW_MIN, REOPEN_MAX, REOPEN_MIN, SEEDS_MAX,
    TRIES_PER_CONNECTION_MAX, UNARY_FOR,
};
use crate::lock::lock;
use crate::options::{Connector, endpoint_of};
use crate::route::Address;
use crate::rpc::Rpc;
use crate::session::{Caller, Heard, Over, Session, Unheard};
use crate::waits::Waits;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tonic::Request;
use tonic::transport::Channel;
use weir_proto::convert::session::PROTOCOL_VERSION;
use weir_proto::v1::ClientHello;

/// The connections of one client.
pub(crate) struct Connections {
    connector: Connector,
    transport: Transport,
    dice: Arc<Dice>,
    waits: Arc<Waits>,
    hello: ClientHello,
    open: Mutex<Open>,
}

struct Open {
    nodes: BTreeMap<Address, Connection>,
    next_session: u64,
}

struct Connection {
    channel: Channel,
    made_at: Instant,
    /// Connections that it follows, since the node last answered.
    renewals: u32,
    /// Tries in a row without an answer, nor anything else from the node since the first of them.
    unanswered: u32,
    silent_since: Instant,
    /// The session over it, once there was something for one.
    session: Option<Session>,
    /// Sessions in a row that could not be opened, and why the last one could not.
    failures: u32,
    failure: Option<Failure>,
    /// No session is opened before this.
    reopen_at: Instant,
    /// The node knows no sessions; it is not asked again before this.
    unary_until: Option<Instant>,
}

/// How an operation goes out.
enum Way {
    Session(Caller),
    Unary,
    /// Not now.
    Closed(Failure),
}

/// An answer, and when its request was handed over: the client rule counts from there.
#[derive(Debug)]
pub(crate) struct Carried<A> {
    pub(crate) handed_at: Instant,
    pub(crate) answer: A,
}

impl Connections {
    pub(crate) fn new(
        connector: Connector,
        transport: Transport,
        dice: Arc<Dice>,
        waits: Arc<Waits>,
    ) -> Connections {
        let hello = ClientHello {
            protocol_version: PROTOCOL_VERSION,
            // Zero is nobody.
            instance: dice.name().max(1),
            name: concat!("weir-client ", env!("CARGO_PKG_VERSION")).to_owned(),
            features: Vec::new(),
        };
        Connections {
            connector,
            transport,
            dice,
            waits,
            hello,
            open: Mutex::new(Open {
                nodes: BTreeMap::new(),
                next_session: 1,
            }),
        }
    }

    /// Sends one request to one node, in its session if there can be one, and waits at most `timeout`
    /// for its answer.
    pub(crate) async fn carry<R: Rpc>(
        &self,
        address: &Address,
        message: R,
        timeout: Duration,
    ) -> Result<Carried<R::Answer>, Failure> {
        let until = Instant::now() + timeout;
        let sessions = self.transport == Transport::Session && R::IN_SESSIONS;
        let (channel, way) = {
            let mut open = lock(&self.open);
            let (connection, next_session) = self.connection(&mut open, address)?;
            let way = if sessions {
                self.way(connection, next_session, Instant::now())
            } else {
                Way::Unary
            };
            (connection.channel.clone(), way)
        };
        let message = match way {
            Way::Unary => message,
            Way::Closed(failure) => return Err(failure),
            Way::Session(caller) => {
                // Only a session that is not open yet may turn out not to exist.
                let spare = (!caller.is_open()).then(|| message.clone());
                let operation = message.operation().ok_or_else(Failure::unread)?;
                match (caller.call(operation, timeout).await, spare) {
                    (Ok(Heard { handed_at, answer }), _) => {
                        let answer = R::read(answer).ok_or_else(Failure::unread)?;
                        return Ok(Carried { handed_at, answer });
                    }
                    (Err(Unheard::Failed(failure)), _) => return Err(failure),
                    (Err(Unheard::Unimplemented), Some(message)) => message,
                    (Err(Unheard::Unimplemented), None) => return Err(Failure::not_taken_up()),
                }
            }
        };
        let handed_at = Instant::now();
        let left = until.saturating_duration_since(handed_at);
        let mut request = Request::new(message);
        // The node drops work that nobody waits for any more.
        request.set_timeout(left);
        match tokio::time::timeout(left, R::send(request, channel)).await {
            Ok(Ok(response)) => Ok(Carried {
                handed_at,
                answer: response.into_inner(),
            }),
            Ok(Err(status)) => Err(Failure::of(&status)),
            Err(_) => Err(Failure::timed_out(timeout)),
        }
    }

    /// The connection to a node. An address that is none says so.
    fn connection<'a>(
        &self,
        open: &'a mut Open,
        address: &Address,
    ) -> Result<(&'a mut Connection, &'a mut u64), Failure> {
        if open.nodes.len() >= NODES_MAX + SEEDS_MAX && !open.nodes.contains_key(address) {
            // No cluster has so many: addresses of nodes that left. Those in use are made anew.
            open.nodes.clear();
        }
        if !open.nodes.contains_key(address) {
            let channel = self.connect(address)?;
            open.nodes.insert(address.clone(), Connection::new(channel));
        }
        match open.nodes.get_mut(address) {
            Some(connection) => Ok((connection, &mut open.next_session)),
            None => Err(Failure::unsendable(format!("no connection to {address}"))),
        }
    }

    /// A connection that is made when it is used.
    fn connect(&self, address: &Address) -> Result<Channel, Failure> {
        let endpoint = endpoint_of(address)
            .map_err(|error| Failure::unsendable(format!("{address:?} is no address: {error}")))?;
        Ok((self.connector)(endpoint.connect_timeout(CONNECT_MAX)))
    }

    /// How operations go out over a connection now.
    fn way(&self, connection: &mut Connection, next_session: &mut u64, now: Instant) -> Way {
        if let Some(session) = &connection.session {
            match session.over() {
                None => return Way::Session(session.caller()),
                Some(over) => {
                    connection.session = None;
                    connection.ended(over, &self.dice, now);
                }
            }
        }
        if connection.unary_until.is_some_and(|until| now < until) {
            return Way::Unary;
        }
        if let Some(failure) = &connection.failure
            && now < connection.reopen_at
        {
            return Way::Closed(failure.clone());
        }
        let id = *next_session;
        *next_session += 1;
        let channel = connection.channel.clone();
        let session = Session::open(id, channel, self.hello.clone(), self.waits.clone());
        Way::Session(connection.session.insert(session).caller())
    }

    /// The node answered.
    pub(crate) fn answered(&self, address: &Address) {
        if let Some(connection) = lock(&self.open).nodes.get_mut(address) {
            connection.unanswered = 0;
            connection.renewals = 0;
        }
    }

    /// The node did not answer in time what was asked at `asked_at`. After several times in a row its
    /// connection is given up: it may be waiting for packets that were lost, for much longer than a new one
    /// takes.
    pub(crate) fn unanswered(&self, address: &Address, asked_at: Instant) {
        let mut open = lock(&self.open);
        let Some(connection) = open.nodes.get_mut(address) else {
            return;
        };
        if !connection.is_given_up(asked_at, Instant::now()) {
            return;
        }
        let renewals = connection.renewals.saturating_add(1);
        match self.connect(address) {
            Ok(channel) => {
                *connection = Connection {
                    renewals,
                    ..Connection::new(channel)
                };
            }
            Err(_) => {
                open.nodes.remove(address);
            }
        }
    }
}

impl Connection {
    fn new(channel: Channel) -> Connection {
        let now = Instant::now();
        Connection {
            channel,
            made_at: now,
            renewals: 0,
            unanswered: 0,
            silent_since: now,
            session: None,
            failures: 0,
            failure: None,
            reopen_at: now,
            unary_until: None,
        }
    }

    /// A try of `asked_at` got no answer in its time. True if another connection has to take the place of
    /// this one.
    fn is_given_up(&mut self, asked_at: Instant, now: Instant) -> bool {
        let session = self.session.as_ref();
        let has_spoken = session.is_some_and(|it| it.was_heard_after(self.silent_since));
        if self.unanswered == 0 || has_spoken {
            self.unanswered = 0;
            self.silent_since = asked_at;
        }
        self.unanswered = self.unanswered.saturating_add(1);
        // One that is still being made fails by itself if it cannot be.
        let is_made = session.is_none_or(Session::was_open);
        let life_min = if self.renewals == 0 && is_made {
            Duration::ZERO
        } else {
            let doublings = self.renewals.saturating_sub(1).min(10);
            RENEW_MIN.saturating_mul(1 << doublings).min(RENEW_MAX)
        };
        self.unanswered >= TRIES_PER_CONNECTION_MAX
            && now.saturating_duration_since(self.made_at) >= life_min
    }

    /// Its session is over: when may the next one be opened?
    fn ended(&mut self, over: Over, dice: &Dice, now: Instant) {
        match over.why {
            Unheard::Unimplemented => self.unary_until = Some(now + UNARY_FOR),
            // A session that was open ends for its own reasons; the next one may open at once.
            Unheard::Failed(_) if over.was_open => {
                self.failures = 0;
                self.failure = None;
            }
            Unheard::Failed(failure) => {
                let pause = REOPEN_MIN
                    .saturating_mul(1 << self.failures.min(10))
                    .min(REOPEN_MAX);
                self.failures = self.failures.saturating_add(1);
                self.failure = Some(failure);
                self.reopen_at = now + dice.between(pause / 2, pause);
            }
        }
    }
}
