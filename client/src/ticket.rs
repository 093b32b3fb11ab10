//! What a caller keeps while it waits.

use std::fmt;
use std::str::FromStr;

/// An attempt and the number of its last ask: with it a caller comes back to its place in line.
///
/// Written as text (`Display`, `FromStr`) it can be stored with a durable timer and used by another
/// process, together with the same [`crate::Call`]. Only the newest ticket of a call is worth keeping,
/// and only one decision may run on it at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(crate) attempt: u64,
    /// The highest number sent.
    pub(crate) ask: u32,
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{}", self.attempt, self.ask)
    }
}

/// The text is not a [`Ticket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a ticket")]
pub struct TicketError;

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Ticket, TicketError> {
        let (attempt, ask) = text.split_once('.').ok_or(TicketError)?;
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
        if attempt.len() != 16 || !digits(attempt) || ask.len() > 10 || !digits(ask) {
            return Err(TicketError);
        }
        let attempt = u64::from_str_radix(attempt, 16).map_err(|_| TicketError)?;
        let ask = ask.parse().map_err(|_| TicketError)?;
        Ok(Ticket { attempt, ask })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for attempt in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
            for ask in [0, 1, 77, u32::MAX] {
                let ticket = Ticket { attempt, ask };
                assert_eq!(ticket.to_string().parse(), Ok(ticket));
            }
        }
    }

    #[test]
    fn other_text_is_refused() {
        let bad = [
            "",
            ".",
            "0.1",
            "0000000000000000",
            "0000000000000000.",
            "000000000000000g.1",
            "0000000000000000.-1",
            "0000000000000000.+1",
            "0000000000000000.4294967296",
            "00000000000000000.1",
            " 0000000000000000.1",
            "+000000000000000.1",
        ];
        for text in bad {
            assert_eq!(text.parse::<Ticket>(), Err(TicketError), "{text:?}");
        }
    }
}
