use super::*;
use crate::limits::{BLAME_BROKEN, BLAME_HUNG};
use std::time::Duration;
use weir_proto::v1::{NodeAddress, ShardRoute};

const SHARD: ShardId = ShardId(0);

fn answer(cluster: &str, nodes: &[(u64, &str)], routes: &[(u32, u64, u64)]) -> RoutesResponse {
    RoutesResponse {
        cluster_id: cluster.into(),
        shards: 4,
        nodes: nodes
            .iter()
            .map(|(node_id, address)| NodeAddress {
                node_id: *node_id,
                address: (*address).into(),
            })
            .collect(),
        routes: routes
            .iter()
            .map(|(shard, leader, term)| ShardRoute {
                shard: *shard,
                leader: *leader,
                term: *term,
            })
            .collect(),
    }
}

const NODES: [(u64, &str); 3] = [(1, "a:1"), (2, "b:1"), (3, "c:1")];

fn routes() -> Routes {
    let mut routes = Routes::new(&["seed:1".to_owned(), "seed:2".to_owned()]).unwrap();
    routes
        .learn(&answer("x", &NODES, &[(0, 1, 5), (1, 2, 5)]))
        .unwrap();
    routes
}

fn address(text: &str) -> Address {
    Arc::from(text)
}

/// One thing that is heard, by the node it is heard of.
enum Heard {
    NotLeader(&'static str, Option<&'static str>),
    Missing(&'static str),
    Broken(&'static str),
    Answered(&'static str),
    Wait(Duration),
    Learn(&'static [(u32, u64, u64)]),
}
use Heard::{Answered, Broken, Learn, Missing, NotLeader, Wait};

/// What is heard, and which node is asked for shard 0 after each.
fn check(claim: &str, steps: &[(Heard, &str)]) {
    let mut routes = routes();
    let mut now = Instant::now();
    for (step, (heard, expected)) in steps.iter().enumerate() {
        match heard {
            NotLeader(from, hint) => {
                let hint = hint.map(|hint| Hint {
                    address: address(hint),
                });
                let followed = routes.not_leader(SHARD, &address(from), hint.as_ref(), now);
                let named = hint.is_some_and(|hint| &*hint.address == *expected);
                assert_eq!(
                    followed, named,
                    "{claim}: step {step}: the hint is followed"
                );
            }
            Missing(from) => routes.missing(Some(SHARD), &address(from), BLAME_HUNG, now),
            Broken(from) => {
                routes.missing(Some(SHARD), &address(from), BLAME_BROKEN, now);
            }
            Answered(from) => routes.answered(&address(from)),
            Wait(time) => now += *time,
            Learn(leaders) => routes.learn(&answer("x", &NODES, leaders)).unwrap(),
        }
        assert_eq!(
            &*routes.node_for(Some(SHARD)),
            *expected,
            "{claim}: step {step}"
        );
    }
}

#[tokio::test]
async fn guesses_follow_what_is_heard() {
    check(
        "a hint is followed",
        &[(NotLeader("a:1", Some("c:1")), "c:1")],
    );
    check(
        "a hint to the node itself is not",
        &[(NotLeader("a:1", Some("a:1")), "b:1")],
    );
    check(
        "a hint may name a node that is not known",
        &[(NotLeader("a:1", Some("d:1")), "d:1")],
    );
    check(
        "without a hint all nodes are met in turn",
        &[
            (NotLeader("a:1", None), "b:1"),
            (NotLeader("b:1", None), "c:1"),
            (NotLeader("c:1", None), "a:1"),
        ],
    );
    check(
        "an answer about a guess that has moved on changes nothing",
        &[
            (NotLeader("a:1", Some("b:1")), "b:1"),
            (NotLeader("a:1", Some("c:1")), "b:1"),
        ],
    );
}

#[tokio::test]
async fn nodes_that_do_not_answer_come_last() {
    check(
        "a hint to a node that missed one answer is followed",
        &[
            (Missing("a:1"), "b:1"),
            (NotLeader("b:1", Some("a:1")), "a:1"),
        ],
    );
    check(
        "a hint to a node that misses one after the other is not, for a while",
        &[
            (Missing("a:1"), "b:1"),
            (NotLeader("b:1", Some("a:1")), "a:1"),
            (Missing("a:1"), "b:1"),
            (NotLeader("b:1", Some("a:1")), "c:1"),
            (NotLeader("c:1", Some("a:1")), "b:1"),
            (Wait(SUSPECT_FOR), "b:1"),
            (NotLeader("b:1", Some("a:1")), "a:1"),
        ],
    );
    check(
        "broken connections must be many for that",
        &[
            (Broken("a:1"), "b:1"),
            (NotLeader("b:1", Some("a:1")), "a:1"),
            (Broken("a:1"), "b:1"),
            (NotLeader("b:1", Some("a:1")), "a:1"),
            (Broken("a:1"), "b:1"),
            (NotLeader("b:1", Some("a:1")), "a:1"),
            (Broken("a:1"), "b:1"),
            (NotLeader("b:1", Some("a:1")), "c:1"),
        ],
    );
    check(
        "an answer clears the suspicion",
        &[
            (Missing("a:1"), "b:1"),
            (Missing("a:1"), "b:1"),
            (Answered("a:1"), "b:1"),
            (NotLeader("b:1", Some("a:1")), "a:1"),
        ],
    );
    check(
        "when all members are silent the seeds are tried, then the members again",
        &[
            (Missing("a:1"), "b:1"),
            (Missing("b:1"), "c:1"),
            (Missing("c:1"), "seed:1"),
            (Missing("seed:1"), "seed:2"),
            (Missing("seed:2"), "a:1"),
        ],
    );
}

#[tokio::test]
async fn guesses_follow_newer_routes_only() {
    check(
        "routes of a newer term win",
        &[(Learn(&[(0, 3, 6)]), "c:1")],
    );
    check(
        "routes of the same or an older term do not",
        &[(Learn(&[(0, 3, 5)]), "a:1")],
    );
    check(
        "a search is not undone by old routes",
        &[
            (Missing("a:1"), "b:1"),
            (Learn(&[(0, 1, 5)]), "b:1"),
            (Learn(&[(0, 3, 6)]), "c:1"),
        ],
    );
    check(
        "a leader that is no node is ignored",
        &[(Learn(&[(0, 9, 9)]), "a:1")],
    );
    check("no leader is no news", &[(Learn(&[(0, 0, 9)]), "a:1")]);
}

#[tokio::test]
async fn seeds_are_tried_in_turn_until_one_answers() {
    let seeds: Vec<String> = (1..=3).map(|n| format!("seed:{n}")).collect();
    let mut routes = Routes::new(&seeds).unwrap();
    let now = Instant::now();
    let target = TargetName::new("t").unwrap();
    assert_eq!(routes.shard_of(&target), None);
    for expected in ["seed:1", "seed:2", "seed:3", "seed:1"] {
        let node = routes.node_for(None);
        assert_eq!(&*node, expected);
        routes.missing(None, &node, BLAME_BROKEN, now);
    }
    routes.learn(&answer("x", &NODES, &[(0, 1, 1)])).unwrap();
    assert!(routes.shard_of(&target).is_some());
    assert_eq!(routes.shards(), Some(4));
}

#[test]
fn routes_that_cannot_be_ours_are_refused() {
    let mut routes = routes();
    let other = routes.learn(&answer("y", &NODES, &[]));
    assert!(
        matches!(other, Err(RoutesError::OtherCluster { .. })),
        "{other:?}"
    );
    let mut more = answer("x", &NODES, &[]);
    more.shards = 5;
    assert_eq!(
        routes.learn(&more),
        Err(RoutesError::ShardsChanged { from: 4, to: 5 })
    );
    for shards in [0, SHARDS_MAX + 1] {
        more.shards = shards;
        assert_eq!(routes.learn(&more), Err(RoutesError::Shards { shards }));
    }
    assert_eq!(
        routes.learn(&answer("x", &[], &[])),
        Err(RoutesError::NoNodes)
    );
    assert_eq!(
        &*routes.node_for(Some(SHARD)),
        "a:1",
        "what was known is kept"
    );
}

#[test]
fn only_members_stay_guesses() {
    let mut routes = routes();
    routes
        .learn(&answer("x", &[(2, "b:1"), (3, "c:9")], &[]))
        .unwrap();
    assert_ne!(&*routes.node_for(Some(SHARD)), "a:1");
}

#[test]
fn a_client_of_no_seed_cannot_be() {
    assert!(Routes::new(&[]).is_none());
}
