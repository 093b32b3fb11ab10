//! The Rust client of Weir.
//!
//! A worker asks before each call to a rate-limited target, and says afterwards what the call used:
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use weir_client::{Call, Client, Options, Outcome};
//!
//! let client = Client::new(Options::new(["127.0.0.1:7400"]))?;
//! let call = Call::new("openai/gpt-5", "acme", "interactive")
//!     .cost("requests", 1)
//!     .cost("tokens", 800)
//!     .cost_max("tokens", 4_000);
//! let guard = client.admit_wait(&call).await?;
//! // ... send now, and read from the answer what it used ...
//! guard.settle(Outcome::Ok, [("tokens", 1_234)]).await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Client::admit_wait`] holds the caller until its turn. Engines with durable timers use
//! [`Client::try_admit`] instead: a [`Deferral`] says when to come back and carries the [`Ticket`] that
//! keeps the place in line. One that can be resumed from outside is told of its turn: [`Client::turn`].
//!
//! **When the cluster does not answer**, for the first [`Options::ungated_after`] calls are deferred
//! locally; after that [`Options::mode`] decides. What went out without a decision is counted
//! ([`Stats`]) and reported, once, when the cluster answers again.
//!
//! **The cap holds** only if calls go out in time. A grant says how old an answer may be; the client
//! never hands out an older one, but asks again. It keeps its place.

mod admin;
mod answer;
mod asking;
mod background;
mod breaker;
mod budget;
mod call;
mod client;
mod connections;
mod dice;
mod error;
mod failure;
mod grant;
mod guard;
mod history;
pub mod limits;
mod local;
mod lock;
mod options;
mod retry;
mod route;
mod rpc;
mod session;
mod shared;
mod stats;
mod strain;
mod ticket;
mod turn;
mod ungated;
mod waits;
mod zone;

pub use admin::TargetList;
pub use answer::{Answer, Deferral, Origin, RejectReason, Rejection};
pub use call::Call;
pub use client::{Cancellation, Client};
pub use error::Error;
pub use grant::{Grant, GrantError};
pub use guard::{Extension, Guard, Outcome, Settlement};
pub use history::History;
pub use options::{Connector, Mode, Options, OptionsError, Transport};
pub use stats::Stats;
pub use ticket::{Ticket, TicketError};
pub use turn::Turn;
/// The generated wire types, for operators' requests.
pub use weir_proto::v1 as wire;
