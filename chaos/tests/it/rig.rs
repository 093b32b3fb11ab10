//! A cluster under load, and everything that is asked of every run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use weir_chaos::cluster::Cluster;
use weir_chaos::fleet::{Fleet, Plan};
use weir_chaos::history::{Costs, History};
use weir_chaos::judge::{Cap, Promises, audit, judge};
use weir_chaos::recorder::Recorder;
use weir_chaos::repeater::Repeater;
use weir_client::wire::{
    EnforcedBy, InitialUse, Limit, LimitKind, Policy, Priority, PutTargetResponse, Target,
};
use weir_client::{Client, Error};

pub(crate) const TARGET: &str = "payments/charge";
/// Shards of a test's cluster: more than nodes, so that each node leads and follows.
pub(crate) const SHARDS: u32 = 4;
/// How long a call may still ask after the load ended.
const FINISH_MAX: Duration = Duration::from_secs(20);
/// A probe has its answer within this, on a machine that is busy too.
const PROBED_MAX: Duration = Duration::from_secs(3);
/// Callers that say everything twice.
const REPEATERS: u64 = 4;

/// The server that is tested: the one that was built with these tests, or any other.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("WEIR_BIN").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_weir-under-test")),
        PathBuf::from,
    )
}

/// One cluster at a time: several would measure each other's load.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

pub(crate) struct Rig {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) recorder: Recorder,
    pub(crate) caps: Vec<Cap>,
    _alone: MutexGuard<'static, ()>,
}

pub(crate) struct Load {
    fleet: Fleet,
    repeaters: JoinSet<anyhow::Result<()>>,
    stop: tokio::sync::watch::Sender<bool>,
}

impl Rig {
    /// A running cluster with a policy: `pace` lets `cap` requests through in each `per`; `ledger`
    /// counts every request for ten minutes and never binds.
    pub(crate) async fn start(cap: u64, per: Duration) -> Rig {
        let alone = alone().await;
        let cluster = Cluster::new(&program(), SHARDS).unwrap();
        Rig::begin(alone, cluster, cap, per).await
    }

    /// The same with nodes that have few file descriptors.
    pub(crate) async fn start_limited(cap: u64, per: Duration, files: u32) -> Rig {
        let alone = alone().await;
        let mut cluster = Cluster::new(&program(), SHARDS).unwrap();
        cluster.limit_files(files);
        Rig::begin(alone, cluster, cap, per).await
    }

    async fn begin(
        alone: MutexGuard<'static, ()>,
        mut cluster: Cluster,
        cap: u64,
        per: Duration,
    ) -> Rig {
        cluster.start().await.unwrap();
        let client = cluster.client().unwrap();
        let limit = |limit: &str, cap, per: Duration| Cap {
            limit: limit.into(),
            dimension: "requests".into(),
            cap,
            per_us: u64::try_from(per.as_micros()).unwrap(),
        };
        let caps = vec![
            limit("pace", cap, per),
            limit("ledger", 100_000, Duration::from_secs(600)),
        ];
        let rig = Rig {
            cluster,
            client,
            recorder: Recorder::new(),
            caps,
            _alone: alone,
        };
        let put = rig.put().await;
        assert_eq!((put.version, put.changed), (1, true));
        rig
    }

    /// Puts the policy; the same one again changes nothing.
    pub(crate) async fn put(&self) -> PutTargetResponse {
        let put = self.client.put_target(TARGET, policy(&self.caps), None);
        put.await.unwrap()
    }

    /// Two tenants in two priorities with more calls than the cap has room for, and callers that say
    /// everything twice.
    pub(crate) fn load(&self) -> Load {
        let plan = Plan {
            target: TARGET.into(),
            lines: vec![
                ("acme".into(), "interactive".into()),
                ("acme".into(), "bulk".into()),
                ("umbra".into(), "bulk".into()),
            ],
            workers: 5,
            costs: one_request(),
            patience: Some(Duration::from_secs(3)),
            call_time: Duration::from_millis(20),
        };
        let fleet = Fleet::start(&self.client, &self.recorder, &plan);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let mut repeaters = JoinSet::new();
        for number in 0..REPEATERS {
            let line = ("twice", "interactive");
            let repeater = Repeater::new(
                &self.cluster.addresses(),
                &self.recorder,
                TARGET,
                line,
                &one_request(),
            );
            repeaters.spawn(repeat(repeater.unwrap(), number, stopped.clone()));
        }
        Load {
            fleet,
            repeaters,
            stop,
        }
    }

    /// Everything that every run promises: caps in every window, one charge and one send an attempt,
    /// everybody served, nothing ungated. Returns what was seen, for more.
    pub(crate) async fn judge(&mut self) -> History {
        let target = self.settled().await;
        let history = self.recorder.snapshot();
        let promises = Promises {
            caps: self.caps.clone(),
            no_ungated: true,
            all_served: true,
        };
        let found = judge(&history, &promises);
        assert!(found.is_empty(), "{}", list(&found));
        let ledger = self.caps.get(1..2).unwrap();
        let found = audit(&history, ledger, &counted(&target));
        assert!(found.is_empty(), "{}", list(&found));
        self.cluster.wait_until_equal().await.unwrap();
        history
    }

    /// The target once nobody waits and no grant is open.
    async fn settled(&self) -> Target {
        let until = Instant::now() + FINISH_MAX;
        loop {
            let target = self.target().await;
            if target.waiting == 0 && target.grants == 0 {
                return target;
            }
            assert!(
                Instant::now() < until,
                "not settled in {FINISH_MAX:?}: {} waiting, {} grants; {:?}",
                target.waiting,
                target.grants,
                self.client.stats()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Reads the target, through whatever is going on.
    pub(crate) async fn target(&self) -> Target {
        let until = Instant::now() + FINISH_MAX;
        loop {
            match self.client.get_target(TARGET).await {
                Ok(target) => return target,
                Err(error @ Error::Unavailable { .. }) => {
                    assert!(
                        Instant::now() < until,
                        "no answer in {FINISH_MAX:?}: {error}"
                    );
                    sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Load {
    /// No new calls; those under way are asked for until they are served.
    pub(crate) async fn finish(mut self) {
        self.stop.send_replace(true);
        self.fleet.finish(FINISH_MAX).await.unwrap();
        let all = async {
            while let Some(ended) = self.repeaters.join_next().await {
                ended.unwrap().unwrap();
            }
        };
        tokio::time::timeout(FINISH_MAX, all).await.unwrap();
    }
}

async fn repeat(
    repeater: Repeater,
    number: u64,
    stopped: tokio::sync::watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let mut turn = 0;
    while !*stopped.borrow() {
        turn += 1;
        repeater
            .call(&format!("twice.{number}.{turn}"), number << 32 | turn)
            .await?;
    }
    Ok(())
}

pub(crate) fn one_request() -> Costs {
    BTreeMap::from([("requests".into(), 1)])
}

/// Units that the cluster counts, by limit.
pub(crate) fn counted(target: &Target) -> BTreeMap<String, u64> {
    target
        .limits
        .iter()
        .map(|limit| (limit.name.clone(), limit.used))
        .collect()
}

pub(crate) fn served(history: &History, from_us: u64, to_us: u64) -> usize {
    let arrivals = history.arrivals();
    arrivals
        .iter()
        .filter(|arrival| (from_us..to_us).contains(&arrival.at_us))
        .count()
}

fn policy(caps: &[Cap]) -> Policy {
    let limit = |cap: &Cap, enforced_by: EnforcedBy, burst_us: Option<u64>| Limit {
        name: cap.limit.clone(),
        dimension: cap.dimension.clone(),
        cap: cap.cap,
        per_us: cap.per_us,
        kind: LimitKind::Sliding.into(),
        enforced_by: enforced_by.into(),
        burst_us,
        initial_use: InitialUse::Empty.into(),
    };
    let [pace, ledger] = caps else {
        panic!("two caps")
    };
    Policy {
        limits: vec![
            limit(pace, EnforcedBy::Provider, Some(pace.per_us)),
            limit(ledger, EnforcedBy::Us, Some(ledger.per_us)),
        ],
        priorities: vec![
            Priority {
                name: "interactive".into(),
                weight: 3,
            },
            Priority {
                name: "bulk".into(),
                weight: 1,
            },
        ],
        // A busy test machine stalls for longer than a data centre: these are its bounds.
        reply_window_us: Some(200_000),
        send_spread_us: Some(200_000),
        ..Policy::default()
    }
}

fn list(found: &[weir_chaos::judge::Violation]) -> String {
    found
        .iter()
        .map(|violation| format!("\n{violation}"))
        .collect()
}

/// What a probe is told. One that comes together with a crowd may have to come again, as probes do.
pub(crate) async fn readiness(address: &str) -> String {
    get(address, "/readyz").await
}

/// What a node's admin port answers.
pub(crate) async fn get(address: &str, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let ask = async || {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let asking = async {
        loop {
            match ask().await {
                Ok(answer) if !answer.is_empty() => return answer,
                Ok(_) | Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(PROBED_MAX, asking)
        .await
        .expect("an answer in time")
}
