//! The calls that change what is mapped: each is a few of the core's, and a change in the list of areas.

mod advise;
mod advise_others;
mod cut;
mod grow;
mod inherit;
mod limits;
mod lock;
mod nodes;
mod rearrange;

use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::Ordering;

use quietmm::{Backing, Error, PageNumber, PageRange, Prot, SpaceId, UserAccess};

use crate::areas::{Area, PAGE, Wanted, What, rights};
use crate::errno::{Answer, Errno};
use crate::kernel::{Kept, Linux};
use crate::machine::Machine;
use crate::open::Kind;
use crate::process::{Layout, Lock, Mapped, Memory, Thread};
use crate::tree::seal;

/// Where programs may have memory: from the first address that the core maps up to below the stack.
pub const WITHIN: Range<u64> = 0x1_0000..0x7fff_f7ff_f000;
/// All that a program can name.
pub const ALL: Range<u64> = 0x1_0000..(1 << 47) - PAGE;

mod flag {
    pub const SHARED: u64 = 1;
    pub const KIND: u64 = 3;
    pub const FIXED: u64 = 0x10;
    pub const ANONYMOUS: u64 = 0x20;
    pub const LOW: u64 = 0x40;
    pub const GROWS: u64 = 0x100;
    pub const LOCKED: u64 = 0x2000;
    pub const NO_RESERVE: u64 = 0x4000;
    pub const POPULATE: u64 = 0x8000;
    /// Nothing is brought all the same.
    pub const NO_WAIT: u64 = 0x1_0000;
    pub const LARGE: u64 = 0x4_0000;
    pub const FIXED_NO_REPLACE: u64 = 0x10_0000;
    /// All that who says [`VALIDATED`] may ask for.
    pub const KNOWN: u64 = 0x17_f9f3;
    /// Shared, and what is not known is refused.
    pub const VALIDATED: u64 = 3;
}

/// Where `MAP_32BIT` has memory.
const LOW: Range<u64> = 0x4000_0000..0x8000_0000;

/// Why large pages that are set aside are not to be had: there are none, or none of this size.
pub(crate) fn no_large_pages(flags: u64) -> Errno {
    match flags >> 26 & 63 {
        0 | 21 | 30 => Errno::ENOMEM,
        _ => Errno::EINVAL,
    }
}

pub fn pages(range: &Range<u64>) -> PageRange {
    PageRange::between(PageNumber(range.start / PAGE), PageNumber(range.end / PAGE))
}

/// The core knows five of the eight combinations: whoever may write or execute may read.
pub fn prot(of: u8) -> Prot {
    let of = of & rights::ALL;
    match (of & rights::WRITE != 0, of & rights::EXECUTE != 0) {
        (true, true) => Prot::ReadWriteExecute,
        (true, false) => Prot::ReadWrite,
        (false, true) => Prot::ReadExecute,
        (false, false) if of == 0 => Prot::None,
        (false, false) => Prot::Read,
    }
}

/// So many bytes in whole pages. What is longer than a number can say is nothing.
fn whole_pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(PAGE).unwrap_or(0)
}

/// A range of whole pages, as an address and a length ask for it.
fn range(at: u64, bytes: u64) -> Result<Range<u64>, Errno> {
    if !at.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let bytes = bytes.checked_next_multiple_of(PAGE).ok_or(Errno::EINVAL)?;
    let end = at.checked_add(bytes).ok_or(Errno::EINVAL)?;
    Ok(at..end)
}

impl What<Mapped> {
    /// Programs write to it from now on. Nobody sees to which pages: of a file all count as there.
    fn is_written(&self) {
        if let What::File { file, shared: true, .. } = self
            && let Some(extents) = file.inode.extents()
        {
            extents.with(|extents| *extents = crate::extents::Extents::All);
        }
    }
}

impl<M: Machine> Linux<'_, M> {
    /// Maps something where nothing is.
    pub(crate) fn map(
        &self,
        space: SpaceId,
        layout: &mut Layout,
        range: Range<u64>,
        of: u8,
        what: What<Mapped>,
    ) -> Result<(), Error> {
        let backing = match &what {
            What::Own(_) => Backing::Anonymous,
            What::File { file, page, shared } => {
                let id = file.inode.file().ok_or(Error::NoSuchFile)?;
                match shared {
                    true => Backing::File { file: id, offset: *page },
                    false => Backing::Private { file: id, offset: *page },
                }
            }
        };
        if let What::File { file, shared: false, .. } = &what
            && let crate::tree::Body::File(content) = &file.inode.body
        {
            // SeqCst: partner of the load in `drop_copies`.
            content.is_copied.store(true, Ordering::SeqCst);
        }
        self.mm.space(space).map(pages(&range), backing, prot(of))?;
        if of & rights::WRITE != 0 {
            what.is_written();
        }
        layout.areas.insert(range.start, Area { end: range.end, rights: of, what });
        Ok(())
    }

    /// The same with rights that may say that it is locked: as much of it as can be had.
    fn map_as_locked(
        &self,
        space: SpaceId,
        layout: &mut Layout,
        range: Range<u64>,
        of: u8,
        what: What<Mapped>,
    ) -> Result<(), Error> {
        self.map(space, layout, range.clone(), of & !rights::LOCKED, what)?;
        if of & rights::LOCKED != 0 && self.mm.space(space).lock(pages(&range)).is_ok() {
            layout.areas.lock(&range, true);
        }
        Ok(())
    }

    /// Unmaps whatever lies there.
    pub(crate) fn unmap(&self, space: SpaceId, layout: &mut Layout, range: &Range<u64>) -> Result<(), Error> {
        let mut at = range.start;
        while let Some(part) = layout.areas.part(&(at..range.end)) {
            self.mm.space(space).unmap(pages(&part))?;
            layout.areas.remove(&part);
            at = part.end;
        }
        Ok(())
    }

    pub(crate) fn mmap(
        &self,
        thread: &Arc<Thread>,
        [at, bytes, of, flags, file, offset]: [u64; 6],
    ) -> Answer {
        if !offset.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        let anonymous = flags & flag::ANONYMOUS != 0;
        // Before all else is looked at it must be open.
        let open = match anonymous {
            true => None,
            false => Some(thread.process.files.with(|files| files.get(file))?),
        };
        if open.as_ref().is_some_and(|open| open.has(crate::open::flag::PATH)) {
            return Err(Errno::EBADF);
        }
        if bytes == 0 {
            return Err(Errno::EINVAL);
        }
        let bytes =
            bytes.checked_next_multiple_of(PAGE).filter(|&bytes| bytes < ALL.end).ok_or(Errno::ENOMEM)?;
        let shared = match flags & flag::KIND {
            0 => return Err(Errno::EINVAL),
            flag::VALIDATED if anonymous => return Err(Errno::EINVAL),
            flag::VALIDATED if flags & !flag::KNOWN & 0x3ff_ffff != 0 => return Err(Errno::EOPNOTSUPP),
            kind => kind & flag::SHARED != 0,
        };
        if flags & flag::LARGE != 0 {
            return Err(if anonymous { no_large_pages(flags) } else { Errno::EINVAL });
        }
        if flags & flag::GROWS != 0 && shared {
            return Err(Errno::EINVAL);
        }
        let of = of as u8 & 7;
        let page = offset / PAGE;
        let what = if let Some(open) = open {
            if !open.may_read() || shared && of & rights::WRITE != 0 && !open.may_write() {
                return Err(Errno::EACCES);
            }
            match &open.kind {
                // Memory of its own alone grows.
                Kind::File(_) | Kind::Device(crate::tree::Device::Zero, _) if flags & flag::GROWS != 0 => {
                    return Err(Errno::EINVAL);
                }
                // Behind the last page of the longest file.
                Kind::File(_) if page + bytes / PAGE > 1 << 40 => return Err(Errno::EOVERFLOW),
                Kind::File(inode) => {
                    inode.note_read(self.clock());
                    let path = open.path.as_slice().into();
                    let may_write = !shared || open.may_write();
                    What::File { file: Mapped { inode: inode.clone(), path, may_write }, page, shared }
                }
                Kind::Device(crate::tree::Device::Zero, _) if shared => self.shared_memory(bytes)?,
                Kind::Device(crate::tree::Device::Zero, _) => What::Own(""),
                _ => return Err(Errno::ENODEV),
            }
        } else if shared {
            self.shared_memory(bytes)?
        } else {
            What::Own("")
        };
        let memory = thread.memory();
        let start = memory.layout.with(self.machine, |layout| {
            // With the layout held: whoever seals the file looks there afterwards.
            let mut what = what;
            if let What::File { file, shared: true, .. } = &mut what
                && file.inode.seals.load(Ordering::SeqCst) & seal::WRITE != 0
            {
                if of & rights::WRITE != 0 {
                    return Err(Errno::EPERM);
                }
                file.may_write = false;
            }
            let wanted = at..at.saturating_add(bytes);
            let fixed = flags & (flag::FIXED | flag::FIXED_NO_REPLACE) != 0;
            if fixed && (!at.is_multiple_of(PAGE) || wanted.end > ALL.end) {
                return Err(if at.is_multiple_of(PAGE) { Errno::ENOMEM } else { Errno::EINVAL });
            }
            if fixed && at < ALL.start {
                return Err(Errno::EPERM);
            }
            let writes = of & rights::WRITE != 0;
            let counts = flags & flag::NO_RESERVE == 0 && if shared { anonymous } else { writes };
            // What it replaces is there no more.
            let more = bytes - if fixed { layout.areas.bytes_in(&wanted) } else { 0 };
            self.may_have(thread, layout, Wanted { bytes: more, is_data: !shared && writes, counts })?;
            if flags & flag::LOCKED != 0 && self.most_locked(thread) == 0 {
                return Err(Errno::EPERM);
            }
            if layout.locks_more.is_some() || flags & flag::LOCKED != 0 {
                self.may_lock(thread, &memory, bytes).map_err(|_| Errno::EAGAIN)?;
            }
            let start = if fixed {
                if flags & flag::FIXED_NO_REPLACE != 0 && !layout.areas.is_free(&wanted) {
                    return Err(Errno::EEXIST);
                }
                self.unmap(memory.space, layout, &wanted)?;
                at
            } else {
                // What is too low means the lowest.
                let hint = at & !(PAGE - 1);
                let hint = if hint == 0 { 0 } else { hint.max(ALL.start) };
                let asked = hint..hint.saturating_add(bytes);
                let fits = hint != 0
                    && asked.end <= ALL.end
                    && layout.areas.is_free(&asked)
                    && layout.areas.is_apart(asked.end);
                let within = if flags & flag::LOW != 0 { LOW } else { WITHIN };
                let fits = fits && (flags & flag::LOW == 0 || asked.end <= LOW.end);
                if fits { hint } else { layout.areas.find_free(bytes, &within).ok_or(Errno::ENOMEM)? }
            };
            let grows = if flags & flag::GROWS != 0 { rights::GROWS } else { 0 };
            self.map(memory.space, layout, start..start + bytes, of | grows, what)?;
            Ok(start)
        })?;
        let more = memory.layout.with(self.machine, |layout| layout.locks_more);
        if let Some(lock) = if flags & flag::LOCKED != 0 { Some(Lock::All) } else { more } {
            // As much of it as can be had.
            let _ = self.lock(&memory, start..start + bytes, lock);
        } else if flags & (flag::POPULATE | flag::NO_WAIT) == flag::POPULATE {
            // What cannot be had now will be asked for again.
            let _ = self.bring(thread, &memory, start..start + bytes, of & rights::WRITE != 0);
        }
        Ok(start)
    }

    /// A file without a name, which all who inherit it share.
    fn shared_memory(&self, bytes: u64) -> Result<What<Mapped>, Errno> {
        let content = self.new_content(bytes, Kept::InMemory)?;
        let body = crate::tree::Body::File(content);
        let inode = crate::tree::Inode::new(self.inode_number(), 0o100600, 0, body);
        let path = b"/dev/zero (deleted)"[..].into();
        Ok(What::File { file: Mapped { inode, path, may_write: true }, page: 0, shared: true })
    }

    /// Faults pages in.
    fn bring(&self, thread: &Thread, memory: &Memory, range: Range<u64>, write: bool) -> Result<(), Errno> {
        let access = if write { UserAccess::Write } else { UserAccess::Read };
        for at in range.step_by(PAGE as usize) {
            self.mm.space(memory.space).fault(quietmm::VirtAddr(at), access)?;
            // It may be very much, and memory short.
            if thread.is_dying() {
                return Err(Errno::EINTR);
            }
            self.machine.cond_resched();
        }
        Ok(())
    }

    pub(crate) fn munmap(&self, thread: &Thread, [at, bytes, ..]: [u64; 6]) -> Answer {
        let range = range(at, bytes)?;
        if range.is_empty() || range.end > ALL.end {
            return Err(Errno::EINVAL);
        }
        let memory = thread.memory();
        self.gives_back(&memory, range.end - range.start);
        memory.layout.with(self.machine, |layout| {
            // What leaves more areas than there were makes the kernel keep more.
            let inside = |(start, area): (u64, &Area<Mapped>)| start < range.start && area.end > range.end;
            if layout.areas.at(range.start).is_some_and(inside) && !self.machine.has_room(0) {
                return Err(Errno::ENOMEM);
            }
            self.unmap(memory.space, layout, &range).map_err(Errno::from)
        })?;
        Ok(0)
    }

    pub(crate) fn mprotect(&self, thread: &Thread, [at, bytes, of, ..]: [u64; 6]) -> Answer {
        /// From where the area begins that grows down; where it ends that grows up: there are none.
        const DOWN: u64 = 0x100_0000;
        const UP: u64 = 0x200_0000;
        let grows = of & (DOWN | UP);
        /// For semaphores in memory: it means nothing here.
        const SEMAPHORES: u64 = 8;
        let of = of & !grows;
        if grows == DOWN | UP || !at.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        if bytes == 0 {
            return Ok(0);
        }
        let range = range(at, bytes).map_err(|_| Errno::ENOMEM)?;
        if of & !(u64::from(rights::ALL) | SEMAPHORES) != 0 {
            return Err(Errno::EINVAL);
        }
        let of = of as u8 & rights::ALL;
        let memory = thread.memory();
        memory.layout.with(self.machine, |layout| {
            let range = match grows {
                0 => range,
                DOWN => Self::down_to_start(layout, range)?,
                _ => return Err(Errno::EINVAL),
            };
            // Up to the first hole, and then it says so.
            let mut at = range.start;
            while let Some((start, area)) = layout.areas.first(&(at..range.end)).filter(|found| found.0 == at)
            {
                at = area.end;
                let is_read = |file: &Mapped, shared: bool| shared && !file.may_write;
                if of & rights::WRITE != 0
                    && matches!(&area.what, What::File { file, shared, .. } if is_read(file, *shared))
                {
                    return Err(Errno::EACCES);
                }
                if of & rights::WRITE != 0 {
                    let is_own = !matches!(area.what, What::File { shared: true, .. });
                    if is_own && area.rights & (rights::WRITE | rights::GROWS) == 0 {
                        self.may_have_data(thread, layout, at - start)?;
                    }
                    area.what.is_written();
                }
                self.mm.space(memory.space).protect(pages(&(start..at)), prot(of))?;
                layout.areas.protect(&(start..at), of);
            }
            if at < range.end { Err(Errno::ENOMEM) } else { Ok(0) }
        })
    }

    pub(crate) fn brk(&self, thread: &Thread, [to, ..]: [u64; 6]) -> Answer {
        let memory = thread.memory();
        if to != 0 {
            let now = memory.layout.with(self.machine, |layout| layout.heap_end);
            self.gives_back(&memory, now.saturating_sub(to));
        }
        memory.layout.with(self.machine, |layout| {
            let (start, now) = (layout.heap, layout.heap_end);
            if to < start || to > ALL.end {
                return Ok(now);
            }
            let (old, new) = (now.next_multiple_of(PAGE), to.next_multiple_of(PAGE));
            if new > old {
                // A page stays free behind it.
                if !layout.areas.is_free(&(old..new + PAGE))
                    || !layout.areas.is_apart(new)
                    || self.may_have(thread, layout, Wanted::more(new - old, rights::WRITE)).is_err()
                {
                    return Ok(now);
                }
                let what = What::Own("[heap]");
                if layout.locks_more.is_some() && self.may_lock(thread, &memory, new - old).is_err() {
                    return Ok(now);
                }
                if self.map(memory.space, layout, old..new, rights::READ | rights::WRITE, what).is_err() {
                    return Ok(now);
                }
                if layout
                    .locks_more
                    .is_some_and(|lock| self.lock_pages(memory.space, &(old..new), lock).is_ok())
                {
                    layout.areas.lock(&(old..new), true);
                }
            } else if new < old && self.unmap(memory.space, layout, &(new..old)).is_err() {
                return Ok(now);
            }
            layout.heap_end = to;
            Ok(to)
        })
    }

    pub(crate) fn mremap(&self, thread: &Thread, [at, old, new, flags, to, _]: [u64; 6]) -> Answer {
        const MAY_MOVE: u64 = 1;
        const FIXED: u64 = 2;
        /// What was there stays mapped, and is empty.
        const LEAVE: u64 = 4;
        let was = range(at, old)?;
        let new = new.checked_next_multiple_of(PAGE).filter(|&new| new > 0).ok_or(Errno::EINVAL)?;
        let moves = flags & (FIXED | LEAVE) != 0;
        if flags & !(MAY_MOVE | FIXED | LEAVE) != 0
            || moves && flags & MAY_MOVE == 0
            || flags & LEAVE != 0 && new != was.end - was.start
        {
            return Err(Errno::EINVAL);
        }
        let memory = thread.memory();
        memory.layout.with(self.machine, |layout| {
            let (first, area) = layout.areas.at(at).ok_or(Errno::EFAULT)?;
            let area = Area { end: area.end, ..area.clone() };
            if area.rights & rights::LOCKED != 0 {
                let more = new.saturating_sub(was.end - was.start);
                self.may_lock(thread, &memory, more).map_err(|_| Errno::EAGAIN)?;
            }
            if was.is_empty() {
                // Without an old length it is what others see too, a second time.
                let What::File { file, page, shared: true } = &area.what else { return Err(Errno::EINVAL) };
                if flags & MAY_MOVE == 0 {
                    return Err(Errno::ENOMEM);
                }
                self.may_have(thread, layout, Wanted::more(new, 0))?;
                let place = match flags & FIXED {
                    0 => layout.areas.find_free(new, &WITHIN).ok_or(Errno::ENOMEM)?,
                    _ => range(to, new).map(|place| place.start)?,
                };
                let place =
                    place..place.checked_add(new).filter(|&end| end <= ALL.end).ok_or(Errno::EINVAL)?;
                if place.start < at && at < place.end {
                    return Err(Errno::EINVAL);
                }
                let what = What::File { file: file.clone(), page: page + (at - first) / PAGE, shared: true };
                self.unmap(memory.space, layout, &place)?;
                self.map_as_locked(memory.space, layout, place.clone(), area.rights, what)?;
                return Ok(place.start);
            }
            let len = was.end - was.start;
            // What goes may have holes.
            if !moves && new <= len {
                if new < len && was.end > ALL.end {
                    return Err(Errno::EINVAL);
                }
                self.unmap(memory.space, layout, &(at + new..was.end))?;
                return Ok(at);
            }
            if !layout.areas.covers(&was) {
                return Err(Errno::EFAULT);
            }
            // Only one thing can be left behind.
            if flags & LEAVE != 0 && area.end < was.end {
                return Err(Errno::EINVAL);
            }
            // Only what is one thing can grow.
            if new > len && area.end < was.end {
                return Err(Errno::EFAULT);
            }
            let tail = |from: u64| match &area.what {
                What::File { file, page, shared } => {
                    let (file, shared) = (file.clone(), *shared);
                    What::File { file, page: page + (from - first) / PAGE, shared }
                }
                other => other.clone(),
            };
            let growth = at.checked_add(new).ok_or(Errno::EINVAL)?;
            let more = if flags & LEAVE != 0 { new } else { new.saturating_sub(len) };
            let own = matches!(area.what, What::Own(_));
            self.may_have(thread, layout, Wanted::more(more, if own { area.rights } else { 0 }))?;
            let beside = area.end == was.end && growth <= ALL.end && layout.areas.is_free(&(was.end..growth));
            if !moves && beside {
                // With all that was said of it: it stays one thing.
                self.map_as_locked(memory.space, layout, was.end..growth, area.rights, tail(was.end))?;
                return Ok(at);
            }
            if flags & MAY_MOVE == 0 {
                return Err(Errno::ENOMEM);
            }
            let place = if flags & FIXED != 0 {
                let place = range(to, new)?;
                if place.end > ALL.end || place.start < was.end && was.start < place.end {
                    return Err(Errno::EINVAL);
                }
                self.unmap(memory.space, layout, &place)?;
                if new < len {
                    self.unmap(memory.space, layout, &(at + new..was.end))?;
                }
                place.start
            } else {
                layout.areas.find_free(new, &WITHIN).ok_or(Errno::ENOMEM)?
            };
            let from = at..at + len.min(new);
            // With what it gains, or not at all.
            self.mm.space(memory.space).remap(pages(&from), pages(&(place..place + new)))?;
            while let Some((start, piece)) = layout.areas.first(&from) {
                layout.areas.remove(&(start..piece.end));
                let there = |address: u64| address - at + place;
                layout.areas.insert(there(start), Area { end: there(piece.end), ..piece });
            }
            if new > len {
                let gained = Area { end: place + new, rights: area.rights, what: tail(was.end) };
                layout.areas.insert(place + len, gained);
            }
            if flags & LEAVE != 0 {
                self.map(memory.space, layout, was, area.rights & !rights::LOCKED, tail(at))?;
            }
            Ok(place)
        })
    }

    pub(crate) fn mincore(&self, thread: &Thread, [at, bytes, to, ..]: [u64; 6]) -> Answer {
        let too_long = if at.is_multiple_of(PAGE) { Errno::ENOMEM } else { Errno::EINVAL };
        let range = range(at, bytes).map_err(|_| too_long)?;
        let memory = thread.memory();
        if !range.is_empty() && !memory.layout.with(self.machine, |layout| layout.areas.covers(&range)) {
            return Err(Errno::ENOMEM);
        }
        const AT_ONCE: u64 = 256;
        let mut bytes = [0; AT_ONCE as usize];
        for at in range.clone().step_by((AT_ONCE * PAGE) as usize) {
            let part = at..range.end.min(at + AT_ONCE * PAGE);
            let bytes = &mut bytes[..((part.end - at) / PAGE) as usize];
            let said = self.mm.space(memory.space).residency(pages(&part), bytes);
            // Another thread may have unmapped it.
            said.map_err(|_| Errno::ENOMEM)?;
            self.machine.write_user(to + (at - range.start) / PAGE, bytes)?;
            if thread.is_dying() {
                return Err(Errno::EINTR);
            }
            self.machine.cond_resched();
        }
        Ok(0)
    }

    pub(crate) fn msync(&self, thread: &Thread, [at, bytes, flags, ..]: [u64; 6]) -> Answer {
        const INVALIDATE: u64 = 2;
        const SYNC: u64 = 4;
        if flags & !7 != 0 || flags & 5 == 5 || !at.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        let range = at..at.checked_add(whole_pages(bytes)).ok_or(Errno::ENOMEM)?;
        let memory = thread.memory();
        let whole =
            memory.layout.with(self.machine, |layout| range.is_empty() || layout.areas.covers(&range));
        let mut at = range.start;
        while let Some((start, area)) =
            memory.layout.with(self.machine, |layout| layout.areas.first(&(at..range.end)))
        {
            at = area.end;
            if flags & INVALIDATE != 0 && area.rights & rights::LOCKED != 0 {
                return Err(Errno::EBUSY);
            }
            if let What::File { file, page, shared: true } = area.what
                && flags & SYNC != 0
            {
                self.write_back(&file.inode, page..page + (area.end - start) / PAGE)?;
            }
        }
        if whole { Ok(0) } else { Err(Errno::ENOMEM) }
    }
}
