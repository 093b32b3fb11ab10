//! The same calls, one by one and in a session: the same answers and errors.

use super::raw::Raw;
use crate::support::*;
use std::collections::BTreeMap;
use weir_node::dev::Cluster;
use weir_proto::error::WireError;
use weir_proto::v1 as wire;
use weir_proto::v1::admission_service_client::AdmissionServiceClient;
use weir_proto::v1::admit_response::Decision;
use weir_proto::v1::session_answer::Answer;
use weir_proto::v1::session_operation::Operation;

/// Two ways to call.
enum Way {
    Unary(AdmissionServiceClient<tonic::transport::Channel>),
    Session(Box<Raw>),
}

impl Way {
    async fn call(&mut self, operation: Operation) -> Result<Answer, WireError> {
        let client = match self {
            Way::Session(session) => {
                let sequence = session.ask(vec![operation]).await;
                let mut answers = session.answers(1).await;
                let answer = answers.remove(&sequence).unwrap().answer.unwrap();
                if let Answer::Error(error) = answer {
                    return Err(WireError::from_session(error).unwrap());
                }
                return Ok(answer);
            }
            Way::Unary(client) => client,
        };
        let answer = match operation {
            Operation::Admit(it) => client
                .admit(it)
                .await
                .map(|a| Answer::Admit(a.into_inner())),
            Operation::Release(it) => {
                let answer = client.release(it).await;
                answer.map(|a| Answer::Release(a.into_inner()))
            }
            Operation::Cancel(it) => {
                let answer = client.cancel(it).await;
                answer.map(|a| Answer::Cancel(a.into_inner()))
            }
            Operation::Extend(it) => {
                let answer = client.extend(it).await;
                answer.map(|a| Answer::Extend(a.into_inner()))
            }
            Operation::Report(it) => {
                let calls = vec![it];
                let answer = client.report(wire::ReportRequest { calls }).await;
                answer.map(|a| Answer::Report(a.into_inner()))
            }
        };
        answer.map_err(|status| error(&status))
    }
}

/// Without what differs from one call to the next: times, and where grants stand in the log.
fn plain(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    match &mut answer {
        Answer::Admit(admit) => match admit.decision.as_mut().unwrap() {
            Decision::Admitted(admitted) => admitted.grant = None,
            Decision::Deferred(deferred) => {
                deferred.retry_in_us = deferred.retry_in_us.min(1);
                deferred.earliest_in_us = deferred.earliest_in_us.min(1);
                deferred.place_until_us = deferred.place_until_us.min(1);
            }
            Decision::Rejected(rejected) => {
                rejected.earliest_in_us = rejected.earliest_in_us.min(1);
            }
        },
        Answer::Extend(extend) => extend.expires_in_us = extend.expires_in_us.min(1),
        Answer::Release(_) | Answer::Cancel(_) | Answer::Report(_) | Answer::Error(_) => {}
    }
    answer
}

struct Script {
    way: Way,
    target: &'static str,
    told: Vec<String>,
}

impl Script {
    async fn call(&mut self, operation: Operation) -> Result<Answer, WireError> {
        let answer = self.way.call(operation).await;
        let plain = answer.as_ref().map(plain);
        self.told
            .push(format!("{plain:?}").replace(self.target, "the target"));
        answer
    }

    fn ask(&self, id: &str) -> wire::AdmitRequest {
        wire::AdmitRequest {
            target: self.target.into(),
            ..ask(id)
        }
    }

    async fn admit(&mut self, change: impl FnOnce(&mut wire::AdmitRequest)) -> Option<wire::Grant> {
        let mut request = self.ask("job");
        change(&mut request);
        let answer = self.call(Operation::Admit(request)).await.ok()?;
        let Answer::Admit(answer) = answer else {
            panic!("{answer:?}")
        };
        match answer.decision.unwrap() {
            Decision::Admitted(admitted) => admitted.grant,
            Decision::Deferred(_) | Decision::Rejected(_) => None,
        }
    }

    async fn release(
        &mut self,
        change: impl FnOnce(&mut wire::ReleaseRequest),
        grant: wire::Grant,
    ) {
        let mut request = wire::ReleaseRequest {
            target: self.target.into(),
            ..release(grant)
        };
        change(&mut request);
        let _ = self.call(Operation::Release(request)).await;
    }

    async fn cancel(&mut self, id: &str, ask: u32) {
        let request = wire::CancelRequest {
            target: self.target.into(),
            tenant: "acme".into(),
            admission_id: id.into(),
            attempt: 1,
            ask,
        };
        let _ = self.call(Operation::Cancel(request)).await;
    }

    async fn report(&mut self, change: impl FnOnce(&mut wire::UngatedCall)) {
        let mut call = wire::UngatedCall {
            target: self.target.into(),
            tenant: "acme".into(),
            priority: "high".into(),
            admission_id: "ungated".into(),
            attempt: 9,
            actual: units(&[("requests", 1)]),
            age_us: 1_000,
        };
        change(&mut call);
        let _ = self.call(Operation::Report(call)).await;
    }

    /// Every answer and every error there is.
    async fn run(mut self) -> Vec<String> {
        let grant = self.admit(|_| {}).await.unwrap();
        self.admit(|_| {}).await;
        self.admit(|a| a.ask = 2).await;
        self.admit(|a| a.priority = "low".into()).await;
        let used = self
            .admit(|a| a.admission_id = "used".into())
            .await
            .unwrap();
        let extend = |grant| wire::ExtendRequest {
            target: self.target.into(),
            grant: Some(grant),
        };
        let (known, mut unknown) = (extend(used), extend(used));
        unknown.grant.as_mut().unwrap().index = 1 << 40;
        let _ = self.call(Operation::Extend(known)).await;
        let _ = self.call(Operation::Extend(unknown)).await;
        let no_grant = wire::ExtendRequest {
            target: self.target.into(),
            grant: None,
        };
        let _ = self.call(Operation::Extend(no_grant)).await;
        self.release(|r| r.actual = units(&[("tokens", 5)]), used)
            .await;
        self.release(|_| {}, used).await;
        self.release(|r| r.actual = units(&[("images", 5)]), grant)
            .await;
        self.release(|r| r.outcome = 99, grant).await;
        self.release(|r| r.target = "demo/none".into(), grant).await;
        self.admit(|a| a.target = "demo/none".into()).await;
        self.admit(|a| a.priority = "urgent".into()).await;
        self.admit(|a| a.cost = units(&[("images", 1)])).await;
        self.admit(|a| (a.cost, a.tenant) = (BTreeMap::new(), "\n".into()))
            .await;
        self.admit(|a| a.dry_run = true).await;
        let all = units(&[("requests", 99)]);
        self.admit(|a| (a.cost, a.admission_id) = (all, "all".into()))
            .await;
        self.admit(|a| a.admission_id = "waits".into()).await;
        self.admit(|a| (a.deadline_us, a.admission_id) = (1_000, "hurry".into()))
            .await;
        self.admit(|a| a.cost = units(&[("requests", 101)])).await;
        self.cancel("waits", 1).await;
        self.cancel("waits", 1).await;
        self.cancel("nobody", 1).await;
        self.cancel("", 0).await;
        self.report(|_| {}).await;
        self.report(|_| {}).await;
        self.report(|r| r.priority = "urgent".into()).await;
        self.told
    }
}

async fn put(cluster: &Cluster, target: &str) {
    let put = wire::PutTargetRequest {
        target: target.into(),
        policy: Some(policy()),
        expected_version: None,
    };
    let node = leader(cluster);
    targets(cluster, node).put_target(put).await.unwrap();
}

#[tokio::test]
async fn a_session_answers_as_unary_calls_do() {
    let cluster = start_with_target(1).await;
    let node = leader(&cluster);
    // Of one pool, and so of one shard; names of one length.
    put(&cluster, "demo/one").await;
    put(&cluster, "demo/two").await;
    let unary = Script {
        way: Way::Unary(admission(&cluster, node)),
        target: "demo/one",
        told: Vec::new(),
    };
    let session = Script {
        way: Way::Session(Box::new(Raw::greeted(&cluster, node).await)),
        target: "demo/two",
        told: Vec::new(),
    };
    let (unary, session) = (unary.run().await, session.run().await);
    assert_eq!(unary.len(), session.len());
    for (number, (unary, session)) in unary.iter().zip(&session).enumerate() {
        // A report of one call is not a list: its fields have no place in it.
        let unary = unary.replace("calls[0].", "");
        assert_eq!(&unary, session, "call {number}");
    }
    cluster.shutdown().await;
}
