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
use crate::shared::Segment;
use crate::tree::{Body, Inode, mode};

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
            Some(match () {
                () if flags & CREATE != 0 && flags & EXCLUSIVE != 0 => Err(Errno::EEXIST),
                () if bytes > segment.bytes => Err(Errno::EINVAL),
                () => Ok(u64::from(id)),
            })
        };
        if let Some(answer) = self.segments.with(|all| find(all)) {
            return answer;
        }
        if key != 0 && flags & CREATE == 0 {
            return Err(Errno::ENOENT);
        }
        if bytes == 0 || bytes >> 46 != 0 {
            return Err(Errno::EINVAL);
        }
        let content = self.new_content(bytes.next_multiple_of(PAGE), Kept::InMemory)?;
        let rights = mode::FILE | flags as u32 & 0o777;
        let inode = Inode::new(self.inode_number(), rights, self.clock(), Body::File(content));
        let made_by = thread.process.pid;
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
            all.insert(
                id,
                Segment { key, inode: Arc::downgrade(&inode), kept: Some(inode.clone()), bytes, made_by },
            );
            Ok(id.into())
        })
    }

    fn segment(&self, id: u64) -> Result<(Arc<Inode>, u64, u32, u32), Errno> {
        let parts =
            |segment: &Segment| Some((segment.inode.upgrade()?, segment.bytes, segment.key, segment.made_by));
        self.segments.with(|all| all.get(&(id as u32)).and_then(parts)).ok_or(Errno::EINVAL)
    }

    pub(crate) fn shmat(&self, thread: &Thread, id: u64, at: u64, flags: u64) -> Answer {
        const READ_ONLY: u64 = 0o10000;
        const ROUND: u64 = 0o20000;
        const REPLACE: u64 = 0o40000;
        let (inode, bytes, key, _) = self.segment(id)?;
        let bytes = bytes.next_multiple_of(PAGE);
        let at = if flags & ROUND != 0 { at & !(PAGE - 1) } else { at };
        if !at.is_multiple_of(PAGE) || at == 0 && flags & REPLACE != 0 {
            return Err(Errno::EINVAL);
        }
        let of = if flags & READ_ONLY != 0 { rights::READ } else { rights::READ | rights::WRITE };
        let path = alloc::format!("/SYSV{key:08x} (deleted)").into_bytes();
        let may_write = flags & READ_ONLY == 0;
        let file = Mapped { inode, path: path.into(), may_write };
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

    pub(crate) fn shmctl(&self, id: u64, what: u64, to: u64) -> Answer {
        const REMOVE: u64 = 0;
        const SET: u64 = 1;
        const STATE: u64 = 2;
        /// It goes when nobody shows it any more.
        const GOES: u32 = 0o1000;
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
                return self.shmctl(id.into(), STATE, to).map(|_| id.into());
            }
            _ => {}
        }
        let (inode, bytes, key, made_by) = self.segment(id)?;
        match what {
            REMOVE => {
                let kept = self.segments.with(|all| {
                    let segment = all.get_mut(&(id as u32))?;
                    segment.key = 0;
                    segment.kept.take()
                });
                drop(kept);
                Ok(0)
            }
            SET => Ok(0),
            STATE => {
                let goes =
                    self.segments.with(|all| all.get(&(id as u32)).is_some_and(|it| it.kept.is_none()));
                let rights = inode.mode.load(Ordering::Relaxed) & 0o777 | if goes { GOES } else { 0 };
                let head =
                    Pack::default().word(key).word(0).word(0).word(0).word(0).word(rights).zeros_to(48);
                let times = head
                    .long(bytes)
                    .long(0)
                    .long(0)
                    .long(inode.modified.load(Ordering::Relaxed) / 1_000_000_000);
                let attached = self.mapped(&inode, &|_| true);
                let all = times.word(made_by).word(made_by).long(attached).zeros_to(112);
                self.machine.write_user(to, &all.0).map(|()| 0)
            }
            _ => Err(Errno::EINVAL),
        }
    }
}
