//! System calls: what they did, once they have come back.

use std::io;

use quietmm_workloads::trace::recording::{Backing, Call, Event, Pages, Rights, What};

use super::task::Pending;
use super::{Assembly, SHORTEST_SLEEP, Sink};
use crate::seen::Seen;
use crate::syscall::{MAP_ANONYMOUS, MAP_POPULATED, MAP_SHARED, Syscall, failed, pages};

/// Files that are remembered by their paths: after so many all are forgotten, and taken for others when they come again.
const MOST_FILES: usize = 1 << 18;
/// Bytes of paths that are remembered, and bytes of call stacks.
const MOST_TEXT: usize = 64 << 20;
/// The first page that is not a program's, with page tables of five levels.
const BEYOND: u64 = 1 << 44;
/// Different call stacks that are kept; further ones are not known. Memory is bounded.
const MOST_STACKS: usize = 1 << 16;

impl<S: Sink> Assembly<S> {
    pub(super) fn enter(
        &mut self,
        seen: Seen<'_>,
        call: Syscall,
        args: [u64; 6],
        path: Option<&str>,
        stack: &str,
    ) -> io::Result<()> {
        let stack = self.stack(seen, stack)?;
        let file = path.map(|path| (path.to_owned(), 0));
        let pending = Pending { call, args, since: seen.at, ran: 0, stack, away: 0, file };
        let task = self.task(seen.tid);
        let cut = task.pending.is_some();
        task.begin(pending, seen.at);
        self.odd.halves += u64::from(cut);
        Ok(())
    }

    pub(super) fn caller(&mut self, seen: Seen<'_>, stack: &str) -> io::Result<()> {
        let stack = self.stack(seen, stack)?;
        if let Some(pending) = &mut self.task(seen.tid).pending {
            pending.stack = stack;
        }
        Ok(())
    }

    pub(super) fn leave(&mut self, seen: Seen<'_>, call: Syscall, result: i64) -> io::Result<()> {
        let pending = self.task(seen.tid).pending.take();
        let Some(pending) = pending.filter(|pending| pending.call == call) else {
            // A new thread's first is the end of the call that made it; a program that was begun has one too.
            let own = call.makes_task() || matches!(call, Syscall::Execve | Syscall::Execveat);
            self.odd.halves += u64::from(!own);
            return Ok(());
        };
        if failed(result) {
            return Ok(());
        }
        let [first, second, third, fourth, ..] = pending.args;
        if pending.away >= SHORTEST_SLEEP && call != Syscall::Wait4 {
            // Other programs had its CPU: neither its own time nor the call's.
            let (at, thread) = (self.elapsed(), self.task(seen.tid).thread);
            let what = What::Sleep { ns: pending.away };
            self.sink.take(&Event { at, thread, cpu: seen.cpu, ran: 0, what })?;
        }
        let took = (seen.at - pending.since).saturating_sub(pending.away);
        let took = Call { took, stack: pending.stack };
        match call {
            Syscall::Mmap => self.mmap(seen, &pending, result as u64, took),
            Syscall::Munmap => match self.range(first, second) {
                Some(pages) => self.done(seen, &pending, What::Unmap { pages, call: took }),
                None => Ok(()),
            },
            Syscall::Mprotect | Syscall::PkeyMprotect => match self.range(first, second) {
                Some(pages) => {
                    let rights = Rights::from_bits(third);
                    self.done(seen, &pending, What::Protect { pages, rights, call: took })
                }
                None => Ok(()),
            },
            Syscall::Madvise => match (self.range(first, second), u32::try_from(third)) {
                (Some(pages), Ok(advice)) => {
                    self.done(seen, &pending, What::Advise { pages, advice, call: took })
                }
                _ => Ok(()),
            },
            Syscall::Mremap => match (self.range(first, second), self.range(result as u64, third)) {
                (Some(from), Some(to)) => self.done(seen, &pending, What::Move { from, to, call: took }),
                _ => Ok(()),
            },
            Syscall::Brk => self.brk(seen, &pending, result as u64, took),
            Syscall::Wait4 => {
                let child = i32::try_from(result).ok().and_then(|child| self.ended.get(&child));
                match child.copied() {
                    Some((child, _)) => self.emit(seen, What::Join(child)),
                    None => Ok(()),
                }
            }
            Syscall::ProcessMadvise | Syscall::Shmdt => {
                self.odd.opaque += 1;
                Ok(())
            }
            Syscall::Shmat => {
                let length = pending.file.as_ref().map_or(0, |(_, length)| *length);
                let Some(pages) = self.range(result as u64, length) else {
                    self.odd.opaque += 1;
                    return Ok(());
                };
                let file = self.file(seen, None)?;
                let rights = Rights { read: true, write: fourth & 0x1000 == 0, execute: false };
                let backing = Backing::Shared { file, offset: 0 };
                self.done(seen, &pending, What::Map { pages, rights, backing, populate: false, call: took })
            }
            Syscall::Clone
            | Syscall::Clone3
            | Syscall::Fork
            | Syscall::Vfork
            | Syscall::Execve
            | Syscall::Execveat => {
                // What they made was seen by itself. The time in the call is not the thread's own.
                self.task(seen.tid).ran_before(&pending, seen.at);
                Ok(())
            }
        }
    }

    /// The whole pages of a range; none if it is empty, or if no space has it, which is counted.
    fn range(&mut self, address: u64, length: u64) -> Option<Pages> {
        let range = pages(address, length).filter(|pages| pages.end() <= BEYOND);
        self.odd.nowhere += u64::from(range.is_none() && length > 0);
        range
    }

    /// Writes an event of a call that has ended.
    fn done(&mut self, seen: Seen<'_>, pending: &Pending, what: What<'_>) -> io::Result<()> {
        let at = self.elapsed();
        let task = self.task(seen.tid);
        let ran = task.ran_before(pending, seen.at);
        let event = Event { at, thread: task.thread, cpu: seen.cpu, ran, what };
        self.sink.take(&event)
    }

    fn mmap(&mut self, seen: Seen<'_>, pending: &Pending, address: u64, call: Call) -> io::Result<()> {
        let [_, length, prot, flags, _, offset] = pending.args;
        let Some(pages) = self.range(address, length) else { return Ok(()) };
        let named = pending.file.as_ref().map(|(path, _)| path.as_str());
        let backing = self.backing(seen, flags, offset, named)?;
        let rights = Rights::from_bits(prot);
        let populate = flags & MAP_POPULATED != 0;
        self.done(seen, pending, What::Map { pages, rights, backing, populate, call })
    }

    fn backing(
        &mut self,
        seen: Seen<'_>,
        flags: u64,
        offset: u64,
        path: Option<&str>,
    ) -> io::Result<Backing> {
        let shared = flags & MAP_SHARED != 0;
        let anonymous = flags & MAP_ANONYMOUS != 0;
        if anonymous && !shared {
            return Ok(Backing::Anonymous);
        }
        let offset = if anonymous { 0 } else { offset >> 12 };
        let file = self.file(seen, path.filter(|_| !anonymous))?;
        Ok(if shared { Backing::Shared { file, offset } } else { Backing::Private { file, offset } })
    }

    /// The number of a file; one without a name is no other's.
    fn file(&mut self, seen: Seen<'_>, path: Option<&str>) -> io::Result<u32> {
        let next = self.next_file;
        if let Some(path) = path {
            if let Some(&known) = self.files.get(path) {
                return Ok(known);
            }
            if self.files.len() >= MOST_FILES || self.texts[0] >= MOST_TEXT {
                self.files.clear();
                self.texts[0] = 0;
            }
            self.texts[0] += path.len();
            self.files.insert(path.to_owned(), next);
        }
        self.next_file += 1;
        let (at, thread) = (self.elapsed(), self.task(seen.tid).thread);
        let what = What::File(path.unwrap_or(""));
        self.sink.take(&Event { at, thread, cpu: seen.cpu, ran: 0, what })?;
        Ok(next)
    }

    fn stack(&mut self, seen: Seen<'_>, stack: &str) -> io::Result<u32> {
        if stack.is_empty() {
            return Ok(0);
        }
        if let Some(&known) = self.stacks.get(stack) {
            return Ok(known);
        }
        if self.stacks.len() >= MOST_STACKS || self.texts[1] >= MOST_TEXT {
            return Ok(0);
        }
        self.texts[1] += stack.len();
        let number = self.stacks.len() as u32 + 1;
        self.stacks.insert(stack.to_owned(), number);
        let (at, thread) = (self.elapsed(), self.task(seen.tid).thread);
        self.sink.take(&Event { at, thread, cpu: seen.cpu, ran: 0, what: What::Stack(stack) })?;
        Ok(number)
    }

    fn brk(&mut self, seen: Seen<'_>, pending: &Pending, end: u64, call: Call) -> io::Result<()> {
        if end.div_ceil(4096) > BEYOND {
            self.odd.nowhere += 1;
            return Ok(());
        }
        let space = self.task(seen.tid).space;
        let old = self.spaces[space].brk.replace(end);
        let page = |address: u64| address.div_ceil(4096);
        let Some(old) = old else { return Ok(()) };
        let (old, new) = (page(old), page(end));
        let range = Pages::new(old.min(new), old.abs_diff(new));
        match range {
            Some(pages) if new > old => {
                let rights = Rights { read: true, write: true, execute: false };
                let backing = Backing::Anonymous;
                self.done(seen, pending, What::Map { pages, rights, backing, populate: false, call })
            }
            Some(pages) => self.done(seen, pending, What::Unmap { pages, call }),
            None => Ok(()),
        }
    }

    /// The kernel says what is mapped: in a call that maps, its file; else what a new program begins with.
    #[expect(clippy::too_many_arguments, reason = "they are what the kernel says of a mapping")]
    pub(super) fn mapped(
        &mut self,
        seen: Seen<'_>,
        address: u64,
        length: u64,
        offset: u64,
        prot: u64,
        flags: u64,
        path: &str,
    ) -> io::Result<()> {
        let file = path.starts_with('/') && !path.starts_with("//");
        match &mut self.task(seen.tid).pending {
            None | Some(Pending { call: Syscall::Execve | Syscall::Execveat, .. }) => {}
            Some(pending) => {
                if matches!(pending.call, Syscall::Mmap | Syscall::Shmat) {
                    pending.file = Some((path.to_owned(), length));
                }
                return Ok(());
            }
        }
        let Some(mut pages) = pages(address, length) else { return Ok(()) };
        if path == "[stack]" {
            let stack = &mut self.spaces[self.tasks[&seen.tid].space].stack;
            // It grows downwards, and is told as a whole.
            if let Some(grown) = stack.replace(address).and_then(|old| old.checked_sub(address)) {
                let Some(new) = Pages::of_bytes(address, grown.min(length)) else { return Ok(()) };
                pages = new;
            }
        }
        if path == "[heap]" {
            let space = self.task(seen.tid).space;
            self.spaces[space].brk = Some(address + length);
        }
        let anonymous = if file { 0 } else { MAP_ANONYMOUS };
        let backing = self.backing(seen, flags & MAP_SHARED | anonymous, offset, Some(path))?;
        let (rights, call) = (Rights::from_bits(prot), Call::default());
        self.emit(seen, What::Map { pages, rights, backing, populate: false, call })
    }
}
