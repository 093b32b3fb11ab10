//! The history of use of a whole cluster, put together from what each node counted.

use crate::failure::Failure;
use crate::limits::ADMIN_TIMEOUT;
use crate::route::Address;
use crate::{Client, Error, wire};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What all nodes that answered counted together, and who is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// In order of step and name.
    pub points: Vec<wire::HistoryPoint>,
    /// Start of the oldest minute that a node still keeps; 0 if none keeps any.
    pub oldest_unix_s: u64,
    /// Nodes that did not answer: what they decided while they led is missing.
    pub missing_nodes: Vec<u64>,
    /// Nodes whose store is out of use, with the reason: of them only the last minutes are told.
    pub troubled_nodes: Vec<(u64, String)>,
}

impl Client {
    /// Use of a target in a range of time.
    ///
    /// A node counts what it decided while it led the target's shard, so every node is asked and what they
    /// say is added up: no decision is counted by two of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the request breaks a rule, [`Error::Unavailable`] if no node answers.
    pub async fn read_history(&self, request: &wire::ReadHistoryRequest) -> Result<History, Error> {
        let routes = self.routes().await?;
        let mut answers = Vec::with_capacity(routes.nodes.len());
        for node in &routes.nodes {
            let address: Address = Arc::from(node.address.as_str());
            let shared = &self.owner.shared;
            let answer = shared.send(None, &address, request.clone(), ADMIN_TIMEOUT);
            answers.push((node.node_id, answer.await));
        }
        merged(answers)
    }
}

fn merged(
    answers: Vec<(u64, Result<wire::ReadHistoryResponse, Failure>)>,
) -> Result<History, Error> {
    let mut history = History::default();
    let mut points = BTreeMap::new();
    let mut nobody = true;
    for (node, answer) in answers {
        let answer = match answer {
            Ok(answer) => answer,
            Err(Failure::Fault(error)) => return Err(error),
            Err(failure) => {
                tracing::debug!(node, ?failure, "no history");
                history.missing_nodes.push(node);
                continue;
            }
        };
        nobody = false;
        if !answer.trouble.is_empty() {
            history.troubled_nodes.push((node, answer.trouble));
        }
        if answer.oldest_unix_s > 0
            && (history.oldest_unix_s == 0 || answer.oldest_unix_s < history.oldest_unix_s)
        {
            history.oldest_unix_s = answer.oldest_unix_s;
        }
        for point in answer.points {
            let key = (
                point.start_unix_s,
                point.tenant.clone(),
                point.priority.clone(),
            );
            match points.get_mut(&key) {
                Some(sum) => add(sum, point),
                None => {
                    points.insert(key, point);
                }
            }
        }
    }
    if nobody {
        return Err(Error::Unavailable {
            message: "no node told its history".into(),
            may_have_happened: false,
        });
    }
    history.points = points.into_values().collect();
    Ok(history)
}

/// Adds what another node counted in the same step.
fn add(sum: &mut wire::HistoryPoint, more: wire::HistoryPoint) {
    for (count, more) in [
        (&mut sum.admitted, more.admitted),
        (&mut sum.deferred, more.deferred),
        (&mut sum.rejected, more.rejected),
        (&mut sum.throttled, more.throttled),
        (&mut sum.ungated, more.ungated),
    ] {
        *count = count.saturating_add(more);
    }
    for (dimension, units) in more.charged {
        let sum = sum.charged.entry(dimension).or_default();
        *sum = sum.saturating_add(units);
    }
    for (dimension, units) in more.corrected {
        let sum = sum.corrected.entry(dimension).or_default();
        *sum = sum.saturating_add(units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Silence;

    fn point(start_unix_s: u64, tenant: &str, admitted: u64, corrected: i64) -> wire::HistoryPoint {
        wire::HistoryPoint {
            start_unix_s,
            tenant: tenant.into(),
            admitted,
            charged: [("tokens".to_owned(), 10 * admitted)].into(),
            corrected: [("tokens".to_owned(), corrected)].into(),
            ..wire::HistoryPoint::default()
        }
    }

    fn told(points: &[wire::HistoryPoint], oldest_unix_s: u64) -> wire::ReadHistoryResponse {
        wire::ReadHistoryResponse {
            points: points.to_vec(),
            oldest_unix_s,
            ..wire::ReadHistoryResponse::default()
        }
    }

    fn silent() -> Failure {
        Failure::NoAnswer {
            message: "timed out".into(),
            may_have_happened: false,
            retry_in: None,
            silence: Silence::Node,
        }
    }

    #[test]
    fn nodes_add_up_and_the_silent_ones_are_named() {
        let one = told(&[point(60, "a", 2, -3), point(120, "a", 5, 0)], 60);
        let two = told(&[point(60, "a", 1, 1), point(60, "b", 7, 0)], 0);
        let history = merged(vec![(1, Ok(one)), (2, Ok(two)), (3, Err(silent()))]).unwrap();
        assert_eq!(
            history.points,
            [
                point(60, "a", 3, -2),
                point(60, "b", 7, 0),
                point(120, "a", 5, 0)
            ]
        );
        assert_eq!(
            (history.oldest_unix_s, &history.missing_nodes[..]),
            (60, &[3][..])
        );
    }

    #[test]
    fn without_any_answer_there_is_no_history() {
        assert!(matches!(
            merged(vec![(1, Err(silent()))]),
            Err(Error::Unavailable { .. })
        ));
    }
}
