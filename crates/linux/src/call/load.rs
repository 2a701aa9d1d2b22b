//! What calls read of their programs' memory: numbers, texts, lists of buffers, times.

use alloc::vec::Vec;

use crate::errno::Errno;
use crate::kernel::Linux;
use crate::machine::Machine;

impl<M: Machine> Linux<'_, M> {
    pub(crate) fn load_long(&self, at: u64) -> Result<u64, Errno> {
        let mut bytes = [0; 8];
        self.machine.read_user(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) fn load_word(&self, at: u64) -> Result<u32, Errno> {
        let mut bytes = [0; 4];
        self.machine.read_user(at, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// A mask of signals, if one is named, and how long it is said to be.
    pub(super) fn load_mask(&self, at: u64, bytes: u64) -> Result<Option<u64>, Errno> {
        match (at, bytes) {
            (0, _) => Ok(None),
            (_, 8) => self.load_long(at).map(Some),
            _ => Err(Errno::EINVAL),
        }
    }

    /// A text that ends with a zero.
    pub(crate) fn load_text(&self, at: u64, most: usize) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::new();
        let mut at = at;
        loop {
            let mut piece = [0; 64];
            // Not into the next page: the text may end before.
            let len = (4096 - at % 4096).min(64) as usize;
            self.machine.read_user(at, &mut piece[..len])?;
            if let Some(end) = piece[..len].iter().position(|&byte| byte == 0) {
                text.extend_from_slice(&piece[..end]);
                return if text.len() > most { Err(Errno::ENAMETOOLONG) } else { Ok(text) };
            }
            text.extend_from_slice(&piece[..len]);
            at += len as u64;
            if text.len() > most {
                return Err(Errno::ENAMETOOLONG);
            }
        }
    }

    pub(crate) fn load_path(&self, at: u64) -> Result<Vec<u8>, Errno> {
        self.load_text(at, 4095)
    }

    /// A list of texts, which ends with a null pointer.
    pub(crate) fn load_texts(&self, at: u64) -> Result<Vec<Vec<u8>>, Errno> {
        let mut texts = Vec::new();
        let mut bytes = 0;
        for index in 0.. {
            if at == 0 {
                break;
            }
            let text = self.load_long(at + 8 * index)?;
            if text == 0 {
                break;
            }
            // The list grows by as much as it is, and each text takes more than its bytes.
            let room = if texts.len() == texts.capacity() { 64 * texts.len() as u64 } else { 0 };
            if !self.machine.has_piece(room) {
                return Err(Errno::ENOMEM);
            }
            texts.push(self.load_text(text, (128 << 10) - 1).map_err(|error| match error {
                Errno::ENAMETOOLONG => Errno::E2BIG,
                other => other,
            })?);
            bytes += texts.last().map_or(0, Vec::len) + 9;
            if bytes > crate::start::MOST {
                return Err(Errno::E2BIG);
            }
        }
        Ok(texts)
    }

    /// Where several buffers lie, and how long they are.
    pub(crate) fn vectors(&self, at: u64, count: u64) -> Result<Vec<(u64, u64)>, Errno> {
        if count > 1024 {
            return Err(Errno::EINVAL);
        }
        let load = |index: u64| {
            let (at, bytes) = (self.load_long(at + 16 * index)?, self.load_long(at + 16 * index + 8)?);
            if bytes >> 63 != 0 { Err(Errno::EINVAL) } else { Ok((at, bytes)) }
        };
        (0..count).map(load).collect()
    }

    /// A time in nanoseconds, from seconds and nanoseconds.
    pub(super) fn time(&self, at: u64) -> Result<u64, Errno> {
        let (seconds, ns) = (self.load_long(at)?, self.load_long(at + 8)?);
        if ns >= 1_000_000_000 || seconds >> 63 != 0 {
            return Err(Errno::EINVAL);
        }
        Ok(seconds.saturating_mul(1_000_000_000).saturating_add(ns))
    }
}
