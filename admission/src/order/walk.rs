//! The tickets of a line, one after the other.

use super::node::Node;
use super::{Key, Line, Sums};

/// Walks a line in order.
#[derive(Debug, Default)]
pub(crate) struct Walk<'a> {
    line: Option<&'a Line>,
    /// Nodes still to be visited, the next one last, each with the levels below it.
    open: Vec<(u32, usize)>,
    /// The leaf that is being read, and how much of it was.
    leaf: Option<(&'a Node, usize)>,
}

impl<'a> From<&'a Line> for Walk<'a> {
    fn from(line: &'a Line) -> Self {
        Walk {
            line: Some(line),
            open: vec![(line.root, line.height)],
            leaf: None,
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = (Key, Sums);

    fn next(&mut self) -> Option<(Key, Sums)> {
        let line = self.line?;
        loop {
            if let Some((leaf, read)) = &mut self.leaf
                && let Some(key) = leaf.keys.get(*read)
            {
                let before = leaf.first(*read, line.dimensions);
                *read = read.saturating_add(1);
                let mut own = leaf.first(*read, line.dimensions);
                own.subtract(&before);
                return Some((*key, own));
            }
            let (at, above) = self.open.pop()?;
            let node = line.node(at)?;
            match above.checked_sub(1) {
                None => self.leaf = Some((node, 0)),
                Some(lower) => {
                    let children = node.children.iter().rev();
                    self.open.extend(children.map(|child| (*child, lower)));
                }
            }
        }
    }
}
