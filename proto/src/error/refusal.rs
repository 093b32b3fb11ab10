//! What the rules refuse as the caller's fault.

use super::{Reason, WireError};
use weir_admission::{Refusal, TargetName, Violation};

impl WireError {
    /// The error of a refused operation on `target`. `amounts` is the field of the request in which its
    /// dimensions stand: `cost`, `actual`.
    pub fn from_refusal(refusal: Refusal, target: &TargetName, amounts: &str) -> WireError {
        let about = |reason, field: String, description: String| WireError {
            violations: vec![Violation {
                field: field.clone(),
                description: description.clone(),
            }],
            ..WireError::new(reason, format!("{field} {description}"))
        };
        match refusal {
            Refusal::TargetUnknown => WireError::target_unknown(target.as_str()),
            Refusal::PriorityUnknown(priority) => about(
                Reason::PriorityUnknown,
                "priority".into(),
                format!("must be a priority of target {target:?}, {priority:?} is not"),
            ),
            Refusal::DimensionUnknown(dimension) => about(
                Reason::DimensionUnknown,
                format!("{amounts}[{dimension:?}]"),
                format!("must be a dimension that a limit of target {target:?} counts"),
            ),
            Refusal::Malformed { field, rule } => {
                about(Reason::Malformed, field.into(), rule.into())
            }
            Refusal::NotOwner => {
                WireError::new(Reason::NotOwner, "it belongs to another principal")
            }
        }
    }
}
