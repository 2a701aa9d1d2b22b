//! What there is of a network, as sockets are asked: one interface, which leads back here.

use crate::errno::{Answer, Errno};
use crate::kernel::Linux;
use crate::machine::Machine;

/// The interface's number, and what it is: up, back here, running.
const NUMBER: u32 = 1;
const FLAGS: u16 = 0x49;
/// Its kind of addresses below those of the network.
const LOOPBACK: u16 = 772;
const NAME: [u8; 3] = *b"lo\0";

/// `struct ifreq`: a name, and what is said of it.
const BYTES: usize = 40;
const SAID: usize = 16;

fn address(bytes: [u8; 4]) -> [u8; 24] {
    let mut all = [0; 24];
    all[0] = 2;
    all[4..8].copy_from_slice(&bytes);
    all
}

/// What is said to one of these questions.
fn answer(what: u64) -> Option<[u8; 24]> {
    let word = |word: u32| {
        let mut all = [0; 24];
        all[..4].copy_from_slice(&word.to_le_bytes());
        all
    };
    Some(match what {
        0x8913 => word(FLAGS.into()),
        0x8915 | 0x8917 => address([127, 0, 0, 1]),
        0x8919 => address([0; 4]),
        0x891b => address([255, 0, 0, 0]),
        0x891d => word(0),
        0x8921 => word(65536),
        0x8927 => word(LOOPBACK.into()),
        0x8933 => word(NUMBER),
        0x8942 => word(1000),
        _ => return None,
    })
}

impl<M: Machine> Linux<'_, M> {
    /// Asked of a socket about interfaces.
    pub(in crate::call) fn ioctl_interface(&self, what: u64, with: u64) -> Answer {
        const LIST: u64 = 0x8912;
        const NAME_OF: u64 = 0x8910;
        if what == LIST {
            let (room, to) = (self.load_word(with)?, self.load_long(with + 8)?);
            let mut one = [0; BYTES];
            one[..NAME.len()].copy_from_slice(&NAME);
            one[SAID..].copy_from_slice(&address([127, 0, 0, 1]));
            let bytes = if to == 0 || room >= BYTES as u32 { BYTES } else { 0 };
            if to != 0 {
                self.machine.write_user(to, &one[..bytes])?;
            }
            return self.machine.write_user(with, &(bytes as u32).to_le_bytes()).map(|()| 0);
        }
        if what == NAME_OF {
            if self.load_word(with + SAID as u64)? != NUMBER {
                return Err(Errno::ENODEV);
            }
            return self.machine.write_user(with, &NAME).map(|()| 0);
        }
        let said = answer(what).ok_or(Errno::ENOTTY)?;
        let mut name = [0; SAID];
        self.machine.read_user(with, &mut name)?;
        let end = name.iter().position(|&byte| byte == 0 || byte == b':').unwrap_or(SAID);
        if name[..end] != NAME[..2] {
            return Err(Errno::ENODEV);
        }
        self.machine.write_user(with + SAID as u64, &said).map(|()| 0)
    }
}
