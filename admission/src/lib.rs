//! The admission rules of Weir, as a value.
//!
//! Nothing here reads a clock, draws a random number, logs or waits. A [`State`] takes batches of
//! [`Operation`]s in log order, each batch with the [`Stamp`] its leader gave it, and answers one
//! [`Outcome`] per operation. The same log gives the same bytes on every replica.
//!
//! The nouns: a *target* has a [`Policy`] of *limits*; a worker *asks* ([`Admit`]) for a *grant*,
//! waits with a *ticket* if it is deferred, and ends the grant with a [`Release`]. Among waiters,
//! priorities share by weight and tenants inside a priority share by weight, both on the *dominant
//! share*: the largest part of any limit's cap that a call takes, measured in time.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::float_arithmetic
    )
)]

mod amounts;
mod by_digest;
mod checkpoint;
mod codec;
mod hash;
pub mod limits;
mod meter;
mod name;
mod notes;
mod operation;
mod order;
mod pacer;
mod policy;
mod shard;
mod state;
mod target;
mod time;
mod view;
mod window;

pub use amounts::{Amounts, AmountsError};
pub use codec::DecodeError;
pub use name::{
    DimensionName, LimitName, NameError, Principal, PriorityName, TargetName, TenantName,
};
pub use operation::{
    Admit, AdmitOutcome, Admitted, AskName, CallOutcome, CancelOutcome, Deferred, DeletePolicy,
    Extend, ExtendOutcome, GrantId, Operation, Outcome, PolicyOutcome, PutPolicy, Refusal,
    Rejected, Release, ReleaseOutcome, Report, ReportOutcome,
};
pub use policy::{
    EnforcedBy, Estimate, Headroom, InitialUse, Kind, Limit, Policy, Priority, Violation,
};
pub use shard::{ShardId, pool_of, shard_of};
pub use state::{Checkpoint, CheckpointStep, State};
pub use time::{Micros, Stamp};
pub use view::{
    Explanation, Holds, KnownAdmission, LimitAhead, LimitUse, PolicyVersion, PriorityAhead,
    PriorityUse, Settlement, TargetView,
};
