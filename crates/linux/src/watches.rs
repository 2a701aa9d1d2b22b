//! Files and directories of which somebody wants to hear what happens to them (`inotify`).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::errno::Errno;
use crate::layout::Pack;
use crate::sync::Spin;
use crate::tree::Inode;

/// What can happen.
pub mod event {
    pub const ACCESS: u32 = 1;
    pub const MODIFY: u32 = 2;
    pub const ATTRIBUTES: u32 = 4;
    pub const CLOSE_WRITTEN: u32 = 8;
    pub const CLOSE: u32 = 0x10;
    pub const OPEN: u32 = 0x20;
    pub const MOVED_FROM: u32 = 0x40;
    pub const MOVED_TO: u32 = 0x80;
    pub const CREATE: u32 = 0x100;
    pub const DELETE: u32 = 0x200;
    pub const DELETE_SELF: u32 = 0x400;
    pub const MOVE_SELF: u32 = 0x800;
    /// What happens to names in a directory.
    pub const NAMES: u32 = MOVED_FROM | MOVED_TO | CREATE | DELETE;
    /// All that can be asked for.
    pub const ALL: u32 = 0xfff;
    /// Some were lost; nothing more comes of this one.
    pub const LOST: u32 = 0x4000;
    pub const OVER: u32 = 0x8000;
    /// Of a directory.
    pub const DIRECTORY: u32 = 0x4000_0000;
}

/// How it is asked for.
pub mod ask {
    pub const ONLY_DIRECTORY: u32 = 0x0100_0000;
    pub const NO_FOLLOW: u32 = 0x0200_0000;
    /// Nothing of what has no name any more.
    pub const NAMED: u32 = 0x0400_0000;
    pub const NEW: u32 = 0x1000_0000;
    pub const ADD: u32 = 0x2000_0000;
    pub const ONCE: u32 = 0x8000_0000;
}

/// Events that wait to be read, and files that are watched, at most.
const MOST_EVENTS: usize = 4096;
const MOST: usize = 8192;

/// One that is watched, by its number.
struct Watch {
    inode: Weak<Inode>,
    mask: u32,
}

#[derive(Default)]
struct State {
    all: BTreeMap<i32, Watch>,
    last: i32,
    /// Number, event, cookie and name of each that waits.
    events: VecDeque<(i32, u32, u32, Vec<u8>)>,
}

/// What one program watches, and what it has not heard yet.
#[derive(Default)]
pub struct Watches {
    state: Spin<State>,
    /// How often something came.
    pub changes: AtomicU64,
}

fn packed((number, what, cookie, name): &(i32, u32, u32, Vec<u8>)) -> Vec<u8> {
    let len = if name.is_empty() { 0 } else { (name.len() + 1).next_multiple_of(16) };
    let head = Pack::default().word(*number as u32).word(*what).word(*cookie).word(len as u32);
    let mut all = head.0;
    all.extend_from_slice(name);
    all.resize(16 + len, 0);
    all
}

impl State {
    fn push(&mut self, number: i32, what: u32, cookie: u32, name: &[u8]) {
        let event = (number, what, cookie, name.to_vec());
        // What is the same as the last is heard once.
        if self.events.back() == Some(&event) {
            return;
        }
        match self.events.len() {
            MOST_EVENTS => {}
            len if len == MOST_EVENTS - 1 => self.events.push_back((-1, event::LOST, 0, Vec::new())),
            _ => self.events.push_back(event),
        }
    }
}

impl Watches {
    /// Watches one more, or the same otherwise; returns its number.
    ///
    /// # Errors
    /// `ENOSPC`: too many; `EEXIST`: it is watched, and was not to be.
    pub fn watch(&self, inode: &Arc<Inode>, mask: u32) -> Result<i32, Errno> {
        self.state.with(|state| {
            let same = |watch: &Watch| core::ptr::eq(watch.inode.as_ptr(), Arc::as_ptr(inode));
            if let Some((&number, watch)) = state.all.iter_mut().find(|(_, watch)| same(watch)) {
                if mask & ask::NEW != 0 {
                    return Err(Errno::EEXIST);
                }
                watch.mask = if mask & ask::ADD != 0 { watch.mask | mask } else { mask };
                return Ok(number);
            }
            if state.all.len() >= MOST {
                return Err(Errno::ENOSPC);
            }
            state.last += 1;
            state.all.insert(state.last, Watch { inode: Arc::downgrade(inode), mask });
            Ok(state.last)
        })
    }

    /// Watches it no more: that is the last that is heard of it.
    ///
    /// # Errors
    /// `EINVAL`: there is no such number.
    pub fn leave(&self, number: i32) -> Result<(), Errno> {
        self.state.with(|state| {
            state.all.remove(&number).ok_or(Errno::EINVAL)?;
            state.push(number, event::OVER, 0, b"");
            Ok::<_, Errno>(())
        })?;
        self.changes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Something has happened to a file, which has this name in that directory; says whether that is heard.
    pub fn happened(
        &self,
        inode: Option<&Arc<Inode>>,
        above: Option<(&Arc<Inode>, &[u8])>,
        what: u32,
        cookie: u32,
    ) -> bool {
        let heard = self.state.with(|state| {
            let (mut found, mut over) = (Vec::new(), Vec::new());
            for (&number, watch) in &state.all {
                let is = |inode: &Arc<Inode>| core::ptr::eq(watch.inode.as_ptr(), Arc::as_ptr(inode));
                // Nothing more comes of what is gone, whatever was asked for.
                if what & event::DELETE_SELF != 0 && inode.is_some_and(is) {
                    over.push(number);
                }
                if watch.mask & what & event::ALL == 0 {
                    continue;
                }
                if let Some((_, name)) = above.filter(|(directory, _)| is(directory)) {
                    let is_gone = what & event::NAMES == 0 && inode.is_some_and(|inode| inode.names() == 0);
                    if watch.mask & ask::NAMED != 0 && is_gone {
                        continue;
                    }
                    found.push((number, name, watch.mask));
                } else if what & event::NAMES == 0 && inode.is_some_and(is) {
                    found.push((number, &b""[..], watch.mask));
                }
            }
            for (number, name, mask) in &found {
                state.push(*number, what, cookie, name);
                if mask & ask::ONCE != 0 && !over.contains(number) {
                    over.push(*number);
                }
            }
            for number in &over {
                state.all.remove(number);
                state.push(*number, event::OVER, 0, b"");
            }
            !found.is_empty() || !over.is_empty()
        });
        if heard {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
        heard
    }

    /// A line for each that is watched, the newest first, as `/proc` has it.
    pub fn describe(&self) -> alloc::string::String {
        let all: Vec<_> = self.state.with(|state| {
            let one =
                |(&number, watch): (&i32, &Watch)| Some((number, watch.inode.upgrade()?.number, watch.mask));
            state.all.iter().rev().filter_map(one).collect()
        });
        let line = |(number, inode, mask): &(i32, u64, u32)| {
            alloc::format!(
                "inotify wd:{number:x} ino:{inode:x} sdev:0 mask:{:x} ignored_mask:0\n",
                mask & (event::ALL | ask::NAMED | ask::ONCE)
            )
        };
        all.iter().map(line).collect()
    }

    /// Whether anything waits to be read.
    pub fn any(&self) -> bool {
        self.state.with(|state| !state.events.is_empty())
    }

    /// Bytes that wait to be read.
    pub fn bytes(&self) -> usize {
        self.state.with(|state| state.events.iter().map(|event| packed(event).len()).sum())
    }

    /// As many events as fit.
    ///
    /// # Errors
    /// `EINVAL`: not even one does.
    pub fn read(&self, room: usize) -> Result<Vec<u8>, Errno> {
        self.state.with(|state| {
            let mut all = Vec::new();
            while let Some(event) = state.events.front() {
                let bytes = packed(event);
                if all.len() + bytes.len() > room {
                    if all.is_empty() {
                        return Err(Errno::EINVAL);
                    }
                    break;
                }
                all.extend(bytes);
                state.events.pop_front();
            }
            Ok(all)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_watches_a_directory_hears_the_names() {
        let watches = Watches::default();
        let (directory, file) = (Inode::directory(1, 0o755, 0), Inode::directory(2, 0o755, 0));
        assert_eq!(watches.watch(&directory, event::CREATE | event::MODIFY), Ok(1));
        assert_eq!(watches.watch(&file, event::DELETE_SELF), Ok(2));
        assert_eq!(watches.watch(&file, ask::NEW | event::OPEN), Err(Errno::EEXIST));
        assert!(watches.happened(Some(&file), Some((&directory, b"name")), event::CREATE, 0));
        assert!(!watches.happened(Some(&file), Some((&directory, b"name")), event::OPEN, 0));
        let other = Inode::directory(3, 0o755, 0);
        assert_eq!(watches.watch(&other, event::MODIFY), Ok(3));
        assert!(watches.happened(Some(&other), None, event::DELETE_SELF, 0));
        assert_eq!(watches.read(48).unwrap()[32..40], [3, 0, 0, 0, 0, 0x80, 0, 0], "that it is over");
        assert_eq!(watches.leave(3), Err(Errno::EINVAL));
        assert!(watches.happened(Some(&file), Some((&directory, b"name")), event::CREATE, 0));
        // The same twice is heard once.
        assert!(watches.happened(Some(&file), Some((&directory, b"name")), event::MODIFY, 0));
        assert!(watches.happened(Some(&file), Some((&directory, b"name")), event::MODIFY, 0));
        assert!(watches.happened(Some(&file), None, event::DELETE_SELF, 0));
        assert_eq!(watches.read(20), Err(Errno::EINVAL));
        let all = watches.read(4096).unwrap();
        assert_eq!(all.len(), 32 + 32 + 16 + 16);
        assert_eq!((&all[..8], &all[16..21]), (&[1, 0, 0, 0, 0, 1, 0, 0][..], &b"name\0"[..]));
        assert_eq!(all[80..88], [2, 0, 0, 0, 0, 0x80, 0, 0]);
        assert!(
            !watches.any()
                && watches.leave(2) == Err(Errno::EINVAL)
                && watches.leave(1) == Ok(())
                && watches.any()
        );
    }
}
