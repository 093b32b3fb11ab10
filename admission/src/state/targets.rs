//! The targets of a state by name, and their parts of a [checkpoint](crate::checkpoint).
//!
//! Every change goes through the functions here, with which a checkpoint begins at a target before it changes.

use crate::TargetName;
use crate::codec::{Canonical, DecodeError, Reader};
use crate::target::{Stage, Taken, Target};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

/// Targets by name.
#[derive(Debug, Default)]
pub(super) struct Targets {
    by_name: BTreeMap<TargetName, Target>,
    taking: Option<Box<Taking>>,
}

/// A checkpoint under way.
#[derive(Debug, Default)]
struct Taking {
    /// The last target that was passed.
    passed: Option<TargetName>,
    /// Targets that were removed before they were taken.
    removed: Vec<(TargetName, Target)>,
    taken: Vec<(TargetName, Taken)>,
}

impl Targets {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&TargetName, &Target)> {
        self.by_name.iter()
    }

    pub(super) fn get(&self, name: &TargetName) -> Option<&Target> {
        self.by_name.get(name)
    }

    /// One target, to be changed.
    pub(super) fn get_mut(&mut self, name: &TargetName) -> Option<&mut Target> {
        let target = self.by_name.get_mut(name)?;
        target.begin_checkpoint();
        Some(target)
    }

    /// The target after a name, or the first one, to be changed.
    pub(super) fn next_mut(
        &mut self,
        after: Option<&TargetName>,
    ) -> Option<(&TargetName, &mut Target)> {
        let (name, target) = self.by_name.range_mut((from(after), Unbounded)).next()?;
        target.begin_checkpoint();
        Some((name, target))
    }

    /// One target, made without a policy if it is not there.
    pub(super) fn get_or_insert(&mut self, name: &TargetName) -> &mut Target {
        let entry = self.by_name.entry(name.clone());
        let target = entry.or_insert_with(Target::without_policy);
        target.begin_checkpoint();
        target
    }

    /// Takes a target away.
    pub(super) fn remove(&mut self, name: &TargetName) {
        let removed = self.by_name.remove_entry(name);
        if let (Some((name, mut target)), Some(taking)) = (removed, &mut self.taking) {
            target.begin_checkpoint();
            match target.checkpoint {
                Stage::Begun(_) => taking.removed.push((name, target)),
                Stage::Out | Stage::ToBegin => {}
            }
        }
    }

    /// Puts the tickets of targets that were just read back into their lines.
    pub(super) fn restore_lines(&mut self) {
        self.by_name.values_mut().for_each(Target::restore_lines);
    }

    /// Begins to take all targets as they are now. Any other checkpoint under way ends.
    pub(super) fn begin_checkpoint(&mut self) {
        for target in self.by_name.values_mut() {
            target.end_checkpoint();
            target.checkpoint = Stage::ToBegin;
        }
        self.taking = Some(Box::default());
    }

    /// Takes some more, at most about so many records. True if there are none left.
    pub(super) fn continue_checkpoint(&mut self, mut most: usize) -> bool {
        let Some(taking) = &mut self.taking else {
            return true;
        };
        while let Some((name, mut target)) = taking.removed.pop() {
            if !target.continue_checkpoint(&mut most) {
                taking.removed.push((name, target));
                return false;
            }
            let taken = target.end_checkpoint();
            taking.taken.extend(taken.map(|taken| (name, taken)));
        }
        while most > 0 {
            let rest = (from(taking.passed.as_ref()), Unbounded);
            let Some((name, target)) = self.by_name.range_mut(rest).next() else {
                return true;
            };
            if !matches!(target.checkpoint, Stage::Out) && !target.continue_checkpoint(&mut most) {
                return false;
            }
            let taken = target.end_checkpoint();
            taking
                .taken
                .extend(taken.map(|taken| (name.clone(), taken)));
            taking.passed = Some(name.clone());
            most = most.saturating_sub(1);
        }
        false
    }

    /// Ends the checkpoint under way: targets by name. They are all there were at its beginning if
    /// [`Self::continue_checkpoint`] said so.
    pub(super) fn end_checkpoint(&mut self) -> Vec<(TargetName, Taken)> {
        let Some(taking) = self.taking.take() else {
            return Vec::new();
        };
        for (_, target) in self
            .by_name
            .range_mut((from(taking.passed.as_ref()), Unbounded))
        {
            target.end_checkpoint();
        }
        let mut taken = taking.taken;
        taken.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        taken
    }
}

fn from(after: Option<&TargetName>) -> std::ops::Bound<&TargetName> {
    after.map_or(Unbounded, Excluded)
}

impl Canonical for Targets {
    fn put(&self, out: &mut Vec<u8>) {
        self.by_name.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let by_name: BTreeMap<TargetName, Target> = Canonical::take(from)?;
        let taking = None;
        Ok(Targets { by_name, taking })
    }
}
