//! Calls about keys.

use alloc::vec::Vec;

use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::keys::MOST_BYTES;
use crate::machine::Machine;
use crate::process::Thread;

impl<M: Machine> Linux<'_, M> {
    fn owner_of_keys(thread: &Thread) -> [u32; 2] {
        thread.process.owner.with(|owner| [owner.users[1], owner.groups[1]])
    }

    fn load_key_bytes(&self, at: u64, bytes: u64) -> Result<Vec<u8>, Errno> {
        if bytes > MOST_BYTES || !self.machine.has_piece(bytes) {
            return Err(Errno::EINVAL);
        }
        let mut buffer = alloc::vec![0; bytes as usize];
        self.machine.read_user(at, &mut buffer)?;
        Ok(buffer)
    }

    pub(crate) fn add_key(&self, thread: &Thread, [kind, name, at, bytes, ring]: [u64; 5]) -> Answer {
        let (kind, name) = (self.load_text(kind, 31)?, self.load_text(name, 4095)?);
        let is_ring = kind == b"keyring";
        match kind.as_slice() {
            b"keyring" if bytes > 0 => return Err(Errno::EINVAL),
            b"user" | b"logon" if bytes == 0 => return Err(Errno::EINVAL),
            b"keyring" | b"user" | b"logon" => {}
            // No other kind is known.
            _ => return Err(Errno::ENODEV),
        }
        let load = if is_ring { Vec::new() } else { self.load_key_bytes(at, bytes)? };
        let owner = Self::owner_of_keys(thread);
        self.keys.with(|keys| {
            let ring = keys.find(ring as u32, owner, true)?;
            keys.add((&kind, &name), load, ring, owner).map(u64::from)
        })
    }

    /// A key that is there; none is asked for of a program.
    pub(crate) fn request_key(&self, thread: &Thread, [kind, name]: [u64; 2]) -> Answer {
        let (kind, name) = (self.load_text(kind, 31)?, self.load_text(name, 4095)?);
        let owner = Self::owner_of_keys(thread);
        self.keys.with(|keys| {
            let found = (1..=3_i32).find_map(|ring| {
                let ring = keys.find(ring.wrapping_neg() as u32, owner, false).ok()?;
                keys.search(ring, &kind, &name)
            });
            found.map(u64::from).ok_or(Errno::ENOKEY)
        })
    }

    pub(crate) fn keyctl(&self, thread: &Thread, [what, a, b, c, d]: [u64; 5]) -> Answer {
        let owner = Self::owner_of_keys(thread);
        let found = |makes: bool| self.keys.with(|keys| keys.find(a as u32, owner, makes));
        match what {
            // By what it is of; and a new one of a session.
            0 => found(b != 0).map(u64::from),
            1 => {
                let name = if a == 0 { b"_ses".to_vec() } else { self.load_text(a, 4095)? };
                self.keys.with(|keys| keys.join(&name, owner)).map(u64::from)
            }
            2 => {
                let (key, bytes) = (found(false)?, self.load_key_bytes(b, c)?);
                self.keys.with(|keys| keys.get(key).map(|key| key.bytes = bytes)).map(|()| 0)
            }
            3 | 21 => {
                let key = found(false)?;
                self.keys.with(|keys| keys.revoke(key)).map(|()| 0)
            }
            4 => {
                let key = found(false)?;
                self.keys.with(|keys| keys.set(key, None, [b as u32, c as u32])).map(|()| 0)
            }
            5 => {
                let key = found(false)?;
                self.keys.with(|keys| keys.set(key, Some(b as u32), [u32::MAX; 2])).map(|()| 0)
            }
            // What it is, and what it holds: as much as there is room for.
            6 | 11 => {
                let key = found(false)?;
                let all =
                    self.keys.with(|keys| if what == 6 { keys.describe(key) } else { keys.read(key) })?;
                if b != 0 && c as usize >= all.len() {
                    self.machine.write_user(b, &all)?;
                }
                Ok(all.len() as u64)
            }
            7 => {
                let ring = found(true)?;
                self.keys.with(|keys| keys.clear(ring)).map(|()| 0)
            }
            8 | 9 => self.keys.with(|keys| {
                let (key, ring) = (keys.find(a as u32, owner, true)?, keys.find(b as u32, owner, true)?);
                if what == 8 {
                    keys.link(key, ring)?
                } else {
                    keys.unlink(key, ring)?
                }
                Ok(0)
            }),
            10 => {
                let (kind, name) = (self.load_text(b, 31)?, self.load_text(c, 4095)?);
                self.keys.with(|keys| {
                    let ring = keys.find(a as u32, owner, false)?;
                    let key = keys.search(ring, &kind, &name).ok_or(Errno::ENOKEY)?;
                    if d != 0 {
                        let to = keys.find(d as u32, owner, true)?;
                        keys.link(key, to)?;
                    }
                    Ok(key.into())
                })
            }
            // How long it is good, and which ring takes what is asked for: nothing goes by itself, and nothing is asked for.
            14 | 15 => Ok(0),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}
