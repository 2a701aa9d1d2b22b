//! Shared memory by number (System V): a file without a name, that all may map.

use core::sync::atomic::Ordering;

use alloc::sync::Arc;

use crate::areas::{PAGE, What, rights};
use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::layout::Pack;
use crate::machine::Machine;
use crate::memory::{ALL, WITHIN};
use crate::process::{Mapped, Thread};
use crate::tree::{Body, Inode, mode};

/// A piece of memory by number.
pub struct Segment {
    key: u32,
    inode: Arc<Inode>,
    bytes: u64,
    made_by: u32,
}

/// How many there may be.
const MOST: usize = 4096;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn shmget(&self, thread: &Thread, key: u64, bytes: u64, flags: u64) -> Answer {
        const CREATE: u64 = 0o1000;
        const EXCLUSIVE: u64 = 0o2000;
        let key = key as u32;
        let found = self.segments.with(|all| {
            let found = all.iter().find(|(_, segment)| key != 0 && segment.key == key);
            found.map(|(&id, segment)| (id, segment.bytes))
        });
        if let Some((id, there)) = found {
            return match () {
                () if flags & CREATE != 0 && flags & EXCLUSIVE != 0 => Err(Errno::EEXIST),
                () if bytes > there => Err(Errno::EINVAL),
                () => Ok(id.into()),
            };
        }
        if key != 0 && flags & CREATE == 0 {
            return Err(Errno::ENOENT);
        }
        if bytes == 0 || bytes >> 46 != 0 {
            return Err(Errno::EINVAL);
        }
        let content = self.new_content(bytes.next_multiple_of(PAGE), None)?;
        let rights = mode::FILE | flags as u32 & 0o777;
        let inode = Inode::new(self.inode_number(), rights, self.clock(), Body::File(content));
        let made_by = thread.process.pid;
        self.segments.with(|all| {
            if all.len() >= MOST {
                return Err(Errno::ENOSPC);
            }
            let id = all.last_key_value().map_or(0, |(&id, _)| id + 1);
            all.insert(id, Segment { key, inode, bytes, made_by });
            Ok(id.into())
        })
    }

    fn segment(&self, id: u64) -> Result<(Arc<Inode>, u64, u32, u32), Errno> {
        let parts = |segment: &Segment| (segment.inode.clone(), segment.bytes, segment.key, segment.made_by);
        self.segments.with(|all| all.get(&(id as u32)).map(parts)).ok_or(Errno::EINVAL)
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
        let what = What::File { file: Mapped { inode, path: path.into() }, page: 0, shared: true };
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

    /// How often it is mapped.
    fn attached(&self, inode: &Arc<Inode>) -> u64 {
        let all: alloc::vec::Vec<_> = self
            .processes
            .with(|all| all.values().filter_map(|process| process.memory.with(|it| it.clone())).collect());
        let shows = |what: &What<Mapped>| matches!(what, What::File { file, page: 0, .. } if Arc::ptr_eq(&file.inode, inode));
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
        let (inode, bytes, key, made_by) = self.segment(id)?;
        match what {
            REMOVE => {
                let gone = self.segments.with(|all| all.remove(&(id as u32)));
                drop(gone);
                Ok(0)
            }
            SET => Ok(0),
            STATE => {
                let rights = inode.mode.load(Ordering::Relaxed) & 0o777;
                let head =
                    Pack::default().word(key).word(0).word(0).word(0).word(0).word(rights).zeros_to(48);
                let times = head
                    .long(bytes)
                    .long(0)
                    .long(0)
                    .long(inode.modified.load(Ordering::Relaxed) / 1_000_000_000);
                let all = times.word(made_by).word(made_by).long(self.attached(&inode)).zeros_to(112);
                self.machine.write_user(to, &all.0).map(|()| 0)
            }
            _ => Err(Errno::EINVAL),
        }
    }
}
