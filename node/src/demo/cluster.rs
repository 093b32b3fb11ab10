//! The cluster of the demo: nodes in this process, the policy, and the leader that gets killed.

use super::limits::{CLUSTER_START_MAX, POLICY_RETRY};
use super::plan::Plan;
use super::policy::{TARGET, policy};
use crate::dev::{self, ClusterOptions};
use anyhow::Context as _;
use tokio::time::{Instant, sleep};
use weir_admission::TargetName;
use weir_client::{Client, Options};
use weir_raft::NodeId;

/// Nodes on loopback under the demo's policy.
pub struct Cluster {
    nodes: dev::Cluster,
    target: TargetName,
}

impl Cluster {
    /// Starts the nodes, waits for their leaders and puts the policy.
    pub async fn start(nodes: usize, plan: &Plan) -> anyhow::Result<Cluster> {
        let options = ClusterOptions {
            nodes,
            ..ClusterOptions::default()
        };
        let nodes = dev::Cluster::start(options).await?;
        nodes.ready(CLUSTER_START_MAX).await?;
        let cluster = Cluster {
            nodes,
            target: TargetName::new(TARGET)?,
        };
        cluster.put_policy(plan).await?;
        Ok(cluster)
    }

    /// One client for each worker process, with the client's own defaults.
    pub fn clients(&self, count: usize) -> anyhow::Result<Vec<Client>> {
        (0..count).map(|_| self.client()).collect()
    }

    /// Ends the leader of the target's shard as a crash would: nothing is handed over. Answers its number.
    pub async fn kill_leader(&mut self) -> anyhow::Result<NodeId> {
        let leader = self.nodes.leader_of_target(&self.target);
        let leader = leader.context("the target's shard has no leader")?;
        self.nodes.kill(leader).await?;
        Ok(leader)
    }

    fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(Options::new(self.nodes.client_addresses()))?)
    }

    /// Right after the start an answer may still be missing; then it is put again.
    async fn put_policy(&self, plan: &Plan) -> anyhow::Result<()> {
        let client = self.client()?;
        let policy = policy(&plan.workload, &plan.provider);
        let deadline = Instant::now() + CLUSTER_START_MAX;
        loop {
            match client.put_target(TARGET, policy.clone(), None).await {
                Ok(_taken) => return Ok(()),
                Err(error) if error.is_retryable() && Instant::now() < deadline => {
                    tracing::debug!(%error, "the cluster is not ready");
                    sleep(POLICY_RETRY).await;
                }
                Err(error) => return Err(error).context("putting the policy"),
            }
        }
    }
}
