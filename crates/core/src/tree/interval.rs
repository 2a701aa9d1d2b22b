//! Trees of ranges: which of them hold a point?
//!
//! An interval tree (Cormen and others, Introduction to Algorithms, section 14.3): ranges are sorted by where they begin,
//! may overlap, and each node keeps the highest end of all below it. So a part of the tree that ends before the point is
//! passed by in one step, and whatever begins after it ends the search: of n ranges each that holds the point is found in
//! O(log n).

use super::{LEFT, Nodes, RIGHT, Tree, first_above};
use crate::platform::Hooks;
use crate::sync::Word64;

/// Nodes that are ranges. What [`Nodes::key`] returns begins with [`start`](Self::start), so that two that begin alike have
/// keys of their own; [`Nodes::update`] calls [`update_end`].
pub(crate) trait Intervals: Nodes {
    /// The first point of a range.
    fn start(&self, node: &Self::Node) -> u64;
    /// The first point after it.
    fn end(&self, node: &Self::Node) -> u64;
    /// Where the node keeps the highest end of its own range and of all below it.
    fn highest_end<'n>(&self, node: &'n Self::Node) -> &'n Word64;
}

/// Computes anew what a node keeps about all below it; says whether that is something new.
pub(crate) fn update_end<P: Hooks, N: Intervals>(p: &P, nodes: &N, node: &N::Node) -> bool {
    let below = nodes.links(node).children(p).into_iter().flatten();
    let highest =
        below.map(|child| nodes.highest_end(nodes.node(child)).get(p)).fold(nodes.end(node), u64::max);
    let kept = nodes.highest_end(node);
    // Every search reads the line: it is written only with something new.
    let is_new = kept.get(p) != highest;
    if is_new {
        kept.set(p, highest);
    }
    is_new
}

/// A range that was found: its handle, and the node.
pub(crate) type Found<'n, N> = (u32, &'n <N as Nodes>::Node);

impl Tree {
    /// The first range that holds `at`, in the order of keys. O(log n).
    pub fn first_over<'n, P: Hooks, N: Intervals>(
        &self,
        p: &P,
        nodes: &'n N,
        at: u64,
    ) -> Option<Found<'n, N>> {
        let top = reaching(p, nodes, self.top(p), at)?;
        first_reaching(p, nodes, top, at).filter(|&(_, found)| nodes.start(found) <= at)
    }

    /// The same of those whose key is at least `from`. O(log n).
    pub fn first_over_from<'n, P: Hooks, N: Intervals>(
        &self,
        p: &P,
        nodes: &'n N,
        from: N::Key,
        at: u64,
    ) -> Option<Found<'n, N>> {
        let handle = self.at_or_after(p, nodes, from)?;
        let first = nodes.node(handle);
        if nodes.start(first) > at {
            return None;
        }
        if nodes.end(first) > at {
            Some((handle, first))
        } else {
            self.next_over(p, nodes, (handle, first), at)
        }
    }

    /// The next range that holds `at`, after a node of the tree. O(log n).
    pub fn next_over<'n, P: Hooks, N: Intervals>(
        &self,
        p: &P,
        nodes: &'n N,
        (mut passed, mut node): Found<'n, N>,
        at: u64,
    ) -> Option<Found<'n, N>> {
        loop {
            // All at the left of `passed`, and itself, is done.
            if let Some(right) = reaching(p, nodes, nodes.links(node).child(p, RIGHT), at) {
                return first_reaching(p, nodes, right, at).filter(|&(_, found)| nodes.start(found) <= at);
            }
            let above = first_above(p, nodes, passed)?;
            let found = nodes.node(above);
            if nodes.start(found) > at {
                return None;
            }
            if nodes.end(found) > at {
                return Some((above, found));
            }
            (passed, node) = (above, found);
        }
    }
}

/// A node, if a range at or below it ends after `at`.
fn reaching<'n, P: Hooks, N: Intervals>(
    p: &P,
    nodes: &'n N,
    handle: Option<u32>,
    at: u64,
) -> Option<Found<'n, N>> {
    let node = nodes.node(handle?);
    (nodes.highest_end(node).get(p) > at).then_some((handle?, node))
}

/// The first range at or below a node, which is [`reaching`] so far, that ends after `at`.
fn first_reaching<'n, P: Hooks, N: Intervals>(
    p: &P,
    nodes: &'n N,
    (mut handle, mut node): Found<'n, N>,
    at: u64,
) -> Option<Found<'n, N>> {
    loop {
        let links = nodes.links(node);
        if let Some(left) = reaching(p, nodes, links.child(p, LEFT), at) {
            (handle, node) = left;
        } else if nodes.end(node) > at {
            return Some((handle, node));
        } else {
            handle = links.child(p, RIGHT)?;
            node = nodes.node(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::super::tests::Touches;
    use super::*;
    use crate::tree::Links;

    #[repr(C)]
    #[derive(Default)]
    struct Range {
        links: Links,
        handle: u32,
        start: Word64,
        end: Word64,
        highest_end: Word64,
    }

    /// Ranges of which several may begin alike: then their handles tell them apart.
    struct Ranges {
        p: Touches,
        tree: Tree,
        all: Vec<Range>,
    }

    impl Nodes for Ranges {
        type Key = (u64, u32);
        type Node = Range;
        fn node(&self, handle: u32) -> &Range {
            &self.all[handle as usize]
        }
        fn links<'n>(&self, range: &'n Range) -> &'n Links {
            &range.links
        }
        fn key(&self, range: &Range) -> (u64, u32) {
            (self.start(range), range.handle)
        }
        fn update(&self, range: &Range) -> bool {
            update_end(&self.p, self, range)
        }
    }

    impl Intervals for Ranges {
        fn start(&self, range: &Range) -> u64 {
            range.start.get(&self.p)
        }
        fn end(&self, range: &Range) -> u64 {
            range.end.get(&self.p)
        }
        fn highest_end<'n>(&self, range: &'n Range) -> &'n Word64 {
            &range.highest_end
        }
    }

    impl Ranges {
        fn new(slots: u32) -> Ranges {
            let all = (0..slots).map(|handle| Range { handle, ..Range::default() }).collect();
            Ranges { p: Touches::default(), tree: Tree::default(), all }
        }

        fn insert(&self, handle: u32, start: u64, len: u64) {
            self.all[handle as usize].start.set(&self.p, start);
            self.all[handle as usize].end.set(&self.p, start + len);
            self.tree.insert(&self.p, self, handle);
        }

        fn over(&self, at: u64) -> Vec<u32> {
            let first = self.tree.first_over(&self.p, self, at);
            core::iter::successors(first, |&found| self.tree.next_over(&self.p, self, found, at))
                .map(|(handle, _)| handle)
                .collect()
        }
    }

    #[test]
    fn what_is_found_is_paid_for_and_not_what_is_there() {
        // Ten ranges hold the point; some of the others end just before it, or begin just after, or are long.
        let cost = |others: u32| {
            let ranges = Ranges::new(10 + others);
            (0..10).for_each(|i| ranges.insert(i, 500_000 - 30 * u64::from(i), 1000));
            for i in 0..others {
                let (start, len) = match i % 4 {
                    0 => (500_001 + u64::from(i), 500),
                    1 => (500_000 - 7 * u64::from(i), u64::from(7 * i)),
                    2 => (u64::from(i), 400_000),
                    _ => (900_000, 1),
                };
                ranges.insert(10 + i, start, len);
            }
            ranges.p.of(|| assert_eq!(ranges.over(500_000).len(), 10))
        };
        let (few, many) = (cost(0), cost(10_000));
        assert!(many < 3 * few, "{few} accesses for 10 of 10, {many} for 10 of 10,010");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Toggle(u32, u64, u64),
        Resize(u32, u64),
    }

    const SLOTS: u32 = 48;

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..SLOTS, 0..40u64, 1..20u64).prop_map(|(slot, start, len)| Step::Toggle(slot, start, len)),
            1 => (0..SLOTS, 1..20u64).prop_map(|(slot, len)| Step::Resize(slot, len)),
        ]
    }

    proptest! {
        #[test]
        fn finds_what_a_look_at_all_finds(steps in prop::collection::vec(step(), 1..200)) {
            let ranges = Ranges::new(SLOTS);
            // Sorted by keys: where each begins, its handle, where it ends.
            let mut model: Vec<(u64, u32, u64)> = Vec::new();
            for step in steps {
                let known = |slot| model.iter().position(|known| known.1 == slot);
                match step {
                    Step::Toggle(slot, start, len) => match known(slot) {
                        Some(at) => {
                            ranges.tree.remove(&ranges.p, &ranges, slot);
                            model.remove(at);
                        }
                        None => {
                            ranges.insert(slot, start, len);
                            model.push((start, slot, start + len));
                            model.sort_unstable();
                        }
                    },
                    Step::Resize(slot, len) => if let Some(at) = known(slot) {
                        model[at].2 = model[at].0 + len;
                        ranges.all[slot as usize].end.set(&ranges.p, model[at].2);
                        ranges.tree.refresh(&ranges.p, &ranges, slot);
                    },
                }
                for at in 0..60 {
                    let all: Vec<_> =
                        model.iter().filter(|known| known.0 <= at && known.2 > at).map(|known| known.1).collect();
                    prop_assert_eq!(ranges.over(at), all);
                }
                // Going on from any key, of a range that is there or not.
                for (from, at) in [((0, 0), 9), ((7, 3), 11), ((13, 40), 13), ((20, 0), 25), ((39, 47), 45)] {
                    let next = model.iter().find(|known| (known.0, known.1) >= from && known.0 <= at && known.2 > at);
                    prop_assert_eq!(
                        ranges.tree.first_over_from(&ranges.p, &ranges, from, at).map(|found| found.0),
                        next.map(|known| known.1)
                    );
                }
            }
        }
    }
}
