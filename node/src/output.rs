//! What the program writes to stdout.

use std::io::{self, Write as _, stdout};

/// Writes a whole answer. A reader that has had enough, such as `head`, is no failure.
pub(crate) fn print(text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = stdout().lock();
    let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
