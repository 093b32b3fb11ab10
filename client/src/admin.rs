//! What operators ask. Answers are as on the wire ([`crate::wire`]).

use crate::{Client, Error, wire};

/// The targets of a cluster, and what is missing from the list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetList {
    /// In order of name.
    pub targets: Vec<wire::Target>,
    /// Shards whose leader did not answer: their targets are not in the list.
    pub missing_shards: Vec<u32>,
}

fn unavailable<T>() -> Result<T, Error> {
    Err(Error::Unavailable {
        message: "no route".into(),
        may_have_happened: false,
    })
}

impl Client {
    /// Creates or replaces a target's policy. `expected_version`: `None` puts whatever is there, 0 only
    /// creates, n replaces only version n.
    ///
    /// Retried like an ask; a put that expects a version and whose first try went unanswered may
    /// report [`Error::Conflict`] with itself: read the target, then decide.
    pub async fn put_target(
        &self,
        target: &str,
        policy: wire::Policy,
        expected_version: Option<u64>,
    ) -> Result<wire::PutTargetResponse, Error> {
        let _ = (target, policy, expected_version);
        unavailable()
    }

    /// Policy and current use of a target.
    pub async fn get_target(&self, target: &str) -> Result<wire::Target, Error> {
        let _ = target;
        unavailable()
    }

    /// Asks every leader for its targets and says which shards did not answer.
    pub async fn list_targets(&self) -> Result<TargetList, Error> {
        unavailable()
    }

    /// Removes a target. Its use is remembered for as long as a limit could need it.
    pub async fn delete_target(
        &self,
        target: &str,
        expected_version: Option<u64>,
    ) -> Result<(), Error> {
        let _ = (target, expected_version);
        unavailable()
    }

    /// Nodes, groups, leaders, terms and applied positions, gathered by the first node that answers.
    pub async fn status(&self) -> Result<wire::StatusResponse, Error> {
        unavailable()
    }

    /// The routes, as the first node that answers knows them.
    pub async fn routes(&self) -> Result<wire::RoutesResponse, Error> {
        unavailable()
    }

    /// Hands a shard's leadership to another node.
    pub async fn transfer(&self, shard: u32, to: u64) -> Result<(), Error> {
        let _ = (shard, to);
        unavailable()
    }
}
