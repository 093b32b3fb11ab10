//! What a client is told when it is made.

use crate::limits::{SEEDS_MAX, TRY_TIMEOUT_MAX, TRY_TIMEOUT_MIN, UNGATED_AFTER_MAX};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// Makes the connection to one node. Tests and simulations give their own; it must not block, so a
/// connection is best made lazily.
pub type Connector = Arc<dyn Fn(Endpoint) -> Channel + Send + Sync>;

/// What happens to a call when the cluster has not answered for [`Options::ungated_after`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It goes out, counted and reported later: the provider's own limit is the last guard. For work
    /// that is worth more than a 429.
    #[default]
    Open,
    /// It goes out if it fits this client's share of the caps last seen ([`Options::local_share_ppm`]);
    /// otherwise it is deferred. Without a policy seen before the outage it is refused as in
    /// [`Mode::Closed`].
    Local,
    /// It is refused with [`crate::Error::Unavailable`]. For limits that must never be passed.
    Closed,
}

/// How operations travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Over one stream to each node, which all callers share: several times cheaper at both ends, and
    /// calls that wait can be woken. Nodes that know no sessions are asked by unary calls.
    #[default]
    Session,
    /// Each as a call of its own: for ways on which long-lived streams do not last.
    Unary,
}

/// How a client behaves. Made by [`Options::new`], changed by the methods, checked by
/// [`crate::Client::new`].
#[derive(Clone)]
pub struct Options {
    pub(crate) seeds: Vec<String>,
    pub(crate) mode: Mode,
    pub(crate) ungated_after: Duration,
    pub(crate) try_timeout: Duration,
    pub(crate) answer_within: Duration,
    pub(crate) local_share_ppm: u32,
    pub(crate) transport: Transport,
    pub(crate) connector: Connector,
    pub(crate) random_seed: Option<u64>,
}

impl Options {
    /// Options with these seeds and the defaults.
    ///
    /// A seed is the client address of any node, `host:port` or `http://host:port`; the client learns
    /// the others from it. 1-64 seeds.
    pub fn new<S: Into<String>>(seeds: impl IntoIterator<Item = S>) -> Options {
        Options {
            seeds: seeds.into_iter().map(Into::into).collect(),
            mode: Mode::Open,
            ungated_after: Duration::from_secs(3),
            try_timeout: Duration::from_millis(250),
            answer_within: Duration::from_millis(500),
            local_share_ppm: 10_000,
            transport: Transport::Session,
            connector: Arc::new(|endpoint| endpoint.connect_lazy()),
            random_seed: None,
        }
    }

    /// What happens to calls in a long outage. Default [`Mode::Open`].
    pub fn mode(mut self, mode: Mode) -> Options {
        self.mode = mode;
        self
    }

    /// How long missing answers are deferrals before the mode decides, up to an hour. Default 3 s:
    /// longer than the election of a new leader. Zero lets the mode decide at the first missing answer.
    pub fn ungated_after(mut self, ungated_after: Duration) -> Options {
        self.ungated_after = ungated_after;
        self
    }

    /// How long one send waits for its answer, 1 ms to 10 s. Default 250 ms. Clients in another region
    /// than the cluster need several round trips. Twice as long while nothing of use is heard from a shard,
    /// when a decision sends only once.
    pub fn try_timeout(mut self, try_timeout: Duration) -> Options {
        self.try_timeout = try_timeout;
        self
    }

    /// How long one decision may hold the caller while answers are missing, 1 ms to 10 s. Default
    /// 500 ms: two tries. After it the caller gets a deferral (or what the mode decides) and may use
    /// its slot for something else. The deadline of the call shortens it.
    pub fn answer_within(mut self, answer_within: Duration) -> Options {
        self.answer_within = answer_within;
        self
    }

    /// This client's share of every cap in [`Mode::Local`], in millionths, 1 to 1 000 000. Default
    /// 10 000, one hundredth: safe for a fleet of a hundred clients. Set it to 1 000 000 over the
    /// number of clients.
    pub fn local_share_ppm(mut self, local_share_ppm: u32) -> Options {
        self.local_share_ppm = local_share_ppm;
        self
    }

    /// How asks, releases, cancels and extensions travel. Default [`Transport::Session`].
    pub fn transport(mut self, transport: Transport) -> Options {
        self.transport = transport;
        self
    }

    /// Another way to make connections. Default: plain TCP, made at the first use.
    pub fn connector(mut self, connector: Connector) -> Options {
        self.connector = connector;
        self
    }

    /// Takes jitter and attempt numbers from this seed, so that a simulation repeats itself. Never for
    /// real work: attempts of different clients must differ. Default: from the system.
    pub fn random_seed(mut self, random_seed: u64) -> Options {
        self.random_seed = Some(random_seed);
        self
    }

    /// The first option that is out of its range.
    pub(crate) fn check(&self) -> Result<(), OptionsError> {
        if self.seeds.is_empty() || self.seeds.len() > SEEDS_MAX {
            return Err(OptionsError::Seeds {
                count: self.seeds.len(),
            });
        }
        for seed in &self.seeds {
            let wrong = |reason: String| OptionsError::Seed {
                seed: seed.clone(),
                reason,
            };
            check_seed(seed).map_err(|reason| wrong(reason.to_owned()))?;
            endpoint_of(seed).map_err(|reason| wrong(reason.to_string()))?;
        }
        let tries = TRY_TIMEOUT_MIN..=TRY_TIMEOUT_MAX;
        if !tries.contains(&self.try_timeout) {
            return Err(OptionsError::Range {
                option: "try_timeout",
                range: "1 ms to 10 s",
            });
        }
        if !tries.contains(&self.answer_within) {
            return Err(OptionsError::Range {
                option: "answer_within",
                range: "1 ms to 10 s",
            });
        }
        if self.ungated_after > UNGATED_AFTER_MAX {
            return Err(OptionsError::Range {
                option: "ungated_after",
                range: "0 to 1 h",
            });
        }
        if !(1..=1_000_000).contains(&self.local_share_ppm) {
            return Err(OptionsError::Range {
                option: "local_share_ppm",
                range: "1 to 1 000 000",
            });
        }
        Ok(())
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("seeds", &self.seeds)
            .field("mode", &self.mode)
            .field("ungated_after", &self.ungated_after)
            .field("try_timeout", &self.try_timeout)
            .field("answer_within", &self.answer_within)
            .field("local_share_ppm", &self.local_share_ppm)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

/// The endpoint of an address as people and nodes write it.
pub(crate) fn endpoint_of(address: &str) -> Result<Endpoint, tonic::transport::Error> {
    if address.contains("://") {
        Endpoint::from_shared(address.to_owned())
    } else {
        Endpoint::from_shared(format!("http://{address}"))
    }
}

fn check_seed(seed: &str) -> Result<(), &'static str> {
    let address = seed.split_once("://").map_or(seed, |(_, address)| address);
    let (host, port) = address.rsplit_once(':').ok_or("it names no port")?;
    if host.is_empty() || host.contains('/') {
        return Err("it names no host");
    }
    match port.parse::<u16>() {
        Ok(0) | Err(_) => Err("its port is not a number from 1 to 65535"),
        Ok(_) => Ok(()),
    }
}

/// Why [`crate::Client::new`] refuses its options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// No seed, or too many.
    #[error("a client needs 1 to {SEEDS_MAX} seeds, has {count}")]
    Seeds {
        /// How many were given.
        count: usize,
    },
    /// A seed is not an address.
    #[error("seed {seed:?} is not host:port: {reason}")]
    Seed {
        /// The seed as given.
        seed: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An option is out of its range.
    #[error("{option} must be {range}")]
    Range {
        /// Name of the option.
        option: &'static str,
        /// What it must be.
        range: &'static str,
    },
    /// The client was made outside of a tokio runtime, where its background work cannot live.
    #[error("a client must be made inside a tokio runtime")]
    NoRuntime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked_one_by_one() {
        let good = || Options::new(["127.0.0.1:7400"]);
        assert_eq!(good().check(), Ok(()));
        assert_eq!(
            Options::new(["http://[::1]:7400", "node-1.example:7400"]).check(),
            Ok(())
        );
        assert_eq!(
            Options::new([""; 0]).check(),
            Err(OptionsError::Seeds { count: 0 })
        );
        assert_eq!(
            Options::new(vec!["a:1"; SEEDS_MAX + 1]).check(),
            Err(OptionsError::Seeds {
                count: SEEDS_MAX + 1
            })
        );
        assert!(matches!(
            Options::new(["no spaces:1"]).check(),
            Err(OptionsError::Seed { .. })
        ));
        for seed in ["", "nonsense", ":1", "a:0", "a:65536", "http://a/b:1"] {
            let checked = Options::new([seed]).check();
            assert!(matches!(checked, Err(OptionsError::Seed { .. })), "{seed}");
        }
        for seed in ["a:1", "http://a:65535", "[::1]:7400"] {
            assert_eq!(Options::new([seed]).check(), Ok(()), "{seed}");
        }
        let bad = [
            (good().try_timeout(Duration::ZERO), "try_timeout"),
            (good().try_timeout(Duration::from_secs(11)), "try_timeout"),
            (good().answer_within(Duration::ZERO), "answer_within"),
            (
                good().ungated_after(Duration::from_secs(3_601)),
                "ungated_after",
            ),
            (good().local_share_ppm(0), "local_share_ppm"),
            (good().local_share_ppm(1_000_001), "local_share_ppm"),
        ];
        for (options, name) in bad {
            match options.check() {
                Err(OptionsError::Range { option, .. }) => assert_eq!(option, name),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
