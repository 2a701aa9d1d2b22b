//! A search tree of pool slots, by a `u64` key: finding, adding and taking out cost O(log n), no memory of its own.
//!
//! An AVL tree (Adel'son-Vel'skii and Landis, 1962): the heights of two siblings differ by at most one, so a tree
//! of n nodes is at most 1.44 log2(n + 2) high. The links lie inside the nodes, and nodes are named by `u32` handles.
//! Nothing recurses: kernel stacks are small.
//!
//! The owner's lock guards a tree: shared for what only looks, alone for what changes. Keys are distinct. A key may
//! be changed in place, under the lock held alone, as long as the node stays between its neighbours.
//!
//! A node may keep something about all nodes below it, such as the largest gap between them: [`Nodes::update`]
//! computes it from the node and its two children, and the tree calls it where either changed. Who changes it in
//! any other way (the key in place, the length of a range) calls [`Tree::refresh`].

use crate::platform::Platform;
use crate::pool::Zeroed;
use crate::sync::Word32;

/// The two sides of a node. The other side is `1 - side`.
const LEFT: usize = 0;
const RIGHT: usize = 1;

/// A node's place in its tree: handles plus one, 0 is none. Only a node that is in a tree has a meaning here;
/// [`Tree::insert`] sets all of it.
#[repr(C)]
pub(crate) struct Links {
    children: [Word32; 2],
    parent: Word32,
    /// Of the tree below, this node included: a leaf is 1 high.
    height: Word32,
}

// SAFETY: atomics only.
unsafe impl Zeroed for Links {}

impl Links {
    /// Left, with the lower keys, and right. For [`Nodes::update`], and for searches by what it keeps.
    pub fn children<P: Platform>(&self, p: &P) -> [Option<u32>; 2] {
        [self.child(p, LEFT), self.child(p, RIGHT)]
    }

    fn child<P: Platform>(&self, p: &P, side: usize) -> Option<u32> {
        self.children[side].get(p).checked_sub(1)
    }

    /// The node above. For searches that go on from where one ended.
    pub fn parent<P: Platform>(&self, p: &P) -> Option<u32> {
        self.parent.get(p).checked_sub(1)
    }
}

/// Where the nodes of a tree are.
pub(crate) trait Nodes {
    /// The links inside a node.
    fn links(&self, handle: u32) -> &Links;
    /// What the nodes are sorted by.
    fn key(&self, handle: u32) -> u64;
    /// The node or something below it changed, and its children are up to date: compute anew what the node keeps
    /// about all below it. Called bottom-up, and sometimes twice for the same node. Best writes only what is new,
    /// because every CPU that searches reads the same lines.
    fn update(&self, handle: u32) {
        let _ = handle;
    }
}

/// A tree. All zeros is an empty one.
#[repr(C)]
pub(crate) struct Tree {
    /// The top node's handle plus one.
    root: Word32,
}

// SAFETY: zeros are no root.
unsafe impl Zeroed for Tree {}

impl Tree {
    /// The node above all others, where a search by what [`Nodes::update`] keeps begins.
    pub fn top<P: Platform>(&self, p: &P) -> Option<u32> {
        self.root.get(p).checked_sub(1)
    }

    /// Whether there is no node.
    pub fn is_empty<P: Platform>(&self, p: &P) -> bool {
        self.top(p).is_none()
    }

    /// Forgets all nodes, and touches none.
    pub fn clear<P: Platform>(&self, p: &P) {
        self.root.set(p, 0);
    }

    /// The node with the lowest key. O(log n).
    pub fn first<P: Platform>(&self, p: &P, nodes: &impl Nodes) -> Option<u32> {
        self.top(p).map(|top| leftmost(p, nodes, top))
    }

    /// The node with the highest key that is at most `key`. O(log n).
    pub fn at_or_before<P: Platform>(&self, p: &P, nodes: &impl Nodes, key: u64) -> Option<u32> {
        let (mut at, mut best) = (self.top(p), None);
        while let Some(node) = at {
            let fits = nodes.key(node) <= key;
            if fits {
                best = at;
            }
            at = nodes.links(node).child(p, if fits { RIGHT } else { LEFT });
        }
        best
    }

    /// The node with the lowest key that is at least `key`. O(log n).
    pub fn at_or_after<P: Platform>(&self, p: &P, nodes: &impl Nodes, key: u64) -> Option<u32> {
        let (mut at, mut best) = (self.top(p), None);
        while let Some(node) = at {
            let fits = nodes.key(node) >= key;
            if fits {
                best = at;
            }
            at = nodes.links(node).child(p, if fits { LEFT } else { RIGHT });
        }
        best
    }

    /// The node that follows one of the tree. O(log n), but k steps in a row cost O(k + log n).
    pub fn next<P: Platform>(&self, p: &P, nodes: &impl Nodes, handle: u32) -> Option<u32> {
        if let Some(right) = nodes.links(handle).child(p, RIGHT) {
            return Some(leftmost(p, nodes, right));
        }
        // All below is done: the next is the first ancestor that has this on its left.
        let mut below = handle;
        while let Some(parent) = nodes.links(below).parent(p) {
            if nodes.links(parent).child(p, LEFT) == Some(below) {
                return Some(parent);
            }
            below = parent;
        }
        None
    }

    /// Adds a node that is in no tree, and whose key no other node of this one has. O(log n).
    pub fn insert<P: Platform>(&self, p: &P, nodes: &impl Nodes, handle: u32) {
        let key = nodes.key(handle);
        let links = nodes.links(handle);
        links.children.iter().for_each(|child| child.set(p, 0));
        links.parent.set(p, 0);
        let (mut at, mut place) = (self.top(p), None);
        while let Some(node) = at {
            let side = if key < nodes.key(node) { LEFT } else { RIGHT };
            place = Some((node, side));
            at = nodes.links(node).child(p, side);
        }
        match place {
            None => self.root.set(p, handle + 1),
            Some((parent, side)) => attach(p, nodes, parent, side, Some(handle)),
        }
        self.refresh(p, nodes, handle);
    }

    /// Takes a node of the tree out. O(log n).
    pub fn remove<P: Platform>(&self, p: &P, nodes: &impl Nodes, handle: u32) {
        let links = nodes.links(handle);
        // The lowest node that has something else below it afterwards.
        let changed = match links.children(p) {
            [Some(_), Some(right)] => {
                // The node that follows has no left child: it is taken out where it is, and takes this one's place.
                let heir = leftmost(p, nodes, right);
                let above = nodes.links(heir).parent(p);
                self.replace(p, nodes, heir, nodes.links(heir).child(p, RIGHT));
                self.replace(p, nodes, handle, Some(heir));
                for (side, child) in links.children(p).into_iter().enumerate() {
                    attach(p, nodes, heir, side, child);
                }
                if above == Some(handle) { Some(heir) } else { above }
            }
            [left, right] => {
                self.replace(p, nodes, handle, left.or(right));
                links.parent(p)
            }
        };
        if let Some(changed) = changed {
            self.refresh(p, nodes, changed);
        }
    }

    /// Brings heights, balance and what [`Nodes::update`] keeps up to date, from a node up to the top. O(log n).
    pub fn refresh<P: Platform>(&self, p: &P, nodes: &impl Nodes, handle: u32) {
        let mut at = Some(handle);
        while let Some(node) = at {
            let [left, right] = heights(p, nodes, node);
            let top = if left > right + 1 {
                self.lower(p, nodes, node, LEFT)
            } else if right > left + 1 {
                self.lower(p, nodes, node, RIGHT)
            } else {
                settle(p, nodes, node);
                node
            };
            at = nodes.links(top).parent(p);
        }
    }

    /// Balances a node that is two higher on its `high` side; gives who stands in its place.
    fn lower<P: Platform>(&self, p: &P, nodes: &impl Nodes, node: u32, high: usize) -> u32 {
        // What lies inside, next to the node, stays as low as it is when the child is lifted, so it may not be
        // the higher part.
        if let Some(child) = nodes.links(node).child(p, high) {
            let below = heights(p, nodes, child);
            if below[1 - high] > below[high] {
                self.rotate(p, nodes, child, 1 - high);
            }
        }
        self.rotate(p, nodes, node, high)
    }

    /// Lifts a node's child over it; gives the child. The order stays: what lay between them changes sides.
    fn rotate<P: Platform>(&self, p: &P, nodes: &impl Nodes, node: u32, side: usize) -> u32 {
        let Some(child) = nodes.links(node).child(p, side) else { return node };
        let between = nodes.links(child).child(p, 1 - side);
        self.replace(p, nodes, node, Some(child));
        attach(p, nodes, node, side, between);
        attach(p, nodes, child, 1 - side, Some(node));
        settle(p, nodes, node);
        settle(p, nodes, child);
        child
    }

    /// Hangs `new` where `old` hangs. `old` keeps its links.
    fn replace<P: Platform>(&self, p: &P, nodes: &impl Nodes, old: u32, new: Option<u32>) {
        match nodes.links(old).parent(p) {
            Some(parent) => {
                let is_left = nodes.links(parent).child(p, LEFT) == Some(old);
                attach(p, nodes, parent, if is_left { LEFT } else { RIGHT }, new);
            }
            None => {
                self.root.set(p, word(new));
                if let Some(new) = new {
                    nodes.links(new).parent.set(p, 0);
                }
            }
        }
    }
}

fn word(handle: Option<u32>) -> u32 {
    handle.map_or(0, |handle| handle + 1)
}

fn leftmost<P: Platform>(p: &P, nodes: &impl Nodes, mut node: u32) -> u32 {
    while let Some(left) = nodes.links(node).child(p, LEFT) {
        node = left;
    }
    node
}

fn attach<P: Platform>(p: &P, nodes: &impl Nodes, parent: u32, side: usize, child: Option<u32>) {
    nodes.links(parent).children[side].set(p, word(child));
    if let Some(child) = child {
        nodes.links(child).parent.set(p, parent + 1);
    }
}

/// How high a node is on its two sides.
fn heights<P: Platform>(p: &P, nodes: &impl Nodes, node: u32) -> [u32; 2] {
    nodes.links(node).children(p).map(|child| child.map_or(0, |child| nodes.links(child).height.get(p)))
}

/// Computes anew what a node knows about all below it.
fn settle<P: Platform>(p: &P, nodes: &impl Nodes, node: u32) {
    let [left, right] = heights(p, nodes, node);
    let height = &nodes.links(node).height;
    // Most heights stay: a line that is only read need not come from another CPU's cache.
    if height.get(p) != left.max(right) + 1 {
        height.set(p, left.max(right) + 1);
    }
    nodes.update(node);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use core::cell::Cell;
    use proptest::prelude::*;

    use super::*;
    use crate::addr::{FrameNumber, Nanos, NodeId, PhysAddr, VirtAddr};
    use crate::cpu::{CpuId, CpuSet};
    use crate::platform::Access;
    use crate::sync::Word64;

    /// Counts accesses to shared memory. A tree asks a platform for nothing else.
    #[derive(Default)]
    struct Touches(Cell<u32>);

    // SAFETY: nobody gets memory, a CPU or a flush from it.
    unsafe impl Platform for Touches {
        fn touch(&self, _: *const u8, _: Access) {
            self.0.set(self.0.get() + 1);
        }
        fn this_cpu(&self) -> CpuId {
            unreachable!()
        }
        fn possible_cpus(&self) -> u32 {
            unreachable!()
        }
        fn is_online(&self, _: CpuId) -> bool {
            unreachable!()
        }
        fn node_of(&self, _: CpuId) -> NodeId {
            unreachable!()
        }
        fn distance(&self, _: NodeId, _: NodeId) -> u32 {
            unreachable!()
        }
        fn flush_page(&self, _: VirtAddr) {
            unreachable!()
        }
        fn flush_space(&self) {
            unreachable!()
        }
        fn flush_kernel_page(&self, _: VirtAddr) {
            unreachable!()
        }
        fn flush_kernel(&self) {
            unreachable!()
        }
        fn load_space(&self, _: FrameNumber, _: u16, _: bool) {
            unreachable!()
        }
        fn interrupt(&self, _: &CpuSet) {
            unreachable!()
        }
        fn irqs_off(&self) -> bool {
            unreachable!()
        }
        fn irqs_on(&self) {
            unreachable!()
        }
        fn direct(&self, _: PhysAddr) -> *mut u8 {
            unreachable!()
        }
        fn clear_frame(&self, _: FrameNumber) {
            unreachable!()
        }
        fn copy_frame(&self, _: FrameNumber, _: FrameNumber) {
            unreachable!()
        }
        fn now(&self) -> Nanos {
            unreachable!()
        }
        fn pause(&self, _: u32) {
            unreachable!()
        }
    }

    /// A range that keeps, for itself and all below: where they begin and end, and the largest gap between them.
    #[repr(C)]
    struct Range {
        links: Links,
        start: Word64,
        pages: Word64,
        below: [Word64; 3],
    }

    struct Ranges {
        p: Touches,
        tree: Tree,
        all: Vec<Range>,
    }

    impl Nodes for Ranges {
        fn links(&self, handle: u32) -> &Links {
            &self.all[handle as usize].links
        }
        fn key(&self, handle: u32) -> u64 {
            self.all[handle as usize].start.get(&self.p)
        }
        fn update(&self, handle: u32) {
            let (start, end) = self.range(handle);
            let mut kept = [start, end, 0];
            let [left, right] = self.links(handle).children(&self.p);
            if let Some([first, last, gap]) = left.map(|left| self.kept(left)) {
                kept = [first, kept[1], kept[2].max(gap).max(start - last)];
            }
            if let Some([first, last, gap]) = right.map(|right| self.kept(right)) {
                kept = [kept[0], last, kept[2].max(gap).max(first - end)];
            }
            for (word, value) in self.all[handle as usize].below.iter().zip(kept) {
                word.set(&self.p, value);
            }
        }
    }

    impl Ranges {
        /// Slots of an empty tree, full of what an earlier use left there.
        fn new(slots: u32) -> Self {
            let old = || Word32::new(77);
            let range = || Range {
                links: Links { children: [old(), old()], parent: old(), height: old() },
                start: Word64::new(0),
                pages: Word64::new(0),
                below: [const { Word64::new(77) }; 3],
            };
            let tree = Tree { root: Word32::new(0) };
            Ranges { p: Touches::default(), tree, all: (0..slots).map(|_| range()).collect() }
        }

        fn range(&self, handle: u32) -> (u64, u64) {
            let range = &self.all[handle as usize];
            (range.start.get(&self.p), range.start.get(&self.p) + range.pages.get(&self.p))
        }

        fn resize(&self, handle: u32, start: u64, pages: u64) {
            self.all[handle as usize].start.set(&self.p, start);
            self.all[handle as usize].pages.set(&self.p, pages);
        }

        fn kept(&self, handle: u32) -> [u64; 3] {
            self.all[handle as usize].below.each_ref().map(|word| word.get(&self.p))
        }

        fn insert(&self, handle: u32, start: u64, pages: u64) {
            self.resize(handle, start, pages);
            self.tree.insert(&self.p, self, handle);
        }

        fn remove(&self, handle: u32) {
            self.tree.remove(&self.p, self, handle);
        }

        fn before(&self, key: u64) -> Option<u32> {
            self.tree.at_or_before(&self.p, self, key)
        }

        fn after(&self, key: u64) -> Option<u32> {
            self.tree.at_or_after(&self.p, self, key)
        }

        fn in_order(&self) -> Vec<u32> {
            let first = self.tree.first(&self.p, self);
            core::iter::successors(first, |&at| self.tree.next(&self.p, self, at)).collect()
        }

        /// The accesses to shared memory that `work` makes.
        fn cost(&self, work: impl FnOnce(&Self)) -> u32 {
            let before = self.p.0.get();
            work(self);
            self.p.0.get() - before
        }

        /// Whether every node is sorted, balanced and knows the truth about all below it. Gives the height.
        fn check(&self) -> Result<u32, &'static str> {
            let order = self.in_order();
            if order.len() > self.all.len() {
                return Err("a node comes twice");
            }
            if !order.is_sorted_by(|&a, &b| self.key(a) < self.key(b)) {
                return Err("the order is wrong");
            }
            // Each subtree is a run of the order: how far it reaches follows from the children's sizes.
            let mut sizes = BTreeMap::<u32, (usize, u32)>::new();
            let mut todo: Vec<_> = self.tree.top(&self.p).into_iter().collect();
            let mut top_down = Vec::new();
            while let Some(node) = todo.pop() {
                top_down.push(node);
                for child in self.links(node).children(&self.p).into_iter().flatten() {
                    if self.links(child).parent(&self.p) != Some(node) {
                        return Err("a parent is wrong");
                    }
                    todo.push(child);
                }
            }
            if top_down.len() != order.len() {
                return Err("the order misses a node");
            }
            for &node in top_down.iter().rev() {
                let below = self.links(node).children(&self.p);
                let [left, right] = below.map(|child| child.map_or((0, 0), |child| sizes[&child]));
                if left.1.abs_diff(right.1) > 1 {
                    return Err("a node is out of balance");
                }
                let height = left.1.max(right.1) + 1;
                if self.links(node).height.get(&self.p) != height {
                    return Err("a height is wrong");
                }
                sizes.insert(node, (left.0 + 1 + right.0, height));
                let at = order.iter().position(|&other| other == node).ok_or("a node is not in the order")?;
                let run: Vec<_> = order[at - left.0..=at + right.0].iter().map(|&n| self.range(n)).collect();
                let gap = run.windows(2).map(|pair| pair[1].0 - pair[0].1).max().unwrap_or(0);
                if self.kept(node) != [run[0].0, run[run.len() - 1].1, gap] {
                    return Err("what a node keeps is out of date");
                }
            }
            let height = self.tree.top(&self.p).map_or(0, |top| sizes[&top].1);
            // 1.4405 log2(n + 2), in whole numbers: the sparsest tree of this height has no more nodes than ours.
            let (mut fewest, mut one_lower) = (0, 0);
            for h in 1..=height {
                (fewest, one_lower) = (if h == 1 { 1 } else { fewest + one_lower + 1 }, fewest);
            }
            if order.len() < fewest { Err("the tree is too high") } else { Ok(height) }
        }
    }

    #[test]
    fn rising_and_falling_keys_make_no_higher_a_tree_than_others() {
        for falling in [false, true] {
            let ranges = Ranges::new(1023);
            for i in 0..1023 {
                let start = u64::from(if falling { 1022 - i } else { i });
                ranges.insert(i, start * 10, 10);
            }
            assert_eq!(ranges.check(), Ok(10));
        }
    }

    #[test]
    fn work_grows_with_the_height_and_not_with_the_nodes() {
        let ranges = Ranges::new(4096);
        for i in 0..4095 {
            ranges.insert(i, u64::from(i) * 10, 5);
        }
        // 12 levels: the key and one child each, and the root.
        assert!(ranges.cost(|r| _ = r.before(40_943)) <= 12 * 2 + 1);
        assert!(ranges.cost(|r| _ = r.after(1)) <= 12 * 2 + 1);
        let walk = ranges.cost(|r| _ = r.in_order()) / 4095;
        assert!(walk <= 6, "{walk} accesses a step");
        // Down once and up once, and what the test keeps about ranges costs more than the tree itself.
        assert!(ranges.cost(|r| r.insert(4095, 20_007, 1)) <= 13 * 30);
        assert!(ranges.cost(|r| r.remove(2047)) <= 13 * 30);
        assert_eq!(ranges.check(), Ok(13));
    }

    #[test]
    fn a_key_changed_in_place_is_known_above_once_it_is_refreshed() {
        let ranges = Ranges::new(15);
        for i in 0..15 {
            ranges.insert(i, u64::from(i) * 10, 10);
        }
        ranges.resize(6, 64, 3);
        assert_eq!(ranges.check(), Err("what a node keeps is out of date"));
        ranges.tree.refresh(&ranges.p, &ranges, 6);
        assert_eq!(ranges.check(), Ok(4));
        let top = ranges.tree.top(&ranges.p).unwrap();
        assert_eq!(ranges.kept(top), [0, 150, 4]);
    }

    #[test]
    fn a_cleared_tree_is_empty_and_takes_its_nodes_again() {
        let ranges = Ranges::new(3);
        for round in 0..2 {
            assert!(ranges.tree.is_empty(&ranges.p));
            assert_eq!((ranges.before(9), ranges.after(0), ranges.in_order()), (None, None, Vec::new()));
            for i in 0..3 {
                ranges.insert(i, u64::from(i + round), 1);
            }
            assert_eq!(ranges.in_order(), [0, 1, 2]);
            ranges.tree.clear(&ranges.p);
        }
    }

    /// Starts are drawn from few places, so that many collide: those are taken out, or resized.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Toggle(u64, u64),
        Resize(u64, u64, u64),
    }

    const PLACES: u64 = 96;
    const APART: u64 = 16;

    fn step() -> impl Strategy<Value = Step> {
        let pages = 1..=APART / 2;
        prop_oneof![
            4 => (0..PLACES, pages.clone()).prop_map(|(place, pages)| Step::Toggle(place, pages)),
            1 => (0..PLACES, 0..APART / 2, pages).prop_map(|(place, by, pages)| Step::Resize(place, by, pages)),
        ]
    }

    proptest! {
        #[test]
        fn does_what_a_map_does(steps in prop::collection::vec(step(), 1..400)) {
            let ranges = Ranges::new(PLACES as u32);
            let mut model = BTreeMap::new();
            let mut free: Vec<u32> = (0..PLACES as u32).collect();
            for step in steps {
                let place = match step { Step::Toggle(place, _) | Step::Resize(place, ..) => place * APART };
                let here = model.range(place..place + APART).next().map(|(&key, &handle)| (key, handle));
                match (step, here) {
                    (Step::Toggle(_, pages), None) => {
                        let handle = free.pop().unwrap();
                        ranges.insert(handle, place, pages);
                        model.insert(place, handle);
                    }
                    (Step::Toggle(..), Some((key, handle))) => {
                        ranges.remove(handle);
                        model.remove(&key);
                        free.insert(0, handle);
                    }
                    (Step::Resize(_, by, pages), Some((key, handle))) => {
                        ranges.resize(handle, place + by, pages);
                        ranges.tree.refresh(&ranges.p, &ranges, handle);
                        model.remove(&key);
                        model.insert(place + by, handle);
                    }
                    (Step::Resize(..), None) => {}
                }
                prop_assert!(ranges.check().is_ok(), "{:?}", ranges.check());
                prop_assert_eq!(ranges.in_order(), model.values().copied().collect::<Vec<_>>());
                prop_assert_eq!(ranges.tree.is_empty(&ranges.p), model.is_empty());
                for key in [place.saturating_sub(1), place, place + 3, u64::MAX] {
                    prop_assert_eq!(ranges.before(key), model.range(..=key).next_back().map(|(_, &h)| h));
                    prop_assert_eq!(ranges.after(key), model.range(key..).next().map(|(_, &h)| h));
                }
            }
        }
    }
}
