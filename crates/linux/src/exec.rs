//! A program comes into a space of its own.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use quietmm::SpaceId;

use crate::areas::{PAGE, What, rights};
use crate::elf::{self, Header, Plan};
use crate::errno::Errno;
use crate::frame::Frame;
use crate::kernel::Linux;
use crate::machine::Machine;
use crate::memory::WITHIN;
use crate::process::{Layout, Mapped, Memory, Owner, Thread};
use crate::signal::Action;
use crate::start::{self, Aux};
use crate::tree::Inode;
use crate::uses::{How, Use};

/// Where the stack ends, and how long it may become.
const STACK_END: u64 = 0x7fff_ffff_f000;
pub(crate) const STACK: u64 = 8 << 20;
/// Whatever the limit says: arguments fit, and it ends above what is mapped by `mmap`.
const LEAST_STACK: u64 = start::MOST as u64 + (1 << 20);
const MOST_STACK: u64 = 120 << 20;
/// Where a program lies that may lie anywhere.
const ANYWHERE: u64 = 0x5555_5555_4000;
/// Bytes of a file that may say that it is a script.
const LINE: usize = 256;
/// Scripts that name scripts.
const DEEPEST: u32 = 5;

/// A file that is read as a program.
struct Program {
    inode: Arc<Inode>,
    /// Nobody writes to it meanwhile.
    runs: Use,
    path: Vec<u8>,
    header: Header,
    plan: Plan,
}

/// What is to be run.
pub(crate) struct Named {
    /// The path at which it is.
    pub path: Vec<u8>,
    /// What it is told it is called.
    pub name: Vec<u8>,
    /// The descriptor by which it is named is closed when another program runs: who would read it as a script does not find it.
    pub is_lost: bool,
}

impl Named {
    pub fn by_path(path: Vec<u8>) -> Named {
        Named { name: path.clone(), path, is_lost: false }
    }
}

impl<M: Machine> Linux<'_, M> {
    fn read_exact(&self, inode: &Inode, at: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
        let file = inode.file().ok_or(Errno::EACCES)?;
        let mut buffer = alloc::vec![0; bytes];
        let mut done = 0;
        while done < bytes {
            match self.mm.file(file).read(at + done as u64, &mut buffer[done..])? {
                0 => return Err(Errno::ENOEXEC),
                more => done += more,
            }
        }
        Ok(buffer)
    }

    fn read_program(&self, inode: Arc<Inode>, path: &[u8]) -> Result<Program, Errno> {
        let file = inode.file().ok_or(Errno::EACCES)?;
        let runs = Use::begin(&inode, How::Runs)?;
        let header = Header::parse(&self.read_exact(&inode, 0, elf::HEADER)?)?;
        let table = self.read_exact(&inode, header.table, header.count * elf::ENTRY)?;
        let plan = elf::plan(&header, &table, self.file_len(file))?;
        Ok(Program { inode, runs, path: path.to_vec(), header, plan })
    }

    /// A file that may be run, and the path at which it lies.
    fn find_program(&self, thread: &Thread, path: &[u8]) -> Result<(Arc<Inode>, Vec<u8>), Errno> {
        let found = self.walk(thread, None, path, true)?;
        let whole = crate::path::whole(&found);
        let mut inode = found.inode.ok_or(Errno::ENOENT)?;
        if let crate::tree::Body::Opened(number) = inode.body {
            inode = self.opened(thread, &inode, number)?.inode().cloned().ok_or(Errno::EACCES)?;
        }
        let mode = inode.mode.load(Ordering::Relaxed);
        if inode.is_directory() || mode & 0o111 == 0 {
            return Err(Errno::EACCES);
        }
        self.may(thread, &inode, crate::rights::EXECUTE).map(|()| (inode, whole))
    }

    /// Maps a program; returns how far from where it says it lies, and the parts of pages behind its files' ends that are to
    /// be zeros.
    fn load(
        &self,
        space: SpaceId,
        layout: &mut Layout,
        program: &Program,
        low: bool,
    ) -> Result<(u64, Vec<(u64, u64)>), Errno> {
        let (first, end) = program.plan.bounds();
        let bias = match program.header.anywhere {
            false => 0,
            true if low => ANYWHERE,
            true => layout.areas.find_free(end - first, &WITHIN).ok_or(Errno::ENOMEM)? - first,
        };
        let mut clear = Vec::new();
        for segment in &program.plan.segments {
            let start = segment.at & !(PAGE - 1);
            let (file_end, end) = (segment.at + segment.bytes, segment.at + segment.room);
            let mapped = if segment.bytes > 0 { file_end.next_multiple_of(PAGE) } else { start };
            let write = if segment.write { rights::WRITE } else { 0 };
            let execute = if segment.execute { rights::EXECUTE } else { 0 };
            let of = rights::READ | write | execute;
            let file = Mapped {
                inode: program.inode.clone(),
                path: program.path.as_slice().into(),
                may_write: true,
            };
            if mapped > start {
                let page = (segment.offset - (segment.at - start)) / PAGE;
                let what = What::File { file, page, shared: false };
                self.map(space, layout, start + bias..mapped + bias, of, what)?;
            }
            if end.next_multiple_of(PAGE) > mapped {
                self.map(space, layout, mapped + bias..end.next_multiple_of(PAGE) + bias, of, What::Own(""))?;
            }
            if end > file_end && segment.write && segment.bytes > 0 {
                // To the end of the page: loaders take what follows for their own first memory.
                clear.push((file_end + bias, mapped + bias));
            }
        }
        Ok((bias, clear))
    }

    /// Whom a program acts as that this thread runs.
    fn owner_of_program(thread: &Thread, inode: &Inode) -> Owner {
        let mode = inode.mode.load(Ordering::Relaxed);
        let of = [0, 1].map(|which| inode.owner[which].load(Ordering::Relaxed));
        let mut owner = thread.process.owner.with(|owner| owner.clone());
        let is_bound = thread.process.said.no_gain.load(Ordering::SeqCst);
        // Whoever traces it would lead a program that may do more.
        if !is_bound && (!thread.traced.is() || owner.is_root()) {
            owner.acts_by_marks(mode, of);
        }
        owner.rights_of_program();
        owner
    }

    /// Puts another program in place of the one that runs.
    ///
    /// # Errors
    /// Then the old one goes on.
    pub(crate) fn exec(
        &self,
        thread: &Arc<Thread>,
        frame: &mut Frame,
        named: Named,
        mut arguments: Vec<Vec<u8>>,
        environment: Vec<Vec<u8>>,
    ) -> Result<(), Errno> {
        let Named { mut path, name: first_path, is_lost } = named;
        // A program finds its name at least.
        if arguments.is_empty() {
            arguments.push(Vec::new());
        }
        let mut depth = 0;
        let program = loop {
            let (inode, whole) = self.find_program(thread, &path)?;
            let mut first = [0; LINE];
            let file = inode.file().ok_or(Errno::EACCES)?;
            // Also of a script.
            let _runs = Use::begin(&inode, How::Runs)?;
            let read = self.mm.file(file).read(0, &mut first)?;
            let Some((interpreter, argument)) = script(&first[..read])? else {
                break self.read_program(inode, &whole)?;
            };
            if is_lost {
                return Err(Errno::ENOENT);
            }
            depth += 1;
            if depth > DEEPEST {
                return Err(Errno::ELOOP);
            }
            let rest = arguments.drain(..).skip(1).collect::<Vec<_>>();
            arguments.push(interpreter.clone());
            arguments.extend(argument);
            arguments.push(if depth == 1 { first_path.clone() } else { path });
            arguments.extend(rest);
            path = interpreter;
        };
        let interpreter = match program.plan.interpreter {
            None => None,
            Some((at, bytes)) => {
                let mut name = self.read_exact(&program.inode, at, bytes)?;
                if name.pop() != Some(0) {
                    return Err(Errno::ENOEXEC);
                }
                let (inode, whole) = self.find_program(thread, &name)?;
                if self.file_len(inode.file().ok_or(Errno::EACCES)?) < elf::HEADER as u64 {
                    return Err(Errno::EIO);
                }
                let read = self.read_program(inode, &whole);
                Some(read.map_err(|error| if error == Errno::ENOEXEC { Errno::ELIBBAD } else { error })?)
            }
        };
        let room = thread.process.limits.with(|limits| limits[crate::process::limit::STACK][0]);
        let room = room.clamp(LEAST_STACK, MOST_STACK).next_multiple_of(PAGE);
        let space = self.mm.create_space()?;
        let mut layout = Layout::default();
        let loaded = self.prepare(space, &mut layout, &program, interpreter.as_ref(), room);
        let (biases, clear) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                drop(layout);
                self.left.add(crate::left::Leaving::Space(space));
                return Err(error);
            }
        };
        let (bias, base) = biases;
        let owner = Self::owner_of_program(thread, &program.inode);
        let (users, groups) = (owner.users, owner.groups);
        let aux = [
            (Aux::Hardware, 0x078b_fbff),
            (Aux::PageBytes, PAGE),
            (Aux::Ticks, 100),
            (Aux::Table, program.plan.table + bias),
            (Aux::EntryBytes, elf::ENTRY as u64),
            (Aux::Entries, program.header.count as u64),
            (Aux::Base, base),
            (Aux::Entry, program.header.entry + bias),
            (Aux::User, users[0].into()),
            (Aux::EffectiveUser, users[1].into()),
            (Aux::Group, groups[0].into()),
            (Aux::EffectiveGroup, groups[1].into()),
            (Aux::Secure, owner.acts_as_another().into()),
        ];
        let mut random = [0; 16];
        random[..8].copy_from_slice(&self.random().to_le_bytes());
        random[8..].copy_from_slice(&self.random().to_le_bytes());
        let stack = start::pack(STACK_END, &arguments, &environment, &first_path, random, &aux)
            .inspect_err(|_| self.left.add(crate::left::Leaving::Space(space)))?;
        layout.heap = program.plan.bounds().1 + bias;
        layout.heap_end = layout.heap;
        layout.runs = Some(program.runs.clone());
        self.alone(thread).inspect_err(|_| self.left.add(crate::left::Leaving::Space(space)))?;

        self.leave_memory(thread);

        // From here on there is no way back.
        let process = &thread.process;
        process.owner.with(|now| *now = owner);
        let memory = Memory::new(space, layout, &self.left);
        let old = process.memory.with(|memory_now| memory_now.replace(memory));
        self.machine.enter_space(Some(space));
        if let Some(old) = old {
            self.leaves_space(process, &old);
        }
        self.settle();
        let entry = interpreter.as_ref().map_or(program.header.entry + bias, |it| it.header.entry + base);
        *frame = Frame::begin(entry, stack.pointer);
        frame.tame();
        let zeros = [0; PAGE as usize];
        let cleared = clear
            .iter()
            .all(|&(from, to)| self.machine.write_user(from, &zeros[..(to - from) as usize]).is_ok());
        if !cleared || self.machine.write_user(stack.pointer, &stack.bytes).is_err() {
            process.die(crate::signal::number::SEGMENT);
        }
        thread.fs.store(0, Ordering::Relaxed);
        self.machine.set_fs(0);
        process.timers.with(alloc::collections::BTreeMap::clear);
        thread.stack.with(|stack| *stack = None);
        process.actions.with(|actions| {
            // What is ignored stays so.
            *actions =
                actions.map(|action| Action { handler: u64::from(action.handler == 1), ..Action::default() });
        });
        process.files.unshare();
        let closed = process.files.with(crate::open::Files::take_for_exec);
        closed.into_iter().for_each(|open| self.closed(thread, open));
        let name = first_path.rsplit(|&byte| byte == b'/').next().unwrap_or(&first_path);
        process.place.with(|place| {
            place.name = name[..name.len().min(15)].to_vec();
            place.executable.clone_from(&program.path);
            (place.arguments, place.environment) = (stack.arguments, stack.environment);
            place.auxiliary = stack.aux;
        });
        self.no_longer_borrows(process);
        Ok(())
    }

    #[allow(clippy::type_complexity)]
    fn prepare(
        &self,
        space: SpaceId,
        layout: &mut Layout,
        program: &Program,
        interpreter: Option<&Program>,
        room: u64,
    ) -> Result<((u64, u64), Vec<(u64, u64)>), Errno> {
        let stack = STACK_END - room..STACK_END;
        let execute = if program.plan.stack_execute { rights::EXECUTE } else { 0 };
        let of = rights::READ | rights::WRITE | rights::GROWS | execute;
        self.map(space, layout, stack, of, What::Own("[stack]"))?;
        let (bias, mut clear) = self.load(space, layout, program, true)?;
        let base = match interpreter {
            None => 0,
            Some(interpreter) => {
                let (base, more) = self.load(space, layout, interpreter, false)?;
                clear.extend(more);
                base
            }
        };
        Ok(((bias, base), clear))
    }

    /// All other threads of the process end.
    ///
    /// # Errors
    /// `EINTR` if this one is to end: another one was first, or a signal was.
    fn alone(&self, thread: &Arc<Thread>) -> Result<(), Errno> {
        let process = &thread.process;
        loop {
            let all = process.threads.with(|threads| {
                // In one step, so that of two only one goes on; each time, since one that dies may have made another.
                if thread.is_dying() {
                    return None;
                }
                let others = threads.iter().filter(|other| !Arc::ptr_eq(other, thread));
                others.for_each(|other| other.dying.store(true, Ordering::SeqCst));
                Some(threads.len())
            });
            match all {
                None => return Err(Errno::EINTR),
                Some(1) => return Ok(()),
                Some(_) => {}
            }
            self.nudge(process);
            self.nap(100_000);
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// A line without blanks before and behind; other bytes that are not seen are a part of it.
fn without_blanks(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|&byte| !is_blank(byte)).unwrap_or(line.len());
    let end = line.iter().rposition(|&byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &line[start..end]
}

/// A script: its interpreter, and the argument that stands behind it.
#[allow(clippy::type_complexity)]
fn script(first: &[u8]) -> Result<Option<(Vec<u8>, Option<Vec<u8>>)>, Errno> {
    let Some(rest) = first.strip_prefix(b"#!") else { return Ok(None) };
    let end = rest.iter().position(|&byte| byte == b'\n');
    let line = without_blanks(&rest[..end.unwrap_or(rest.len())]);
    let split = line.iter().position(|&byte| is_blank(byte));
    // A name that goes on where nobody has read is not one.
    let is_cut =
        end.is_none() && first.len() == LINE && !rest.trim_ascii_start().iter().any(|&byte| is_blank(byte));
    let split = split.unwrap_or(line.len());
    let (name, argument) = (line[..split].to_vec(), without_blanks(&line[split..]));
    if name.is_empty() || is_cut {
        return Err(Errno::ENOEXEC);
    }
    Ok(Some((name, (!argument.is_empty()).then(|| argument.to_vec()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_its_interpreter() {
        let of = |text: &str| script(text.as_bytes());
        assert_eq!(of("\x7fELF"), Ok(None));
        assert_eq!(of("#!/bin/sh\necho"), Ok(Some((b"/bin/sh".to_vec(), None))));
        assert_eq!(
            of("#! /usr/bin/env  python3 -u \nx"),
            Ok(Some((b"/usr/bin/env".to_vec(), Some(b"python3 -u".to_vec()))))
        );
        assert_eq!(of("#!\n"), Err(Errno::ENOEXEC));
        assert_eq!(of("#!/bin/sh\r\n"), Ok(Some((b"/bin/sh\r".to_vec(), None))));
        let name = "x".repeat(LINE - 2);
        let (long, fits) = (alloc::format!("#!{name}"), alloc::format!("#!{}", &name[1..]));
        assert_eq!(of(&long), Err(Errno::ENOEXEC));
        let ends = alloc::format!("#!{}{}", &name[40..], " ".repeat(40));
        assert_eq!(of(&ends), Ok(Some((name.as_bytes()[40..].to_vec(), None))));
        assert_eq!(of(&fits), Ok(Some((name.as_bytes()[1..].to_vec(), None))));
    }
}
