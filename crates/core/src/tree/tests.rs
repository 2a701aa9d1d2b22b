//! The tree does what a map does, in as many steps as it is high.

use std::collections::BTreeMap;
use std::vec::Vec;

use core::cell::Cell;
use proptest::prelude::*;

use super::*;
use crate::platform::Access;
use crate::sync::Word64;

/// Counts accesses to shared memory. A tree asks a platform for nothing else.
#[derive(Default)]
pub(crate) struct Touches(Cell<u32>);

impl Touches {
    /// The accesses that `work` makes.
    pub fn of(&self, work: impl FnOnce()) -> u32 {
        let before = self.0.get();
        work();
        self.0.get() - before
    }
}

impl Hooks for Touches {
    fn touch(&self, _: *const u8, _: Access) {
        self.0.set(self.0.get() + 1);
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
    type Key = u64;
    type Node = Range;
    fn node(&self, handle: u32) -> &Range {
        &self.all[handle as usize]
    }
    fn links<'n>(&self, range: &'n Range) -> &'n Links {
        &range.links
    }
    fn key(&self, range: &Range) -> u64 {
        range.start.get(&self.p)
    }
    fn update(&self, range: &Range) -> bool {
        let start = range.start.get(&self.p);
        let end = start + range.pages.get(&self.p);
        let mut kept = [start, end, 0];
        let [left, right] = range.links.children(&self.p);
        if let Some([first, last, gap]) = left.map(|left| self.kept(left)) {
            kept = [first, kept[1], kept[2].max(gap).max(start - last)];
        }
        if let Some([first, last, gap]) = right.map(|right| self.kept(right)) {
            kept = [kept[0], last, kept[2].max(gap).max(first - end)];
        }
        let is_new = range.below.each_ref().map(|word| word.get(&self.p)) != kept;
        for (word, value) in range.below.iter().zip(kept) {
            word.set(&self.p, value);
        }
        is_new
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
        self.p.of(|| work(self))
    }

    /// Whether every node is sorted, balanced and knows the truth about all below it. Returns the height.
    fn check(&self) -> Result<u32, &'static str> {
        let order = self.in_order();
        if order.len() > self.all.len() {
            return Err("a node comes twice");
        }
        if !order.is_sorted_by(|&a, &b| self.key(self.node(a)) < self.key(self.node(b))) {
            return Err("the order is wrong");
        }
        // Each subtree is a run of the order: how far it reaches follows from the children's sizes.
        let mut sizes = BTreeMap::<u32, (usize, u32)>::new();
        let mut todo: Vec<_> = self.tree.top(&self.p).into_iter().collect();
        let mut top_down = Vec::new();
        while let Some(node) = todo.pop() {
            top_down.push(node);
            for child in self.links_of(node).children(&self.p).into_iter().flatten() {
                if self.links_of(child).parent(&self.p) != Some(node) {
                    return Err("a parent is wrong");
                }
                todo.push(child);
            }
        }
        if top_down.len() != order.len() {
            return Err("the order misses a node");
        }
        for &node in top_down.iter().rev() {
            let below = self.links_of(node).children(&self.p);
            let [left, right] = below.map(|child| child.map_or((0, 0), |child| sizes[&child]));
            if left.1.abs_diff(right.1) > 1 {
                return Err("a node is out of balance");
            }
            let height = left.1.max(right.1) + 1;
            if self.links_of(node).height.get(&self.p) != height {
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
