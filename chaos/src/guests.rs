//! Many clients as the library makes them, each with connections and sessions of its own, that call at one moment.

use crate::crowd::allow_files;
use crate::overload::PRIORITY;
use hyper_util::rt::TokioIo;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::{Endpoint, Uri};
use weir_client::{Call, Client, Connector, Mode, Options, Outcome};

/// Connections of one guest: with the node that told it the routes, with the leader, and with the next one.
const CONNECTIONS_EACH: usize = 3;

/// Clients. Dropping them closes their connections.
pub struct Guests {
    clients: Vec<Client>,
    knocks: Knocks,
}

/// When connections were tried.
#[derive(Clone, Default)]
struct Knocks(Arc<Mutex<Vec<Instant>>>);

/// What became of one call of each guest.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// When each of those that were admitted was, in order.
    pub after: Vec<Duration>,
    /// Those that were not in time.
    pub unserved: usize,
}

impl Knocks {
    fn times(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plain TCP, counted.
    fn connector(&self) -> Connector {
        let knocks = self.clone();
        Arc::new(move |endpoint: Endpoint| {
            let knocks = knocks.clone();
            endpoint.connect_with_connector_lazy(tower::service_fn(move |uri: Uri| {
                knocks.times().push(Instant::now());
                async move {
                    let address = uri.authority().map(ToString::to_string).unwrap_or_default();
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    std::io::Result::Ok(TokioIo::new(stream))
                }
            }))
        })
    }
}

impl Guests {
    /// So many clients of the cluster at `addresses`, not connected yet. They let no call through without a
    /// decision.
    pub fn new(addresses: &[String], count: usize) -> anyhow::Result<Guests> {
        allow_files(u64::try_from(count * CONNECTIONS_EACH)?)?;
        let knocks = Knocks::default();
        let clients = (0..count).map(|_| {
            let options = Options::new(addresses)
                .mode(Mode::Closed)
                .ungated_after(Duration::from_secs(3_600))
                .connector(knocks.connector());
            Client::new(options)
        });
        Ok(Guests {
            clients: clients.collect::<Result<_, _>>()?,
            knocks,
        })
    }

    /// Every guest makes one call, spread over `spread`, and waits for its turn until `within` is over from
    /// now. Then it settles.
    pub async fn call(
        &self,
        target: &str,
        name: &str,
        spread: Duration,
        within: Duration,
    ) -> Served {
        let begun = Instant::now();
        let until = begun + within;
        let count = u32::try_from(self.clients.len()).unwrap_or(u32::MAX).max(1);
        let mut calls = JoinSet::new();
        for (number, client) in (0_u32..).zip(&self.clients) {
            let call = Call::new(target, "guests", PRIORITY)
                .id(format!("{name}.{number}"))
                .cost("requests", 1);
            let client = client.clone();
            let begin = spread * number / count;
            calls.spawn(async move {
                sleep(begin).await;
                let guard = timeout_at(until, client.admit_wait(&call))
                    .await
                    .ok()?
                    .ok()?;
                let after = begun.elapsed();
                let _ = guard.settle(Outcome::Ok, [("requests", 1)]).await;
                Some(after)
            });
        }
        let all = calls.join_all().await;
        let mut after: Vec<Duration> = all.into_iter().flatten().collect();
        after.sort_unstable();
        Served {
            unserved: self.clients.len() - after.len(),
            after,
        }
    }

    /// When connections were tried since then, in order.
    pub fn knocks_since(&self, since: Instant) -> Vec<Duration> {
        let times = self.knocks.times();
        let later = times.iter().filter(|at| **at >= since);
        let mut after: Vec<Duration> = later.map(|at| *at - since).collect();
        after.sort_unstable();
        after
    }

    /// What all of them counted so far: asks, of which repeated, repeats withheld, answers that came too late,
    /// and deferrals of their own.
    pub fn counted(&self) -> [u64; 5] {
        let mut sum = [0; 5];
        for stats in self.clients.iter().map(Client::stats) {
            let counts = [
                stats.asks,
                stats.retries,
                stats.retries_withheld,
                stats.late_answers,
                stats.deferred_locally,
            ];
            for (sum, count) in sum.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        sum
    }
}

/// One of a sorted list, by its rank in thousandths; zero if there is none.
pub fn quantile(sorted: &[Duration], thousandths: usize) -> Duration {
    let at = (sorted.len() * thousandths / 1_000).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}
