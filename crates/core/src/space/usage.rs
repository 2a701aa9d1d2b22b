//! What memory a space uses, counted when somebody asks: nothing is kept for it, so it costs nobody else anything.

use crate::addr::PageRange;
use crate::error::Error;
use crate::kind::Kind;
use crate::memmap::Frame;
use crate::paging::table;
use crate::platform::Platform;
use crate::resched::{Work, cost};
use crate::view::Space;

/// What memory a space uses. In pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct SpaceUsage {
    /// Anonymous pages in memory that it shows: copies that it made of files' pages too.
    pub anon: u64,
    /// Pages of files in memory that it shows.
    pub file: u64,
    /// Of both, those that are shown somewhere else too.
    pub shared: u64,
    /// Pages that are in swap, and not in memory at the moment.
    pub swapped: u64,
    /// Page tables.
    pub tables: u64,
}

impl SpaceUsage {
    /// Pages in memory that it shows (Linux: the resident set).
    pub const fn resident(&self) -> u64 {
        self.anon + self.file
    }
}

impl<P: Platform> Space<'_, '_, P> {
    /// Counts what memory the space uses: for whoever shows it to people, and to choose a victim. It looks at each entry, with points to give way;
    /// faults go on meanwhile, operations on the space wait. Not from [`Services::out_of_memory`](crate::platform::Services::out_of_memory) for a
    /// space whose VMAs somebody may have alone: it would wait for them.
    ///
    /// # Errors
    /// [`Error::NoSuchSpace`].
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// space.map(PageRange::new(PageNumber(0x400), 4), Backing::Anonymous, Prot::ReadWrite)?;
    /// space.fault(PageNumber(0x400).addr(), UserAccess::Write)?;
    /// let usage = space.usage()?;
    /// assert_eq!((usage.anon, usage.file, usage.tables), (1, 0, 4));
    /// # Ok(())
    /// # });
    /// ```
    pub fn usage(&self) -> Result<SpaceUsage, Error> {
        let (mm, p) = (self.mm, self.mm.platform());
        let (space, _shared) = mm.read_lock(self.id)?;
        let mut usage = SpaceUsage::default();
        let mut work = Work::begin(mm);
        mm.visit(space, PageRange::MAPPABLE, (&mut work, cost::ENTRY), |_, _, entry, pages| {
            usage.swapped += u64::from(entry.swap_slot().is_some_and(|slot| mm.swap_is_out(slot)));
            if !entry.is_mapped() {
                return;
            }
            let frame: &Frame = mm.memmap().get(entry.frame());
            let own = frame.kind(p) == Kind::Anon;
            *(if own { &mut usage.anon } else { &mut usage.file }) += pages;
            let is_shared = |frame: &Frame| u64::from(frame.maps.get(p) > 1);
            // Of a file each page may be shown elsewhere by itself.
            let frames = || (0..pages as u32).map(|i| mm.memmap().get(entry.frame().add(i)));
            usage.shared += if own { is_shared(frame) * pages } else { frames().map(is_shared).sum::<u64>() };
            usage.tables += u64::from(own && pages > 1 && mm.has_deposit(entry.frame()));
        });
        usage.tables += table::count_tables(mm, space.root(p), &mut work);
        Ok(usage)
    }
}
