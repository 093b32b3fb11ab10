//! A target's part of a [checkpoint](crate::checkpoint).
//!
//! What has no small bound is taken some at a time; the rest, with the list of who is due when, is written at
//! the beginning: a few milliseconds for the largest target.

use super::{AdmissionKey, QueueKey, Target};
use crate::GrantId;
use crate::checkpoint::Written;
use crate::codec::{Canonical, DecodeError, Reader};

/// How far a checkpoint is with a target.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    /// Done with it, or without it.
    #[default]
    Out,
    /// It has to begin before the target changes.
    ToBegin,
    /// It takes records.
    Begun(Box<Begun>),
}

/// Not part of what a target is.
impl Canonical for Stage {
    fn put(&self, _: &mut Vec<u8>) {}
    fn take(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Stage::Out)
    }
}

/// What is written at the beginning.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    before_records: Vec<u8>,
    due: Vec<u8>,
    after_notes: Vec<u8>,
}

/// All of a target.
#[derive(Debug)]
pub(crate) struct Taken {
    begun: Begun,
    queues: Written<QueueKey>,
    admissions: Written<AdmissionKey>,
    grants: Written<GrantId>,
    notes: [Vec<u8>; 4],
}

macro_rules! put {
    ($target:ident to $out:expr, $($field:ident),*) => { $($target.$field.put(&mut $out);)* };
}

impl Target {
    /// Begins, if that is still to be done. To be called before anything changes.
    pub(crate) fn begin_checkpoint(&mut self) {
        if !matches!(self.checkpoint, Stage::ToBegin) {
            return;
        }
        let mut begun = Box::<Begun>::default();
        put!(self to begun.before_records, version, policy, history, slots, meters, retired, classes);
        put!(self to begun.due, due);
        put!(self to begun.after_notes, virtual_time, last_start, held_until, lateness, largest);
        put!(self to begun.after_notes, next_serial, tickets, live_grants, served);
        self.checkpoint = Stage::Begun(begun);
        self.queues.begin_checkpoint();
        self.admissions.begin_checkpoint();
        self.grants.begin_checkpoint();
        self.forgetting.begin_checkpoint();
        self.expiring.begin_checkpoint();
        self.ended.begin_checkpoint();
        self.idle.begin_checkpoint();
    }

    /// Takes some more. `most` is the number of records that may be looked at, and counts down. True if there
    /// are none left.
    pub(crate) fn continue_checkpoint(&mut self, most: &mut usize) -> bool {
        self.begin_checkpoint();
        self.queues.continue_checkpoint(most)
            && self.admissions.continue_checkpoint(most)
            && self.grants.continue_checkpoint(most)
            && self.forgetting.continue_checkpoint(most)
            && self.expiring.continue_checkpoint(most)
            && self.ended.continue_checkpoint(most)
            && self.idle.continue_checkpoint(most)
    }

    /// Ends the checkpoint; `None` if there was none. What was taken is all there was at the beginning if
    /// [`Self::continue_checkpoint`] said so.
    pub(crate) fn end_checkpoint(&mut self) -> Option<Taken> {
        let stage = std::mem::take(&mut self.checkpoint);
        let taken = Taken {
            begun: Begun::default(),
            queues: self.queues.end_checkpoint(),
            admissions: self.admissions.end_checkpoint(),
            grants: self.grants.end_checkpoint(),
            notes: [
                self.forgetting.end_checkpoint(),
                self.expiring.end_checkpoint(),
                self.ended.end_checkpoint(),
                self.idle.end_checkpoint(),
            ],
        };
        match stage {
            Stage::Begun(begun) => Some(Taken {
                begun: *begun,
                ..taken
            }),
            Stage::Out | Stage::ToBegin => None,
        }
    }
}

impl Taken {
    /// Appends the target's canonical bytes.
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.extend(self.begun.before_records);
        self.queues.put(out);
        self.admissions.put(out);
        self.grants.put(out);
        out.extend(self.begun.due);
        self.notes
            .iter()
            .for_each(|notes| out.extend_from_slice(notes));
        out.extend(self.begun.after_notes);
    }

    /// Bytes that [`Self::put`] appends.
    pub(crate) fn size(&self) -> usize {
        let begun = [
            &self.begun.before_records,
            &self.begun.due,
            &self.begun.after_notes,
        ];
        let bytes = begun.into_iter().chain(&self.notes).map(Vec::len);
        let written = [
            self.queues.size(),
            self.admissions.size(),
            self.grants.size(),
        ];
        bytes.chain(written).fold(0, usize::saturating_add)
    }
}
