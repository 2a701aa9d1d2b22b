//! Who hears by a signal that something has come to what is open (`O_ASYNC`, `F_SETOWN`), or has happened in a directory (`F_NOTIFY`).

/// Who hears of what is open, and how.
#[derive(Clone, Copy, Default)]
pub struct Hearer {
    /// 0: a thread, 1: a process, 2: a group.
    pub kind: u32,
    pub who: u32,
    /// The signal; 0 is the usual one.
    pub signal: u32,
    /// The number under which it was asked for, which comes with the signal.
    pub number: u32,
    /// What of a directory.
    pub notes: u32,
    /// What there was to be heard when it was last looked at, and how often it had changed.
    pub seen: (u32, [u64; 2]),
    /// It is in the list of those that are looked at.
    pub listed: bool,
}

/// Of directories: what can be asked for. More than once, if the last bit is set.
pub mod note {
    pub const ALL: u32 = 0x3f;
    pub const AGAIN: u32 = 0x8000_0000;

    /// What is asked for, as it is when it happens to a file in it.
    pub fn of(what: u32) -> u32 {
        use crate::watches::event;
        const KINDS: [(u32, u32); 6] = [
            (event::ACCESS, 1),
            (event::MODIFY, 2),
            (event::CREATE | event::MOVED_TO, 4),
            (event::DELETE | event::MOVED_FROM, 8),
            (event::MOVED_FROM, 0x10),
            (event::ATTRIBUTES, 0x20),
        ];
        KINDS.iter().filter(|(event, _)| what & event != 0).map(|(_, note)| note).sum()
    }
}
