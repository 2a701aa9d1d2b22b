//! Keys and rings of keys (`add_key`, `keyctl`): kept, found and given back to whoever asks. Nobody asks a program for a key that is not there,
//! and each ring that is named by what it is of is one for all.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use crate::errno::Errno;

/// Keys at most, and bytes of one.
const MOST: usize = 1000;
pub(crate) const MOST_BYTES: u64 = 32_767;

/// What a key is.
pub(crate) struct Key {
    kind: Vec<u8>,
    name: Vec<u8>,
    pub bytes: Vec<u8>,
    /// What is in it, if it is a ring.
    pub links: Vec<u32>,
    owner: [u32; 2],
    rights: u32,
    /// It may not be used any more.
    revoked: bool,
}

/// All keys, by their numbers.
#[derive(Default)]
pub(crate) struct Keys {
    all: BTreeMap<u32, Key>,
    /// Rings that have names of their own: of threads, processes, sessions and users.
    special: BTreeMap<u32, u32>,
    last: u32,
}

const RING: &[u8] = b"keyring";

impl Keys {
    fn new_key(&mut self, kind: &[u8], name: &[u8], owner: [u32; 2], rights: u32) -> Result<u32, Errno> {
        if self.all.len() >= MOST {
            return Err(Errno::EDQUOT);
        }
        // Large numbers, as from a real kernel.
        self.last = self.last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = (self.last & 0x3fff_ffff).max(1);
        let (kind, name) = (kind.to_vec(), name.to_vec());
        let key = Key { kind, name, bytes: Vec::new(), links: Vec::new(), owner, rights, revoked: false };
        self.all.insert(number, key);
        Ok(number)
    }

    /// A key by its number, or a ring by what it is of, which may be made if it is not there.
    pub fn find(&mut self, number: u32, owner: [u32; 2], makes: bool) -> Result<u32, Errno> {
        const THREAD: i32 = -1;
        const PROCESS: i32 = -2;
        const SESSION: i32 = -3;
        const USER: i32 = -4;
        const USER_SESSION: i32 = -5;
        let there = self.special.get(&number).filter(|there| self.all.contains_key(there)).copied();
        let user = owner[0];
        // Such rings are of a user, and of no group.
        let of_user = [user, 65_534];
        match number as i32 {
            THREAD | PROCESS if there.is_none() && !makes => Err(Errno::ENOKEY),
            USER_SESSION..=THREAD if there.is_some() => there.ok_or(Errno::ENOKEY),
            SESSION => self.find(USER_SESSION as u32, owner, true),
            which @ (USER | USER_SESSION) => {
                let name = if which == USER { format!("_uid.{user}") } else { format!("_uid_ses.{user}") };
                let ring = self.new_key(RING, name.as_bytes(), of_user, 0x1f3f_0000)?;
                self.special.insert(number, ring);
                if which == USER_SESSION {
                    let inner = self.find(USER as u32, owner, true)?;
                    self.link(inner, ring)?;
                }
                Ok(ring)
            }
            which @ (THREAD | PROCESS) => {
                let name: &[u8] = if which == THREAD { b"_tid" } else { b"_pid" };
                let ring = self.new_key(RING, name, owner, 0x3f3f_0000)?;
                self.special.insert(number, ring);
                Ok(ring)
            }
            ..=0 => Err(Errno::EINVAL),
            _ => match self.all.get(&number) {
                None => Err(Errno::ENOKEY),
                Some(key) if key.revoked => Err(Errno::EKEYREVOKED),
                Some(_) => Ok(number),
            },
        }
    }

    pub fn get(&mut self, number: u32) -> Result<&mut Key, Errno> {
        self.all.get_mut(&number).ok_or(Errno::ENOKEY)
    }

    fn ring(&mut self, number: u32) -> Result<&mut Key, Errno> {
        self.get(number).and_then(|key| if key.kind == RING { Ok(key) } else { Err(Errno::ENOTDIR) })
    }

    /// A ring of a session, new.
    pub fn join(&mut self, name: &[u8], owner: [u32; 2]) -> Result<u32, Errno> {
        let ring = self.new_key(RING, name, owner, 0x3f1b_0000)?;
        self.special.insert(-3_i32 as u32, ring);
        Ok(ring)
    }

    /// Adds a key to a ring, or gives the one of that name there other bytes.
    pub fn add(
        &mut self,
        (kind, name): (&[u8], &[u8]),
        bytes: Vec<u8>,
        ring: u32,
        owner: [u32; 2],
    ) -> Result<u32, Errno> {
        let links = self.ring(ring)?.links.clone();
        let same =
            |number: &&u32| self.all.get(number).is_some_and(|key| key.kind == kind && key.name == name);
        let there = links.iter().find(same).copied();
        let number = match there {
            Some(number) if kind != RING => number,
            _ => {
                let number = self.new_key(kind, name, owner, 0x3f01_0000)?;
                let links = &mut self.ring(ring)?.links;
                links.retain(|other| Some(*other) != there);
                links.push(number);
                number
            }
        };
        self.get(number)?.bytes = bytes;
        Ok(number)
    }

    pub fn link(&mut self, key: u32, ring: u32) -> Result<(), Errno> {
        let links = &mut self.ring(ring)?.links;
        if !links.contains(&key) {
            links.push(key);
        }
        Ok(())
    }

    pub fn unlink(&mut self, key: u32, ring: u32) -> Result<(), Errno> {
        let links = &mut self.ring(ring)?.links;
        let before = links.len();
        links.retain(|other| *other != key);
        if links.len() == before {
            return Err(Errno::ENOENT);
        }
        self.sweep();
        Ok(())
    }

    pub fn clear(&mut self, ring: u32) -> Result<(), Errno> {
        self.ring(ring)?.links.clear();
        self.sweep();
        Ok(())
    }

    pub fn revoke(&mut self, key: u32) -> Result<(), Errno> {
        let key = self.get(key)?;
        key.revoked = true;
        key.links.clear();
        Ok(())
    }

    /// A key of that kind and name in a ring, or in rings in it.
    pub fn search(&self, ring: u32, kind: &[u8], name: &[u8]) -> Option<u32> {
        let (mut rings, mut next) = (alloc::vec![ring], 0);
        while let Some(ring) = rings.get(next).and_then(|ring| self.all.get(ring)) {
            for number in &ring.links {
                let Some(key) = self.all.get(number) else { continue };
                if key.kind == kind && key.name == name {
                    return Some(*number);
                }
                if key.kind == RING && !rings.contains(number) {
                    rings.push(*number);
                }
            }
            next += 1;
        }
        None
    }

    /// What is in no ring goes.
    fn sweep(&mut self) {
        let linked: Vec<u32> = self.all.values().flat_map(|key| key.links.iter().copied()).collect();
        let special: Vec<u32> = self.special.values().copied().collect();
        self.all.retain(|number, _| linked.contains(number) || special.contains(number));
    }

    /// What a key is, in words, and what it holds.
    pub fn describe(&mut self, key: u32) -> Result<Vec<u8>, Errno> {
        let key = self.get(key)?;
        let [user, group] = key.owner;
        let mut text = key.kind.clone();
        text.extend(format!(";{user};{group};{:08x};", key.rights).into_bytes());
        text.extend_from_slice(&key.name);
        text.push(0);
        Ok(text)
    }

    pub fn read(&mut self, key: u32) -> Result<Vec<u8>, Errno> {
        let key = self.get(key)?;
        let links = key.links.iter().flat_map(|link| link.to_le_bytes());
        Ok(if key.kind == RING { links.collect() } else { key.bytes.clone() })
    }

    pub fn set(&mut self, key: u32, rights: Option<u32>, owner: [u32; 2]) -> Result<(), Errno> {
        let key = self.get(key)?;
        key.rights = rights.unwrap_or(key.rights);
        for (now, new) in key.owner.iter_mut().zip(owner).filter(|(_, new)| *new != u32::MAX) {
            *now = new;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_name_and_go_with_their_rings() {
        let (mut keys, root) = (Keys::default(), [0; 2]);
        let ring = keys.find(-3_i32 as u32, root, false).unwrap();
        assert_eq!(keys.find(-5_i32 as u32, root, false), Ok(ring));
        assert_eq!(keys.find(-2_i32 as u32, root, false), Err(Errno::ENOKEY));
        let key = keys.add((b"user", b"a"), b"x".to_vec(), ring, root).unwrap();
        assert_eq!(keys.add((b"user", b"a"), b"yy".to_vec(), ring, root), Ok(key));
        assert_eq!(keys.read(key).unwrap(), b"yy");
        let inner = keys.add((RING, b"r"), Vec::new(), ring, root).unwrap();
        let deep = keys.add((b"user", b"d"), Vec::new(), inner, root).unwrap();
        assert_eq!((keys.search(ring, b"user", b"d"), keys.search(ring, b"user", b"e")), (Some(deep), None));
        assert_eq!(keys.describe(key).unwrap(), b"user;0;0;3f010000;a\0");
        assert_eq!(keys.describe(ring).unwrap(), b"keyring;0;65534;1f3f0000;_uid_ses.0\0");
        assert_eq!((keys.unlink(inner, ring), keys.find(inner, root, false)), (Ok(()), Err(Errno::ENOKEY)));
        assert_eq!(keys.link(ring, key), Err(Errno::ENOTDIR));
        keys.revoke(key).unwrap();
        assert_eq!(keys.find(key, root, false), Err(Errno::EKEYREVOKED));
        let session = keys.join(b"_ses", root).unwrap();
        assert_eq!(keys.find(-3_i32 as u32, root, false), Ok(session));
    }
}
