//! What a caller wants to do.

use crate::{Error, Ticket};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_admission::limits::{ADMISSION_ID_BYTES_MAX, LABELS_MAX};
use weir_admission::{Amounts, DimensionName, NameError, PriorityName, TargetName, TenantName};
use weir_proto::v1::{AdmitRequest, CancelRequest};

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

/// A call that was checked, in the shape it travels in. What the cluster would refuse as malformed must
/// not go out ungated either, so it is refused here already.
#[derive(Clone, Debug)]
pub(crate) struct CheckedCall {
    pub(crate) target: TargetName,
    /// Attempt and ask are filled in for each send.
    pub(crate) ask: AdmitRequest,
    /// The upper bound in every dimension: what an ungated call is charged until it ends.
    pub(crate) bound: BTreeMap<String, u64>,
}

impl CheckedCall {
    /// Checks a call against the rules of the wire, as far as they do not depend on a policy.
    pub(crate) fn new(call: &Call) -> Result<CheckedCall, Error> {
        let target = check_name("target", TargetName::new(&call.target))?;
        check_name("tenant", TenantName::new(&call.tenant))?;
        check_name("priority", PriorityName::new(&call.priority))?;
        check(
            !call.id.is_empty() && call.id.len() <= ADMISSION_ID_BYTES_MAX,
            || format!("admission_id must be 1-{ADMISSION_ID_BYTES_MAX} bytes"),
        )?;
        let cost = check_amounts("cost", &call.cost)?;
        let cost_max = check_amounts("cost_max", &call.cost_max)?;
        check(!cost.is_zero(), || {
            "cost must be above zero in one dimension".into()
        })?;
        for (dimension, most) in cost_max.iter() {
            let least = cost.get(dimension).unwrap_or(0);
            check(least <= most, || {
                format!("cost_max[{dimension:?}] must not be below cost")
            })?;
        }
        check(call.labels.len() <= LABELS_MAX, || {
            format!("labels must be at most {LABELS_MAX}")
        })?;
        let mut bound = call.cost.clone();
        bound.extend(
            call.cost_max
                .iter()
                .map(|(name, units)| (name.clone(), *units)),
        );
        let ask = AdmitRequest {
            target: call.target.clone(),
            tenant: call.tenant.clone(),
            priority: call.priority.clone(),
            admission_id: call.id.clone(),
            cost: call.cost.clone(),
            cost_max: call.cost_max.clone(),
            labels: call.labels.clone(),
            ..AdmitRequest::default()
        };
        Ok(CheckedCall { target, ask, bound })
    }

    /// Gives up whatever the attempt got by asks up to the ticket's.
    pub(crate) fn cancel(&self, ticket: Ticket) -> CancelRequest {
        CancelRequest {
            target: self.ask.target.clone(),
            tenant: self.ask.tenant.clone(),
            admission_id: self.ask.admission_id.clone(),
            attempt: ticket.attempt,
            ask: ticket.ask,
        }
    }
}

fn check(holds: bool, rule: impl FnOnce() -> String) -> Result<(), Error> {
    if holds {
        Ok(())
    } else {
        Err(Error::Invalid { message: rule() })
    }
}

fn check_name<T>(field: &str, name: Result<T, NameError>) -> Result<T, Error> {
    name.map_err(|error| Error::Invalid {
        message: format!("{field} {error}"),
    })
}

/// Checks the name of a dimension, if one is given.
pub(crate) fn check_dimension(field: &str, name: Option<&str>) -> Result<(), Error> {
    match name {
        None | Some("") => Ok(()),
        Some(name) => check_name(field, DimensionName::new(name)).map(|_checked| ()),
    }
}

/// Checks units per dimension, of a call or of what it used.
pub(crate) fn check_amounts(field: &str, units: &BTreeMap<String, u64>) -> Result<Amounts, Error> {
    let mut list = Vec::with_capacity(units.len());
    for (dimension, units) in units {
        let name = DimensionName::new(dimension);
        list.push((
            check_name(&format!("{field}[{dimension:?}]"), name)?,
            *units,
        ));
    }
    Amounts::new(list).map_err(|error| Error::Invalid {
        message: format!("{field} {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call::new("openai/gpt-5", "acme", "p1").cost("tokens", 10)
    }

    #[test]
    fn a_call_is_checked_before_anything_is_sent() {
        let long = "x".repeat(129);
        let many = |n: u32| (0..n).fold(call(), |call, n| call.label(format!("l{n}"), "v"));
        let bad = [
            (Call::new("", "acme", "p1").cost("tokens", 1), "target"),
            (
                Call::new("t", long.clone(), "p1").cost("tokens", 1),
                "tenant",
            ),
            (Call::new("t", "acme", "p\n1").cost("tokens", 1), "priority"),
            (call().id(""), "admission_id"),
            (call().id(long.clone()), "admission_id"),
            (Call::new("t", "acme", "p1"), "cost must be above zero"),
            (
                Call::new("t", "acme", "p1").cost("tokens", 0),
                "cost must be above zero",
            ),
            (call().cost("", 1), "cost[\"\"]"),
            (call().cost("money", u64::MAX), "cost"),
            (call().cost_max("tokens", 9), "cost_max"),
            (
                (0..9).fold(call(), |call, n| call.cost(format!("d{n}"), 1)),
                "cost",
            ),
            (many(9), "labels"),
        ];
        for (call, field) in bad {
            match CheckedCall::new(&call) {
                Err(Error::Invalid { message }) => {
                    assert!(message.starts_with(field), "{message:?} is about {field:?}");
                }
                other => panic!("{field}: {other:?}"),
            }
        }
        assert!(CheckedCall::new(&many(8)).is_ok());
    }

    #[test]
    fn the_bound_is_the_upper_one_in_every_dimension() {
        let call = call()
            .cost("requests", 1)
            .cost_max("tokens", 50)
            .cost_max("images", 2);
        let bound: Vec<_> = CheckedCall::new(&call).unwrap().bound.into_iter().collect();
        let expected = [("images", 2), ("requests", 1), ("tokens", 50)];
        assert_eq!(
            bound,
            expected.map(|(name, units)| (name.to_owned(), units))
        );
    }

    #[test]
    fn ids_are_random_unless_set() {
        assert_ne!(call().admission_id(), call().admission_id());
        assert_eq!(call().id("mine").admission_id(), "mine");
    }
}
