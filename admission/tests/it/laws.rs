//! What the rules promise, judged from the answers alone: nothing here knows how they come about.

mod cap;
mod checkpoint;
mod lapse;
mod nothing;
mod replay;
mod served;
mod settlements;
mod shares;

use weir_admission::{Extend, GrantId, Operation, Principal, TargetName};

/// A grant that never was.
const NO_GRANT: GrantId = GrantId {
    index: u64::MAX,
    offset: 0,
};

/// Asks a target for nothing, which brings it to now.
fn look(target: &TargetName) -> Operation {
    Operation::Extend(Extend {
        target: target.clone(),
        principal: Principal::new("fleet").unwrap(),
        grant: NO_GRANT,
    })
}
