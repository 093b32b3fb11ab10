//! The history of use as bars, one line for each step.

use super::history::{notes, used};
use super::span;
use crate::ctl::history::Range;
use crate::ctl::when;
use comfy_table::Table;
use std::collections::BTreeMap;
use weir_client::History;
use weir_proto::v1 as wire;

/// Columns where there is no terminal, and the fewest and most that bars take.
const WIDTH: u16 = 80;
const BAR_MIN: usize = 10;
const BAR_MAX: usize = 200;
/// The dimension whose units are calls.
const REQUESTS: &str = "requests";

/// What is drawn on.
#[derive(Clone, Copy, Debug)]
pub(in crate::ctl) struct Paper {
    /// Columns.
    pub(in crate::ctl) width: u16,
    pub(in crate::ctl) colors: bool,
}

impl Paper {
    /// Columns of the terminal; those of an ordinary one if there is none.
    pub(in crate::ctl) fn width_of_terminal() -> u16 {
        Table::new().width().unwrap_or(WIDTH)
    }

    fn paint(self, color: u8, text: &str) -> String {
        if self.colors && !text.is_empty() {
            format!("\x1b[{color}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

const GREEN: u8 = 32;
const YELLOW: u8 = 33;
const RED: u8 = 31;

/// One step: what fills the bar, and what comes behind it.
#[derive(Clone, Copy, Default)]
struct Bar {
    /// Admitted calls, or units used.
    first: u64,
    /// Deferred calls.
    second: u64,
}

pub(in crate::ctl) fn plot(
    range: &Range,
    history: &History,
    policy: &wire::Policy,
    dimension: Option<&str>,
    paper: Paper,
) -> String {
    let bars = bars(range, history, dimension);
    let of_cap = dimension.unwrap_or(REQUESTS);
    let cap = cap_of_step(policy, of_cap, range.step_s);
    let most = bars
        .values()
        .map(|bar| bar.first.saturating_add(bar.second));
    let most = most.max().unwrap_or(0).max(cap.unwrap_or(0)).max(1);
    let numbers = |bar: &Bar| match dimension {
        None => format!("{} + {}", bar.first, bar.second),
        Some(_) => bar.first.to_string(),
    };
    let number_width = bars
        .values()
        .map(|bar| numbers(bar).len())
        .max()
        .unwrap_or(0);
    // The time, two spaces on either side of the bar, the numbers.
    let taken = 16 + 2 + 2 + number_width;
    let width = usize::from(paper.width)
        .saturating_sub(taken)
        .clamp(BAR_MIN, BAR_MAX);
    let columns = |count: u64| {
        let columns = u128::from(count) * width as u128;
        usize::try_from(columns.div_ceil(u128::from(most))).unwrap_or(width)
    };
    let mut text = legend(range, dimension, cap, paper);
    for (start, bar) in &bars {
        let first = columns(bar.first);
        let second = columns(bar.first.saturating_add(bar.second)).saturating_sub(first);
        let mut cells: Vec<(u8, char)> = Vec::with_capacity(width);
        cells.extend(std::iter::repeat_n((GREEN, '#'), first));
        cells.extend(std::iter::repeat_n((YELLOW, '+'), second));
        cells.resize(width, (0, ' '));
        let mark = cap.map(|cap| columns(cap).saturating_sub(1));
        if let Some(cell) = mark.and_then(|mark| cells.get_mut(mark)) {
            *cell = (RED, '|');
        }
        let line = format!(
            "{}  {}  {}",
            when::minute(*start),
            painted(&cells, paper),
            numbers(bar)
        );
        text += line.trim_end();
        text.push('\n');
    }
    text + &notes(range, history)
}

fn legend(range: &Range, dimension: Option<&str>, cap: Option<u64>, paper: Paper) -> String {
    let step = span(range.step_s * 1_000_000);
    let bars = match dimension {
        None => format!(
            "{} admitted {} deferred calls",
            paper.paint(GREEN, "#"),
            paper.paint(YELLOW, "+")
        ),
        Some(dimension) => format!("{} {dimension} used", paper.paint(GREEN, "#")),
    };
    let of_cap = dimension.unwrap_or(REQUESTS);
    let cap = match cap {
        Some(cap) => format!(
            "{} cap of the policy in force: {cap} {of_cap}",
            paper.paint(RED, "|")
        ),
        None => format!("no cap of {of_cap} in force"),
    };
    format!("{}: {bars} per {step}, {cap}\n", range.target)
}

/// Every step of the range from the first that is kept, also those in which nothing was counted.
fn bars(range: &Range, history: &History, dimension: Option<&str>) -> BTreeMap<u64, Bar> {
    let starts = (range.from_s..range.to_s).step_by(usize::try_from(range.step_s).unwrap_or(60));
    let kept = starts.filter(|start| start + range.step_s > history.oldest_unix_s);
    let mut bars: BTreeMap<u64, Bar> = kept.map(|start| (start, Bar::default())).collect();
    for point in &history.points {
        let bar = match dimension {
            None => Bar {
                first: point.admitted,
                second: point.deferred,
            },
            Some(dimension) => {
                let used = used(point).get(dimension).copied().unwrap_or(0);
                Bar {
                    first: u64::try_from(used).unwrap_or(0),
                    second: 0,
                }
            }
        };
        bars.insert(point.start_unix_s, bar);
    }
    bars
}

/// What the tightest limit of a dimension lets through in one step; `None` if no limit counts it.
fn cap_of_step(policy: &wire::Policy, dimension: &str, step_s: u64) -> Option<u64> {
    let of_dimension = policy
        .limits
        .iter()
        .filter(|limit| limit.dimension == dimension);
    let in_step = of_dimension.map(|limit| {
        let units = u128::from(limit.cap) * u128::from(step_s) * 1_000_000;
        u64::try_from(units / u128::from(limit.per_us.max(1))).unwrap_or(u64::MAX)
    });
    in_step.min()
}

/// Cells with as few changes of color as they need.
fn painted(cells: &[(u8, char)], paper: Paper) -> String {
    let runs = cells.chunk_by(|one, two| one.0 == two.0);
    runs.map(|run| {
        let text: String = run.iter().map(|(_, cell)| cell).collect();
        match run.first() {
            Some((color, _)) if *color > 0 => paper.paint(*color, &text),
            Some(_) | None => text,
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_796_046_300;

    fn range() -> Range {
        Range {
            target: "a/x".into(),
            from_s: START,
            to_s: START + 240,
            step_s: 60,
            by: None,
        }
    }

    fn point(minute: u64, admitted: u64, deferred: u64) -> wire::HistoryPoint {
        wire::HistoryPoint {
            start_unix_s: START + 60 * minute,
            admitted,
            deferred,
            charged: [("tokens".to_owned(), 100 * admitted)].into(),
            corrected: [("tokens".to_owned(), -1_000)].into(),
            ..wire::HistoryPoint::default()
        }
    }

    fn history() -> History {
        History {
            points: vec![point(0, 20, 0), point(1, 5, 15), point(3, 30, 10)],
            ..History::default()
        }
    }

    fn policy() -> wire::Policy {
        let limit = |dimension: &str, cap, per_us| wire::Limit {
            dimension: dimension.into(),
            cap,
            per_us,
            ..wire::Limit::default()
        };
        wire::Policy {
            limits: vec![
                limit("requests", 600, 600_000_000),
                limit("requests", 20, 60_000_000),
            ],
            ..wire::Policy::default()
        }
    }

    const PLAIN: Paper = Paper {
        width: 47,
        colors: false,
    };

    #[test]
    fn calls_are_drawn_against_the_tightest_cap() {
        let text = plot(&range(), &history(), &policy(), None, PLAIN);
        let expected = "\
a/x: # admitted + deferred calls per 1m, | cap of the policy in force: 20 requests
2026-11-30 13:45  #########|            20 + 0
2026-11-30 13:46  ###++++++|            5 + 15
2026-11-30 13:47           |            0 + 0
2026-11-30 13:48  #########|#####+++++  30 + 10
";
        assert_eq!(text, expected);
    }

    #[test]
    fn units_are_drawn_without_a_cap_where_there_is_none() {
        let text = plot(&range(), &history(), &policy(), Some("tokens"), PLAIN);
        let expected = "\
a/x: # tokens used per 1m, no cap of tokens in force
2026-11-30 13:45  ############             1000
2026-11-30 13:46                           0
2026-11-30 13:47                           0
2026-11-30 13:48  #######################  2000
";
        assert_eq!(text, expected);
    }

    #[test]
    fn colors_only_add_to_the_text_and_any_width_will_do() {
        let colored = Paper {
            colors: true,
            ..PLAIN
        };
        let text = plot(&range(), &history(), &policy(), None, colored);
        assert!(
            text.contains("\x1b[32m#########\x1b[0m\x1b[31m|\x1b[0m\x1b[32m#####\x1b[0m"),
            "{text}"
        );
        let mut plain = text;
        for color in ["\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"] {
            plain = plain.replace(color, "");
        }
        assert_eq!(plain, plot(&range(), &history(), &policy(), None, PLAIN));
        for width in [0, 1, 30, 1_000, u16::MAX] {
            let text = plot(
                &range(),
                &history(),
                &policy(),
                None,
                Paper { width, ..PLAIN },
            );
            let longest = text.lines().skip(1).map(str::len).max().unwrap();
            assert!(
                longest <= usize::from(width).clamp(37, 227),
                "{width}: {text}"
            );
        }
    }

    #[test]
    fn steps_from_before_the_history_are_not_drawn_as_empty() {
        let history = History {
            oldest_unix_s: START + 60,
            missing_nodes: vec![3],
            ..history()
        };
        let text = plot(
            &range(),
            &History {
                points: vec![point(1, 1, 0)],
                ..history
            },
            &policy(),
            None,
            PLAIN,
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert!(lines[1].starts_with("2026-11-30 13:46"), "{text}");
        assert!(lines[4].contains("node 3 does not answer"), "{text}");
        assert_eq!(lines[5], "nothing is kept from before 2026-11-30 13:46");
    }
}
