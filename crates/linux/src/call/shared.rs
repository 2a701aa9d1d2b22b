//! Shared memory by number (System V): a file without a name, that all may map.

use core::sync::atomic::Ordering;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::areas::{PAGE, What, rights};
use crate::errno::{Answer, Errno};
use crate::kernel::{Kept, Linux};
use crate::layout::Pack;
use crate::machine::Machine;
use crate::memory::{ALL, WITHIN};
use crate::process::{Mapped, Thread};
use crate::rights::{READ, WRITE};
use crate::shared::Segment;
use crate::tree::{Body, Inode, mode};

/// Longer than any may be.
const MOST_BYTES: u64 = u64::MAX - (1 << 24);
/// How many there may be.
const MOST: usize = 4096;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn shmget(&self, thread: &Thread, key: u64, bytes: u64, flags: u64) -> Answer {
        const CREATE: u64 = 0o1000;
        const LARGE: u64 = 0o4000;
        const EXCLUSIVE: u64 = 0o2000;
        if flags & LARGE != 0 && key == 0 {
            return Err(crate::memory::no_large_pages(flags));
        }
        let key = key as u32;
        let find = |all: &BTreeMap<u32, Segment>| {
            let found = all.iter().find(|(_, segment)| key != 0 && segment.key == key);
            let (&id, segment) = found?;
            let wanted = (flags >> 6 | flags >> 3 | flags) as u32 & (READ | WRITE);
            let may = || segment.inode.upgrade().map_or(Ok(()), |inode| self.may(thread, &inode, wanted));
            Some(match () {
                () if flags & CREATE != 0 && flags & EXCLUSIVE != 0 => Err(Errno::EEXIST),
                () if bytes > segment.bytes => Err(Errno::EINVAL),
                () => may().map(|()| u64::from(id)),
            })
        };
        if let Some(answer) = self.segments.with(|all| find(all)) {
            return answer;
        }
        if key != 0 && flags & CREATE == 0 {
            return Err(Errno::ENOENT);
        }
        if bytes == 0 || bytes > MOST_BYTES {
            return Err(Errno::EINVAL);
        }
        if bytes >> 46 != 0 {
            return Err(Errno::ENOMEM);
        }
        let content = self.new_content(bytes.next_multiple_of(PAGE), Kept::InMemory)?;
        let rights = mode::FILE | flags as u32 & 0o777;
        let inode = Inode::new(self.inode_number(), rights, self.clock(), Body::File(content));
        let made_by = thread.process.pid;
        let maker = thread.process.owner.with(|owner| [owner.users[1], owner.groups[1]]);
        inode.owner.iter().zip(maker).for_each(|(owner, maker)| owner.store(maker, Ordering::Relaxed));
        self.segments.with(|all| {
            // Somebody may have been faster.
            if let Some(answer) = find(all) {
                return answer;
            }
            all.retain(|_, segment| segment.inode.strong_count() > 0);
            if all.len() >= MOST {
                return Err(Errno::ENOSPC);
            }
            let id = all.last_key_value().map_or(0, |(&id, _)| id + 1);
            let (weak, kept) = (Arc::downgrade(&inode), Some(inode.clone()));
            let (last, shown, left) = (0, 0, 0);
            let segment = Segment { key, inode: weak, kept, bytes, made_by, maker, last, shown, left };
            all.insert(id, segment);
            Ok(id.into())
        })
    }

    fn segment(&self, id: u64) -> Result<(Arc<Inode>, Segment), Errno> {
        let parts = |segment: &Segment| Some((segment.inode.upgrade()?, segment.clone()));
        self.segments.with(|all| all.get(&(id as u32)).and_then(parts)).ok_or(Errno::EINVAL)
    }

    /// Who shows a segment from now on, or no longer.
    fn note_shown(&self, thread: &Thread, inode: &Arc<Inode>, shows: bool) {
        let now = self.clock() / 1_000_000_000;
        self.segments.with(|all| {
            let is = |segment: &&mut Segment| core::ptr::eq(segment.inode.as_ptr(), Arc::as_ptr(inode));
            if let Some(segment) = all.values_mut().find(is) {
                segment.last = thread.process.pid;
                *(if shows { &mut segment.shown } else { &mut segment.left }) = now;
            }
        });
    }

    pub(crate) fn shmat(&self, thread: &Thread, id: u64, at: u64, flags: u64) -> Answer {
        const READ_ONLY: u64 = 0o10000;
        const ROUND: u64 = 0o20000;
        const REPLACE: u64 = 0o40000;
        const EXECUTE: u64 = 0o100_000;
        let (inode, Segment { key, bytes, .. }) = self.segment(id)?;
        let bytes = bytes.next_multiple_of(PAGE);
        let at = if flags & ROUND != 0 { at & !(PAGE - 1) } else { at };
        if !at.is_multiple_of(PAGE) || at == 0 && flags & REPLACE != 0 {
            return Err(Errno::EINVAL);
        }
        let may_write = flags & READ_ONLY == 0;
        self.may(thread, &inode, if may_write { READ | WRITE } else { READ })?;
        let of = rights::READ
            | if may_write { rights::WRITE } else { 0 }
            | if flags & EXECUTE != 0 { rights::EXECUTE } else { 0 };
        let path = alloc::format!("/SYSV{key:08x} (deleted)").into_bytes();
        let file = Mapped { inode: inode.clone(), path: path.into(), may_write };
        let what = What::File { file, page: 0, shared: true };
        let memory = thread.memory();
        memory.layout.with(self.machine, |layout| {
            let start = if at == 0 {
                layout.areas.find_free(bytes, &WITHIN).ok_or(Errno::ENOMEM)?
            } else {
                let wanted = at..at.checked_add(bytes).ok_or(Errno::EINVAL)?;
                if wanted.start < ALL.start || wanted.end > ALL.end {
                    return Err(Errno::EINVAL);
                }
                if flags & REPLACE != 0 {
                    self.unmap(memory.space, layout, &wanted)?;
                } else if !layout.areas.is_free(&wanted) {
                    return Err(Errno::EINVAL);
                }
                at
            };
            self.map(memory.space, layout, start..start + bytes, of, what)?;
            self.note_shown(thread, &inode, true);
            Ok(start)
        })
    }

    pub(crate) fn shmdt(&self, thread: &Thread, at: u64) -> Answer {
        let memory = thread.memory();
        memory.layout.with(self.machine, |layout| {
            let first = match layout.areas.at(at) {
                Some((start, area)) if start == at => match &area.what {
                    What::File { file, page: 0, shared: true } if file.path.starts_with(b"/SYSV") => file.clone(),
                    _ => return Err(Errno::EINVAL),
                },
                _ => return Err(Errno::EINVAL),
            };
            let bytes = first.inode.file().map_or(0, |file| self.file_len(file));
            // Parts of it may be gone, or something else by now.
            let mut next = at;
            while let Some((start, area)) = layout.areas.first(&(next..at + bytes)) {
                next = area.end;
                if matches!(&area.what, What::File { file, page, .. } if *file == first && *page == (start - at) / PAGE) {
                    self.unmap(memory.space, layout, &(start..area.end))?;
                }
            }
            self.note_shown(thread, &first.inode, false);
            Ok(0)
        })
    }

    /// How often a file is mapped for others too, as far as `counts` holds.
    pub(super) fn mapped(&self, inode: &Arc<Inode>, counts: &dyn Fn(&Mapped) -> bool) -> u64 {
        let all: alloc::vec::Vec<_> = self
            .processes
            .with(|all| all.values().filter_map(|process| process.memory.with(|it| it.clone())).collect());
        let shows = |what: &What<Mapped>| matches!(what, What::File { file, shared: true, .. } if Arc::ptr_eq(&file.inode, inode) && counts(file));
        let count = |memory: &Arc<crate::process::Memory>| {
            memory.layout.with(self.machine, |layout| {
                layout.areas.iter().filter(|(_, area)| shows(&area.what)).count() as u64
            })
        };
        all.iter().map(count).sum()
    }

    pub(crate) fn shmctl(&self, thread: &Thread, id: u64, what: u64, to: u64) -> Answer {
        const REMOVE: u64 = 0;
        const SET: u64 = 1;
        const STATE: u64 = 2;
        const LIMITS: u64 = 3;
        const STATE_OF: u64 = 13;
        const USED: u64 = 14;
        const STATE_OF_ANY: u64 = 15;
        let (nth, count, pages) = self.segments.with(|all| {
            all.retain(|_, segment| segment.inode.strong_count() > 0);
            let pages: u64 = all.values().map(|segment| segment.bytes.div_ceil(PAGE)).sum();
            (usize::try_from(id).ok().and_then(|id| all.keys().nth(id).copied()), all.len(), pages)
        });
        match what {
            LIMITS | USED => {
                let most = MOST as u64;
                let limits =
                    || Pack::default().long(1 << 46).long(1).long(most).long(most).long(1 << 34).zeros_to(72);
                let used = || Pack::default().word(count as u32).word(0).long(pages).long(pages).zeros_to(48);
                let info = if what == USED { used() } else { limits() };
                self.machine.write_user(to, &info.0)?;
                return Ok(count.saturating_sub(1) as u64);
            }
            STATE_OF | STATE_OF_ANY => {
                let id = nth.ok_or(Errno::EINVAL)?;
                if what == STATE_OF {
                    self.may(thread, &self.segment(id.into())?.0, READ)?;
                }
                return self.state_of_segment(id.into(), to).map(|_| id.into());
            }
            _ => {}
        }
        let (inode, segment) = self.segment(id)?;
        let user = thread.process.owner.with(|owner| owner.users[1]);
        let is_own = [0, segment.maker[0], inode.owner[0].load(Ordering::Relaxed)].contains(&user);
        match what {
            REMOVE | SET if !is_own => Err(Errno::EPERM),
            REMOVE => {
                let kept = self.segments.with(|all| {
                    let segment = all.get_mut(&(id as u32))?;
                    segment.key = 0;
                    segment.kept.take()
                });
                drop(kept);
                Ok(0)
            }
            // Whose it is, and its rights.
            SET => {
                let [owner, group, rights] =
                    [self.load_word(to + 4)?, self.load_word(to + 8)?, self.load_word(to + 20)?];
                inode.owner[0].store(owner, Ordering::Relaxed);
                inode.owner[1].store(group, Ordering::Relaxed);
                inode.mode.store(mode::FILE | rights & 0o777, Ordering::Relaxed);
                inode.modified.store(self.clock(), Ordering::Relaxed);
                Ok(0)
            }
            STATE => {
                self.may(thread, &inode, READ)?;
                self.state_of_segment(id, to)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn state_of_segment(&self, id: u64, to: u64) -> Answer {
        /// It goes when nobody shows it any more.
        const GOES: u32 = 0o1000;
        let (inode, segment) = self.segment(id)?;
        let goes = if segment.kept.is_none() { GOES } else { 0 };
        let [owner, group] = inode.owner.each_ref().map(|id| id.load(Ordering::Relaxed));
        let head = Pack::default().word(segment.key).word(owner).word(group);
        let [maker, of] = segment.maker;
        let rights = inode.mode.load(Ordering::Relaxed) & 0o777 | goes;
        let head = head.word(maker).word(of).word(rights).zeros_to(48);
        let changed = inode.modified.load(Ordering::Relaxed) / 1_000_000_000;
        let times = head.long(segment.bytes).long(segment.shown).long(segment.left).long(changed);
        let attached = self.mapped(&inode, &|_| true);
        let all = times.word(segment.made_by).word(segment.last).long(attached).zeros_to(112);
        self.machine.write_user(to, &all.0).map(|()| 0)
    }
}
