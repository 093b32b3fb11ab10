//! A question before something is changed.

use std::io::{BufRead, IsTerminal, stderr, stdin};

/// True if a person says yes, or if nobody is there to be asked: scripts say what they mean.
pub(super) fn on_terminal(question: &str) -> bool {
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return true;
    }
    eprint!("{question} [y/N] ");
    says_yes(stdin().lock())
}

fn says_yes(mut from: impl BufRead) -> bool {
    let mut answer = String::new();
    // What cannot be read is not a yes.
    let read = from.read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes" | "Yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (answer, yes) in [
            ("y\n", true),
            ("yes\n", true),
            ("Y", true),
            ("\n", false),
            ("", false),
            ("no\n", false),
            ("yellow\n", false),
        ] {
            assert_eq!(says_yes(answer.as_bytes()), yes, "{answer:?}");
        }
    }
}
