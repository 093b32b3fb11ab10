//! A [checkpoint](crate::checkpoint) of a whole state.

use super::{FORMAT, State};
use crate::TargetName;
use crate::codec::{Canonical, DecodeError, Reader};
use crate::target::Taken;

/// Canonical bytes of a state as of the moment at which the checkpoint began, still in parts.
#[derive(Debug)]
pub struct Checkpoint {
    begun: Begun,
    targets: Vec<(TargetName, Taken)>,
}

/// How far a checkpoint is.
#[derive(Debug)]
pub enum CheckpointStep {
    /// There is more to take.
    UnderWay,
    /// All was taken, and the checkpoint has ended.
    Done(Box<Checkpoint>),
    /// There is none under way.
    NotBegun,
}

/// What is written at the beginning.
#[derive(Debug, Default)]
struct Begun {
    before_targets: Vec<u8>,
    after_targets: Vec<u8>,
}

/// The checkpoint under way, if there is one. Not part of what a state is.
#[derive(Debug, Default)]
pub(super) struct Current(Option<Begun>);

impl Canonical for Current {
    fn put(&self, _: &mut Vec<u8>) {}
    fn take(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Current(None))
    }
}

impl State {
    /// Begins to take what [`State::encode`] would write now, while the state goes on changing. Takes a few
    /// milliseconds at most at once, and as long for each of the largest targets when it first changes. Any
    /// other checkpoint under way is abandoned.
    ///
    /// Until the checkpoint is done or [abandoned](State::abandon_checkpoint), each record is also written to
    /// memory: before it changes, or when [`State::continue_checkpoint`] comes to it.
    pub fn begin_checkpoint(&mut self) {
        let mut begun = Begun::default();
        FORMAT.put(&mut begun.before_targets);
        self.now.put(&mut begun.before_targets);
        self.secret.put(&mut begun.before_targets);
        self.deleted.put(&mut begun.after_targets);
        self.cursor.put(&mut begun.after_targets);
        self.checkpoint = Current(Some(begun));
        self.targets.begin_checkpoint();
    }

    /// Takes about so many records more, at least one.
    pub fn continue_checkpoint(&mut self, records: usize) -> CheckpointStep {
        if self.checkpoint.0.is_none() {
            return CheckpointStep::NotBegun;
        }
        if !self.targets.continue_checkpoint(records.max(1)) {
            return CheckpointStep::UnderWay;
        }
        let targets = self.targets.end_checkpoint();
        match self.checkpoint.0.take() {
            Some(begun) => CheckpointStep::Done(Box::new(Checkpoint { begun, targets })),
            None => CheckpointStep::NotBegun,
        }
    }

    /// Ends the checkpoint under way, if there is one, and forgets what it took.
    pub fn abandon_checkpoint(&mut self) {
        if self.checkpoint.0.take().is_some() {
            self.targets.end_checkpoint();
        }
    }
}

impl Checkpoint {
    /// The bytes that [`State::encode`] would have written when the checkpoint began. Sorts and copies all of
    /// them.
    pub fn encode(self) -> Vec<u8> {
        let targets = self.targets.iter();
        let sizes = targets.map(|(name, taken)| name.as_str().len().saturating_add(taken.size()));
        let mut out = Vec::with_capacity(sizes.fold(1024, usize::saturating_add));
        out.extend(self.begun.before_targets);
        self.targets.len().put(&mut out);
        for (name, taken) in self.targets {
            name.put(&mut out);
            taken.put(&mut out);
        }
        out.extend(self.begun.after_targets);
        out
    }
}
