//! Pages of a range, or of a file, to other nodes, whoever shows them.

use crate::Manager;
use crate::addr::{NodeId, NodeSet, PageNumber, PageRange};
use crate::charge::charge;
use crate::error::Error;
use crate::handle::SpaceId;
use crate::kind::Kind;
use crate::memmap::{Frame, FrameVec};
use crate::paging::Entry;
use crate::platform::Platform;
use crate::profile::Scope;
use crate::reclaim::{self, Destination};
use crate::resched::{Work, cost};
use crate::space::moving::Moves;
use crate::view::{File, Space};
use crate::vma::check_range;

/// What became of pages that were to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Migrated {
    /// Pages that moved.
    pub moved: u64,
    /// Pages in memory that were to move and are where they were: pinned, or in somebody's hands; or there was no room.
    pub stayed: u64,
}

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// Moves the pages that `range` shows, all of which must be mapped, and that lie on one of the nodes `from`, to frames of node `to`, as many as have
    /// room there: also those that other spaces show, and those of files. Large pages become small ones. May wait.
    ///
    /// Pages that are [pinned](crate::Space::pin) stay, and are counted ([`Counter::PinnedKept`](crate::Counter::PinnedKept)); so do those that somebody reads, writes
    /// out or reclaims at the moment, those of files in a range that some space has [locked](crate::Space::lock), and, unless [`Config::swap`](crate::Config::swap)
    /// is set, anonymous ones that other spaces show. The node policies of ranges are not asked. Each page stays charged to its group. A page of a file is mapped again
    /// by the next fault on it.
    ///
    /// IPIs: one flush for the range's pages that no other space shows, and one for each 32 others: at most one per CPU that uses a space that shows them, and is neither
    /// lazy nor this one. Where some are on their way to a list of reclaim's, one per other CPU that is online.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`], [`Error::NoSuchNode`], [`Error::BadRange`], [`Error::NotMapped`], [`Error::OutOfMemory`]
    /// (no table to split a large page).
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// use quietmm::{Migrated, NodeSet};
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.fault(heap.start.addr(), UserAccess::Write)?;
    /// let child = space.fork()?; // both show the page
    /// let anywhere = NodeSet::of(&[NodeId(0)]).expect("nodes are 0 to 63");
    /// assert_eq!(space.migrate_all(heap, anywhere, NodeId(0))?, Migrated::default()); // it is there
    /// # mm.space(child).destroy()?;
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "migrate_pages")]
    #[doc(alias = "MPOL_MF_MOVE_ALL")]
    pub fn migrate_all(&self, range: PageRange, from: NodeSet, to: NodeId) -> Result<Migrated, Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Migrate);
        let range = check_range(range)?;
        let mut work = Work::begin(mm);
        let mut moved = {
            let (space, _alone) = mm.write_lock(id, range)?;
            if !mm.has_node(to) {
                return Err(Error::NoSuchNode);
            }
            if let Some(hole) = mm.first_unmapped(space, range, &mut work) {
                return Err(Error::NotMapped(hole));
            }
            mm.migrate_alone((id, space), range, Moves::To(from, to), &mut work)?
        };
        let mut pass = |work: &mut Work<'_, 'p, P>| {
            let (mut rest, mut unlisted) = (range, 0);
            while rest.pages > 0 {
                let mut held = FrameVec::new();
                let next = mm.ref_to_move(id, rest, (from, to), &mut held, work)?;
                let (some, others) = reclaim::migrate(mm, held.as_slice(), Destination::Node(to));
                (moved, unlisted) = (moved + u64::from(some), unlisted + others);
                work.did(held.as_slice().len() as u32 * cost::RECLAIM);
                rest = PageRange::between(next, range.end());
            }
            Ok::<_, Error>(unlisted)
        };
        // Without room it is not tried; and whoever cannot have these slots does without.
        let _without = mm.make_transit();
        mm.drain_lru_batch();
        if pass(&mut work)? > 0 {
            mm.drain_lru_batches();
            pass(&mut work)?;
        }
        let mut stayed = 0;
        let (space, _shared) = mm.read_lock(id)?;
        mm.look_through(space, range, &mut work, |_, _, entry, pages| {
            let is_left = entry.is_mapped() && {
                let state = mm.memmap().get(entry.frame()).state.get(mm.platform());
                moves(state, from, to)
            };
            stayed += if is_left { pages } else { 0 };
            true
        });
        Ok(Migrated { moved, stayed })
    }
}

impl<P: Platform> File<'_, '_, P> {
    /// Moves `pages` pages of the file from page `first` on that are in memory, on one of the nodes `from`, to frames of node `to`, as [`Space::migrate_all`] does:
    /// whether somebody maps them or not. What lies beyond the file's end is nothing.
    ///
    /// # Errors
    /// [`Error::NoSuchFile`], [`Error::NoSuchNode`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// use quietmm::NodeSet;
    /// # doc(|mm| {
    /// let file = mm.file(mm.create_file(16)?);
    /// file.read(0, &mut [0; 8])?;
    /// let anywhere = NodeSet::of(&[NodeId(0)]).expect("nodes are 0 to 63");
    /// assert_eq!(file.migrate(0, 16, anywhere, NodeId(0))?.moved, 0); // it is there
    /// # Ok(())
    /// # });
    /// ```
    pub fn migrate(&self, first: u64, pages: u64, from: NodeSet, to: NodeId) -> Result<Migrated, Error> {
        let File { mm, id } = *self;
        let (p, _scope) = (mm.platform(), charge(mm.platform(), Scope::Migrate));
        if !mm.has_node(to) {
            return Err(Error::NoSuchNode);
        }
        let file = mm.find_file(id)?;
        // The file does not end meanwhile.
        let _shared = file.io.read(mm);
        let all = first..first.saturating_add(pages).min(mm.find_file(id)?.pages(p));
        let (mut done, mut work) = (Migrated::default(), Work::begin(mm));
        let mut pass = |last: bool| {
            let (mut at, mut unlisted) = (all.start, 0);
            while at < all.end {
                let (mut held, mut go) = (FrameVec::new(), FrameVec::new());
                at = mm.ref_next_few_cached(id.slot(), at..all.end, reclaim::AT_ONCE, &mut held);
                if held.as_slice().is_empty() {
                    break;
                }
                for &n in held.as_slice() {
                    if moves(mm.memmap().get(n).state.get(p), from, to) { go.push(n) } else { mm.put_page(n) }
                }
                let (moved, others) = reclaim::migrate(mm, go.as_slice(), Destination::Node(to));
                let left = go.as_slice().len() as u64 - u64::from(moved);
                (done.moved, unlisted) = (done.moved + u64::from(moved), unlisted + others);
                done.stayed += if last { left } else { 0 };
                work.did(held.as_slice().len() as u32 * cost::RECLAIM);
            }
            unlisted
        };
        mm.drain_lru_batch();
        if pass(false) > 0 {
            mm.drain_lru_batches();
        }
        pass(true);
        Ok(done)
    }
}

/// Whether a page in this state is to move.
fn moves(state: u32, from: NodeSet, to: NodeId) -> bool {
    let node = Frame::node_of(state);
    matches!(Frame::kind_of(state), Kind::File | Kind::Anon) && node != to && from.contains(node)
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Takes references to pages of a range that are to move, as many as move at once; returns behind which page this stopped.
    fn ref_to_move(
        &self,
        id: SpaceId,
        range: PageRange,
        (from, to): (NodeSet, NodeId),
        held: &mut FrameVec,
        work: &mut Work<'_, 'p, P>,
    ) -> Result<PageNumber, Error> {
        let p = self.platform();
        let (space, _shared) = self.read_lock(id)?;
        let next = self.look_through(space, range, work, |_, _, entry, _| {
            if held.as_slice().len() == reclaim::AT_ONCE {
                return false;
            }
            let frame = entry.is_mapped().then(|| self.memmap().get(entry.frame()));
            if let Some(frame) =
                frame.filter(|frame| !entry.has(Entry::LARGE) && moves(frame.state.get(p), from, to))
            {
                // The mapping's reference keeps it while its table's lock is held.
                frame.refs.fetch_add(p, 1, core::sync::atomic::Ordering::Relaxed);
                held.push(entry.frame());
            }
            true
        });
        Ok(next)
    }
}
