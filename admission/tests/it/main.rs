//! The rules, judged from outside.

mod fleet;
