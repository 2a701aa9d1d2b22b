//! Waiting for several files at once.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::epoll::{DEEPEST, Looks, see};
use crate::errno::{Answer, Errno};
use crate::kernel::{Linux, RESTART, UNLESS_HANDLED, Waited};
use crate::layout::Pack;
use crate::machine::Machine;
use crate::open::{Counter, Kind, Open};
use crate::pipe::Way;
use crate::process::Thread;
use crate::signal::ALWAYS;
use crate::socket::{Broken, Late, Socket, UNIX, kind};

/// Events, as `poll` and `epoll` have them.
pub(super) mod event {
    pub const IN: u32 = 1;
    /// Something urgent.
    pub const URGENT: u32 = 2;
    pub const OUT: u32 = 4;
    pub const ERROR: u32 = 8;
    pub const HANG_UP: u32 = 0x10;
    pub const NOT_OPEN: u32 = 0x20;
    /// The same as `IN` and `OUT`, by other names.
    pub const READ: u32 = 0x40;
    pub const WRITE: u32 = 0x100;
    /// The other end sends no more.
    pub const ENDED: u32 = 0x2000;
}
use event::{ENDED, ERROR, HANG_UP, IN, NOT_OPEN, OUT, READ, URGENT, WRITE};

/// One that is waited for.
struct Asked {
    open: Option<Arc<Open>>,
    wanted: u32,
}

fn of_socket(socket: &Socket) -> u32 {
    let (listens, comes, silent, refused, lost) = socket.state.with(|state| {
        let comes = state.waiting.as_ref().is_some_and(|(all, _)| !all.is_empty());
        (state.waiting.is_some(), comes, state.silent, state.late == Late::Refused, state.refused)
    });
    if listens {
        return if comes { IN } else { 0 };
    }
    let (some, ended, closed) = socket.inbox.state();
    let urgent = if socket.inbox.urgency().0 { URGENT } else { 0 };
    let found = urgent
        | if some { IN } else { 0 }
        | if ended || closed { ENDED } else { 0 }
        | if lost { ERROR } else { 0 };
    match socket.peer() {
        None if socket.kind == kind::PACKETS => found | OUT,
        None if refused => found | IN | OUT | ERROR | HANG_UP | ENDED,
        None => found | OUT | HANG_UP,
        Some(peer) => {
            let (_, _, gone) = peer.inbox.state();
            let room = peer.inbox.has_room(socket.fills());
            let broken = socket.inbox.broken();
            // What has no room is lost on its way, where packets may be.
            let room = room || socket.kind == kind::PACKETS && socket.family != UNIX;
            // On the network it is not known yet that nobody is there.
            let knows = socket.family == UNIX && gone || silent || broken != Broken::No;
            // Of packets the own end alone counts.
            let is_closed = closed && silent && socket.family == UNIX;
            let hung = if socket.kind == kind::PACKETS { is_closed } else { (ended || closed) && knows };
            found
                | if room || gone { OUT } else { 0 }
                | if hung { HANG_UP } else { 0 }
                | if matches!(broken, Broken::Yes(_)) { ERROR } else { 0 }
        }
    }
}

impl<M: Machine> Linux<'_, M> {
    /// What an open file is ready for, and how often it had changed before for whoever reads and for whoever writes, if that is known.
    pub(super) fn look(&self, thread: &Thread, open: &Open, looks: &Looks) -> (u32, Option<[u64; 2]>) {
        self.look_below(thread, open, DEEPEST, looks)
    }

    /// The same; of sets in sets no deeper than this.
    fn look_below(&self, thread: &Thread, open: &Open, depth: u32, looks: &Looks) -> (u32, Option<[u64; 2]>) {
        let found = || {
            let found = self.ready_for(thread, open, depth, looks);
            let more = if found & IN != 0 { READ } else { 0 } | if found & OUT != 0 { WRITE } else { 0 };
            found | more
        };
        see(|| self.changes_of(open), found)
    }

    fn changes_of(&self, open: &Open) -> Option<[u64; 2]> {
        let both =
            |changes: &[AtomicU64; 2]| changes.each_ref().map(|changes| changes.load(Ordering::SeqCst));
        Some(match &open.kind {
            Kind::Pipe(end) => [end.pipe.changes(end.way); 2],
            Kind::Both(read, _) => [Way::Read, Way::Write].map(|way| read.pipe.changes(way)),
            Kind::Event(counter) => both(&counter.changes),
            Kind::Socket(socket) => socket.changes(),
            Kind::Timer(timer, _) => [timer.changes(self.now()); 2],
            Kind::Watches(watches) => [watches.changes.load(Ordering::SeqCst); 2],
            Kind::Mailbox(mailbox) => both(&mailbox.changes),
            Kind::Console(_) => [0; 2],
            Kind::Master(side, _) | Kind::Slave(side, _) => side.terminal.changes(),
            _ => return None,
        })
    }

    fn ready_for(&self, thread: &Thread, open: &Open, depth: u32, looks: &Looks) -> u32 {
        let some = |is: bool| if is { IN } else { 0 };
        let room = |is: bool| if is { OUT } else { 0 };
        match &open.kind {
            Kind::Pipe(end) => {
                let (ready, closed) = end.ready();
                match end.way {
                    Way::Read => some(!end.pipe.is_empty()) | if closed { HANG_UP } else { 0 },
                    Way::Write => room(ready) | if closed { ERROR } else { 0 },
                }
            }
            Kind::Both(read, _) => some(!read.pipe.is_empty()) | room(read.pipe.ready(Way::Write).0),
            Kind::Event(counter) => {
                let now = counter.now();
                some(now > 0) | room(now < Counter::MOST)
            }
            Kind::Socket(socket) => of_socket(socket),
            Kind::Timer(timer, _) => some(timer.is_due(self.now())),
            Kind::Signals(mask) => some(thread.waiting_signals() & mask.load(Ordering::SeqCst) != 0),
            Kind::Poll(_) if depth == 0 || looks.are_over() => 0,
            Kind::Poll(epoll) => some(epoll.is_ready(&mut |open| match looks.take() {
                true => self.look_below(thread, open, depth - 1, looks),
                false => (0, None),
            })),
            Kind::Process(process) => {
                let ended = process.ended.load(Ordering::SeqCst) != 0;
                // Whoever has waited for it has taken it away.
                let gone = || self.processes.with(|all| !all.contains_key(&process.pid));
                some(ended) | if ended && gone() { HANG_UP } else { 0 }
            }
            Kind::Watches(watches) => some(watches.any()),
            Kind::Mailbox(mailbox) => {
                let count = mailbox.len();
                some(count > 0) | room(count < mailbox.most.0)
            }
            Kind::Console(_) => OUT,
            Kind::Master(side, _) => {
                let (any, free) = side.terminal.master_ready();
                some(any) | room(free) | if side.terminal.is_left() { HANG_UP } else { 0 }
            }
            Kind::Slave(side, _) if side.is_over() => IN | OUT | ERROR | HANG_UP,
            Kind::Slave(side, _) => {
                let (any, free) = side.terminal.slave_ready();
                some(any) | room(free)
            }
            _ => IN | OUT,
        }
    }

    /// When an open file becomes ready by itself.
    pub(super) fn due(&self, open: &Open, looks: &Looks) -> Option<u64> {
        self.due_below(open, DEEPEST, looks)
    }

    fn due_below(&self, open: &Open, depth: u32, looks: &Looks) -> Option<u64> {
        match &open.kind {
            Kind::Timer(timer, _) => timer.next(self.now()),
            Kind::Poll(epoll) if depth > 0 && !looks.are_over() => {
                epoll.first(&|open| if looks.take() { self.due_below(open, depth - 1, looks) } else { None })
            }
            _ => None,
        }
    }

    fn found(&self, thread: &Thread, asked: &Asked, looks: &Looks) -> u32 {
        match &asked.open {
            Some(open) => self.look(thread, open, looks).0 & (asked.wanted | ERROR | HANG_UP),
            None => NOT_OPEN,
        }
    }

    /// Waits until one is ready, and says what each is ready for; `again` says how it is made again after a signal.
    fn wait_for_any(
        &self,
        thread: &Thread,
        asked: &[Option<Asked>],
        until: Option<u64>,
        again: Errno,
    ) -> Result<Vec<u32>, Errno> {
        // What ends the wait is what is told: another thread may take it meanwhile.
        let mut found = alloc::vec![0; asked.len()];
        let any = || {
            let looks = Looks::default();
            let one = |one: &Option<Asked>| one.as_ref().map_or(0, |one| self.found(thread, one, &looks));
            found.iter_mut().zip(asked).for_each(|(found, asked)| *found = one(asked));
            found.iter().any(|&found| found != 0)
        };
        let due = || {
            let looks = Looks::default();
            asked.iter().flatten().filter_map(|one| self.due(one.open.as_ref()?, &looks)).min()
        };
        match self.watch(thread, until, due, any) {
            Waited::Interrupted => {
                thread.deadline.with(|at| *at = until);
                Err(again)
            }
            Waited::Ready | Waited::Late => Ok(found),
        }
    }

    /// Says where the program has said how long it would wait how much of that is left; where it cannot be said, nobody hears of it.
    pub(super) fn tell_left(&self, at: u64, until: Option<u64>, scale: u64) {
        if let Some(until) = until.filter(|_| at != 0) {
            let left = until.saturating_sub(self.now());
            let (seconds, rest) = (left / 1_000_000_000, left % 1_000_000_000 / scale);
            let _ = self.machine.write_user(at, &Pack::default().long(seconds).long(rest).0);
        }
    }

    /// Another mask of signals until the call ends, as `ppoll` and its like have it.
    pub(super) fn mask_meanwhile(&self, thread: &Thread, mask: u64) {
        let old = thread.mask.swap(mask & !ALWAYS, Ordering::SeqCst);
        thread.old_mask.with(|kept| *kept = Some(old));
    }

    pub(crate) fn poll(
        &self,
        thread: &Thread,
        at: u64,
        count: u64,
        time: Option<u64>,
        time_at: u64,
        mask: Option<u64>,
    ) -> Answer {
        if count > thread.process.files.with(|files| files.most()) as u64 {
            return Err(Errno::EINVAL);
        }
        if count > 4096 && !self.machine.has_piece(2 * count * size_of::<Option<Asked>>() as u64) {
            return Err(Errno::ENOMEM);
        }
        let mut asked = Vec::new();
        for index in 0..count {
            let word = self.load_long(at + 8 * index)?;
            let number = word as u32;
            let open = self.open_used(thread, u64::from(number)).ok();
            // A negative number is nobody.
            asked
                .push((number as i32 >= 0).then_some(Asked { open, wanted: u32::from((word >> 32) as u16) }));
        }
        if let Some(mask) = mask {
            self.mask_meanwhile(thread, mask);
        }
        let again = if mask.is_some() { UNLESS_HANDLED } else { RESTART };
        let until = time.map(|time| self.end_of_wait(thread, time));
        let waited = self.wait_for_any(thread, &asked, until, again);
        if time != Some(0) {
            self.tell_left(time_at, until, 1);
        }
        let mut any = 0;
        for (index, found) in waited?.into_iter().enumerate() {
            let found = found as u16;
            any += u64::from(found != 0);
            self.machine.write_user(at + 8 * index as u64 + 6, &found.to_le_bytes())?;
        }
        Ok(any)
    }

    pub(crate) fn select(
        &self,
        thread: &Thread,
        [count, read, write, except, time_at, sigmask]: [u64; 6],
        fine: bool,
    ) -> Answer {
        if (count as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        // Behind the last that may be open there is none.
        let count = u64::from(count as u32).min(thread.process.files.with(|files| files.most()) as u64);
        let bytes = (count as usize).div_ceil(64) * 8;
        let load = |at: u64| {
            let mut set = alloc::vec![0; bytes];
            if at != 0 {
                self.machine.read_user(at, &mut set)?;
            }
            Ok::<_, Errno>(set)
        };
        let has = |set: &[u8], number: u64| set[number as usize / 8] >> (number % 8) & 1 != 0;
        let (reads, writes, excepts) = (load(read)?, load(write)?, load(except)?);
        let mut asked = Vec::new();
        for number in 0..count {
            let wanted = if has(&reads, number) { IN } else { 0 }
                | if has(&writes, number) { OUT } else { 0 }
                | if has(&excepts, number) { URGENT } else { 0 };
            if wanted == 0 {
                asked.push(None);
                continue;
            }
            asked.push(Some(Asked { open: Some(self.open_file(thread, number)?), wanted }));
        }
        let scale = if fine { 1 } else { 1000 };
        let time = match time_at {
            0 => None,
            at => {
                let (seconds, rest) = (self.load_long(at)?, self.load_long(at + 8)?);
                if seconds >> 63 != 0 || rest >> 63 != 0 || fine && rest >= 1_000_000_000 {
                    return Err(Errno::EINVAL);
                }
                Some(seconds.saturating_mul(1_000_000_000).saturating_add(rest.saturating_mul(scale)))
            }
        };
        // `pselect`: where the mask lies, and how long it is.
        if fine
            && sigmask != 0
            && let Some(mask) = self.load_mask(self.load_long(sigmask)?, self.load_long(sigmask + 8)?)?
        {
            self.mask_meanwhile(thread, mask);
        }
        let until = time.map(|time| self.end_of_wait(thread, time));
        let waited = self.wait_for_any(thread, &asked, until, UNLESS_HANDLED);
        if time != Some(0) {
            self.tell_left(time_at, until, scale);
        }
        let all = waited?;
        let [mut reads, mut writes, mut excepts] = [0; 3].map(|_: u8| alloc::vec![0_u8; bytes]);
        let mut any = 0;
        for (number, (one, found)) in asked.iter().zip(all).enumerate() {
            let Some(one) = one else { continue };
            let mut put = |set: &mut [u8], yes: bool| {
                set[number / 8] |= u8::from(yes) << (number % 8);
                any += u64::from(yes);
            };
            put(&mut reads, one.wanted & IN != 0 && found & (IN | HANG_UP | ERROR) != 0);
            put(&mut writes, one.wanted & OUT != 0 && found & (OUT | ERROR) != 0);
            put(&mut excepts, one.wanted & URGENT != 0 && found & URGENT != 0);
        }
        for (at, set) in [(read, &reads), (write, &writes), (except, &excepts)] {
            if at != 0 {
                self.machine.write_user(at, set)?;
            }
        }
        Ok(any)
    }
}
