//! Several words that a program waits on at once (`futex_waitv`).

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::errno::{Answer, Errno};
use crate::futex::{Sleeper, Whole};
use crate::kernel::{AGAIN, Linux, Waited};
use crate::machine::Machine;
use crate::process::Thread;
use crate::sync::key_of;

/// Words at once, at most.
const MOST: u64 = 128;
/// Bytes of what is said of one.
const BYTES: u64 = 24;
/// It has 4 bytes; there are no others.
const OF_FOUR: u32 = 2;
/// Nobody else has this memory.
const PRIVATE: u32 = 0x80;
/// By which clock it is late.
const REAL_TIME: u64 = 0;
const SINCE_BOOT: u64 = 1;

/// One of the words.
struct Wanted {
    at: u64,
    value: u32,
    private: bool,
}

impl<M: Machine> Linux<'_, M> {
    fn one_of_words(&self, at: u64) -> Result<Wanted, Errno> {
        let mut bytes = [0; BYTES as usize];
        self.machine.read_user(at, &mut bytes)?;
        let long = |place: usize| u64::from_le_bytes(bytes[place..place + 8].try_into().expect("8 bytes"));
        let (value, word, flags) = (long(0), long(8), long(16));
        // The upper half of the flags is for later.
        let (flags, rest) = (flags as u32, flags >> 32);
        if rest != 0 || flags & !PRIVATE != OF_FOUR || value >> 32 != 0 || !word.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        Ok(Wanted { at: word, value: value as u32, private: flags & PRIVATE != 0 })
    }

    /// Waits until one of the words is woken, and says which.
    pub(crate) fn futex_waitv(&self, thread: &Thread, [at, count, flags, time, clock]: [u64; 5]) -> Answer {
        if flags as u32 != 0 || at == 0 || !(1..=MOST).contains(&u64::from(count as u32)) {
            return Err(Errno::EINVAL);
        }
        let until = match (time, u64::from(clock as u32)) {
            (0, _) => None,
            (_, SINCE_BOOT) => Some(self.time(time)?),
            (_, REAL_TIME) => Some(self.now().saturating_add(self.time(time)?.saturating_sub(self.clock()))),
            _ => return Err(Errno::EINVAL),
        };
        let entries = 0..u64::from(count as u32);
        let all: Vec<_> = entries.map(|nth| self.one_of_words(at + BYTES * nth)).collect::<Result<_, _>>()?;
        let whole = Arc::new(Whole::default());
        // At all of them before any is looked at: who changes one and wakes finds a sleeper, or its change is found.
        let stand = |one: &Wanted| {
            self.futexes.stand_also(self.futex_word(thread, one.at, one.private), &whole, thread.priority())
        };
        let sleepers: Vec<_> = all.iter().map(stand).collect();
        // Who was woken at one says so, whatever else there is to say.
        let leave_or = |otherwise: Errno| {
            let woken = |sleeper: &Arc<Sleeper>| !self.futexes.leave(sleeper);
            let mut last = None;
            for (nth, _) in sleepers.iter().enumerate().filter(|(_, sleeper)| woken(sleeper)) {
                last = Some(nth as u64);
            }
            last.ok_or(otherwise)
        };
        for one in &all {
            match self.machine.load_user(one.at) {
                Ok(now) if now == one.value => {}
                now => return leave_or(now.err().unwrap_or(Errno::EAGAIN)),
            }
        }
        let how = self.wait(thread, key_of(&*whole), until, || whole.is_woken());
        leave_or(if how == Waited::Late { Errno::ETIMEDOUT } else { AGAIN })
    }
}
