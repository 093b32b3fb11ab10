//! The deadline that a gRPC client sends along.

use std::time::Duration;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// The header, a number of up to eight digits and a unit.
const HEADER: &str = "grpc-timeout";

/// When the caller stops waiting. `None` if it did not say, or not well.
pub(super) fn deadline_of(metadata: &MetadataMap) -> Option<Instant> {
    let text = metadata.get(HEADER)?.to_str().ok()?;
    Instant::now().checked_add(parse(text)?)
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        assert_eq!(parse("0n"), Some(Duration::ZERO));
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(
            parse("99999999H"),
            Some(Duration::from_secs(99_999_999 * 3600))
        );
        for wrong in [
            "",
            "m",
            "250",
            "250x",
            "-1m",
            "+1m",
            "1 m",
            "123456789m",
            "1é",
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
