//! What a directory lists.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::open::Kind;
use crate::process::Thread;
use crate::procfs::{SHOWN, threads_of};
use crate::tree::{Body, FIRST_PLACE, Inode, Named};

impl<M: Machine> Linux<'_, M> {
    /// The names of processes in a directory behind a place, if it is the one where they are.
    fn numbers_behind(&self, directory: &Arc<Inode>, place: u64, most: usize) -> Vec<Named> {
        /// Their places come behind all others.
        const FIRST: u64 = 1 << 40;
        let named_by = |below: fn(u32) -> u64| {
            move |number: u32| {
                let inode = Inode::made(below(number), directory, Vec::new());
                (FIRST + u64::from(number), number.to_string().into_bytes(), inode)
            }
        };
        let last = (place.max(FIRST) - FIRST).min(u32::MAX.into()) as u32;
        if let Some(pid) = threads_of(directory) {
            let tids = self.tids_behind(pid, last, most);
            return tids.into_iter().map(named_by(|tid| SHOWN | u64::from(tid) << 8 | 0xff)).collect();
        }
        let proc = self.root.get(b"proc").ok().flatten();
        if proc.is_none_or(|proc| !Arc::ptr_eq(&proc, directory)) {
            return Vec::new();
        }
        let next = last.saturating_add(1);
        let pids: Vec<u32> =
            self.processes.with(|all| all.range(next..).map(|(&pid, _)| pid).take(most).collect());
        pids.into_iter().map(named_by(|pid| SHOWN | u64::from(pid) << 8)).collect()
    }

    /// Names in a directory. In the old form their kind stands behind them.
    pub(crate) fn getdents(&self, thread: &Thread, number: u64, to: u64, bytes: u64, old: bool) -> Answer {
        let open = self.open_used(thread, number)?;
        let Kind::Directory(directory) = &open.kind else { return Err(Errno::ENOTDIR) };
        if directory.is_gone() && !crate::procfs::is_made_up(directory) {
            return Err(Errno::ENOENT);
        }
        open.offset.with(self.machine, |offset| {
            // No more names at a time than there is memory for, however many there are; no room is less than none.
            let bytes = usize::try_from(bytes as i32).unwrap_or(0).min(self.piece());
            let most = bytes / 24 + 1;
            let parent = directory.parent().unwrap_or_else(|| directory.clone());
            let dots = [(1, b".".to_vec(), directory.clone()), (2, b"..".to_vec(), parent)];
            let listed = match &directory.body {
                Body::OpenFiles(_) => {
                    let pid = crate::procfs::process_of(directory).unwrap_or(thread.process.pid);
                    let process = self.processes.with(|all| all.get(&pid).cloned()).ok_or(Errno::ENOENT)?;
                    let numbers = process.files.with(|files| files.numbers());
                    let tells = crate::procfs::tells_of(directory).is_some();
                    let inode =
                        |n| if tells { crate::procfs::told(pid, n) } else { Inode::opened_by(pid, n) };
                    let named = |n: u64| (FIRST_PLACE + n, n.to_string().into_bytes(), inode(n));
                    let left = numbers.into_iter().filter(|n| FIRST_PLACE + n > *offset);
                    left.take(most).map(named).collect()
                }
                _ => {
                    let mut all = directory.behind(*offset, most)?;
                    all.extend(self.numbers_behind(directory, *offset, most));
                    all
                }
            };
            let all = dots.into_iter().chain(listed);
            let mut out: Vec<u8> = Vec::new();
            let mut ends = Vec::new();
            for (place, name, inode) in all.filter(|&(place, ..)| place > *offset) {
                let len = (19 + name.len() + 1).next_multiple_of(8);
                if out.len() + len > bytes {
                    if out.is_empty() {
                        return Err(Errno::EINVAL);
                    }
                    break;
                }
                let start = out.len();
                out.extend(inode.number.to_le_bytes());
                out.extend(place.to_le_bytes());
                out.extend((len as u16).to_le_bytes());
                let kind = (inode.mode.load(Ordering::Relaxed) >> 12) as u8;
                if !old {
                    out.push(kind);
                }
                out.extend_from_slice(&name);
                out.resize(start + len, 0);
                if old {
                    out[start + len - 1] = kind;
                }
                ends.push((out.len(), place));
            }
            // As many names as can be written, whole.
            let is_written = |&&(end, _): &&(usize, u64)| self.machine.write_user(to, &out[..end]).is_ok();
            let (done, place_now) = match ends.iter().rev().find(is_written) {
                Some(&last) => last,
                None if ends.is_empty() => (0, *offset),
                None => return Err(Errno::EFAULT),
            };
            directory.note_read(self.clock());
            *offset = place_now;
            Ok(done as u64)
        })
    }
}
