//! Counts what a shard decided, on its way back from the log.

use super::counts::{Counts, Key, Minute};
use super::{Recorder, Shared};
use crate::batch::Propose;
use crate::metrics::EstimateMetrics;
use futures::FutureExt;
use futures::future::BoxFuture;
use weir_admission::{
    AdmitOutcome, Amounts, CallOutcome, CancelOutcome, DimensionName, GrantId, Operation, Outcome,
    PriorityName, Rejected, Release, ReleaseOutcome, ReportOutcome, Settlement, ShardId,
    TargetName, TenantName,
};
use weir_raft::{Committed, Group, ProposeError};

/// A group whose decisions are counted. Only what this node itself puts into the log comes back this way, so
/// each decision is counted once, by the node that led, and never again when a log is replayed.
pub(crate) struct Counted {
    pub(crate) group: Group,
    pub(crate) recorder: Recorder,
    /// What is counted of estimates, whether a history is kept or not.
    pub(crate) estimates: EstimateMetrics,
}

impl Propose for Counted {
    type Pending = BoxFuture<'static, Result<Committed, ProposeError>>;

    fn shard(&self) -> Option<ShardId> {
        Some(self.group.shard())
    }

    async fn propose(&self, batch: Vec<Operation>) -> Result<Self::Pending, ProposeError> {
        let settlements = self.group.peek(|state| state.settlements(&batch));
        let notes = notes(&batch, settlements);
        let pending = self.group.submit(batch).await?;
        let (history, estimates) = (self.recorder.0.clone(), self.estimates.clone());
        let counted = async move {
            let committed = pending.await?;
            if let Some(history) = history {
                history.count(&notes, &committed);
            }
            observe(&estimates, &notes, &committed);
            Ok(committed)
        };
        Ok(counted.boxed())
    }
}

/// What is kept of an operation until its outcome is here.
#[derive(Debug)]
pub(super) struct Note {
    target: TargetName,
    /// Whose it is, where the operation says so.
    whose: Option<(TenantName, PriorityName)>,
    what: What,
    /// What it changes in the charge of an earlier grant.
    settlement: Option<Settlement>,
}

#[derive(Debug)]
enum What {
    Admit,
    Release {
        throttled: bool,
        measured: Vec<Measured>,
    },
    Cancel,
    Report {
        actual: Amounts,
    },
}

/// What a call was charged in one dimension before it was released, and what it said that it used.
#[derive(Debug)]
struct Measured {
    dimension: DimensionName,
    charged: u64,
    used: u64,
}

/// Use that a release names, beside the charge that it replaces. Only of calls that went well: what the others
/// used says nothing of how good the estimate was.
fn measured(release: &Release, settlement: Option<&Settlement>) -> Vec<Measured> {
    let Some(settlement) = settlement.filter(|_| release.outcome == CallOutcome::Ok) else {
        return Vec::new();
    };
    let charged = settlement
        .charged
        .iter()
        .filter_map(|(dimension, charged)| {
            let (_, used) = release.actual.iter().find(|(name, _)| *name == dimension)?;
            Some(Measured {
                dimension: dimension.clone(),
                charged: *charged,
                used,
            })
        });
    charged.collect()
}

/// Counts how good the estimates were of the calls that an entry released.
fn observe(estimates: &EstimateMetrics, notes: &[Option<Note>], committed: &Committed) {
    for (note, outcome) in notes.iter().zip(&committed.outcomes) {
        let (Some(note), Outcome::Release(ReleaseOutcome::Applied)) = (note, outcome) else {
            continue;
        };
        if let What::Release { measured, .. } = &note.what {
            for one in measured {
                estimates.settled(&note.target, &one.dimension, one.charged, one.used);
            }
        }
    }
}

/// One note per operation; `None` for those of which nothing is counted.
pub(super) fn notes(
    batch: &[Operation],
    settlements: Vec<Option<Settlement>>,
) -> Vec<Option<Note>> {
    let note = |(operation, settlement): (&Operation, Option<Settlement>)| {
        let (target, whose, what) = match operation {
            Operation::Admit(ask) if !ask.dry_run => {
                let whose = (ask.tenant.clone(), ask.priority.clone());
                (&ask.target, Some(whose), What::Admit)
            }
            Operation::Release(release) => {
                let throttled = matches!(release.outcome, CallOutcome::Throttled { .. });
                let what = What::Release {
                    throttled,
                    measured: measured(release, settlement.as_ref()),
                };
                (&release.target, None, what)
            }
            Operation::Cancel(cancel) => (&cancel.target, None, What::Cancel),
            Operation::Report(report) => {
                let whose = (report.tenant.clone(), report.priority.clone());
                let actual = report.actual.clone();
                (&report.target, Some(whose), What::Report { actual })
            }
            Operation::Admit(_)
            | Operation::Extend(_)
            | Operation::Unwake(_)
            | Operation::PutPolicy(_)
            | Operation::DeletePolicy(_)
            | Operation::Seed(_) => return None,
        };
        Some(Note {
            target: target.clone(),
            whose,
            what,
            settlement,
        })
    };
    batch.iter().zip(settlements).map(note).collect()
}

impl Shared {
    /// Counts the outcomes of one entry in the minute that it is now.
    pub(super) fn count(&self, notes: &[Option<Note>], committed: &Committed) {
        let now = self.now();
        let mut minutes = self.minutes();
        let minute = minutes.at(now);
        let index = committed.index;
        for (offset, (note, outcome)) in (0..).zip(notes.iter().zip(&committed.outcomes)) {
            if let Some(note) = note {
                note.count(minute, GrantId { index, offset }, outcome);
            }
        }
    }
}

impl Note {
    fn count(&self, minute: &mut Minute, own: GrantId, outcome: &Outcome) {
        match (&self.what, outcome) {
            (What::Admit, Outcome::Admit(decided)) => self.count_decision(minute, own, decided),
            (What::Release { throttled, .. }, Outcome::Release(ReleaseOutcome::Applied)) => {
                self.count_settlement(minute);
                if *throttled {
                    minute.row(self.settled_key()).throttled += 1;
                }
            }
            (What::Cancel, Outcome::Cancel(CancelOutcome::GrantRefunded))
            | (What::Report { .. }, Outcome::Report(ReportOutcome::Settled)) => {
                self.count_settlement(minute);
            }
            (What::Report { actual }, Outcome::Report(ReportOutcome::Charged)) => {
                let row = minute.row(self.key());
                row.ungated += 1;
                charge(row, actual);
            }
            // Whatever else is answered changed nothing.
            (What::Admit | What::Release { .. } | What::Cancel | What::Report { .. }, _) => {}
        }
    }

    fn count_decision(&self, minute: &mut Minute, own: GrantId, decided: &AdmitOutcome) {
        match decided {
            // Another name is that of a grant that was given and counted before.
            AdmitOutcome::Admitted(admitted) if admitted.grant == Some(own) => {
                self.count_settlement(minute);
                let row = minute.row(self.key());
                row.admitted += 1;
                charge(row, &admitted.charged);
            }
            AdmitOutcome::Admitted(_) => {}
            AdmitOutcome::Deferred(_) => {
                // An ask that comes after its start may lose it and wait again.
                self.count_settlement(minute);
                minute.row(self.key()).deferred += 1;
            }
            AdmitOutcome::Rejected(rejected) => {
                match rejected {
                    Rejected::NeverFits { .. }
                    | Rejected::QueueFull { .. }
                    | Rejected::Deadline { .. } => self.count_settlement(minute),
                    // These change nothing.
                    Rejected::IdConflict | Rejected::Stale => {}
                }
                minute.row(self.key()).rejected += 1;
            }
        }
    }

    fn count_settlement(&self, minute: &mut Minute) {
        let Some(settlement) = &self.settlement else {
            return;
        };
        if settlement.change.is_empty() {
            return;
        }
        let row = minute.row(self.settled_key());
        for (dimension, change) in &settlement.change {
            row.count(dimension, 0, *change);
        }
    }

    fn key(&self) -> Key {
        match &self.whose {
            Some((tenant, priority)) => Key::of(&self.target, tenant, priority),
            None => Key::rest_of(&self.target),
        }
    }

    /// Whose the grant was; unknown if it was given in an entry that was still on its way.
    fn settled_key(&self) -> Key {
        match &self.settlement {
            Some(of) => Key::of(&self.target, &of.tenant, &of.priority),
            None => Key::rest_of(&self.target),
        }
    }
}

fn charge(row: &mut Counts, charged: &Amounts) {
    for (dimension, units) in charged.iter().filter(|(_, units)| *units > 0) {
        row.count(dimension, units, 0);
    }
}
