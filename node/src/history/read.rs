//! A read of the history: rows folded into steps.

use super::counts::{Counts, Key, Units};
use std::collections::BTreeMap;
use weir_admission::DimensionName;
use weir_proto::convert::history::{HistoryBy, ReadHistory};
use weir_proto::limits::HISTORY_POINTS_MAX;
use weir_proto::v1 as wire;

/// What stands for all that found no room of their own.
pub const OTHER: &str = "(other)";

/// Why a read has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// More than [`HISTORY_POINTS_MAX`] points.
    #[error("too many points")]
    TooManyPoints,
    /// Too many reads wait.
    #[error("too many reads wait")]
    Busy,
    /// The node ends.
    #[error("the node stops")]
    Stopped,
}

/// What a node counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// In order of step and name.
    pub points: Vec<wire::HistoryPoint>,
    /// The first minute of which anything is kept.
    pub oldest_minute: Option<u32>,
    /// Empty, or why there is no store.
    pub trouble: String,
}

/// Step, tenant and priority of a point; names only where points are told apart by them.
type Place = (u64, String, String);

/// Adds rows up, step by step.
pub(super) struct Fold<'a> {
    read: &'a ReadHistory,
    points: BTreeMap<Place, Counts>,
}

impl<'a> Fold<'a> {
    pub(super) fn new(read: &'a ReadHistory) -> Fold<'a> {
        Fold {
            read,
            points: BTreeMap::new(),
        }
    }

    /// Adds a row, if the read is about it.
    pub(super) fn add(&mut self, minute: u32, key: &Key, counts: &Counts) -> Result<(), ReadError> {
        let read = self.read;
        let minute = u64::from(minute);
        let asked = key.target.as_ref() == Some(&read.target)
            && (read.tenant.is_none() || key.tenant == read.tenant)
            && (read.priority.is_none() || key.priority == read.priority)
            && (read.from_minute..read.to_minute).contains(&minute);
        if !asked {
            return Ok(());
        }
        let since = minute - read.from_minute;
        let start = minute - since % read.step_minutes;
        let name = |name: Option<&str>| name.unwrap_or(OTHER).to_owned();
        let place = match read.by {
            HistoryBy::Nothing => (start, String::new(), String::new()),
            HistoryBy::Tenant => {
                let tenant = key.tenant.as_ref().map(|tenant| tenant.as_str());
                (start, name(tenant), String::new())
            }
            HistoryBy::Priority => {
                let priority = key.priority.as_ref().map(|priority| priority.as_str());
                (start, String::new(), name(priority))
            }
        };
        if !self.points.contains_key(&place) && self.points.len() >= HISTORY_POINTS_MAX {
            return Err(ReadError::TooManyPoints);
        }
        self.points.entry(place).or_default().add(counts);
        Ok(())
    }

    pub(super) fn finish(self, oldest_minute: Option<u32>, trouble: String) -> Answer {
        Answer {
            points: self.points.into_iter().map(point).collect(),
            oldest_minute,
            trouble,
        }
    }
}

fn point(((start, tenant, priority), counts): (Place, Counts)) -> wire::HistoryPoint {
    let name = |dimension: &Option<DimensionName>| {
        dimension
            .as_ref()
            .map_or(OTHER, DimensionName::as_str)
            .to_owned()
    };
    let units = || counts.units.iter();
    let of = |(dimension, units): (&Option<DimensionName>, &Units)| (name(dimension), *units);
    wire::HistoryPoint {
        start_unix_s: start * 60,
        tenant,
        priority,
        admitted: counts.admitted,
        deferred: counts.deferred,
        rejected: counts.rejected,
        throttled: counts.throttled,
        ungated: counts.ungated,
        charged: units()
            .map(of)
            .map(|(name, units)| (name, units.charged))
            .collect(),
        corrected: units()
            .map(of)
            .map(|(name, units)| (name, units.corrected))
            .collect(),
    }
}
