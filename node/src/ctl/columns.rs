//! What the columns of tables say, for `--help` and the manual.

/// Of `status`.
pub(super) const STATUS: &str = "\
Columns of nodes:
  CLIENTS, PEERS  addresses of its ports
  STATE           up, drained, `refused by` peers that do not let it in, or no answer
  VERSION, UP     its release, and the time since its start
  LEADS           shards that it leads with a quorum behind it

Columns of shards:
  LEADER, TERM    who leads it, and the number of the election that it won
  APPLIED         NODE:INDEX, the last log entry that each node has carried out
  TARGETS         targets that live in it
  STATE           ok, degraded (a replica does not answer), no leader, or REPLICAS DIFFER (nodes that carried out
                  the same entries have different states: a defect)";

/// Of `targets`.
pub(super) const TARGETS: &str = "\
Columns:
  VERSION         of the policy in force
  SHARD           where the target lives
  USED            of each limit: the units that count against its cap now, and the cap
  WAITING         calls in line
  GRANTS          calls that were admitted and not released yet";

/// Of `target`.
pub(super) const TARGET: &str = "\
Columns of limits:
  USED, CAP, PER  units that count against the cap now; the cap; its period
  GUARD           for so much longer than the period a start counts, because calls arrive later than they start
  KIND            sliding or bucket
  ENFORCED BY     provider, or us

Columns of priorities:
  WEIGHT, WAITING its weight, and the calls in its line
  ADMITTED, DEFERRED, REJECTED
                  answers since the policy was first put
  429             releases of calls that the provider refused
  SERVED          cap time of what was admitted: the part of a period in which the cap allows as much, by the limit
                  of which a call takes most. Weights divide this.

`weir ctl policy-keys` tells the rest.";

/// Of `explain`.
pub(super) const EXPLAIN: &str = "\
Columns of limits:
  COST            units that the call would be charged
  AHEAD           units of the calls that are served first
  USED, CAP       units that count against the cap now, and the cap
  EARLIEST IN     the first start behind those calls if this were the only limit

Columns of priorities:
  WAITING         calls in its line
  AHEAD           those of them that are served before this one
  SHARE AHEAD     their cap time: the part of a period in which the cap allows as much, by the limit of which a call
                  takes most";

/// Of `watch`.
pub(super) const WATCH: &str = "\
Columns:
  LEADER          the node that decides
  ADMITTED/s, DEFERRED/s, 429/s
                  answers, and releases of calls that the provider refused, since the last look
  WAITING         calls in the line of each priority
  USED            of each limit: the part of its cap that is used; `closed` if the cap is 0, `held` after a
                  Retry-After";

/// Of `history`.
pub(super) const HISTORY: &str = "\
Columns:
  TIME (UTC)      when the step begins
  TENANT, PRIORITY
                  with --by
  ADMITTED, DEFERRED, REJECTED
                  answers; a call that waits is deferred each time it asks
  429s            releases of calls that the provider refused
  UNGATED         calls that clients let through without a decision, and reported
  USED            units charged, corrected by the releases of the step: below zero if they gave back more";

/// Of `versions`.
pub(super) const VERSIONS: &str = "\
Columns:
  VERSION         its number; policies that were put again have a new one
  AGE             time since it was put, in cluster time
  PUT BY          who put it
  CHANGES         in the words of a policy file, against the version before";

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The heads of all tables in a golden file: the lines in capitals.
    fn heads(file: &str) -> Vec<String> {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ctl/show/golden");
        let text = std::fs::read_to_string(golden.join(file)).unwrap();
        let shouts = |line: &&str| line.starts_with(|first: char| first.is_ascii_uppercase());
        let lines = text.lines().filter(shouts);
        let columns = lines.flat_map(|line| line.split("  ").map(str::trim));
        columns
            .filter(|column| !column.is_empty())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn every_column_that_does_not_speak_for_itself_is_explained() {
        // What is listed has the first column's name.
        let plain = ["NODE", "SHARD", "TARGET", "LIMIT", "PRIORITY", "DIMENSION"];
        for (file, help) in [
            ("status.txt", STATUS),
            ("targets.txt", TARGETS),
            ("target.txt", TARGET),
            ("explain-deferred.txt", EXPLAIN),
            ("watch.txt", WATCH),
            ("versions.txt", VERSIONS),
            ("history.txt", HISTORY),
        ] {
            let heads = heads(file);
            assert!(heads.len() > 2, "{file}: {heads:?}");
            let unknown = |head: &String| !plain.contains(&head.as_str()) && !help.contains(head);
            let unknown: Vec<_> = heads.into_iter().filter(unknown).collect();
            assert_eq!(unknown, [""; 0], "{file}");
        }
    }
}
