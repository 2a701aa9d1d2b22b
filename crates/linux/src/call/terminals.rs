//! Calls about terminals: who opens them, whose they are, and what is set. What is typed and printed is in `terminal.rs`.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::transfer::Load;
use crate::announced::Meant;
use crate::capabilities::HANGS_UP;
use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::machine::Machine;
use crate::open::{Kind, Open, flag};
use crate::pipe::Done;
use crate::process::{Process, Thread};
use crate::signal::{Info, bit, number};
use crate::sync::key_of;
use crate::terminal::{OLD, SETTINGS, Side, Terminal, WITH_SPEEDS, local};
use crate::tree::{Body, Inode, mode};

/// Terminals at a time.
const MOST: u32 = 4096;
/// The group that may write in `/dev/pts`.
const GROUP: u32 = 5;

impl<M: Machine> Linux<'_, M> {
    /// Somebody wants a terminal: the master of a new one.
    pub(super) fn open_master(&self, thread: &Thread, inode: &Arc<Inode>) -> Result<Kind, Errno> {
        let (terminal, master) = self.terminals.with(|all| {
            let number = (0..MOST).find(|number| !all.contains_key(number)).ok_or(Errno::ENOSPC)?;
            let (terminal, master) = Terminal::new(number, &self.left);
            all.insert(number, terminal.clone());
            Ok::<_, Errno>((terminal, master))
        })?;
        let body = Body::Terminal(terminal.clone());
        let slave = Inode::new(self.inode_number(), mode::DEVICE | 0o620, self.clock(), body);
        let user = thread.process.owner.with(|owner| owner.users[3]);
        slave.owner[0].store(user, Ordering::Relaxed);
        slave.owner[1].store(GROUP, Ordering::Relaxed);
        let name = alloc::format!("{}", terminal.number);
        // Somebody may have given the name away; then the terminal is found by its master alone.
        let _ = self.directories(b"dev/pts").put(name.as_bytes(), slave);
        Ok(Kind::Master(master, inode.clone()))
    }

    /// A program's side of a terminal.
    pub(super) fn open_slave(
        &self,
        thread: &Thread,
        terminal: &Arc<Terminal>,
        inode: &Arc<Inode>,
        flags: u32,
    ) -> Result<Kind, Errno> {
        const NOT_MINE: u32 = 0o400;
        if terminal.is_over() || terminal.locked.load(Ordering::SeqCst) {
            return Err(Errno::EIO);
        }
        let side = terminal.slave();
        let process = &thread.process;
        let leads = process.session.load(Ordering::Relaxed) == process.pid;
        let has_one = process.terminal.with(|own| own.is_some());
        if flags & NOT_MINE == 0 && leads && !has_one && terminal.owners().1 == 0 {
            self.take_terminal(process, terminal);
        }
        Ok(Kind::Slave(side, inode.clone()))
    }

    /// The terminal of the process that asks.
    pub(super) fn own_terminal(&self, thread: &Thread) -> Result<(Arc<Terminal>, Arc<Inode>), Errno> {
        let own = thread.process.terminal.with(|own| own.clone()).ok_or(Errno::ENXIO)?;
        let name = alloc::format!("{}", own.number);
        let inode = self.directories(b"dev/pts").get(name.as_bytes())?.ok_or(Errno::EIO)?;
        Ok((own, inode))
    }

    /// A process that leads a session has a terminal from now on, unless somebody else has it; says which.
    fn take_terminal(&self, process: &Arc<Process>, terminal: &Arc<Terminal>) -> bool {
        let taken = terminal.change_owners((0, 0), (process.group.load(Ordering::Relaxed), process.pid));
        if taken {
            process.terminal.with(|own| *own = Some(terminal.clone()));
        }
        taken
    }

    fn signal_group(&self, group: u32, signal: u32) {
        if group == 0 {
            return;
        }
        let info = Info { signal, code: 128, ..Info::default() };
        self.send_to_all(Meant::Group(group), None, info, |process| {
            if process.ended.load(Ordering::SeqCst) == 0 {
                self.post(process, None, info);
            }
        });
    }

    /// Nobody of a session has this terminal any more.
    fn free_terminal(&self, terminal: &Arc<Terminal>) {
        terminal.set_owners(0, 0);
        let all: alloc::vec::Vec<_> = self.processes.with(|all| all.values().cloned().collect());
        for process in all {
            let is_it = |own: &Arc<Terminal>| Arc::ptr_eq(own, terminal);
            let gone =
                process.terminal.with(|own| if own.as_ref().is_some_and(is_it) { own.take() } else { None });
            drop(gone);
        }
    }

    /// The master of a terminal is gone: whose it was hears of it, and who waits finds its end.
    pub(crate) fn terminal_over(&self, number: u32) {
        let Some(terminal) = self.terminals.with(|all| all.get(&number).cloned()) else { return };
        let directory = self.directories(b"dev/pts");
        let name = alloc::format!("{number}");
        let is_it =
            |inode: Arc<Inode>| matches!(&inode.body, Body::Terminal(its) if Arc::ptr_eq(its, &terminal));
        if directory.get(name.as_bytes()).ok().flatten().is_some_and(is_it) {
            let _ = directory.take(name.as_bytes(), false);
        }
        // Only now: whoever gets the number next finds the name free.
        drop(self.terminals.with(|all| all.remove(&number)));
        let (group, session) = terminal.owners();
        self.tell_leader(session);
        if group != session {
            self.signal_group(group, number::HANG_UP);
        }
        self.free_terminal(&terminal);
        self.changed(key_of(&*terminal));
    }

    /// Who leads a session hears that its terminal is gone.
    fn tell_leader(&self, session: u32) {
        let leader = self.processes.with(|all| all.get(&session).cloned());
        let leads = |leader: &Arc<Process>| leader.session.load(Ordering::Relaxed) == leader.pid;
        let lives = |leader: &Arc<Process>| leader.ended.load(Ordering::SeqCst) == 0;
        if let Some(leader) = leader.filter(|leader| leads(leader) && lives(leader)) {
            self.kill(&leader, number::HANG_UP);
            self.kill(&leader, number::CONTINUE);
        }
    }

    /// `vhangup`: whoever has the process's terminal open has it no more, and its session has none.
    pub(super) fn hang_up(&self, thread: &Thread) -> Answer {
        if !thread.process.owner.with(|owner| owner.may(HANGS_UP)) {
            return Err(Errno::EPERM);
        }
        if let Some(terminal) = thread.process.terminal.with(|own| own.clone()) {
            self.tell_leader(terminal.owners().1);
            self.free_terminal(&terminal);
            terminal.hang_up();
            self.changed(key_of(&*terminal));
        }
        Ok(0)
    }

    /// Who leads a session ends, or lets its terminal go.
    pub(crate) fn leaves_terminal(&self, process: &Process, ends: bool) {
        let Some(terminal) = process.terminal.with(Option::take) else { return };
        let (group, session) = terminal.owners();
        if session != process.pid {
            return;
        }
        self.signal_group(group, number::HANG_UP);
        if !ends {
            self.signal_group(group, number::CONTINUE);
        }
        self.free_terminal(&terminal);
    }

    /// Whether a process may use its terminal now; if not it is told to stop, or may not for ever.
    fn in_front(&self, thread: &Thread, terminal: &Arc<Terminal>, signal: u32) -> Result<(), Errno> {
        let process = &thread.process;
        let is_own = process.terminal.with(|own| own.as_ref().is_some_and(|own| Arc::ptr_eq(own, terminal)));
        let group = process.group.load(Ordering::Relaxed);
        let front = terminal.owners().0;
        if !is_own || front == 0 || front == group {
            return Ok(());
        }
        let deaf =
            thread.mask.load(Ordering::SeqCst) & bit(signal) != 0 || process.action(signal).handler == 1;
        if deaf || self.is_orphaned(process) {
            // Whoever does not hear it may write and set, but not read.
            return if signal == number::TERMINAL_IN || !deaf { Err(Errno::EIO) } else { Ok(()) };
        }
        self.signal_group(group, signal);
        Err(AGAIN)
    }

    pub(super) fn read_slave(
        &self,
        thread: &Thread,
        open: &Open,
        side: &Side,
        to: u64,
        bytes: u64,
    ) -> Answer {
        let terminal = &side.terminal;
        self.in_front(thread, terminal, number::TERMINAL_IN)?;
        let mut buffer = alloc::vec![0; (bytes as usize).min(self.piece())];
        let settings = terminal.settings();
        let (least, time) = settings.least();
        let lines = settings.local(local::LINES);
        let mut count = 0;
        loop {
            // Without lines: at once if no byte is waited for; with a time, so long after each byte.
            let at_once = !lines && least == 0 && time == 0;
            let until =
                (!lines && time > 0 && (least == 0 || count > 0)).then(|| self.now().saturating_add(time));
            let mut done = Done::Wait;
            let mut look = || {
                if side.is_over() {
                    done = Done::Bytes(0);
                    return true;
                }
                done = terminal.read(&mut buffer[count..], at_once);
                done != Done::Wait
            };
            if !look() {
                if open.has(flag::NO_WAIT) {
                    return if count > 0 { self.hand_over(to, &buffer[..count]) } else { Err(Errno::EAGAIN) };
                }
                match self.wait(thread, key_of(&**terminal), until, look) {
                    Waited::Ready => {}
                    Waited::Late => break,
                    Waited::Interrupted if count > 0 => break,
                    Waited::Interrupted => return Err(AGAIN),
                }
            }
            let Done::Bytes(got) = done else { break };
            count += got;
            self.changed(key_of(&**terminal));
            if got == 0 || lines || count >= least.min(buffer.len()) {
                break;
            }
        }
        self.hand_over(to, &buffer[..count])
    }

    fn hand_over(&self, to: u64, bytes: &[u8]) -> Answer {
        self.machine.write_user(to, bytes)?;
        Ok(bytes.len() as u64)
    }

    pub(super) fn read_master(
        &self,
        thread: &Thread,
        open: &Open,
        terminal: &Arc<Terminal>,
        to: u64,
        bytes: u64,
    ) -> Answer {
        let mut buffer = alloc::vec![0; (bytes as usize).min(self.piece())];
        let mut done = Done::Wait;
        let mut left = false;
        // The byte before it, of which a buffer of one is full.
        let head = usize::from(terminal.packets.load(Ordering::SeqCst) && !buffer.is_empty());
        let mut look = || {
            // Before the look: who prints last, prints before they close.
            left = terminal.is_left();
            done = match &mut buffer[head..] {
                [] if head == 1 && !terminal.master_ready().0 => Done::Wait,
                rest => terminal.printed(rest),
            };
            done != Done::Wait || left
        };
        if !look() {
            if open.has(flag::NO_WAIT) {
                return Err(Errno::EAGAIN);
            }
            if self.wait(thread, key_of(&**terminal), None, look) != Waited::Ready {
                return Err(AGAIN);
            }
        }
        let Done::Bytes(count) = done else { return Err(Errno::EIO) };
        let count = count + head;
        self.changed(key_of(&**terminal));
        self.hand_over(to, &buffer[..count])
    }

    pub(super) fn write_slave(
        &self,
        thread: &Thread,
        open: &Open,
        side: &Side,
        bytes: u64,
        load: &Load<'_>,
    ) -> Answer {
        let terminal = &side.terminal;
        if terminal.settings().local(local::STOP_WRITERS) {
            self.in_front(thread, terminal, number::TERMINAL_OUT)?;
        }
        self.write_terminal(thread, open, terminal, bytes, load, |piece| {
            if side.is_over() { Err(Errno::EIO) } else { Ok(terminal.print(piece)) }
        })
    }

    pub(super) fn write_master(
        &self,
        thread: &Thread,
        open: &Open,
        terminal: &Arc<Terminal>,
        bytes: u64,
        load: &Load<'_>,
    ) -> Answer {
        self.write_terminal(thread, open, terminal, bytes, load, |piece| {
            let (done, signals) = terminal.type_in(piece);
            let front = terminal.owners().0;
            signals.into_iter().for_each(|signal| self.signal_group(front, signal));
            Ok(done)
        })
    }

    fn write_terminal(
        &self,
        thread: &Thread,
        open: &Open,
        terminal: &Arc<Terminal>,
        bytes: u64,
        load: &Load<'_>,
        mut put: impl FnMut(&[u8]) -> Result<Done, Errno>,
    ) -> Answer {
        let mut buffer = [0; 1024];
        let mut done = 0;
        if bytes > 0 && !self.machine.has_room(0) {
            return Err(Errno::ENOMEM);
        }
        while done < bytes && !thread.is_dying() {
            let len = (bytes - done).min(1024) as usize;
            match load(done, &mut buffer[..len]) {
                Ok(()) => {}
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            let mut how = put(&buffer[..len]);
            if how == Ok(Done::Wait) {
                if open.has(flag::NO_WAIT) {
                    return if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) };
                }
                // What it means may be signals, which are sent outside the wait.
                let ready = || match &open.kind {
                    Kind::Master(..) => terminal.master_ready().1,
                    Kind::Slave(side, _) => side.is_over() || terminal.slave_ready().1,
                    _ => true,
                };
                if self.wait(thread, key_of(&**terminal), None, ready) != Waited::Ready {
                    return if done > 0 { Ok(done) } else { Err(AGAIN) };
                }
                how = put(&buffer[..len]);
            }
            match how {
                Ok(Done::Bytes(count)) => {
                    done += count as u64;
                    self.changed(key_of(&**terminal));
                }
                Ok(Done::Wait) => {}
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// What is asked of a terminal, or of its master.
    pub(super) fn ioctl_terminal(
        &self,
        thread: &Thread,
        open: &Open,
        terminal: &Arc<Terminal>,
        what: u64,
        with: u64,
    ) -> Answer {
        let process = &thread.process;
        let master = matches!(open.kind, Kind::Master(..));
        let put = |word: u32| self.machine.write_user(with, &word.to_le_bytes()).map(|()| 0);
        let is_own =
            || process.terminal.with(|own| own.as_ref().is_some_and(|own| Arc::ptr_eq(own, terminal)));
        if matches!(&open.kind, Kind::Slave(side, _) if side.is_over()) {
            return Err(Errno::EIO);
        }
        // What changes something is for whoever is in front.
        if !master && matches!(what, 0x5402..=0x5404 | 0x5406..=0x540b | 0x5410 | 0x402c_542b..=0x402c_542d) {
            self.in_front(thread, terminal, number::TERMINAL_OUT).map_err(|error| match error {
                Errno::EIO if what == 0x5410 => Errno::ENOTTY,
                other => other,
            })?;
        }
        match what as u32 {
            // TCGETS, TCGETS2
            0x5401 => self.machine.write_user(with, &terminal.settings().pack()[..SETTINGS]).map(|()| 0),
            0x802c_542a => self.machine.write_user(with, &terminal.settings().pack()).map(|()| 0),
            // TCSETS and its like: at once, once all is printed, and without what was typed.
            0x5402..=0x5404 | 0x402c_542b..=0x402c_542d => {
                let short = what < 0x1_0000;
                let mut bytes = [0; WITH_SPEEDS];
                let len = if short { SETTINGS } else { WITH_SPEEDS };
                self.machine.read_user(with, &mut bytes[..len])?;
                terminal.set(&bytes[..len], matches!(what, 0x5404 | 0x402c_542d));
                self.changed(key_of(&**terminal));
                Ok(0)
            }
            // TCGETA, TCSETA and its like.
            0x5405 => self.machine.write_user(with, &terminal.settings().pack_old()).map(|()| 0),
            0x5406..=0x5408 => {
                let mut bytes = [0; OLD];
                self.machine.read_user(with, &mut bytes)?;
                terminal.set(&terminal.settings().renewed_by_old(&bytes), what == 0x5408);
                self.changed(key_of(&**terminal));
                Ok(0)
            }
            // TIOCGLCKTRMIOS: nothing of it is locked.
            0x5456 => self.machine.write_user(with, &[0; SETTINGS]).map(|()| 0),
            // Breaks, which there are not; and all is printed as soon as it is written.
            0x5409 | 0x5425 | 0x5427 | 0x5428 => Ok(0),
            // TCXONC: output waits, or goes on.
            0x540a if with <= 3 => {
                if with <= 1 {
                    terminal.hold(with == 0);
                    self.changed(key_of(&**terminal));
                }
                Ok(0)
            }
            // TCFLSH
            0x540b if with <= 2 => {
                terminal.flush(with != 1, with != 0);
                self.changed(key_of(&**terminal));
                Ok(0)
            }
            // Nobody is kept from opening it.
            0x540c | 0x540d => Ok(0),
            0x540e => {
                let leads = process.session.load(Ordering::Relaxed) == process.pid;
                if leads && is_own() {
                    return Ok(0);
                }
                if !leads || process.terminal.with(|own| own.is_some()) {
                    return Err(Errno::EPERM);
                }
                if terminal.owners().1 != 0 {
                    if with != 1 || !process.owner.with(|owner| owner.is_root()) {
                        return Err(Errno::EPERM);
                    }
                    self.free_terminal(terminal);
                }
                if self.take_terminal(process, terminal) { Ok(0) } else { Err(Errno::EPERM) }
            }
            // The group in front, and the session.
            0x540f if !master && !is_own() => Err(Errno::ENOTTY),
            0x540f => put(terminal.owners().0),
            0x5410 => {
                let group = self.load_word(with)?;
                if !is_own() || terminal.owners().1 != process.session.load(Ordering::Relaxed) {
                    return Err(Errno::ENOTTY);
                }
                if (group as i32) < 0 {
                    return Err(Errno::EINVAL);
                }
                let (front, session) = terminal.owners();
                let found = self.processes.with(|all| {
                    let mut members = all.values().filter(|one| one.group.load(Ordering::Relaxed) == group);
                    members.next().map(|one| one.session.load(Ordering::Relaxed))
                });
                match found {
                    None => Err(Errno::ESRCH),
                    Some(other) if other != session => Err(Errno::EPERM),
                    // It may be somebody else's by now; or another group is in front, and this one is after that.
                    Some(_) if terminal.change_owners((front, session), (group, session)) => Ok(0),
                    Some(_) => Err(AGAIN),
                }
            }
            0x5429 if !master && !is_own() => Err(Errno::ENOTTY),
            0x5429 if terminal.owners().1 == 0 => Err(Errno::ENOTTY),
            0x5429 => put(terminal.owners().1),
            0x5411 => put(0),
            // Its size.
            0x5413 => {
                let size = terminal.size().into_iter().flat_map(u16::to_le_bytes);
                self.machine.write_user(with, &size.collect::<alloc::vec::Vec<_>>()).map(|()| 0)
            }
            0x5414 => {
                let mut bytes = [0; 8];
                self.machine.read_user(with, &mut bytes)?;
                let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
                if terminal.resize([half(0), half(2), half(4), half(6)]) {
                    self.signal_group(terminal.owners().0, number::WINDOW);
                }
                Ok(0)
            }
            0x541b => {
                let (typed, printed) = terminal.waiting();
                put(if master { printed } else { typed } as u32)
            }
            0x5422 if !is_own() => Err(Errno::ENOTTY),
            0x5422 => {
                self.leaves_terminal(process, false);
                Ok(0)
            }
            // How lines are made: in one way.
            0x5424 => put(0),
            0x5423 if self.load_word(with)? == 0 => Ok(0),
            0x5423 => Err(Errno::EINVAL),
            0x5420 if master => {
                terminal.packets.store(self.load_word(with)? != 0, Ordering::SeqCst);
                Ok(0)
            }
            0x8004_5438 if master => put(terminal.packets.load(Ordering::SeqCst).into()),
            0x8004_5430 if master => put(terminal.number),
            0x4004_5431 if master => {
                let lock = self.load_word(with)? != 0;
                terminal.locked.store(lock, Ordering::SeqCst);
                Ok(0)
            }
            0x8004_5439 if master => put(terminal.locked.load(Ordering::SeqCst).into()),
            0x5441 if master && !self.machine.has_room(0) => Err(Errno::ENOMEM),
            0x5441 if master => {
                let name = alloc::format!("{}", terminal.number);
                let inode = self.directories(b"dev/pts").get(name.as_bytes())?.ok_or(Errno::EIO)?;
                let kind = self.open_slave(thread, terminal, &inode, with as u32)?;
                let path = alloc::format!("/dev/pts/{name}").into_bytes();
                let opened = Open::new(kind, with as u32, path);
                let cloexec = with as u32 & flag::CLOSE_ON_EXEC != 0;
                process.files.with(|files| files.add(opened, cloexec, 0))
            }
            _ => Err(Errno::ENOTTY),
        }
    }
}
