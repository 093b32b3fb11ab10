//! Policy files: several targets in TOML, with units that people write.

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::collections::BTreeMap;
use toml::Spanned;
use weir_admission::{Micros, Principal, Violation};
use weir_proto::convert::{self, Caller};
use weir_proto::v1 as wire;

/// One target of a file, as it goes over the wire, and where its parts stand.
#[derive(Clone, Debug)]
pub struct FileTarget {
    /// Its name as written; the cluster checks it.
    pub name: String,
    /// Its policy.
    pub policy: wire::Policy,
    lines: Lines,
}

/// Lines of a target's parts, from 1.
#[derive(Clone, Debug)]
struct Lines {
    target: usize,
    limits: Vec<usize>,
    priorities: Vec<usize>,
}

impl FileTarget {
    /// Everything that is wrong with the target, as the cluster would say it.
    pub fn violations(&self) -> Vec<Violation> {
        let request = wire::PutTargetRequest {
            target: self.name.clone(),
            policy: Some(self.policy.clone()),
            expected_version: None,
        };
        let Ok(principal) = Principal::new("file") else {
            return Vec::new();
        };
        // Neither who puts it nor where it lives takes part in the rules.
        let caller = Caller {
            principal: &principal,
            shards: 1,
            wakes: false,
        };
        match convert::target::read_put(&request, caller) {
            Ok(_) => Vec::new(),
            Err(violations) => violations.told().to_vec(),
        }
    }

    /// The policy as the cluster would tell it, every default spelt out; `None` if something is wrong.
    pub fn spelt_out(&self) -> Option<wire::Policy> {
        let policy = convert::policy::read(&self.policy).ok()?;
        Some(convert::policy::write(&policy))
    }

    /// The line of what a violation's field names, for example `policy.limits[1].per_us`.
    pub fn line_of(&self, field: &str) -> usize {
        let part = |list: &str, lines: &[usize]| {
            let (_, rest) = field.split_once(list)?;
            let (index, _) = rest.split_once(']')?;
            lines.get(index.parse::<usize>().ok()?).copied()
        };
        part("limits[", &self.lines.limits)
            .or_else(|| part("priorities[", &self.lines.priorities))
            .unwrap_or(self.lines.target)
    }
}

/// Reads a policy file. The error names line and column.
pub fn parse(text: &str) -> Result<Vec<FileTarget>, String> {
    let document: Document =
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    let line = |offset: usize| {
        1 + text
            .bytes()
            .take(offset)
            .filter(|byte| *byte == b'\n')
            .count()
    };
    document
        .target
        .into_iter()
        .map(|target| {
            let lines = Lines {
                target: line(target.span().start),
                limits: target
                    .as_ref()
                    .limit
                    .iter()
                    .map(|l| line(l.span().start))
                    .collect(),
                priorities: target
                    .as_ref()
                    .priority
                    .iter()
                    .map(|p| line(p.span().start))
                    .collect(),
            };
            let target = target.into_inner();
            Ok(FileTarget {
                name: target.name.clone(),
                policy: target.into_wire(),
                lines,
            })
        })
        .collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    target: Vec<Spanned<Target>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    name: String,
    #[serde(default)]
    limit: Vec<Spanned<Limit>>,
    #[serde(default)]
    priority: Vec<Spanned<Priority>>,
    #[serde(default)]
    tenant_weights: BTreeMap<String, u32>,
    default_tenant_weight: Option<u32>,
    reply_window: Option<Span>,
    send_spread: Option<Span>,
    horizon: Option<Span>,
    headroom: Option<Headroom>,
    estimate: Option<Estimate>,
    rejected_counts: Option<bool>,
    estimate_sigmas_milli: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    name: Option<String>,
    dimension: String,
    cap: u64,
    per: Span,
    kind: Option<Kind>,
    enforced_by: Option<EnforcedBy>,
    burst: Option<Span>,
    initial_use: Option<InitialUse>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Priority {
    name: String,
    weight: u32,
}

macro_rules! choice {
    ($name:ident -> $wire:ident { $($variant:ident),+ }) => {
        #[derive(Clone, Copy, Debug, Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum $name { $($variant),+ }

        impl From<$name> for wire::$wire {
            fn from(choice: $name) -> wire::$wire {
                match choice { $($name::$variant => wire::$wire::$variant),+ }
            }
        }
    };
}

choice!(Headroom -> Headroom { Auto, On, Off });
choice!(Estimate -> Estimate { Learned, Reserve });
choice!(Kind -> LimitKind { Sliding, Bucket });
choice!(EnforcedBy -> EnforcedBy { Provider, Us });
choice!(InitialUse -> InitialUse { Full, Empty });

impl Target {
    /// What is left out keeps the wire's "unspecified", which the cluster reads as the default. The wire
    /// has no default for how a limit counts and who enforces it; here they are the careful ones.
    fn into_wire(self) -> wire::Policy {
        wire::Policy {
            limits: self
                .limit
                .into_iter()
                .map(|limit| limit.into_inner().into_wire())
                .collect(),
            priorities: self
                .priority
                .into_iter()
                .map(Spanned::into_inner)
                .map(|priority| wire::Priority {
                    name: priority.name,
                    weight: priority.weight,
                })
                .collect(),
            tenant_weights: self.tenant_weights.into_iter().collect(),
            default_tenant_weight: self.default_tenant_weight.unwrap_or_default(),
            reply_window_us: self.reply_window.map(|span| span.0),
            send_spread_us: self.send_spread.map(|span| span.0),
            horizon_us: self.horizon.map_or(0, |span| span.0),
            headroom: self
                .headroom
                .map(wire::Headroom::from)
                .unwrap_or_default()
                .into(),
            estimate: self
                .estimate
                .map(wire::Estimate::from)
                .unwrap_or_default()
                .into(),
            rejected_counts: match self.rejected_counts {
                None => wire::RejectedCounts::Unspecified,
                Some(true) => wire::RejectedCounts::Yes,
                Some(false) => wire::RejectedCounts::No,
            }
            .into(),
            estimate_sigmas_milli: self.estimate_sigmas_milli,
        }
    }
}

impl Limit {
    fn into_wire(self) -> wire::Limit {
        wire::Limit {
            name: self.name.unwrap_or_else(|| self.dimension.clone()),
            dimension: self.dimension,
            cap: self.cap,
            per_us: self.per.0,
            kind: wire::LimitKind::from(self.kind.unwrap_or(Kind::Sliding)).into(),
            enforced_by: wire::EnforcedBy::from(self.enforced_by.unwrap_or(EnforcedBy::Provider))
                .into(),
            burst_us: self.burst.map(|span| span.0),
            initial_use: self
                .initial_use
                .map(wire::InitialUse::from)
                .unwrap_or_default()
                .into(),
        }
    }
}

/// Units of time, the longest last.
const UNITS: [(Micros, &str); 6] = [
    (1, "us"),
    (1_000, "ms"),
    (1_000_000, "s"),
    (60_000_000, "m"),
    (3_600_000_000, "h"),
    (86_400_000_000, "d"),
];

/// A length of time as people write it: a whole number and a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span(Micros);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let text = value.as_str().ok_or_else(|| {
            D::Error::custom(format!(
                "must be text with a unit such as \"60s\", is {value}"
            ))
        })?;
        parse_span(text).map(Span).map_err(D::Error::custom)
    }
}

/// Writes a length of time as a whole number of the longest unit that fits.
pub fn write_span(us: Micros) -> String {
    let fits = |(unit_us, _): &&(Micros, &str)| us > 0 && us.is_multiple_of(*unit_us);
    match UNITS.iter().rev().find(fits) {
        Some((unit_us, unit)) => format!("{}{unit}", us / unit_us),
        None => format!("{us}us"),
    }
}

/// Reads `250ms`, `10s`, `1d`: a whole number and one of us, ms, s, m, h, d.
pub fn parse_span(text: &str) -> Result<Micros, String> {
    let wrong = || format!("must be a whole number and us, ms, s, m, h or d, is {text:?}");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let known = UNITS.iter().find(|(_, name)| *name == unit);
    let (unit_us, _) = known.ok_or_else(wrong)?;
    let number: Micros = number.parse().map_err(|_| wrong())?;
    number
        .checked_mul(*unit_us)
        .ok_or_else(|| format!("is too long: {text:?}"))
}
