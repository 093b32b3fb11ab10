//! Points in time as operators write and read them: minutes in UTC, or so long ago.

use super::policy_file::parse_span;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// A point in time as it was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// So many seconds ago.
    Ago(u64),
    /// Seconds since 1970.
    At(u64),
}

impl When {
    /// Seconds since 1970.
    pub(super) fn unix_s(self, now_s: u64) -> u64 {
        match self {
            When::Ago(ago) => now_s.saturating_sub(ago),
            When::At(at) => at,
        }
    }
}

/// Seconds since 1970 by the wall clock of this machine.
pub(super) fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Reads "90m" (so long ago), "2026-11-30" or "2026-11-30T13:45", in UTC.
pub(super) fn parse(text: &str) -> Result<When, String> {
    if let Some(at) = parse_date(text) {
        return Ok(When::At(at));
    }
    match parse_span(text) {
        Ok(us) => Ok(When::Ago(us / 1_000_000)),
        Err(_) => Err(format!(
            "{text:?} is neither so long ago, as 90m, nor a minute in UTC, as 2026-11-30T13:45"
        )),
    }
}

fn parse_date(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let numbers = |text: &str, by: char, widths: &[usize]| -> Option<Vec<u64>> {
        let parts: Vec<&str> = text.split(by).collect();
        let well_formed = parts.len() == widths.len()
            && parts.iter().zip(widths).all(|(part, width)| {
                part.len() == *width && part.bytes().all(|byte| byte.is_ascii_digit())
            });
        let numbers = parts.iter().map(|part| part.parse().ok());
        well_formed.then(|| numbers.collect())?
    };
    let date = numbers(date, '-', &[4, 2, 2])?;
    let time = numbers(time, ':', &[2, 2])?;
    let (&[year, month, day], &[hour, minute]) = (date.as_slice(), time.as_slice()) else {
        return None;
    };
    let exists = year >= 1970 && (1..=12).contains(&month) && hour < 24 && minute < 60;
    if !exists || day == 0 || day > days_of(year, month) {
        return None;
    }
    let days = days_before_year(year)
        + (1..month).map(|month| days_of(year, month)).sum::<u64>()
        + (day - 1);
    Some(days * DAY + hour * 3_600 + minute * 60)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970 to the first day of a year.
fn days_before_year(year: u64) -> u64 {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
}

/// "2026-11-30 13:45", in UTC.
pub(super) fn minute(unix_s: u64) -> String {
    let days = unix_s / DAY;
    let mut year = 1970 + days / 366;
    while days_before_year(year + 1) <= days {
        year += 1;
    }
    let mut day = days - days_before_year(year);
    let mut month = 1;
    while day >= days_of(year, month) {
        day -= days_of(year, month);
        month += 1;
    }
    let (hour, minute) = (unix_s % DAY / 3_600, unix_s % 3_600 / 60);
    format!("{year:04}-{month:02}-{:02} {hour:02}:{minute:02}", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    // As `date -u -d @SECONDS` tells them.
    const MINUTES: [(u64, &str); 7] = [
        (0, "1970-01-01 00:00"),
        (951_782_400, "2000-02-29 00:00"),
        (951_868_740, "2000-02-29 23:59"),
        (978_307_140, "2000-12-31 23:59"),
        (1_796_046_300, "2026-11-30 13:45"),
        (4_107_542_400, "2100-03-01 00:00"),
        (253_402_300_740, "9999-12-31 23:59"),
    ];

    #[test]
    fn minutes_are_written_and_read() {
        for (unix_s, text) in MINUTES {
            assert_eq!(minute(unix_s), text);
            assert_eq!(parse(text), Ok(When::At(unix_s)), "{text}");
        }
        for day in 0..80_000 {
            let unix_s = day * DAY + 60 * (day % 1_440);
            assert_eq!(parse(&minute(unix_s)), Ok(When::At(unix_s)));
        }
    }

    #[test]
    fn other_forms_are_read_or_refused() {
        assert_eq!(parse("2026-11-30"), Ok(When::At(1_795_996_800)));
        assert_eq!(parse("2026-11-30T13:45Z"), Ok(When::At(1_796_046_300)));
        assert_eq!(parse("90m"), Ok(When::Ago(5_400)));
        assert_eq!(When::Ago(5_400).unix_s(6_000), 600);
        for wrong in [
            "2026-11-31",
            "2026-13-01",
            "2026-00-01",
            "2026-01-00",
            "1969-12-31",
            "2026-1-1",
            "2026-11-30T24:00",
            "2026-11-30T1:00",
            "2026-11-30T13:45:00",
            "+026-11-30",
            "yesterday",
            "",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
