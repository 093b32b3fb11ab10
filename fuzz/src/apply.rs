//! Histories of operations ([`crate::plan`]) on a state.
//!
//! No history makes the rules panic or breaks an invariant. Two replicas with the same entries give the same
//! answers and have the same bytes, although one of them reads its entries back from the log, and itself
//! from its bytes in between. A checkpoint has the bytes of its beginning, whatever is applied meanwhile.

use crate::plan::{Entry, Plan};
use weir_admission::{CheckpointStep, Operation, Outcome, Stamp, State, shard_of};
use weir_proto::convert::session::{Kind, answer};
use weir_proto::error::Reason;
use weir_proto::stored::{decode_batch, encode_batch};

/// Tickets that are asked for when somebody looks who is near.
const NEAR: usize = 8;

/// Takes an input.
///
/// # Panics
/// A rule of the module does not hold.
pub fn run(bytes: &[u8]) {
    let mut plan = Plan::new(bytes);
    let (mut one, mut two) = (State::default(), State::default());
    let mut checkpoint = None;
    while let Some(entry) = plan.entry() {
        if entry.restores {
            two = State::decode(&two.encode()).expect("what was encoded reads back");
            checkpoint.get_or_insert_with(|| {
                one.begin_checkpoint();
                one.encode()
            });
        }
        let outcomes = one.apply(entry.index, entry.stamp, &entry.batch);
        assert_eq!(outcomes.len(), entry.batch.len(), "one answer for each");
        let (stamp, batch) = through_the_log(&entry);
        assert_eq!(two.apply(entry.index, stamp, &batch), outcomes);
        assert_eq!(one.check(), Ok(()));
        assert_eq!(one.encode(), two.encode(), "replicas are equal");
        take(&mut one, &mut checkpoint);
        look(&one, &entry);
        for (operation, outcome) in entry.batch.iter().zip(&outcomes) {
            told(operation, outcome);
        }
        plan.note(&outcomes);
    }
    assert_eq!(one.digest(), two.digest(), "replicas are equal");
}

/// Takes a few records more of the checkpoint under way.
fn take(state: &mut State, begun: &mut Option<Vec<u8>>) {
    match state.continue_checkpoint(2) {
        CheckpointStep::UnderWay => assert!(begun.is_some()),
        CheckpointStep::Done(taken) => assert_eq!(Some(taken.encode()), begun.take()),
        CheckpointStep::NotBegun => assert!(begun.is_none()),
    }
}

/// The entry as a follower reads it. What no log takes is applied as it is: the rules refuse it alike.
fn through_the_log(entry: &Entry) -> (Stamp, Vec<Operation>) {
    match encode_batch(entry.stamp, &entry.batch) {
        Ok(bytes) => decode_batch(&bytes).expect("what was stored can be read"),
        Err(_) => (entry.stamp, entry.batch.clone()),
    }
}

/// Looks at what an entry was about, in every way there is.
fn look(state: &State, entry: &Entry) {
    let Some(operation) = entry.batch.last() else {
        return;
    };
    if let Operation::Admit(admit) = operation {
        let _ = state.explain(admit);
    }
    let Some(target) = operation.target() else {
        return;
    };
    assert_eq!(
        state.view(target).is_some(),
        state.versions(target).is_some()
    );
    for later in [0, 1_000_000, u64::MAX] {
        let near = state.near(target, state.now().after(later), NEAR);
        assert!(near.len() <= NEAR);
    }
}

/// Every answer can be told to a client.
fn told(operation: &Operation, outcome: &Outcome) {
    let kind = match operation {
        Operation::Admit(_) => Kind::Admit,
        Operation::Release(_) => Kind::Release,
        Operation::Cancel(_) => Kind::Cancel,
        Operation::Extend(_) => Kind::Extend,
        Operation::Report(_) => Kind::Report,
        Operation::Unwake(_)
        | Operation::PutPolicy(_)
        | Operation::DeletePolicy(_)
        | Operation::Seed(_) => return,
    };
    let Some(target) = operation.target() else {
        return;
    };
    let shard = shard_of(target, crate::wire::SHARDS);
    if let Err(error) = answer(kind, outcome.clone(), target, shard) {
        assert_ne!(error.reason, Reason::Internal, "{error}");
    }
}
