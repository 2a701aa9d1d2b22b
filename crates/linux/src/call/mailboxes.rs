//! Calls about queues of messages that have names (POSIX).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::layout::Pack;
use crate::machine::Machine;
use crate::mailbox::{Hears, MOST_URGENT, Mailbox};
use crate::numbered::Rights;
use crate::open::{Kind, Open, flag};
use crate::process::{Thread, limit};
use crate::rights::{READ, WRITE};
use crate::signal::{Info, number};
use crate::socket::Sender;
use crate::sync::key_of;

/// Messages that fit, and bytes of each: unless it is said, and at most.
const USUAL: (usize, usize) = (10, 8192);
const MOST: (u64, u64) = (65_536, 16 << 20);
/// What a message takes besides its bytes, as Linux counts it.
const BESIDE: usize = 96;
/// Queues that there may be.
const MOST_QUEUES: usize = 256;
/// The reason that a signal gives.
const BY_MESSAGE: i32 = -3;
/// Bytes by which the C library hears of a message, of which the last says what has happened.
const COOKIE: usize = 32;
const HAS_COME: u8 = 1;

/// What a queue takes of its user's limit (`RLIMIT_MSGQUEUE`): all that fits, whether it is there or not.
fn bytes_of((count, bytes): (usize, usize)) -> u64 {
    (count * (bytes + BESIDE)) as u64
}

impl<M: Machine> Linux<'_, M> {
    fn mailbox_of(&self, thread: &Thread, number: u64) -> Result<(Arc<Open>, Arc<Mailbox>), Errno> {
        let open = self.open_file(thread, number)?;
        match &open.kind {
            Kind::Mailbox(mailbox) => {
                let mailbox = mailbox.clone();
                Ok((open, mailbox))
            }
            _ => Err(Errno::EBADF),
        }
    }

    fn mailbox_name(&self, at: u64) -> Result<Vec<u8>, Errno> {
        let name = self.load_text(at, 255)?;
        match name.as_slice() {
            [] => Err(Errno::ENOENT),
            name if name.contains(&b'/') || name == b"." || name == b".." => Err(Errno::EACCES),
            _ if name.len() > 255 => Err(Errno::ENAMETOOLONG),
            _ => Ok(name),
        }
    }

    pub(crate) fn mq_open(&self, thread: &Thread, [name, flags, mode, attributes]: [u64; 4]) -> Answer {
        let who = thread.process.owner.with(|owner| owner.clone());
        let (name, flags) = (self.mailbox_name(name)?, flags as u32);
        let exclusive = flags & flag::CREATE != 0 && flags & flag::EXCLUSIVE != 0;
        let found = self.mailboxes.with(|all| all.get(&name).cloned());
        let mailbox = match found {
            Some(_) if exclusive => return Err(Errno::EEXIST),
            Some(found) => {
                let wanted = [READ, WRITE, READ | WRITE].get((flags & flag::ACCESS) as usize);
                found.rights.allow(&who, *wanted.ok_or(Errno::EINVAL)?)?;
                found
            }
            None if flags & flag::CREATE == 0 => return Err(Errno::ENOENT),
            None => {
                let most = match attributes {
                    0 => USUAL,
                    at => {
                        let (count, bytes) = (self.load_long(at + 8)?, self.load_long(at + 16)?);
                        if !(1..=MOST.0).contains(&count) || !(1..=MOST.1).contains(&bytes) {
                            return Err(Errno::EINVAL);
                        }
                        (count as usize, bytes as usize)
                    }
                };
                let rights = Rights::made(&who, self.umask(thread, mode as u32).into());
                let room = thread.process.limits.with(|limits| limits[limit::MESSAGES][0]);
                self.mailboxes.with(|all| {
                    if all.len() >= MOST_QUEUES {
                        return Err(Errno::ENOSPC);
                    }
                    // Of two who make it the second finds it.
                    if exclusive && all.contains_key(&name) {
                        return Err(Errno::EEXIST);
                    }
                    if let Some(made) = all.get(&name) {
                        return Ok(made.clone());
                    }
                    let its = all.values().filter(|other| other.rights.maker[0] == rights.maker[0]);
                    let taken = its.map(|other| bytes_of(other.most)).sum::<u64>();
                    if taken + bytes_of(most) > room {
                        return Err(Errno::EMFILE);
                    }
                    let made = Arc::new(Mailbox::new(most, rights));
                    all.insert(name.clone(), made.clone());
                    Ok(made)
                })?
            }
        };
        let path = [b"/", name.as_slice()].concat();
        let open = Open::new(Kind::Mailbox(mailbox), flags & (flag::ACCESS | flag::NO_WAIT), path);
        // None of them outlives an `execve`.
        thread.process.files.with(|files| files.add(open, true, 0))
    }

    pub(crate) fn mq_unlink(&self, thread: &Thread, name: u64) -> Answer {
        let name = self.mailbox_name(name)?;
        let who = thread.process.owner.with(|owner| owner.clone());
        let gone = self.mailboxes.with(|all| {
            all.get(&name).ok_or(Errno::ENOENT)?.rights.own(&who)?;
            all.remove(&name).ok_or(Errno::ENOENT)
        });
        gone.map(|_| 0)
    }

    /// When a wait ends, of a time since 1970; never, if none is named.
    fn until_of(&self, at: u64) -> Result<Option<u64>, Errno> {
        if at == 0 {
            return Ok(None);
        }
        let began = self.clock() - self.now();
        Ok(Some(self.time(at)?.saturating_sub(began)))
    }

    pub(crate) fn mq_send(&self, thread: &Thread, [number, at, bytes, urgency, time]: [u64; 5]) -> Answer {
        let urgency = urgency as u32;
        if urgency > MOST_URGENT {
            return Err(Errno::EINVAL);
        }
        let until = self.until_of(time)?;
        let (open, mailbox) = self.mailbox_of(thread, number)?;
        if !open.may_write() {
            return Err(Errno::EBADF);
        }
        if bytes > mailbox.most.1 as u64 {
            return Err(Errno::EMSGSIZE);
        }
        if !self.machine.has_piece(bytes) {
            return Err(Errno::ENOMEM);
        }
        let mut message = alloc::vec![0; bytes as usize];
        self.machine.read_user(at, &mut message)?;
        let mut sent = mailbox.send(&mut message, urgency);
        if sent.is_none() {
            if open.has(flag::NO_WAIT) {
                return Err(Errno::EAGAIN);
            }
            let how = self.wait(thread, key_of(&*mailbox), until, || {
                sent = mailbox.send(&mut message, urgency);
                sent.is_some()
            });
            match how {
                Waited::Ready => {}
                Waited::Late => return Err(Errno::ETIMEDOUT),
                Waited::Interrupted => return Err(AGAIN),
            }
        }
        match sent.flatten() {
            Some((pid, Hears::Signal(signal, value))) => {
                let user = thread.process.owner.with(|owner| owner.users[0]);
                let word = u64::from(thread.process.pid) | u64::from(user) << 32;
                if let Some(process) = self.processes.with(|all| all.get(&pid).cloned()) {
                    self.post(&process, None, Info { signal, code: BY_MESSAGE, word, value, error: 0 });
                }
            }
            Some((_, Hears::Bytes(inbox, mut bytes))) => {
                bytes[COOKIE - 1] = HAS_COME;
                let _ = inbox.send(&bytes, &Sender::at(&Arc::from([])), Vec::new(), false, 0);
                self.changed(key_of(&*inbox));
            }
            Some((_, Hears::Nothing)) | None => {}
        }
        self.changed(key_of(&*mailbox));
        Ok(0)
    }

    pub(crate) fn mq_receive(
        &self,
        thread: &Thread,
        [number, to, room, urgency_to, time]: [u64; 5],
    ) -> Answer {
        let until = self.until_of(time)?;
        let (open, mailbox) = self.mailbox_of(thread, number)?;
        if !open.may_read() {
            return Err(Errno::EBADF);
        }
        if room < mailbox.most.1 as u64 {
            return Err(Errno::EMSGSIZE);
        }
        let mut found = mailbox.receive();
        if found.is_none() {
            if open.has(flag::NO_WAIT) {
                return Err(Errno::EAGAIN);
            }
            mailbox.wait(1);
            let how = self.wait(thread, key_of(&*mailbox), until, || {
                found = mailbox.receive();
                found.is_some()
            });
            mailbox.wait(-1);
            match how {
                Waited::Ready => {}
                Waited::Late => return Err(Errno::ETIMEDOUT),
                Waited::Interrupted => return Err(AGAIN),
            }
        }
        let (message, urgency) = found.ok_or(Errno::EAGAIN)?;
        self.changed(key_of(&*mailbox));
        self.machine.write_user(to, &message)?;
        if urgency_to != 0 {
            self.machine.write_user(urgency_to, &urgency.to_le_bytes())?;
        }
        Ok(message.len() as u64)
    }

    pub(crate) fn mq_notify(&self, thread: &Thread, number: u64, event: u64) -> Answer {
        const SIGNAL: u32 = 0;
        const NOTHING: u32 = 1;
        const THREAD: u32 = 2;
        let pid = thread.process.pid;
        if event == 0 {
            self.mailbox_of(thread, number)?.1.hear_no_more(pid);
            return Ok(0);
        }
        let (value, signal, how) =
            (self.load_long(event)?, self.load_word(event + 8)?, self.load_word(event + 12)?);
        let hears = match how {
            NOTHING => Hears::Nothing,
            // No signal at all has the place as well.
            SIGNAL if signal == 0 => Hears::Nothing,
            SIGNAL if signal <= number::LAST => Hears::Signal(signal, value),
            THREAD => {
                let mut bytes = alloc::vec![0; COOKIE];
                self.machine.read_user(value, &mut bytes)?;
                let open = self.open_file(thread, signal.into())?;
                let Kind::Socket(socket) = &open.kind else { return Err(Errno::EINVAL) };
                Hears::Bytes(socket.inbox.clone(), bytes)
            }
            _ => return Err(Errno::EINVAL),
        };
        let (_, mailbox) = self.mailbox_of(thread, number)?;
        let is_there = |pid: u32| {
            let process = self.processes.with(|all| all.get(&pid).cloned());
            process.is_some_and(|process| process.ended.load(Ordering::SeqCst) == 0)
        };
        if mailbox.hear(pid, hears, is_there) { Ok(0) } else { Err(Errno::EBUSY) }
    }

    pub(crate) fn mq_attributes(&self, thread: &Thread, number: u64, new: u64, old: u64) -> Answer {
        let (open, mailbox) = self.mailbox_of(thread, number)?;
        let flags = match new {
            0 => None,
            at => Some(self.load_long(at)?),
        };
        if flags.is_some_and(|flags| flags & !u64::from(flag::NO_WAIT) != 0) {
            return Err(Errno::EINVAL);
        }
        let now = u64::from(open.flags.load(Ordering::Relaxed) & flag::NO_WAIT);
        if old != 0 {
            let (count, bytes) = mailbox.most;
            let all =
                Pack::default().long(now).long(count as u64).long(bytes as u64).long(mailbox.len() as u64);
            self.machine.write_user(old, &all.zeros_to(64).0)?;
        }
        match flags {
            Some(0) => drop(open.flags.fetch_and(!flag::NO_WAIT, Ordering::Relaxed)),
            Some(_) => drop(open.flags.fetch_or(flag::NO_WAIT, Ordering::Relaxed)),
            None => {}
        }
        Ok(0)
    }
}
