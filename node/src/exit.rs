//! How the program ends, as its caller sees it.

use std::process::ExitCode;

/// Why the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, or stopped as asked.
    Success,
    /// 1: the request was refused or failed.
    Failed,
    /// 2: wrong flags, or a wrong configuration or policy file.
    Usage,
    /// 3: the cluster, or the leader of the shard, does not answer.
    Unavailable,
    /// 4: the caller may not do this.
    Denied,
    /// 70: a node could not go on: the core of a group died, or its log can no longer be written. What it
    /// confirmed is safe; start it again once the cause is removed.
    NodeFailed,
}

impl Exit {
    /// The number the shell sees.
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Unavailable => 3,
            Exit::Denied => 4,
            Exit::NodeFailed => 70,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Text for the end of `--help`.
pub const EXIT_CODES: &str = "Exit codes: 0 done, 1 refused or failed, 2 wrong usage or file, \
     3 the cluster does not answer, 4 not allowed, 70 a node could not go on.";
