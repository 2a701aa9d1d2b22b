//! Pins: frames of a program's memory for a device, or for the kernel's own look (Linux: `pin_user_pages`).
//!
//! **INV-15: while a page is pinned its frame is not freed, and a page of a space's own stays at the address where it was pinned, and that space's
//! alone, until the program itself unmaps or drops it.** So what the program writes there the device sees, and the other way round.
//!
//! A pin is [`PIN`] references to the frame. Reclaim, caches and write-back free a page only if they count no reference
//! but theirs: so they need not know of pins. What is left is that the page must not go away from the program while the
//! frame is the device's:
//!
//! | who | does |
//! |---|---|
//! | who pins | makes a page that others have too the space's own first: a later write would copy it |
//! | fork | copies it for the child, after its flush |
//! | reclaim, memory that goes offline | leaves its entries: looked at under the lock of each entry's table, where pins are taken |
//! | `migrate`, `Advice::Collapse` | leave it |
//! | large pages | become small before one of their pages is pinned: each frame counts for itself |
//! | `unmap`, `advise(Drop)`, a file that is cut, the end of the space | go on: the frame is free with the last pin |
//!
//! ```text
//!   who pins                             reclaim
//!   table locked: entry leads to n       page n locked
//!   n: PIN references more               table locked: is n pinned?
//!   table unlocked                         yes: the entry stays
//!                                          no: the entry goes; whoever pins finds none, and faults
//! ```
//!
//! A device that writes sets no dirty bit. Whoever lets go of a pin by which it may have written makes the page dirty first: whoever finds
//! no pin finds that.

use core::sync::atomic::Ordering;

use crate::Manager;
use crate::addr::{FrameNumber, PageNumber, PageRange};
use crate::charge::charge;
use crate::error::Error;
use crate::event::Event;
use crate::handle::SpaceId;
use crate::kind::Kind;
use crate::memmap::PIN;
use crate::paging::UserAccess;
use crate::paging::table::{self, Way};
use crate::platform::Platform;
use crate::profile::Scope;
use crate::resched::Work;
use crate::rule::Rule;
use crate::space::fault::{Fault, FaultStep};
use crate::space::outside::{Kept, Outside};
use crate::view::Space;
use crate::vma::{SpaceState, Vma, check_range};

/// With so many references no pin is added: far from where the count would pass its end, also by those that come
/// meanwhile.
const MOST_REFS: u32 = 1 << 31;

/// How long pins last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Term {
    /// For an I/O that ends by itself.
    Short,
    /// For as long as a program likes: memory that a device was told of (Linux: `FOLL_LONGTERM`). No page of a file that other
    /// programs see may be written to so long; and what is read so long is the space's own, unless others are to see it change.
    #[doc(alias = "FOLL_LONGTERM")]
    Long,
}

/// Frames that are pinned, at most [`MOST`](Self::MOST). A value of 136 bytes that borrows nothing: it goes with the request to the device, and
/// from wherever that completes to [`Manager::unpin`].
#[must_use = "frames that stay pinned never become free"]
#[derive(Debug, PartialEq, Eq)]
pub struct Pins {
    frames: [FrameNumber; Pins::MOST],
    len: u8,
    access: UserAccess,
}

impl Pins {
    /// Pages that one call pins at most: 128 KiB.
    pub const MOST: usize = 32;

    const fn none(access: UserAccess) -> Pins {
        Pins { frames: [FrameNumber::NONE; Pins::MOST], len: 0, access }
    }

    fn push(&mut self, frame: FrameNumber) {
        self.frames[usize::from(self.len)] = frame;
        self.len += 1;
    }

    /// The frames, one for each page, in the order of the pages. Those of neighbours need not be neighbours.
    pub fn frames(&self) -> &[FrameNumber] {
        &self.frames[..usize::from(self.len)]
    }

    /// What the device does with them.
    pub fn access(&self) -> UserAccess {
        self.access
    }
}

/// What pages are pinned for.
#[derive(Clone, Copy)]
struct Want {
    access: UserAccess,
    term: Term,
}

/// How far it is.
enum PinStep {
    Pinned(FrameNumber),
    /// A large page must become small first.
    Large,
    /// Something must be waited for, with the VMAs let go.
    Outside(Outside),
}

impl<'p, P: Platform> Space<'_, 'p, P> {
    /// Pins the frames of `range`, of [`Pins::MOST`] pages at most, for a device or for the kernel itself: `access` is what is done with them, not what
    /// the program does. Pages that are missing come as by a fault; large ones become small. May wait for memory and I/O.
    ///
    /// Until [`Manager::unpin`] the frames are nobody else's, and where the memory is the space's own the program goes on to see them there: a
    /// fork copies them for the child, reclaim and [`migrate`](crate::Space::migrate) leave them. Unless the program unmaps or drops them, or
    /// a file is cut: then what the device writes is seen by nobody. Rights that the program loses take none from the device. A page of a
    /// file that is mapped privately and only read, for a [`Term::Short`], is the file's: a program that writes there meanwhile has a copy.
    ///
    /// Costs no IPI, unless memory is short, or a page of the space's own that another space has too must be copied: then one flush of
    /// that page.
    ///
    /// # Errors
    /// All of it is pinned, or nothing. [`Error::BadRange`], also if it is longer than [`Pins::MOST`]; [`Error::NotPinnable`] for a page of a file that a device would write to
    /// for a [`Term::Long`]; [`Error::TooManyPins`] after some 32,000 of one page; and all that [`Space::fault`](crate::Space::fault) says.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let buffer = PageRange::new(PageNumber(0x400), 2);
    /// space.map(buffer, Backing::Anonymous, Prot::ReadWrite)?;
    /// // The program reads from a device: the device writes.
    /// let pins = space.pin(buffer, UserAccess::Write, Term::Short)?;
    /// mm.platform().write_frame(pins.frames()[1], 0, b"from the device");
    /// assert_eq!(space.lookup(PageNumber(0x401))?.frame(), pins.frames()[1]);
    /// mm.unpin(pins);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "get_user_pages")]
    #[doc(alias = "pin_user_pages")]
    pub fn pin(&self, range: PageRange, access: UserAccess, term: Term) -> Result<Pins, Error> {
        let Space { mm, id } = *self;
        let _scope = charge(mm.platform(), Scope::Pin);
        let range = check_range(range)?;
        if range.pages > Pins::MOST as u64 {
            return Err(Error::BadRange);
        }
        let mut pins = Pins::none(access);
        for page in (range.start.0..range.end().0).map(PageNumber) {
            match mm.pin_page(id, page, Want { access, term }) {
                Ok(frame) => pins.push(frame),
                Err(error) => {
                    // No device has seen them.
                    pins.frames().iter().for_each(|&n| mm.unpin_page(n, false));
                    return Err(error);
                }
            }
        }
        Ok(pins)
    }
}

impl<'p, P: Platform> Manager<'p, P> {
    /// Lets go of pins: the device is through. What it may have written is dirty from now on. Frames that nobody else holds become free.
    /// Any context but an interrupt handler. No IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let buffer = PageRange::new(PageNumber(0x400), 2);
    /// space.map(buffer, Backing::Anonymous, Prot::ReadWrite)?;
    /// let pins = space.pin(buffer, UserAccess::Read, Term::Short)?;
    /// space.unmap(buffer)?; // the device goes on to read
    /// assert_eq!(mm.validate().pinned, 2);
    /// mm.unpin(pins);
    /// assert_eq!(mm.validate().pinned, 0);
    /// # Ok(())
    /// # });
    /// ```
    #[doc(alias = "unpin_user_pages_dirty_lock")]
    pub fn unpin(&self, pins: Pins) {
        let writes = pins.access == UserAccess::Write;
        pins.frames().iter().for_each(|&n| self.unpin_page(n, writes));
    }

    /// The same from the interrupt by which a device says that it is through: lets go of those that programs still map. What is left (a
    /// program has unmapped it meanwhile) may have to be freed, for which locks are taken: a task gives it to [`Manager::unpin`]. It is
    /// dirty by now, too. Any context; no lock, no IPI.
    ///
    /// # Examples
    /// ```
    /// # use quietmm_doc::*;
    /// # doc(|mm| {
    /// let space = mm.space(mm.create_space()?);
    /// let buffer = PageRange::new(PageNumber(0x400), 2);
    /// space.map(buffer, Backing::Anonymous, Prot::ReadWrite)?;
    /// let pins = space.pin(buffer, UserAccess::Write, Term::Short)?;
    /// space.unmap(PageRange::new(buffer.start, 1))?;
    /// let left = mm.unpin_in_interrupt(pins).expect("one that nobody maps");
    /// assert_eq!(left.frames().len(), 1);
    /// mm.unpin(left);
    /// # Ok(())
    /// # });
    /// ```
    pub fn unpin_in_interrupt(&self, pins: Pins) -> Option<Pins> {
        let mut left = Pins::none(pins.access);
        for &n in pins.frames() {
            self.note_device_wrote(n, pins.access == UserAccess::Write);
            if !self.unpin_if_mapped(n) {
                left.push(n);
            }
        }
        (left.len > 0).then_some(left)
    }

    fn unpin_page(&self, n: FrameNumber, wrote: bool) {
        self.note_device_wrote(n, wrote);
        self.emit(Event::Unpinned { frame: n });
        // Release, in there: partner of the Acquire in `Frame::is_pinned`.
        self.put_refs(n, PIN);
    }

    /// INV-15: before the pin goes.
    fn note_device_wrote(&self, n: FrameNumber, wrote: bool) {
        let p = self.platform();
        if wrote
            && !p.broken(Rule::DirtyBeforeUnpin)
            && let Some(before) = self.memmap().get(n).note_written(p)
        {
            self.count_dirty(n, before);
        }
    }

    /// Lets go of a pin, if the page is mapped and so held by somebody else. Whoever unmaps it at this moment may leave it in the swap cache,
    /// where reclaim finds that nobody wants it.
    fn unpin_if_mapped(&self, n: FrameNumber) -> bool {
        let (p, frame) = (self.platform(), self.memmap().get(n));
        let mut refs = frame.refs.get(p);
        while refs > PIN && frame.maps.get(p) > 0 {
            // Release: as above.
            match frame.refs.replace(p, refs, refs - PIN, Ordering::Release) {
                Ok(_) => {
                    self.emit(Event::Unpinned { frame: n });
                    return true;
                }
                Err(now) => refs = now,
            }
        }
        false
    }

    fn pin_page(&self, id: SpaceId, page: PageNumber, want: Want) -> Result<FrameNumber, Error> {
        loop {
            let mut pinned = None;
            let done = self.with_vma(id, page, &mut false, |(space, vma), kept, major| {
                Ok(match self.pin_step((id, space, vma), page, want, kept, major)? {
                    PinStep::Pinned(n) => {
                        pinned = Some(n);
                        None
                    }
                    PinStep::Large => None,
                    PinStep::Outside(outside) => Some(outside),
                })
            });
            match done {
                Err(Error::NotMapped(hole)) if hole == page && self.grow_to(id, page)? => continue,
                done => done?,
            }
            if let Some(n) = pinned {
                return Ok(n);
            }
            let at = PageRange::new(page, 1);
            let (space, _alone) = self.write_lock(id, at)?;
            self.split_all_large(space, at, &mut Work::begin(self))?;
        }
    }

    /// Pins a page as far as nothing is to be waited for. By whoever shares the VMAs.
    fn pin_step(
        &self,
        (id, space, vma): (SpaceId, &SpaceState, &Vma),
        page: PageNumber,
        want: Want,
        kept: &mut Kept<'_, 'p, P>,
        major: &mut bool,
    ) -> Result<PinStep, Error> {
        let p = self.platform();
        if want.term == Term::Long && want.access == UserAccess::Write && !vma.is_private(p) {
            return Err(Error::NotPinnable(page));
        }
        loop {
            match table::find(self, space.root(p), page) {
                Way::Large(_) => return Ok(PinStep::Large),
                Way::Small(leaf) => {
                    let locked = leaf.lock(self);
                    let now = locked.read(page);
                    if now.permits(want.access) {
                        let n = now.frame();
                        let frame = self.memmap().get(n);
                        match self.may_pin(vma, n, want) {
                            Some(true) if frame.refs.get(p) >= MOST_REFS => {
                                return Err(Error::TooManyPins(page));
                            }
                            Some(true) => {
                                // Relaxed: the mapping keeps the page meanwhile. Under the table's lock, as the module says.
                                frame.refs.fetch_add(p, PIN, Ordering::Relaxed);
                                let writes = want.access == UserAccess::Write;
                                self.emit(Event::Pinned { space: id, page, frame: n, writes });
                                return Ok(PinStep::Pinned(n));
                            }
                            Some(false) => {
                                frame.refs.fetch_add(p, 1, Ordering::Relaxed);
                                drop(locked);
                                let fault = Fault {
                                    id,
                                    space,
                                    vma,
                                    page,
                                    leaf,
                                    access: UserAccess::Read,
                                    prot: vma.prot(p),
                                    watched: false,
                                };
                                let done = self.copy_and_replace(&fault, now, n);
                                self.put_page(n);
                                if let FaultStep::Outside(outside) = done? {
                                    return Ok(PinStep::Outside(outside));
                                }
                                continue;
                            }
                            None => {
                                frame.refs.fetch_add(p, 1, Ordering::Relaxed);
                                return Ok(PinStep::Outside(Outside::Page(n)));
                            }
                        }
                    }
                }
                Way::Gap(_) => {}
            }
            // Whoever pins says what it wants next.
            let ahead = &mut None;
            if let Some(outside) = self.resolve((id, space, vma), page, want.access, (kept, ahead), major)? {
                return Ok(PinStep::Outside(outside));
            }
        }
    }

    /// Whether the page that a VMA shows may be pinned as it is, or must be copied first: then a write of the program would copy it, and
    /// leave the device behind. `None` if somebody works on it, who can be waited for. Under the lock of its table.
    fn may_pin(&self, vma: &Vma, n: FrameNumber, want: Want) -> Option<bool> {
        let p = self.platform();
        if !vma.is_private(p) || p.broken(Rule::PinOwnPage) {
            return Some(true);
        }
        match self.memmap().get(n).kind(p) {
            // What may be written to is this space's alone.
            Kind::Anon if want.access == UserAccess::Write => Some(true),
            Kind::Anon => self.has_only_mapping(n),
            _ => Some(want.term == Term::Short),
        }
    }
}
