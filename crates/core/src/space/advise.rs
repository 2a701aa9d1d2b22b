//! What a program says of a range.

use crate::addr::PageRange;
use crate::charge::charge;
use crate::error::Error;
use crate::paging::{Advice, UserAccess};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::Work;
use crate::space::residency::Unwanted;
use crate::view::Space;
use crate::vma::check_range;

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// Takes advice about `range`, all of which must be mapped. May wait.
    ///
    /// [`Advice::Drop`]: when it returns no CPU can use the content that was there (INV-4). One flush, thus at most one
    /// IPI per CPU that uses the space and is neither lazy nor this one; none if no page was present and nothing is
    /// deferred. Others may fault meanwhile, and drop a few pages elsewhere; a fault on a page that goes waits. With `free=sweep` as for
    /// [`Space::unmap`](crate::Space::unmap): until the next sweep another CPU may find the old content,
    /// unless it has switched to the space since, or the page was touched anew. [`Advice::Large`] and [`Advice::Small`] say how pages come from now on, and cost no flush.
    ///
    /// [`Advice::PageOut`] takes the pages that no other space has out of memory, in use or not: one flush for each batch of reclaim, thus at
    /// most one IPI per CPU that uses the space; [`Advice::Cold`] has reclaim take them first, at no flush, unless aging flushes. Pages that another
    /// CPU has brought a moment ago may stay. [`Advice::Free`] takes the right to write away until the next
    /// fault: one flush, none if nothing was writable. [`Advice::WillNeed`] costs no IPI; what cannot be read is not its error.
    ///
    /// [`Advice::Collapse`] makes large pages of small ones: one flush for up to 16 of them, thus at most one IPI per CPU that uses the space, the lazy
    /// ones too, since page tables go (INV-9); none where nothing becomes large. Of a file: one for each 2 MiB, and one for each 32 pages that other spaces show.
    ///
    /// # Errors
    /// With [`Advice::Collapse`] each aligned 2 MiB becomes large, or stays as it was, and all are tried; then the first error is told:
    /// [`Error::NotCollapsible`], [`Error::OutOfMemory`] without a large frame to spare on this CPU's node, [`Error::LimitReached`], or
    /// [`Error::SwapDevice`].
    ///
    /// [`Error::NoSuchSpace`], [`Error::BadRange`], [`Error::NotMapped`]; [`Error::OutOfMemory`] when a VMA or a large
    /// page must be split, and with [`Advice::WillNeed`] where swap is read; [`Error::MapCount`] when a VMA must be split; what [`Space::populate`](crate::Space::populate) says.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 16);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.fault(heap.start.addr(), UserAccess::Write)?;
    /// space.advise(heap, Advice::Drop)?;
    /// assert!(!space.lookup(heap.start)?.is_present());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// Large pages, made of small ones:
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let heap = PageRange::new(PageNumber(0x400), 512);
    /// space.map(heap, Backing::Anonymous, Prot::ReadWrite)?;
    /// space.fault(heap.start.addr(), UserAccess::Write)?;
    /// space.advise(heap, Advice::Collapse)?;
    /// assert!(space.lookup(PageNumber(0x5ff))?.has(Entry::LARGE));
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "madvise")]
    pub fn advise(&self, range: PageRange, advice: Advice) -> Result<(), Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Advise);
        let p = mm.platform();
        let range = check_range(range)?;
        let advice = if advice == Advice::Free && !mm.config().swap { Advice::Drop } else { advice };
        match advice {
            Advice::Collapse => return mm.collapse(id, range),
            Advice::Free => return mm.free_lazily(id, range),
            Advice::WillNeed => return mm.bring_in(id, range),
            Advice::Cold => return mm.let_pages_go(id, range, Unwanted::Soon),
            Advice::PageOut => return mm.let_pages_go(id, range, Unwanted::Now),
            Advice::PopulateRead => return self.populate(range, UserAccess::Read),
            Advice::PopulateWrite => return self.populate(range, UserAccess::Write),
            Advice::Drop => return mm.drop_range(id, range),
            Advice::Large | Advice::Small => {}
        }
        let mut work = Work::begin(mm);
        let (space, _alone) = mm.write_lock(id, range)?;
        mm.split_vmas(id, space, range, &mut work)?;
        mm.each_part(space, range, &mut work, |vma| vma.want_large(p, advice == Advice::Large));
        mm.merge_vmas(space, range, &mut work);
        Ok(())
    }
}
