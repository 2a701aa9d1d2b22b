//! Waiting for several files at once.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::errno::{Answer, Errno};
use crate::kernel::{Linux, Waited};
use crate::machine::Machine;
use crate::open::{Kind, Open};
use crate::pipe::Way;
use crate::process::Thread;
use crate::signal::ALWAYS;
use crate::sync::key_of;

const IN: u16 = 1;
const OUT: u16 = 4;
const ERROR: u16 = 8;
const HANG_UP: u16 = 0x10;
const NOT_OPEN: u16 = 0x20;
/// How often somebody who waits for several looks.
const LOOK_NS: u64 = 1_000_000;

fn ready(open: &Open) -> u16 {
    match &open.kind {
        Kind::Pipe(end) => {
            let (ready, closed) = end.pipe.ready(end.way);
            match end.way {
                Way::Read => {
                    let some = if end.pipe.is_empty() { 0 } else { IN };
                    some | if closed { HANG_UP } else { 0 }
                }
                Way::Write => (if ready { OUT } else { 0 }) | if closed { ERROR } else { 0 },
            }
        }
        Kind::Event(count) => OUT | if count.load(Ordering::SeqCst) > 0 { IN } else { 0 },
        Kind::Console(_) => OUT,
        _ => IN | OUT,
    }
}

/// One that is waited for.
struct Asked {
    open: Option<Arc<Open>>,
    wanted: u16,
}

impl Asked {
    fn found(&self) -> u16 {
        match &self.open {
            Some(open) => ready(open) & (self.wanted | ERROR | HANG_UP),
            None => NOT_OPEN,
        }
    }
}

impl<M: Machine> Linux<'_, M> {
    /// Waits until one is ready. Who waits for one pipe is woken; who waits for several looks by itself now and then.
    fn wait_for_any(&self, thread: &Thread, asked: &[Option<Asked>], time: Option<u64>) -> Result<(), Errno> {
        let any = || asked.iter().flatten().any(|one| one.found() != 0);
        let until = time.map(|time| self.now().saturating_add(time));
        let only = match asked {
            [Some(Asked { open: Some(open), .. })] => match &open.kind {
                Kind::Pipe(end) => Some(key_of(&*end.pipe)),
                _ => None,
            },
            _ => None,
        };
        loop {
            let own = key_of(thread);
            let look = until.unwrap_or(u64::MAX).min(self.now() + LOOK_NS);
            let how = match only {
                Some(key) => self.wait(thread, key, until, any),
                None => self.wait(thread, own, Some(look), any),
            };
            match how {
                Waited::Ready => return Ok(()),
                Waited::Interrupted => return Err(Errno::EINTR),
                Waited::Late if until.is_some_and(|until| self.now() >= until) => return Ok(()),
                Waited::Late => {}
            }
        }
    }

    pub(crate) fn poll(
        &self,
        thread: &Thread,
        at: u64,
        count: u64,
        time: Option<u64>,
        mask: Option<u64>,
    ) -> Answer {
        if count > 4096 {
            return Err(Errno::EINVAL);
        }
        let mut asked = Vec::new();
        for index in 0..count {
            let word = self.load_long(at + 8 * index)?;
            let number = word as u32;
            let open = self.open_file(thread, u64::from(number)).ok();
            // A negative number is nobody.
            asked.push((number as i32 >= 0).then_some(Asked { open, wanted: (word >> 32) as u16 }));
        }
        if let Some(mask) = mask {
            let old = thread.mask.swap(mask & !ALWAYS, Ordering::SeqCst);
            thread.old_mask.with(|kept| *kept = Some(old));
        }
        self.wait_for_any(thread, &asked, time)?;
        let mut any = 0;
        for (index, one) in asked.iter().enumerate() {
            let found = one.as_ref().map_or(0, Asked::found);
            any += u64::from(found != 0);
            self.machine.write_user(at + 8 * index as u64 + 6, &found.to_le_bytes())?;
        }
        Ok(any)
    }

    pub(crate) fn select(
        &self,
        thread: &Thread,
        [count, read, write, except, time, sigmask]: [u64; 6],
        fine: bool,
    ) -> Answer {
        if count > 1024 {
            return Err(Errno::EINVAL);
        }
        let bytes = (count as usize).div_ceil(64) * 8;
        let load = |at: u64| {
            let mut set = alloc::vec![0; bytes];
            if at != 0 {
                self.machine.read_user(at, &mut set)?;
            }
            Ok::<_, Errno>(set)
        };
        let has = |set: &[u8], number: u64| set[number as usize / 8] >> (number % 8) & 1 != 0;
        let (reads, writes, _) = (load(read)?, load(write)?, load(except)?);
        let mut asked = Vec::new();
        for number in 0..count {
            let wanted =
                if has(&reads, number) { IN } else { 0 } | if has(&writes, number) { OUT } else { 0 };
            if wanted == 0 {
                asked.push(None);
                continue;
            }
            asked.push(Some(Asked { open: Some(self.open_file(thread, number)?), wanted }));
        }
        let time = match time {
            0 => None,
            at => {
                let scale = if fine { 1 } else { 1000 };
                let (seconds, rest) = (self.load_long(at)?, self.load_long(at + 8)?);
                if seconds >> 63 != 0 || rest >> 63 != 0 {
                    return Err(Errno::EINVAL);
                }
                Some(seconds.saturating_mul(1_000_000_000).saturating_add(rest.saturating_mul(scale)))
            }
        };
        // `pselect`: where the mask lies, and how long it is.
        let mask = if fine && sigmask != 0 { self.load_long(sigmask)? } else { 0 };
        if mask != 0 {
            let mask = self.load_long(mask)? & !ALWAYS;
            let old = thread.mask.swap(mask, Ordering::SeqCst);
            thread.old_mask.with(|kept| *kept = Some(old));
        }
        self.wait_for_any(thread, &asked, time)?;
        let (mut reads, mut writes, mut any) = (alloc::vec![0_u8; bytes], alloc::vec![0_u8; bytes], 0);
        for (number, one) in asked.iter().enumerate() {
            let Some(one) = one else { continue };
            let found = one.found();
            let mut put = |set: &mut [u8], yes: bool| {
                set[number / 8] |= u8::from(yes) << (number % 8);
                any += u64::from(yes);
            };
            put(&mut reads, one.wanted & IN != 0 && found & (IN | HANG_UP | ERROR) != 0);
            put(&mut writes, one.wanted & OUT != 0 && found & (OUT | ERROR) != 0);
        }
        for (at, set) in [(read, &reads), (write, &writes), (except, &alloc::vec![0; bytes])] {
            if at != 0 {
                self.machine.write_user(at, set)?;
            }
        }
        Ok(any)
    }
}
