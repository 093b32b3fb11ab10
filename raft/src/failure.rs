//! The end of a node.

/// Why this node cannot go on. Whoever learns of it ends the process.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Failure {
    /// What failed: a group's core, the log writer.
    pub what: String,
    /// The cause.
    pub why: String,
}
