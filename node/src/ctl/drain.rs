//! `drain` and `undrain`: a node without leads, for work on it.

use super::{CtlError, Form, show};
use crate::health::is_shut_out;
use clap::Args;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use weir_client::Client;
use weir_proto::v1 as wire;
use weir_proto::v1::cluster_service_client::ClusterServiceClient;

/// Longest wait for the answer: a node gives itself less than this to move its leads.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Args)]
pub(super) struct DrainArgs {
    /// The node.
    node: u64,
    /// Drain it although another node is drained or does not answer: the shards may be left without
    /// anybody who can lead them.
    #[arg(long)]
    force: bool,
}

pub(super) async fn drain(
    client: &Client,
    args: DrainArgs,
    form: Form,
) -> Result<String, CtlError> {
    let status = client.status().await?;
    let address = address_of(&status, args.node)?;
    if !args.force
        && let Some(reason) = objection(&status, args.node)
    {
        return Err(CtlError::Refused(format!(
            "{reason}; with --force node {} is drained all the same",
            args.node
        )));
    }
    let request = wire::DrainRequest { node_id: args.node };
    connect(&address)?.drain(request).await?;
    let node = args.node;
    let text = format!("node {node} leads nothing until `undrain {node}` or its next start");
    Ok(show::done(form, &text))
}

pub(super) async fn undrain(client: &Client, node: u64, form: Form) -> Result<String, CtlError> {
    let address = address_of(&client.status().await?, node)?;
    let request = wire::UndrainRequest { node_id: node };
    connect(&address)?.undrain(request).await?;
    let text = format!("node {node} may lead again; its leads come back by themselves");
    Ok(show::done(form, &text))
}

fn address_of(status: &wire::StatusResponse, node: u64) -> Result<String, CtlError> {
    let found = status.nodes.iter().find(|one| one.node_id == node);
    found.map(|node| node.address.clone()).ok_or_else(|| {
        let nodes: Vec<String> = status.nodes.iter().map(|n| n.node_id.to_string()).collect();
        CtlError::Usage(format!(
            "there is no node {node}, only {}",
            nodes.join(", ")
        ))
    })
}

/// Why the cluster can hardly do without the node's leadership.
fn objection(status: &wire::StatusResponse, node: u64) -> Option<String> {
    let others = || status.nodes.iter().filter(|other| other.node_id != node);
    if others().next().is_none() {
        return Some("there is no other node to lead".into());
    }
    let weakness = |other: &wire::NodeStatus| {
        if !other.reachable {
            Some("does not answer")
        } else if is_shut_out(other.refused_by.len(), status.nodes.len()) {
            Some("is refused by its peers")
        } else {
            other.drained.then_some("is drained")
        }
    };
    let weak = others().find_map(|other| Some((other.node_id, weakness(other)?)));
    weak.map(|(node, weakness)| format!("node {node} {weakness}"))
}

fn connect(address: &str) -> Result<ClusterServiceClient<Channel>, CtlError> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(CtlError::usage)?
        .connect_timeout(ANSWER_WITHIN)
        .timeout(ANSWER_WITHIN);
    Ok(ClusterServiceClient::new(endpoint.connect_lazy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(nodes: &[(u64, bool, bool)]) -> wire::StatusResponse {
        let node = |(node_id, reachable, drained): &(u64, bool, bool)| wire::NodeStatus {
            node_id: *node_id,
            address: format!("127.0.0.1:74{node_id}0"),
            reachable: *reachable,
            drained: *drained,
            ..wire::NodeStatus::default()
        };
        wire::StatusResponse {
            nodes: nodes.iter().map(node).collect(),
            ..wire::StatusResponse::default()
        }
    }

    #[test]
    fn a_node_is_drained_only_beside_nodes_that_lead() {
        let objection = |nodes: &[(u64, bool, bool)]| objection(&status(nodes), 1);
        assert_eq!(
            objection(&[(1, true, false), (2, true, false), (3, true, false)]),
            None
        );
        assert_eq!(
            objection(&[(1, true, true), (2, true, false)]),
            None,
            "again"
        );
        assert_eq!(
            objection(&[(1, true, false)]).unwrap(),
            "there is no other node to lead"
        );
        assert_eq!(
            objection(&[(1, true, false), (2, true, false), (3, false, false)]).unwrap(),
            "node 3 does not answer"
        );
        assert_eq!(
            objection(&[(1, true, false), (2, true, true), (3, true, false)]).unwrap(),
            "node 2 is drained"
        );
        let mut refused = status(&[(1, true, false), (2, true, false), (3, true, false)]);
        refused.nodes[2].refused_by = vec![1, 2];
        assert_eq!(
            super::objection(&refused, 1).unwrap(),
            "node 3 is refused by its peers"
        );
        // It refuses the others: they do without it.
        refused.nodes[2].refused_by = Vec::new();
        refused.nodes[1].refused_by = vec![3];
        assert_eq!(super::objection(&refused, 1), None);
    }
}
