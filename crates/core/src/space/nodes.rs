//! On which nodes the anonymous pages of a range come.
//!
//! A VMA has a number of eight bits for it: two say how, six which node or which set of nodes, of those that [`Root::node_sets`] has. Nobody
//! looks at it until a policy was set.
//!
//! [`Root::node_sets`]: crate::root::Root

use core::ops::ControlFlow;
use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, LARGE_PAGES, NodeId, NodeSet, PageNumber, PageRange};
use crate::charge::charge;
use crate::error::Error;
use crate::frame::AllocFrom;
use crate::handle::SpaceId;
use crate::memmap::Frame;
use crate::paging::NodePolicy;
use crate::platform::Platform;
use crate::pool::Reading;
use crate::profile::Scope;
use crate::resched::{Work, cost};
use crate::swap::Place;
use crate::view::Space;
use crate::vma::{Of, SpaceState, Vma, check_range};

const LOW: u8 = 63;
const PREFERRED: u8 = 1 << 6;
const BIND: u8 = 2 << 6;
const INTERLEAVE: u8 = 3 << 6;

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// From now on the anonymous pages of `range`, all of which must be mapped, come on these nodes: those that faults bring, copies of what is
    /// written to, large pages, and what comes back from swap (what is read with it comes on its node). Pages that are there stay where they are ([`migrate`](Space::migrate) moves
    /// them). Those of files come where they are touched. Out of memory that goes offline a page that ranges are bound for moves to their nodes alone. Forked spaces have the policies of their parent. May wait.
    /// Costs no flush and no IPI.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::BadRange`], [`Error::NotMapped`], [`Error::OutOfMemory`] and [`Error::MapCount`] where VMAs are split;
    /// [`Error::NoSuchNode`], also for [`NodePolicy::Bind`] to nodes that have no memory; [`Error::BadSetting`] for no node at all,
    /// [`Error::TooMany`] for the 64th set of nodes.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// use quietmm::{NodePolicy, NodeSet};
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// let all = NodeSet::of(&[NodeId(0)]).expect("nodes are 0 to 63");
    /// space.set_node_policy(heap, NodePolicy::Interleave(all))?;
    /// assert_eq!(space.node_policy(heap.start)?, NodePolicy::Interleave(all));
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "mbind")]
    pub fn set_node_policy(&self, range: PageRange, policy: NodePolicy) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Advise);
        let p = mm.platform();
        let range = check_range(range)?;
        let mut work = Work::begin(mm);
        let (space, _alone) = mm.write_lock(id, range)?;
        // First: a set that is named stays named.
        if let Some(hole) = mm.first_unmapped(space, range, &mut work) {
            return Err(Error::NotMapped(hole));
        }
        let nodes = mm.number_of(policy)?;
        mm.split_vmas(id, space, range, &mut work)?;
        for (_, vma) in mm.vmas_from(space, range.start) {
            if vma.range(p).start >= range.end() {
                break;
            }
            vma.set_nodes(p, nodes);
            work.did(cost::VMA);
        }
        mm.merge_vmas(space, range, &mut work);
        Ok(())
    }

    /// The same for all that is mapped in the space from now on. A space begins with [`NodePolicy::Local`]; one that is forked has its
    /// parent's.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`]; [`Error::NoSuchNode`], [`Error::BadSetting`] for no node at all, [`Error::TooMany`] for the 64th set of nodes.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// use quietmm::NodePolicy;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// space.set_default_node_policy(NodePolicy::Preferred(NodeId(0)))?;
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// assert_eq!(space.node_policy(heap.start)?, NodePolicy::Preferred(NodeId(0)));
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "set_mempolicy")]
    pub fn set_default_node_policy(&self, policy: NodePolicy) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let (space, _alone) = mm.write_lock(id, PageRange::new(PageNumber(0), 1))?;
        let nodes = mm.number_of(policy)?;
        space.nodes.store(nodes.into(), Ordering::Relaxed);
        Ok(())
    }

    /// On which nodes anonymous pages come where `page` is. May wait.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::NotMapped`].
    ///
    /// # Examples
    /// See [`set_node_policy`](Space::set_node_policy).
    #[doc(alias = "get_mempolicy")]
    pub fn node_policy(&self, page: PageNumber) -> Result<NodePolicy, Error> {
        let Space { mm, id } = *self;
        let (space, _vmas) = mm.read_lock(id)?;
        let (_, vma) = mm.find_vma(id, space, page).ok_or(Error::NotMapped(page))?;
        let nodes = vma.nodes(mm.platform());
        let set = || mm.node_set(nodes & LOW);
        Ok(match nodes & !LOW {
            PREFERRED => NodePolicy::Preferred(NodeId((nodes & LOW).into())),
            BIND => NodePolicy::Bind(set()),
            INTERLEAVE => NodePolicy::Interleave(set()),
            _ => NodePolicy::Local,
        })
    }
}

impl<P: Platform> Manager<'_, P> {
    /// The number of a policy, for VMAs. From the first one but [`NodePolicy::Local`] on who brings a page looks for it.
    fn number_of(&self, policy: NodePolicy) -> Result<u8, Error> {
        let number = match policy {
            NodePolicy::Local => return Ok(0),
            NodePolicy::Preferred(node) if self.has_node(node) => PREFERRED | node.0 as u8,
            NodePolicy::Preferred(_) => return Err(Error::NoSuchNode),
            // Of a set without memory no page would ever come.
            NodePolicy::Bind(set) if !set.is_empty() && !self.has_memory(set) => {
                return Err(Error::NoSuchNode);
            }
            NodePolicy::Bind(set) => BIND | self.number_of_set(set)?,
            NodePolicy::Interleave(set) => INTERLEAVE | self.number_of_set(set)?,
        };
        self.root.placed.store(1, Ordering::Relaxed);
        Ok(number)
    }

    /// Whether one of these nodes has memory now.
    fn has_memory(&self, set: NodeSet) -> bool {
        self.zones().any(|zone| set.contains(zone.node) && zone.has_memory(self.platform()))
    }

    /// The place of a set among all that were ever named.
    fn number_of_set(&self, set: NodeSet) -> Result<u8, Error> {
        if set.is_empty() {
            return Err(Error::BadSetting("a set of nodes must have one"));
        }
        if set.iter().any(|node| !self.has_node(node)) {
            return Err(Error::NoSuchNode);
        }
        // Relaxed: the word is all that there is to see.
        let is = |word: &core::sync::atomic::AtomicU64| {
            let found = word.compare_exchange(0, set.bits(), Ordering::Relaxed, Ordering::Relaxed);
            found.is_ok() || found == Err(set.bits())
        };
        let place = self.root.node_sets.iter().position(is);
        place.map(|place| place as u8).ok_or(Error::TooMany)
    }

    fn node_set(&self, place: u8) -> NodeSet {
        NodeSet::from_bits(self.root.node_sets[usize::from(place)].load(Ordering::Relaxed))
    }

    /// The policy of a VMA for its anonymous pages, if it has one.
    pub(super) fn nodes_of(&self, vma: &Vma) -> u8 {
        if self.root.placed.load(Ordering::Relaxed) == 0 { 0 } else { vma.nodes(self.platform()) }
    }

    /// Where to look for the frame of the `nth` page, or of the `nth` large one.
    pub(super) fn placement(&self, nodes: u8, nth: u64) -> (AllocFrom, NodeSet) {
        let at = |node| AllocFrom { node, may_reclaim: true };
        let set = || self.node_set(nodes & LOW);
        match nodes & !LOW {
            PREFERRED => (at(Some(NodeId((nodes & LOW).into()))), NodeSet::ALL),
            BIND => {
                let (set, here) = (set(), self.node_here());
                (at(Some(here).filter(|&here| set.contains(here)).or(set.iter().next())), set)
            }
            INTERLEAVE => {
                let set = set();
                (at(set.iter().nth((nth % set.iter().count() as u64) as usize)), NodeSet::ALL)
            }
            _ => (AllocFrom::HERE, NodeSet::ALL),
        }
    }

    /// Where the page comes that a VMA shows at an address, if it has a policy.
    pub(super) fn place_of_new(&self, vma: &Vma, page: PageNumber) -> Place {
        match self.nodes_of(vma) {
            0 => None,
            nodes => Some(self.placement(nodes, page.0)),
        }
    }

    /// On which nodes the page may be that a space shows at an address. By whoever has its VMAs.
    pub(super) fn nodes_for(&self, id: SpaceId, space: &SpaceState, page: PageNumber) -> NodeSet {
        let place = self.find_vma(id, space, page).and_then(|(_, vma)| self.place_of_new(vma, page));
        place.map_or(NodeSet::ALL, |(_, nodes)| nodes)
    }

    /// On which nodes a page may be that is to move: those that all ranges which show it are bound to. All of them are those of an anonymous page that the
    /// caller has locked. May wait.
    pub(crate) fn nodes_of_page(&self, n: FrameNumber) -> NodeSet {
        let (p, frame) = (self.platform(), self.memmap().get(n));
        let mut set = NodeSet::ALL;
        if self.root.placed.load(Ordering::Relaxed) != 0 && self.is_swappable(n) {
            if frame.owner.get(p) == Frame::NO_OWNER {
                // It was read, and which ranges will show it is not known yet. It came where they want it, or where the page did beside which it was read.
                return NodeSet::of(&[Frame::node_of(frame.state.get(p))]).unwrap_or_default();
            }
            let reading = Reading::begin(self);
            if let Some(anon_vma) = self.root.anon_vmas.read(&reading, frame.owner.get(p)) {
                self.each_vma(&anon_vma.rmap, Of::AnonVma, frame.anon_index(p), |vma, _| {
                    set = set.and(self.placement(vma.nodes(p), 0).1);
                    ControlFlow::Continue(())
                });
            }
        }
        set
    }

    /// On which nodes a large page may come at `page`, if they have plenty.
    pub(super) fn spare_nodes(&self, vma: &Vma, page: PageNumber) -> NodeSet {
        let nodes = self.nodes_of(vma);
        let (from, set) = self.placement(nodes, page.0 / LARGE_PAGES);
        if nodes & !LOW == BIND {
            return set;
        }
        let node = from.node.unwrap_or_else(|| self.node_here());
        NodeSet::of(&[node]).unwrap_or_default()
    }
}
