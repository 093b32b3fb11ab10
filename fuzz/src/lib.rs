//! Bytes from outside, taken as what they claim to be.
//!
//! One module for each fuzz target, with what must hold whatever the bytes are; `fuzz_targets/` only binds
//! them to libFuzzer. README.md says how to run one.
#![forbid(unsafe_code)]

pub mod apply;
pub mod client_frame;
mod memory;
pub mod peer_frame;
pub mod plan;
pub mod policy_file;
pub mod snapshot;
pub mod stored;
pub mod wire;

/// The byte in front of an input, which says what the rest is taken for: one of `kinds`.
fn kind<'a, T: Copy>(kinds: &[T], bytes: &'a [u8]) -> Option<(T, &'a [u8])> {
    let (first, rest) = bytes.split_first()?;
    let kind = kinds.get(usize::from(*first).checked_rem(kinds.len())?)?;
    Some((*kind, rest))
}
