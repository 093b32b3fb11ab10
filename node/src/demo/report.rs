//! What came of it: the JSON object, the tables, and one paragraph in plain words.

use super::book::{Counts, Second};
use super::tally::Figures;
use super::workload::{Workload, largest_error};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

/// Columns of the plain words.
const LINE_COLUMNS: usize = 90;

/// Everything known of one fleet's run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The provider's books.
    pub counts: Counts,
    /// The fleet's own sums.
    pub figures: Figures,
    /// Asks sent to whoever decides: to the cluster, or without one the calls sent to the provider.
    pub asks: u64,
    /// Seconds that count, of the provider's clock: from the warm-up's end to the run's end.
    pub span: Range<usize>,
    /// Seconds of the failover, which do not count for the share of the cap used.
    pub failover: Option<Range<usize>>,
}

/// The failover, if a leader was killed.
#[derive(Clone, Copy, Debug)]
pub struct Failover {
    /// Longest time without any answer from the cluster around the kill.
    pub gap: Duration,
}

/// Both runs.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was run.
    pub workload: Workload,
    /// The provider's window.
    pub window: Duration,
    /// The run through the cluster.
    pub weir: Measured,
    /// The run without.
    pub ungated: Measured,
    /// `None` if the leader was kept.
    pub failover: Option<Failover>,
    /// Calls that the gated fleet let through without a decision.
    pub ungated_calls: u64,
}

/// The JSON object.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The run through the cluster.
    pub weir: FleetSummary,
    /// The run without.
    pub ungated: FleetSummary,
    /// Milliseconds; null if the leader was kept.
    pub failover_ms: Option<f64>,
    /// Calls that the gated fleet let through without a decision.
    pub ungated_calls: u64,
}

/// One fleet in eight numbers.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FleetSummary {
    /// Calls answered with 429 over all calls of the run, 0 to 1.
    pub share_429: f64,
    /// The largest count in any window of the run over its cap; 1.0 is exactly the cap. 429s count if the
    /// provider counts them.
    pub worst_window: f64,
    /// Use of the dimension that is used most over its cap, outside warm-up and failover, 0 to 1.
    pub cap_used: f64,
    /// Largest relative error of a priority's part of the calls served against its entitlement.
    pub class_error_max: f64,
    /// Asks per call served, over the whole run.
    pub asks_per_ok: f64,
    /// 95th percentile of the highest priority's time from wanting a call to its answer.
    pub p1_p95_ms: f64,
    /// Longest time a call waited.
    pub longest_wait_s: f64,
    /// Slot time per call served.
    pub slot_ms: f64,
}

impl Measured {
    /// Calls served per second of each class, highest priority first, within the span.
    pub fn served_per_s(&self, workload: &Workload) -> Vec<f64> {
        let seconds = self.span.len().max(1) as f64;
        let served = |name: &str| {
            self.counts
                .total(|account| account.priority == name, self.span.clone())
                .accepted
        };
        workload
            .classes
            .iter()
            .map(|class| served(class.name) as f64 / seconds)
            .collect()
    }

    fn whole(&self) -> Second {
        self.counts.total(|_| true, 0..usize::MAX)
    }

    /// Seconds of the span outside the failover, and what was served in them.
    fn steady(&self) -> (usize, Second) {
        let all = self.counts.total(|_| true, self.span.clone());
        let Some(failover) = &self.failover else {
            return (self.span.len(), all);
        };
        let from = failover.start.clamp(self.span.start, self.span.end);
        let to = failover.end.clamp(from, self.span.end);
        let lost = self.counts.total(|_| true, from..to);
        let steady = Second {
            accepted: all.accepted - lost.accepted,
            throttled: all.throttled - lost.throttled,
            tokens: all.tokens - lost.tokens,
        };
        (self.span.len() - (to - from), steady)
    }

    /// Use over cap of requests and of tokens, outside warm-up and failover.
    fn used(&self, window: Duration) -> (f64, f64) {
        let (seconds, steady) = self.steady();
        let windows = (seconds as f64 / window.as_secs_f64()).max(f64::MIN_POSITIVE);
        let over = |used: u64, cap: u64| used as f64 / (cap.max(1) as f64 * windows);
        (
            over(steady.accepted, self.counts.cap_requests),
            over(steady.tokens, self.counts.cap_tokens),
        )
    }

    /// The eight numbers.
    pub fn summary(&self, workload: &Workload, window: Duration) -> FleetSummary {
        let whole = self.whole();
        let per = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        let (requests, tokens) = self.used(window);
        let p1 = self.figures.classes.first().copied().unwrap_or_default();
        FleetSummary {
            share_429: per(whole.throttled, whole.throttled + whole.accepted),
            worst_window: self.counts.worst(),
            cap_used: requests.max(tokens),
            class_error_max: largest_error(&self.served_per_s(workload), &workload.entitlements()),
            asks_per_ok: per(self.asks, whole.accepted),
            p1_p95_ms: millis(p1.p95),
            longest_wait_s: self.figures.longest().as_secs_f64(),
            slot_ms: millis(self.figures.slot_per_call()),
        }
    }
}

impl Report {
    /// The JSON object.
    pub fn summary(&self) -> Summary {
        Summary {
            weir: self.weir.summary(&self.workload, self.window),
            ungated: self.ungated.summary(&self.workload, self.window),
            failover_ms: self.failover.map(|failover| millis(failover.gap)),
            ungated_calls: self.ungated_calls,
        }
    }

    /// Two tables: who got how much, and what it cost.
    pub fn tables(&self) -> String {
        let mut text = self.class_table().to_string();
        let _infallible = write!(text, "\n\n{}", self.figure_table());
        text
    }

    fn class_table(&self) -> Table {
        let mut table = table();
        table.set_header([
            "OK/s",
            "entitled",
            "ungated",
            "weir",
            "ungated p50/p95",
            "weir p50/p95",
        ]);
        let entitlements = self.workload.entitlements();
        let rate = self.weir.counts.cap_requests as f64 / self.window.as_secs_f64();
        let ungated = self.ungated.served_per_s(&self.workload);
        let weir = self.weir.served_per_s(&self.workload);
        let latency = |measured: &Measured, class: usize| {
            let class = measured
                .figures
                .classes
                .get(class)
                .copied()
                .unwrap_or_default();
            format!("{:.0} / {:.0} ms", millis(class.p50), millis(class.p95))
        };
        let rows = entitlements
            .iter()
            .zip(ungated)
            .zip(weir)
            .zip(&self.workload.classes);
        for (index, (((entitled, ungated), weir), class)) in rows.enumerate() {
            table.add_row([
                format!("{} (weight {})", class.name, class.weight),
                format!("{:.1}", entitled * rate),
                format!("{ungated:.1}"),
                format!("{weir:.1}"),
                latency(&self.ungated, index),
                latency(&self.weir, index),
            ]);
        }
        right(table)
    }

    fn figure_table(&self) -> Table {
        let Summary { weir, ungated, .. } = self.summary();
        let (weir_used, ungated_used) =
            (self.weir.used(self.window), self.ungated.used(self.window));
        let mut table = table();
        table.set_header(["", "ungated", "weir"]);
        let mut row = |name: &str, figure: &dyn Fn(&FleetSummary) -> String| {
            table.add_row([name.to_owned(), figure(&ungated), figure(&weir)]);
        };
        row("answered with 429", &|f| percent(f.share_429));
        row("worst window over cap (429s count)", &|f| {
            format!("{:.3}", f.worst_window)
        });
        row("largest error of a priority's share", &|f| {
            percent(f.class_error_max)
        });
        row("asks per OK", &|f| format!("{:.2}", f.asks_per_ok));
        row("longest wait", &|f| format!("{:.1} s", f.longest_wait_s));
        row("slot time per OK", &|f| format!("{:.0} ms", f.slot_ms));
        let both = |used: (f64, f64)| (percent(used.0), percent(used.1));
        let (ungated, weir) = (both(ungated_used), both(weir_used));
        table.add_row(["requests cap used".to_owned(), ungated.0, weir.0]);
        table.add_row(["tokens cap used".to_owned(), ungated.1, weir.1]);
        right(table)
    }

    /// What was counted when.
    pub fn notes(&self) -> String {
        let span = &self.weir.span;
        let mut notes = format!(
            "Counted by the provider. 429s, windows and asks are of the whole run of {} s; everything \
             else leaves out the first {} s, in which a fresh cap is given away.",
            span.end, span.start,
        );
        if let Some(failover) = &self.weir.failover {
            let _infallible = write!(
                notes,
                " The share of the cap used leaves out the failover too, seconds {} to {}.",
                failover.start, failover.end,
            );
        }
        notes
    }

    /// What the tables say.
    pub fn words(&self) -> String {
        let Summary { weir, ungated, .. } = self.summary();
        let mut words = format!(
            "Without a gate {} of all calls came back with 429, and a call held its slot for {:.0} ms \
             per answer. Through the cluster it was {} and {:.0} ms; the provider's fullest window was \
             at {:.1} % of its cap, {} of the cap was used, and the priorities were within {} of their \
             shares.",
            percent(ungated.share_429),
            ungated.slot_ms,
            percent(weir.share_429),
            weir.slot_ms,
            weir.worst_window * 100.0,
            percent(weir.cap_used),
            percent(weir.class_error_max),
        );
        if let Some(failover) = self.failover {
            let _infallible = write!(
                words,
                " The leader was killed half way: nobody was answered for {:.0} ms, then the new leader \
                 went on with the same lines and counts.",
                millis(failover.gap),
            );
        }
        let _infallible = match self.ungated_calls {
            0 => write!(words, " No call went out without a decision."),
            1 => write!(words, " One call went out without a decision."),
            calls => write!(words, " {calls} calls went out without a decision."),
        };
        words
    }
}

/// Breaks a paragraph into lines that fit a terminal.
pub fn wrapped(paragraph: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > LINE_COLUMNS {
            text.push('\n');
            column = 0;
        }
        if column > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += width;
    }
    text
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table
}

/// Numbers stand right, names left.
fn right(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

fn percent(part: f64) -> String {
    format!("{:.2} %", part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::book::Account;

    /// Ten windows of a second: `per_s` calls of ten tokens for each class in each second, none in
    /// second 5.
    fn measured(per_s: [u64; 3], failover: Option<Range<usize>>) -> Measured {
        let account = |(priority, accepted): (&str, u64)| {
            let second = Second {
                accepted,
                throttled: 1,
                tokens: accepted * 10,
            };
            let mut seconds = vec![second; 10];
            seconds[5] = Second::default();
            Account {
                tenant: "aster".into(),
                priority: priority.into(),
                seconds,
            }
        };
        let counts = Counts {
            accounts: ["p1", "p2", "p3"]
                .into_iter()
                .zip(per_s)
                .map(account)
                .collect(),
            worst_requests: 0.9,
            worst_tokens: 0.95,
            cap_requests: 100,
            cap_tokens: 2_000,
            overruns: 0,
        };
        let figures = Figures {
            classes: Vec::new(),
        };
        Measured {
            counts,
            figures,
            asks: 2_700,
            span: 2..10,
            failover,
        }
    }

    fn summary(per_s: [u64; 3], failover: Option<Range<usize>>) -> FleetSummary {
        let workload = Workload::cross_priority(1);
        measured(per_s, failover).summary(&workload, Duration::from_secs(1))
    }

    #[test]
    fn the_failover_is_left_out_of_the_cap_and_of_nothing_else() {
        let (kept, lost) = (
            summary([50, 30, 20], None),
            summary([50, 30, 20], Some(5..6)),
        );
        assert_eq!((kept.cap_used, lost.cap_used), (0.875, 1.0));
        for summary in [kept, lost] {
            assert!(summary.class_error_max < 1e-9);
            assert_eq!(summary.share_429, 27.0 / 927.0);
            assert_eq!(summary.asks_per_ok, 3.0);
            assert_eq!(summary.worst_window, 0.95);
        }
    }

    #[test]
    fn a_failover_outside_the_span_takes_nothing_away() {
        for failover in [0..2, 10..20, 0..0] {
            assert_eq!(summary([50, 30, 20], Some(failover)).cap_used, 0.875);
        }
        assert_eq!(summary([50, 30, 20], Some(0..20)).cap_used, 0.0);
    }

    #[test]
    fn equal_parts_are_an_error_against_weights() {
        let error = summary([30, 30, 30], None).class_error_max;
        assert!((error - (1.0 / 3.0 / 0.2 - 1.0)).abs() < 1e-9, "{error}");
    }
}
