//! A search tree of pool slots, by a key: finding, adding and taking out cost O(log n), no memory of its own.
//!
//! An AVL tree (Adel'son-Vel'skii and Landis, 1962): the heights of two siblings differ by at most one, so a tree
//! of n nodes is at most 1.44 log2(n + 2) high. The links lie inside the nodes, and nodes are named by `u32` handles.
//! Nothing recurses: kernel stacks are small.
//!
//! The owner's lock guards a tree: shared for what only looks, alone for what changes. Keys are distinct. A key may
//! be changed in place, under the lock held alone, as long as the node stays between its neighbours.
//!
//! [`interval`] has trees of ranges, in which those that hold a point are found.
//!
//! A node may keep something about all nodes below it, such as the largest gap between them: [`Nodes::update`]
//! computes it from the node and its two children, and the tree calls it where either changed. Who changes it in
//! any other way (the key in place, the length of a range) calls [`Tree::refresh`].

use crate::platform::Hooks;
use crate::sync::Word32;
use crate::zeroed::Zeroed;

pub(crate) mod interval;

/// The two sides of a node. The other side is `1 - side`.
const LEFT: usize = 0;
const RIGHT: usize = 1;

/// A node's place in its tree: handles plus one, 0 is none. Only a node that is in a tree has a meaning here;
/// [`Tree::insert`] sets all of it.
#[derive(Default)]
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
    pub fn children<P: Hooks>(&self, p: &P) -> [Option<u32>; 2] {
        [self.child(p, LEFT), self.child(p, RIGHT)]
    }

    fn child<P: Hooks>(&self, p: &P, side: usize) -> Option<u32> {
        self.children[side].get(p).checked_sub(1)
    }

    /// The node above. For searches that go on from where one ended.
    pub fn parent<P: Hooks>(&self, p: &P) -> Option<u32> {
        self.parent.get(p).checked_sub(1)
    }
}

/// Where the nodes of a tree are.
pub(crate) trait Nodes {
    /// What the nodes are sorted by.
    type Key: Ord + Copy;
    /// What a node lies in.
    type Node;
    /// The node of a handle. To find it costs some loads: each search does it once for a node.
    fn node(&self, handle: u32) -> &Self::Node;
    /// The links inside a node.
    fn links<'n>(&self, node: &'n Self::Node) -> &'n Links;
    /// The key of a node.
    fn key(&self, node: &Self::Node) -> Self::Key;
    /// The node or something below it changed, and its children are up to date: compute anew what the node keeps
    /// about all below it, and say whether that is something new. Called bottom-up, and sometimes twice for the same node.
    /// Best writes only what is new, because every CPU that searches reads the same lines.
    fn update(&self, node: &Self::Node) -> bool {
        let _ = node;
        false
    }
    /// The links of a handle's node.
    fn links_of(&self, handle: u32) -> &Links {
        self.links(self.node(handle))
    }
}

/// A tree. All zeros is an empty one.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Tree {
    /// The top node's handle plus one.
    root: Word32,
}

// SAFETY: zeros are no root.
unsafe impl Zeroed for Tree {}

impl Tree {
    /// The node above all others, where a search by what [`Nodes::update`] keeps begins.
    pub fn top<P: Hooks>(&self, p: &P) -> Option<u32> {
        self.root.get(p).checked_sub(1)
    }

    /// Whether there is no node.
    pub fn is_empty<P: Hooks>(&self, p: &P) -> bool {
        self.top(p).is_none()
    }

    /// Forgets all nodes, and touches none.
    pub fn clear<P: Hooks>(&self, p: &P) {
        self.root.set(p, 0);
    }

    /// The node with the lowest key. O(log n).
    pub fn first<P: Hooks>(&self, p: &P, nodes: &impl Nodes) -> Option<u32> {
        self.top(p).map(|top| leftmost(p, nodes, top))
    }

    /// The node with the highest key that is at most `key`. O(log n).
    pub fn at_or_before<P: Hooks, N: Nodes>(&self, p: &P, nodes: &N, key: N::Key) -> Option<u32> {
        let (mut at, mut best) = (self.top(p), None);
        while let Some(handle) = at {
            let node = nodes.node(handle);
            let fits = nodes.key(node) <= key;
            if fits {
                best = at;
            }
            at = nodes.links(node).child(p, if fits { RIGHT } else { LEFT });
        }
        best
    }

    /// The node with the lowest key that is at least `key`. O(log n).
    pub fn at_or_after<P: Hooks, N: Nodes>(&self, p: &P, nodes: &N, key: N::Key) -> Option<u32> {
        let (mut at, mut best) = (self.top(p), None);
        while let Some(handle) = at {
            let node = nodes.node(handle);
            let fits = nodes.key(node) >= key;
            if fits {
                best = at;
            }
            at = nodes.links(node).child(p, if fits { LEFT } else { RIGHT });
        }
        best
    }

    /// The node that follows one of the tree. O(log n), but k steps in a row cost O(k + log n).
    pub fn next<P: Hooks>(&self, p: &P, nodes: &impl Nodes, handle: u32) -> Option<u32> {
        if let Some(right) = nodes.links_of(handle).child(p, RIGHT) {
            return Some(leftmost(p, nodes, right));
        }
        // All below is done.
        first_above(p, nodes, handle)
    }

    /// Adds a node that is in no tree, and whose key no other node of this one has. O(log n).
    pub fn insert<P: Hooks>(&self, p: &P, nodes: &impl Nodes, handle: u32) {
        let new = nodes.node(handle);
        let (key, links) = (nodes.key(new), nodes.links(new));
        links.children.iter().for_each(|child| child.set(p, 0));
        links.parent.set(p, 0);
        let (mut at, mut place) = (self.top(p), None);
        while let Some(above) = at {
            let node = nodes.node(above);
            let side = if key < nodes.key(node) { LEFT } else { RIGHT };
            place = Some((above, side));
            at = nodes.links(node).child(p, side);
        }
        match place {
            None => self.root.set(p, handle + 1),
            Some((parent, side)) => attach(p, nodes, parent, side, Some(handle)),
        }
        settle(p, nodes, handle);
        if let Some((parent, _)) = place {
            self.refresh(p, nodes, parent);
        }
    }

    /// Takes a node of the tree out. O(log n).
    pub fn remove<P: Hooks>(&self, p: &P, nodes: &impl Nodes, handle: u32) {
        let links = nodes.links_of(handle);
        // The lowest node that has something else below it afterwards, and one that has taken another's place.
        let (changed, moved) = match links.children(p) {
            [Some(_), Some(right)] => {
                // The node that follows has no left child: it is taken out where it is, and takes this one's place.
                let heir = leftmost(p, nodes, right);
                let above = nodes.links_of(heir).parent(p);
                self.replace(p, nodes, heir, nodes.links_of(heir).child(p, RIGHT));
                self.replace(p, nodes, handle, Some(heir));
                for (side, child) in links.children(p).into_iter().enumerate() {
                    attach(p, nodes, heir, side, child);
                }
                (if above == Some(handle) { Some(heir) } else { above }, Some(heir))
            }
            [left, right] => {
                self.replace(p, nodes, handle, left.or(right));
                (links.parent(p), None)
            }
        };
        if let Some(changed) = changed {
            self.refresh_past(p, nodes, changed, moved);
        }
    }

    /// Brings heights, balance and what [`Nodes::update`] keeps up to date, from a node up to where nothing changes.
    /// O(log n).
    pub fn refresh<P: Hooks>(&self, p: &P, nodes: &impl Nodes, handle: u32) {
        self.refresh_past(p, nodes, handle, None);
    }

    /// The same, and past this node at least: what it keeps is that of its old place, and who stands above knows another.
    fn refresh_past<P: Hooks>(&self, p: &P, nodes: &impl Nodes, handle: u32, mut moved: Option<u32>) {
        let mut at = Some(handle);
        while let Some(node) = at {
            let [left, right] = heights(p, nodes, nodes.links_of(node));
            let (top, mut changed) = if left > right + 1 {
                (self.lower(p, nodes, node, LEFT), true)
            } else if right > left + 1 {
                (self.lower(p, nodes, node, RIGHT), true)
            } else {
                (node, settle(p, nodes, node))
            };
            changed |= moved.is_some();
            if moved == Some(node) {
                moved = None;
            }
            if !changed {
                break;
            }
            at = nodes.links_of(top).parent(p);
        }
    }

    /// Balances a node that is two higher on its `high` side; returns who stands in its place.
    fn lower<P: Hooks>(&self, p: &P, nodes: &impl Nodes, node: u32, high: usize) -> u32 {
        // What lies inside, next to the node, stays as low as it is when the child is lifted, so it may not be
        // the higher part.
        if let Some(child) = nodes.links_of(node).child(p, high) {
            let below = heights(p, nodes, nodes.links_of(child));
            if below[1 - high] > below[high] {
                self.rotate(p, nodes, child, 1 - high);
            }
        }
        self.rotate(p, nodes, node, high)
    }

    /// Lifts a node's child over it; returns the child. The order stays: what lay between them changes sides.
    fn rotate<P: Hooks>(&self, p: &P, nodes: &impl Nodes, node: u32, side: usize) -> u32 {
        let Some(child) = nodes.links_of(node).child(p, side) else { return node };
        let between = nodes.links_of(child).child(p, 1 - side);
        self.replace(p, nodes, node, Some(child));
        attach(p, nodes, node, side, between);
        attach(p, nodes, child, 1 - side, Some(node));
        settle(p, nodes, node);
        settle(p, nodes, child);
        child
    }

    /// Hangs `new` where `old` hangs. `old` keeps its links.
    fn replace<P: Hooks>(&self, p: &P, nodes: &impl Nodes, old: u32, new: Option<u32>) {
        match nodes.links_of(old).parent(p) {
            Some(parent) => {
                let is_left = nodes.links_of(parent).child(p, LEFT) == Some(old);
                attach(p, nodes, parent, if is_left { LEFT } else { RIGHT }, new);
            }
            None => {
                self.root.set(p, word(new));
                if let Some(new) = new {
                    nodes.links_of(new).parent.set(p, 0);
                }
            }
        }
    }
}

fn word(handle: Option<u32>) -> u32 {
    handle.map_or(0, |handle| handle + 1)
}

/// The lowest node above this one that has it on its left.
fn first_above<P: Hooks>(p: &P, nodes: &impl Nodes, mut below: u32) -> Option<u32> {
    loop {
        let parent = nodes.links_of(below).parent(p)?;
        if nodes.links_of(parent).child(p, LEFT) == Some(below) {
            return Some(parent);
        }
        below = parent;
    }
}

fn leftmost<P: Hooks>(p: &P, nodes: &impl Nodes, mut node: u32) -> u32 {
    while let Some(left) = nodes.links_of(node).child(p, LEFT) {
        node = left;
    }
    node
}

fn attach<P: Hooks>(p: &P, nodes: &impl Nodes, parent: u32, side: usize, child: Option<u32>) {
    nodes.links_of(parent).children[side].set(p, word(child));
    if let Some(child) = child {
        nodes.links_of(child).parent.set(p, parent + 1);
    }
}

/// How high a node is on its two sides.
fn heights<P: Hooks>(p: &P, nodes: &impl Nodes, links: &Links) -> [u32; 2] {
    links.children(p).map(|child| child.map_or(0, |child| nodes.links_of(child).height.get(p)))
}

/// Computes anew what a node knows about all below it; says whether that is something new.
fn settle<P: Hooks>(p: &P, nodes: &impl Nodes, handle: u32) -> bool {
    let node = nodes.node(handle);
    let links = nodes.links(node);
    let [left, right] = heights(p, nodes, links);
    let height = &links.height;
    // Most heights stay: a line that is only read need not come from another CPU's cache.
    let higher = height.get(p) != left.max(right) + 1;
    if higher {
        height.set(p, left.max(right) + 1);
    }
    nodes.update(node) || higher
}

#[cfg(test)]
pub(crate) mod tests;
