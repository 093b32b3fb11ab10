//! A sign of life on stderr while something takes long.

use std::io::{IsTerminal, Write as _, stderr};
use std::time::Duration;
use tokio::time::{Instant, interval_at};
use tokio_util::task::AbortOnDropHandle;

/// Nothing is told before this: most answers are here by then.
const TELL_AFTER: Duration = Duration::from_secs(2);
/// How often a terminal's line is written anew.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Tells what is waited for, until it is dropped.
pub(super) struct Progress {
    terminal: bool,
    since: Instant,
    _ticker: AbortOnDropHandle<()>,
}

impl Progress {
    /// Waiting for `what` from now on. A terminal gets one line that counts seconds and goes away in the
    /// end; a file gets one line.
    pub(super) fn start(what: &'static str) -> Progress {
        let (terminal, since) = (stderr().is_terminal(), Instant::now());
        let ticker = async move {
            let mut ticks = interval_at(since + TELL_AFTER, TELL_EVERY);
            loop {
                ticks.tick().await;
                if !terminal {
                    eprintln!("waiting for {what}");
                    return;
                }
                let seconds = since.elapsed().as_secs();
                // Nobody to tell: that is no reason to fail.
                let _told = write!(stderr(), "\rwaiting for {what}, {seconds} s");
            }
        };
        Progress {
            terminal,
            since,
            _ticker: AbortOnDropHandle::new(tokio::spawn(ticker)),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal && self.since.elapsed() >= TELL_AFTER {
            let _told = write!(stderr(), "\r\x1b[K");
        }
    }
}
