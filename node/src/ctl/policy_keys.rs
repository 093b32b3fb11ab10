//! Every key of a policy file: one list for `weir ctl policy-keys`, for the reference in `deploy/policy.md`, and
//! for what is said of a wrong value.

#[cfg(test)]
mod tests;

use weir_admission::Violation;

/// One key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The table it stands in, as a file writes it: `[[target]]`.
    pub(super) table: &'static str,
    /// Its name.
    pub(super) name: &'static str,
    /// What its value is.
    pub(super) kind: &'static str,
    /// What the value may be.
    pub(super) range: &'static str,
    /// What it is if it is left out; empty if it must be there.
    pub(super) default: &'static str,
    /// What it does.
    pub(super) what: &'static str,
}

impl Key {
    /// The key that a path of the wire's policy stands for, such as `limits[1].per_us`.
    fn of_path(path: &str) -> Option<&'static Key> {
        let (table, field) = match path.rsplit_once("].") {
            Some((list, field)) if list.starts_with("limits[") => (LIMIT, field),
            Some((list, field)) if list.starts_with("priorities[") => (PRIORITY, field),
            Some(_) => return None,
            None => (TARGET, path.split_once('[').map_or(path, |(list, _)| list)),
        };
        let name = match field {
            "limits" => "limit",
            "priorities" => "priority",
            field => field.strip_suffix("_us").unwrap_or(field),
        };
        KEYS.iter()
            .find(|key| key.table == table && key.name == name)
    }
}

/// A violation in the words and units of a file.
pub(super) fn in_words_of_file(violation: &Violation) -> String {
    let path = violation.field.strip_prefix("policy.");
    let path = path.unwrap_or(&violation.field);
    let lists = [
        ("target", "name"),
        ("limits", "limit"),
        ("priorities", "priority"),
    ];
    let renamed = lists.iter().find_map(|(list, table)| {
        let rest = path.strip_prefix(list)?;
        Some(format!("{table}{rest}"))
    });
    let words = renamed.unwrap_or_else(|| path.to_owned());
    let words = words.strip_suffix("_us").unwrap_or(&words);
    match Key::of_path(path) {
        // The rule is told in microseconds.
        Some(key) if key.kind == TIME => format!("{words}: must be {}", key.range),
        Some(_) | None => format!("{words}: {}", violation.description),
    }
}

/// The kind of lengths of time.
const TIME: &str = "time";

const TARGET: &str = "[[target]]";
const LIMIT: &str = "[[target.limit]]";
const PRIORITY: &str = "[[target.priority]]";

const fn key(table: &'static str, [name, kind, range, default, what]: [&'static str; 5]) -> Key {
    Key {
        table,
        name,
        kind,
        range,
        default,
        what,
    }
}

/// All of them, in the order of the reference.
pub(super) const KEYS: &[Key] = &[
    key(
        TARGET,
        [
            "name",
            "text",
            "1 to 128 bytes",
            "",
            "What is called. The part before the first `/` is its pool; targets of one pool live in one shard.",
        ],
    ),
    key(
        TARGET,
        [
            "limit",
            "tables",
            "1 to 32, over at most 8 dimensions",
            "",
            "What may be used. A call is admitted when all of them have room for it.",
        ],
    ),
    key(
        TARGET,
        [
            "priority",
            "tables",
            "1 to 8, highest first",
            "",
            "Who goes first. Only calls of these priorities are taken.",
        ],
    ),
    key(
        TARGET,
        [
            "tenant_weights",
            "table of tenant = weight",
            "1 to 10000 each, at most 10000 tenants",
            "{}",
            "How tenants share inside a priority: in the proportion of their weights.",
        ],
    ),
    key(
        TARGET,
        [
            "default_tenant_weight",
            "number",
            "1 to 10000",
            "100",
            "Weight of every tenant that is not named.",
        ],
    ),
    key(
        TARGET,
        [
            "reply_window",
            TIME,
            "up to 10s",
            "per/600 of each limit, 12ms to 250ms",
            "A grant whose answer took longer than this is thrown away and asked for again. Longer windows admit over \
             slow networks, and cost capacity: starts count for so much longer.",
        ],
    ),
    key(
        TARGET,
        [
            "send_spread",
            TIME,
            "up to 10s",
            "per/600 of each limit, 10ms to 100ms",
            "How much the time from start to arrival at the provider differs in the fleet. Too small, and the provider \
             may see more than the cap in one period; larger costs capacity as the reply window does.",
        ],
    ),
    key(
        TARGET,
        [
            "horizon",
            TIME,
            "1ms to 1s",
            "30ms",
            "A start this near is granted at once, and the caller sleeps until then.",
        ],
    ),
    key(
        TARGET,
        [
            "headroom",
            "choice",
            "auto, on, off",
            "auto",
            "Room for one call of a higher priority that asks now and then: where it costs at most 1/200 of the cap, \
             always (at most a quarter of the cap), or never.",
        ],
    ),
    key(
        TARGET,
        [
            "estimate",
            "choice",
            "learned, reserve",
            "learned",
            "What a call with a lower and an upper bound is charged until its release: a learned mean with a margin, or \
             the upper bound.",
        ],
    ),
    key(
        TARGET,
        [
            "estimate_sigmas_milli",
            "number",
            "0 to 10000",
            "2500",
            "The margin of learned estimates, in thousandths of a standard deviation.",
        ],
    ),
    key(
        TARGET,
        [
            "rejected_counts",
            "flag",
            "true, false",
            "true",
            "Whether the provider counts calls that it answers with 429. If not, their charge is given back.",
        ],
    ),
    key(
        LIMIT,
        [
            "name",
            "text",
            "1 to 128 bytes, unique in the target",
            "the dimension",
            "What answers, tables and metrics call the limit.",
        ],
    ),
    key(
        LIMIT,
        [
            "dimension",
            "text",
            "1 to 128 bytes",
            "",
            "What is counted: the name under which calls tell their cost. A limit holds only calls that have a cost in it.",
        ],
    ),
    key(
        LIMIT,
        [
            "cap",
            "number of units",
            "0 to 70368744177664",
            "",
            "Units per period. 0 closes the target to calls with a cost in the dimension.",
        ],
    ),
    key(LIMIT, ["per", TIME, "1s to 31d", "", "The period."]),
    key(
        LIMIT,
        [
            "kind",
            "choice",
            "sliding, bucket",
            "sliding",
            "How use comes back: at most the cap in every period, whatever its alignment; or a token bucket that is \
             refilled with cap per period.",
        ],
    ),
    key(
        LIMIT,
        [
            "enforced_by",
            "choice",
            "provider, us",
            "provider",
            "Who counts: somebody else counts arrivals, so that periods are guarded by reply window and send spread; or \
             nobody but Weir, which counts starts.",
        ],
    ),
    key(
        LIMIT,
        [
            "burst",
            TIME,
            "up to per",
            "sliding: per/10, or ten times the largest call; bucket: per",
            "How much may start at once from idle, as the part of the period in which the cap would allow it. Of a \
             bucket it is the depth.",
        ],
    ),
    key(
        LIMIT,
        [
            "initial_use",
            "choice",
            "full, empty",
            "full if the provider enforces it, empty if we do",
            "What is taken to be used when the limit joins a target whose earlier use nobody knows.",
        ],
    ),
    key(
        PRIORITY,
        [
            "name",
            "text",
            "1 to 128 bytes, unique in the target",
            "",
            "The name that calls give.",
        ],
    ),
    key(
        PRIORITY,
        [
            "weight",
            "number",
            "1 to 10000",
            "",
            "Its share is its weight over the sum of those that want something.",
        ],
    ),
];
