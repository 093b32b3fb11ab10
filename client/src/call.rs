//! What a caller wants to do.

use std::collections::BTreeMap;
use std::time::Duration;

/// One logical call that wants to happen: who calls what, at which priority and cost.
///
/// The call's id is its idempotency key and its place in line. It is random unless set; keep the `Call`
/// (or its id) over every retry of the same work, and make a new one for new work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub(crate) target: String,
    pub(crate) tenant: String,
    pub(crate) priority: String,
    pub(crate) id: String,
    pub(crate) cost: BTreeMap<String, u64>,
    pub(crate) cost_max: BTreeMap<String, u64>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) deadline: Option<Duration>,
}

impl Call {
    /// A call with a random id and no cost yet. Names are 1-128 bytes without control characters.
    pub fn new(
        target: impl Into<String>,
        tenant: impl Into<String>,
        priority: impl Into<String>,
    ) -> Call {
        Call {
            target: target.into(),
            tenant: tenant.into(),
            priority: priority.into(),
            id: format!("{:032x}", rand::random::<u128>()),
            cost: BTreeMap::new(),
            cost_max: BTreeMap::new(),
            labels: BTreeMap::new(),
            deadline: None,
        }
    }

    /// The call's own name, 1-128 bytes: for work that may be run again by another process.
    pub fn id(mut self, id: impl Into<String>) -> Call {
        self.id = id.into();
        self
    }

    /// Units the call takes in a dimension; the lower bound if it has a [`Call::cost_max`] too. At least
    /// one dimension must be above zero, at most 8 are allowed.
    pub fn cost(mut self, dimension: impl Into<String>, units: u64) -> Call {
        self.cost.insert(dimension.into(), units);
        self
    }

    /// Upper bound of the units in a dimension, for example input tokens plus the most tokens the
    /// answer may have. Never below the cost.
    pub fn cost_max(mut self, dimension: impl Into<String>, units: u64) -> Call {
        self.cost_max.insert(dimension.into(), units);
        self
    }

    /// A fact about the call, for example its model. At most 8; an id used again with other facts is a
    /// conflict.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Call {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// Refuse instead of waiting beyond this. Counted from each [`crate::Client::try_admit`] or
    /// [`crate::Client::admit_wait`].
    pub fn deadline(mut self, deadline: Duration) -> Call {
        self.deadline = Some(deadline);
        self
    }

    /// The id, to be stored with a [`crate::Ticket`].
    pub fn admission_id(&self) -> &str {
        &self.id
    }

    /// What is called.
    pub fn target(&self) -> &str {
        &self.target
    }
}
