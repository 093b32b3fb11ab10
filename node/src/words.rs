//! Words for counts and lists, as people say them.

use std::fmt::Display;

/// "1 shard", "2 shards".
pub(crate) fn counted(count: impl Display, thing: &str) -> String {
    let count = count.to_string();
    format!("{count} {}", numbered(count == "1", thing))
}

/// "shard 3", "shards 3, 5".
pub(crate) fn named(thing: &str, names: &[impl Display]) -> String {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let thing = numbered(names.len() == 1, thing);
    format!("{thing} {}", names.join(", "))
}

fn numbered(one: bool, thing: &str) -> String {
    let ending = if one { "" } else { "s" };
    format!("{thing}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(0, "target"), "0 targets");
        assert_eq!(counted(1_u64, "target"), "1 target");
        assert_eq!(counted(11, "target"), "11 targets");
        assert_eq!(named("shard", &[3]), "shard 3");
        assert_eq!(named("shard", &[3, 5]), "shards 3, 5");
    }
}
