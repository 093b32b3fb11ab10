//! The state of one shard: every target with its policy, use, waiting tickets and grants.

use crate::{Operation, Outcome, Refusal, Stamp, TargetName};

/// Everything one shard knows. A value: equal logs give equal states.
#[derive(Debug, Default)]
pub struct State {
    now: Stamp,
}

/// Why bytes are not a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Byte offset at which reading stopped.
    pub offset: usize,
    /// What was expected there.
    pub expected: &'static str,
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected {} at byte {}", self.expected, self.offset)
    }
}

impl std::error::Error for DecodeError {}

impl State {
    /// Applies one log entry: `index` is its place in the log, `stamp` its cluster time (clamped so that
    /// it never goes back). Answers one outcome per operation. Total: no input makes it panic.
    pub fn apply(&mut self, _index: u64, stamp: Stamp, batch: &[Operation]) -> Vec<Outcome> {
        self.now = self.now.max(stamp);
        batch
            .iter()
            .map(|_| Outcome::Refused(Refusal::TargetUnknown))
            .collect()
    }

    /// The last stamp applied.
    pub fn now(&self) -> Stamp {
        self.now
    }

    /// True once a secret was set.
    pub fn is_seeded(&self) -> bool {
        false
    }

    /// Number of targets with a policy.
    pub fn target_count(&self) -> usize {
        0
    }

    /// Names of all targets with a policy, in order.
    pub fn target_names(&self) -> impl Iterator<Item = &TargetName> {
        std::iter::empty()
    }

    /// Canonical bytes: equal states give equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.now.as_micros().to_le_bytes().to_vec()
    }

    /// Reads what [`State::encode`] wrote; refuses anything else.
    pub fn decode(bytes: &[u8]) -> Result<State, DecodeError> {
        let raw = bytes.try_into().map_err(|_| DecodeError {
            offset: 0,
            expected: "8 bytes",
        })?;
        Ok(State {
            now: Stamp::from_micros(u64::from_le_bytes(raw)),
        })
    }

    /// Digest of the canonical bytes.
    pub fn digest(&self) -> u128 {
        u128::from(self.now.as_micros())
    }
}
