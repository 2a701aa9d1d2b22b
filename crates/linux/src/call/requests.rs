//! Calls about reads and writes that are heard of later (`io_setup` and the like). Each is done at once, by whoever asks.

use alloc::sync::Arc;

use crate::errno::{Answer, Errno};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::layout::Pack;
use crate::machine::Machine;
use crate::open::Kind;
use crate::process::Thread;
use crate::requests::{Context, Event};
use crate::sync::key_of;

/// More of them nobody asks for in earnest.
const MOST_ASKED: u64 = 1 << 23;
/// Requests that may wait to be heard of, and contexts of a process.
const MOST: u64 = 65_536;
const MOST_CONTEXTS: usize = 64;
/// What can be asked for.
const READ: u16 = 0;
const WRITE: u16 = 1;
const SYNC: u16 = 2;
const SYNC_DATA: u16 = 3;
const READ_SOME: u16 = 7;
const WRITE_SOME: u16 = 8;

impl<M: Machine> Linux<'_, M> {
    fn context(&self, thread: &Thread, id: u64) -> Result<Arc<Context>, Errno> {
        let key = (thread.process.pid, id);
        self.contexts.with(|all| all.get(&key).cloned()).ok_or(Errno::EINVAL)
    }

    /// Its number is the address of a page of the program's: the C library looks there first for what is done, and finds that it must ask.
    pub(crate) fn io_setup(&self, thread: &Arc<Thread>, most: u64, to: u64) -> Answer {
        const READABLE: u64 = 1;
        const OWN: u64 = 0x22;
        let most = u64::from(most as u32);
        if self.load_long(to)? != 0 || most == 0 || most > MOST_ASKED {
            return Err(Errno::EINVAL);
        }
        let pid = thread.process.pid;
        let count = self.contexts.with(|all| all.range((pid, 0)..=(pid, u64::MAX)).count());
        if most > MOST || count >= MOST_CONTEXTS {
            return Err(Errno::EAGAIN);
        }
        let id = self.mmap(thread, [0, 4096, READABLE, OWN, u64::MAX, 0])?;
        self.contexts.with(|all| all.insert((pid, id), Arc::new(Context::new(most as usize))));
        self.machine.write_user(to, &id.to_le_bytes()).map(|()| 0)
    }

    pub(crate) fn io_destroy(&self, thread: &Thread, id: u64) -> Answer {
        let gone = self.contexts.with(|all| all.remove(&(thread.process.pid, id))).ok_or(Errno::EINVAL)?;
        // Whoever waits there looks again.
        self.changed(key_of(&*gone));
        // The program may have unmapped it before.
        let _ = self.munmap(thread, [id, 4096, 0, 0, 0, 0]);
        Ok(0)
    }

    /// A process has ended.
    pub(crate) fn end_contexts(&self, pid: u32) {
        let gone = self.contexts.with(|all| {
            let mut rest = all.split_off(&(pid, 0));
            let mut behind = rest.split_off(&(pid + 1, 0));
            all.append(&mut behind);
            rest
        });
        drop(gone);
    }

    fn request(&self, thread: &Thread, context: &Context, at: u64) -> Result<(), Errno> {
        const TELLS: u32 = 1;
        let mut bytes = [0; 64];
        self.machine.read_user(at, &mut bytes)?;
        let long = |from: usize| u64::from_le_bytes(core::array::from_fn(|byte| bytes[from + byte]));
        let word = |from: usize| u32::from_le_bytes(core::array::from_fn(|byte| bytes[from + byte]));
        let (number, buffer, count, place) = (word(20).into(), long(24), long(32), long(40));
        // What is not there yet must not be named.
        if long(48) != 0 || count >> 63 != 0 {
            return Err(Errno::EINVAL);
        }
        let open = self.open_file(thread, number)?;
        let tells = if word(56) & TELLS != 0 { Some(self.open_file(thread, word(60).into())?) } else { None };
        if tells.as_ref().is_some_and(|open| !matches!(open.kind, Kind::Event(_))) {
            return Err(Errno::EINVAL);
        }
        let what = long(16) as u16;
        match what {
            READ | READ_SOME if !open.may_read() => return Err(Errno::EBADF),
            WRITE | WRITE_SOME if !open.may_write() => return Err(Errno::EBADF),
            SYNC | SYNC_DATA if [buffer, count, place] != [0; 3] => return Err(Errno::EINVAL),
            _ => {}
        }
        // What has no places is read and written in its order.
        let place = matches!(open.kind, Kind::File(_)).then_some(place);
        let answer = match what {
            READ => self.read_as(thread, number, &[(buffer, count)], place, word(12).into()),
            WRITE => self.write(thread, number, &[(buffer, count)], place),
            SYNC | SYNC_DATA => self.fsync(thread, number),
            READ_SOME => self.read_as(thread, number, &self.vectors(buffer, count)?, place, word(12).into()),
            WRITE_SOME => self.write(thread, number, &self.vectors(buffer, count)?, place),
            _ => return Err(Errno::EINVAL),
        };
        let answer = match answer {
            Ok(count) => count as i64,
            Err(AGAIN) => -i64::from(Errno::EINTR.0),
            Err(error) => -i64::from(error.0),
        };
        context.put(Event { data: long(0), at, answer });
        self.changed(key_of(context));
        if let Some(Kind::Event(counter)) = tells.as_ref().map(|open| &open.kind) {
            counter.add(1);
            self.changed(key_of(counter));
        }
        Ok(())
    }

    pub(crate) fn io_submit(&self, thread: &Thread, id: u64, count: u64, list: u64) -> Answer {
        let context = self.context(thread, id)?;
        let count = i64::try_from(count).map_err(|_| Errno::EINVAL)? as u64;
        let mut done = 0;
        while done < count {
            if !context.has_room() || !self.machine.has_room(0) {
                if done == 0 {
                    return Err(Errno::EAGAIN);
                }
                break;
            }
            let asked = self.load_long(list + 8 * done).and_then(|at| self.request(thread, &context, at));
            match asked {
                Ok(()) => done += 1,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            self.machine.cond_resched();
        }
        self.changed(key_of(&*context));
        Ok(done)
    }

    /// The same with another mask of signals meanwhile: where it lies, and how long it is.
    pub(crate) fn io_getevents_masked(
        &self,
        thread: &Thread,
        [id, least, most, to, time, mask]: [u64; 6],
    ) -> Answer {
        if mask != 0 {
            let (at, bytes) = (self.load_long(mask)?, self.load_long(mask + 8)?);
            if at != 0 && bytes != 8 {
                return Err(Errno::EINVAL);
            }
            if at != 0 {
                self.mask_meanwhile(thread, self.load_long(at)?);
            }
        }
        self.io_getevents(thread, [id, least, most, to, time])
    }

    pub(crate) fn io_getevents(&self, thread: &Thread, [id, least, most, to, time]: [u64; 5]) -> Answer {
        let context = self.context(thread, id)?;
        let (least, most) = (least as i64, most as i64);
        if least < 0 || most < least {
            return Err(Errno::EINVAL);
        }
        let until = if time == 0 { None } else { Some(self.end_of_wait(thread, self.time(time)?)) };
        let mut found = context.take(most.min(MOST as i64) as usize);
        let how = self.wait(thread, key_of(&*context), until, || {
            found.extend(context.take((most as usize).saturating_sub(found.len())));
            found.len() as i64 >= least || self.context(thread, id).is_err()
        });
        if how == Waited::Interrupted && found.is_empty() {
            return Err(Self::unless_handled(thread, until));
        }
        for (index, event) in (0..).zip(&found) {
            let all = Pack::default().long(event.data).long(event.at).long(event.answer as u64).long(0);
            self.machine.write_user(to + 32 * index, &all.0)?;
        }
        Ok(found.len() as u64)
    }
}
