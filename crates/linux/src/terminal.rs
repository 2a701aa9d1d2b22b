//! Terminals: what is written at the master comes in as if it were typed, what programs print comes out there.
//!
//! A terminal has what is set (`termios`), what was typed and nobody has read, and what was printed and the master has not read.

mod line;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::left::{Leaving, Left};
use crate::pipe::Done;
use crate::sync::{Spin, key_of};

use crate::termios::input;
pub use crate::termios::{OLD, SETTINGS, Settings, WITH_SPEEDS, local};
pub use line::OUTPUT;
use line::{END, END_ALONE, State};

/// What `/dev/pts` has them as: their major number.
const MAJOR: u64 = 136;

/// The number of a terminal's device.
pub(crate) fn device(number: u32) -> u64 {
    let minor = u64::from(number);
    minor & 0xff | MAJOR << 8 | (minor & !0xff) << 12
}

/// What both sides share.
pub struct Terminal {
    /// Its number, as `/dev/pts` has it.
    pub number: u32,
    state: Spin<State>,
    /// Nobody opens it until its master has said so.
    pub locked: AtomicBool,
    /// Whether what the master reads begins with a byte that says what it is (`TIOCPKT`): always bytes that were printed.
    pub packets: AtomicBool,
    /// Its master is gone.
    over: AtomicBool,
    slaves: AtomicU32,
    /// How often it was hung up.
    hung: AtomicU32,
    opened: AtomicBool,
    changes: [AtomicU64; 2],
    left: Arc<Left>,
}

/// One of its sides, open.
pub struct Side {
    /// Which terminal's.
    pub terminal: Arc<Terminal>,
    master: bool,
    /// How often it had been hung up when this side was opened.
    since: u32,
}

impl Side {
    /// Of a program's side: the master is gone, or it was hung up since.
    pub fn is_over(&self) -> bool {
        self.terminal.is_over() || self.is_hung_up()
    }

    fn is_hung_up(&self) -> bool {
        self.terminal.hung.load(Ordering::SeqCst) != self.since
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let terminal = &self.terminal;
        if self.master {
            terminal.over.store(true, Ordering::SeqCst);
            terminal.change();
            terminal.left.add(Leaving::Terminal(terminal.number));
        } else if terminal
            .state
            .with(|_| !self.is_hung_up() && terminal.slaves.fetch_sub(1, Ordering::SeqCst) == 1)
        {
            terminal.change();
            terminal.left.add(Leaving::Key(key_of(&**terminal)));
        }
    }
}

impl Terminal {
    /// A new one, and its master.
    pub fn new(number: u32, left: &Arc<Left>) -> (Arc<Terminal>, Side) {
        let state = State {
            settings: Settings::first(),
            size: [0; 4],
            group: 0,
            session: 0,
            typed: VecDeque::new(),
            line: Vec::new(),
            quoted: false,
            printed: VecDeque::new(),
            column: 0,
            held: false,
        };
        let terminal = Arc::new(Terminal {
            number,
            state: Spin::new(state),
            locked: AtomicBool::new(true),
            packets: AtomicBool::new(false),
            over: AtomicBool::new(false),
            slaves: AtomicU32::new(0),
            hung: AtomicU32::new(0),
            opened: AtomicBool::new(false),
            changes: Default::default(),
            left: left.clone(),
        });
        let master = Side { terminal: terminal.clone(), master: true, since: 0 };
        (terminal, master)
    }

    /// It is opened as a program's.
    pub fn slave(self: &Arc<Terminal>) -> Side {
        let since = self.state.with(|_| {
            self.slaves.fetch_add(1, Ordering::SeqCst);
            self.hung.load(Ordering::SeqCst)
        });
        self.opened.store(true, Ordering::SeqCst);
        self.change();
        Side { terminal: self.clone(), master: false, since }
    }

    /// Whoever has it open as a program's has it no more, and what was typed is lost.
    pub fn hang_up(&self) {
        self.state.with(|state| {
            state.typed.clear();
            state.line.clear();
            self.slaves.store(0, Ordering::SeqCst);
            self.hung.fetch_add(1, Ordering::SeqCst);
        });
        self.change();
    }

    fn change(&self) {
        self.changes.iter().for_each(|changes| _ = changes.fetch_add(1, Ordering::SeqCst));
    }

    /// How often something has changed for whoever reads and for whoever writes.
    pub fn changes(&self) -> [u64; 2] {
        self.changes.each_ref().map(|changes| changes.load(Ordering::SeqCst))
    }

    /// Its master is gone.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// No program has it open any more.
    pub fn is_left(&self) -> bool {
        self.opened.load(Ordering::SeqCst) && self.slaves.load(Ordering::SeqCst) == 0
    }

    /// What is set.
    pub fn settings(&self) -> Settings {
        self.state.with(|state| state.settings.clone())
    }

    /// Sets this; what was typed is dropped if `flush`.
    pub fn set(&self, bytes: &[u8], flush: bool) {
        self.state.with(|state| {
            let new = state.settings.unpack(bytes);
            let was = state.settings.local(local::LINES);
            if flush {
                state.typed.clear();
                state.line.clear();
            }
            if was && !new.local(local::LINES) {
                let line = core::mem::take(&mut state.line);
                state.typed.extend(line.into_iter().map(u16::from));
                state.typed.retain(|&byte| byte != END_ALONE);
                state.typed.iter_mut().for_each(|byte| *byte &= 0xff);
            } else if !was && let Some(last) = state.typed.back_mut() {
                *last |= END;
            }
            if !new.input(input::FLOW) {
                state.held = false;
            }
            state.settings = new;
        });
        self.change();
    }

    /// Its size.
    pub fn size(&self) -> [u16; 4] {
        self.state.with(|state| state.size)
    }

    /// Sets it; says whether it is another.
    pub fn resize(&self, size: [u16; 4]) -> bool {
        self.state.with(|state| core::mem::replace(&mut state.size, size) != size)
    }

    /// The group that may read, and the session whose it is; 0 of each is none.
    pub fn owners(&self) -> (u32, u32) {
        self.state.with(|state| (state.group, state.session))
    }

    /// Sets them if they were these before: of two who want it one gets it.
    pub fn change_owners(&self, before: (u32, u32), after: (u32, u32)) -> bool {
        self.state.with(|state| {
            let is_so = (state.group, state.session) == before;
            if is_so {
                (state.group, state.session) = after;
            }
            is_so
        })
    }

    /// Sets them.
    pub fn set_owners(&self, group: u32, session: u32) {
        self.state.with(|state| (state.group, state.session) = (group, session));
    }

    /// Drops what was typed, or printed.
    pub fn flush(&self, typed: bool, printed: bool) {
        self.state.with(|state| {
            if typed {
                state.typed.clear();
                state.line.clear();
            }
            if printed {
                state.printed.clear();
            }
        });
        self.change();
    }

    /// Output waits, or goes on.
    pub fn hold(&self, held: bool) {
        self.state.with(|state| state.held = held);
        self.change();
    }

    /// Bytes that a program could read, and that the master could.
    pub fn waiting(&self) -> (usize, usize) {
        self.state.with(|state| {
            let lines = state.settings.local(local::LINES);
            let ends = state.typed.iter().rposition(|byte| byte & END != 0).map_or(0, |last| last + 1);
            let typed = if lines {
                state.typed.iter().take(ends).filter(|&&byte| byte != END_ALONE).count()
            } else {
                state.typed.len()
            };
            (typed, state.printed.len())
        })
    }

    /// What a program's read would find, and whether a write would go.
    pub fn slave_ready(&self) -> (bool, bool) {
        self.state
            .with(|state| (state.is_readable(usize::MAX), !state.held && state.printed.len() + 256 < OUTPUT))
    }

    /// The same of the master's.
    pub fn master_ready(&self) -> (bool, bool) {
        self.state.with(|state| (!state.printed.is_empty(), state.has_room()))
    }

    /// The master writes; returns how many bytes it took, and what signals they mean.
    pub fn type_in(&self, bytes: &[u8]) -> (Done, Vec<u32>) {
        let (mut count, mut signals) = (0, Vec::new());
        self.state.with(|state| {
            for &byte in bytes {
                if !state.has_room() {
                    break;
                }
                count += 1;
                if let Some(signal) = state.type_in(byte)
                    && !signals.contains(&signal)
                {
                    signals.push(signal);
                }
            }
        });
        if count > 0 {
            self.change();
        }
        (if count == 0 && !bytes.is_empty() { Done::Wait } else { Done::Bytes(count) }, signals)
    }

    /// The master reads.
    pub fn printed(&self, into: &mut [u8]) -> Done {
        let count = self.state.with(|state| {
            let count = state.printed.len().min(into.len());
            into.iter_mut().zip(state.printed.drain(..count)).for_each(|(to, byte)| *to = byte);
            count
        });
        if count > 0 {
            self.change();
        }
        if count == 0 && !into.is_empty() { Done::Wait } else { Done::Bytes(count) }
    }

    /// A program prints.
    pub fn print(&self, bytes: &[u8]) -> Done {
        let count = self.state.with(|state| {
            if state.held {
                return 0;
            }
            bytes.iter().take_while(|&&byte| state.print(byte)).count()
        });
        if count > 0 {
            self.change();
        }
        if count == 0 && !bytes.is_empty() { Done::Wait } else { Done::Bytes(count) }
    }

    /// A program reads: a line, or what there is. `at_once`: however few bytes there are, none too.
    pub fn read(&self, into: &mut [u8], at_once: bool) -> Done {
        if into.is_empty() {
            return Done::Bytes(0);
        }
        let count = self.state.with(|state| {
            if !state.is_readable(into.len()) && (!at_once || state.settings.local(local::LINES)) {
                return None;
            }
            let mut count = 0;
            while count < into.len() {
                let Some(byte) = state.typed.pop_front() else { break };
                if byte != END_ALONE {
                    into[count] = byte as u8;
                    count += 1;
                }
                if byte & END != 0 {
                    break;
                }
            }
            Some(count)
        });
        if count.is_some() {
            self.change();
        }
        count.map_or(Done::Wait, Done::Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::line::ROOM;

    fn new() -> (Arc<Terminal>, Side, Side) {
        let (terminal, master) = Terminal::new(0, &Arc::default());
        let slave = terminal.slave();
        (terminal, master, slave)
    }

    fn seen(terminal: &Terminal) -> Vec<u8> {
        let mut buffer = [0; 100];
        match terminal.printed(&mut buffer) {
            Done::Bytes(count) => buffer[..count].to_vec(),
            Done::Wait => Vec::new(),
        }
    }

    fn line(terminal: &Terminal) -> Option<Vec<u8>> {
        let mut buffer = [0; 100];
        match terminal.read(&mut buffer, false) {
            Done::Bytes(count) => Some(buffer[..count].to_vec()),
            Done::Wait => None,
        }
    }

    #[test]
    fn a_line_comes_whole_with_what_was_mended_in_it() {
        let (terminal, _master, _slave) = new();
        terminal.type_in(b"hex\x7fl");
        assert_eq!(line(&terminal), None);
        assert_eq!(seen(&terminal), b"hex\x08 \x08l");
        terminal.type_in(b"p\rnext\n");
        assert_eq!(seen(&terminal), b"p\r\nnext\r\n");
        assert_eq!((line(&terminal), line(&terminal)), (Some(b"help\n".to_vec()), Some(b"next\n".to_vec())));
        terminal.type_in(b"two words\x17\x15ab\x16\x03\n");
        assert_eq!(line(&terminal), Some(b"ab\x03\n".to_vec()));
        terminal.type_in(b"x\x04\x04");
        assert_eq!(
            (line(&terminal), line(&terminal), line(&terminal)),
            (Some(b"x".to_vec()), Some(Vec::new()), None)
        );
    }

    #[test]
    fn characters_mean_signals_and_drop_what_was_typed() {
        let (terminal, _master, _slave) = new();
        let (done, signals) = terminal.type_in(b"lost\x03\x1c\x1a");
        assert_eq!((done, signals), (Done::Bytes(7), alloc::vec![2, 3, 20]));
        assert_eq!(seen(&terminal), b"^Z");
        terminal.type_in(b"\n");
        assert_eq!(line(&terminal), Some(b"\n".to_vec()));
    }

    #[test]
    fn without_lines_each_byte_comes_and_lines_come_back() {
        let (terminal, _master, _slave) = new();
        let mut settings = terminal.settings().pack();
        terminal.type_in(b"ab");
        settings[12..16].fill(0);
        terminal.set(&settings, false);
        assert_eq!(line(&terminal), Some(b"ab".to_vec()));
        terminal.type_in(b"c\x03");
        assert_eq!(line(&terminal), Some(b"c\x03".to_vec()));
        assert_eq!(line(&terminal), None);
        assert_eq!(terminal.read(&mut [0; 4], true), Done::Bytes(0));
    }

    #[test]
    fn nothing_takes_more_room_than_there_is() {
        let (terminal, _master, _slave) = new();
        let much = alloc::vec![b'x'; 3 * ROOM];
        assert_eq!(terminal.type_in(&much).0, Done::Bytes(3 * ROOM), "a line that is too long loses bytes");
        assert!(terminal.waiting().1 <= OUTPUT);
        terminal.type_in(b"\n");
        assert_eq!(terminal.type_in(b"y").0, Done::Wait);
        let mut all = alloc::vec![0; 2 * ROOM];
        assert_eq!(terminal.read(&mut all, false), Done::Bytes(ROOM));
        terminal.flush(true, true);
        let mut printed = 0;
        while let Done::Bytes(count) = terminal.print(&much) {
            printed += count;
        }
        assert!(printed <= OUTPUT && terminal.waiting().1 <= OUTPUT);
    }

    #[test]
    fn who_is_left_alone_knows() {
        let (terminal, master, slave) = new();
        assert!(!terminal.is_left() && !terminal.is_over());
        drop(slave);
        assert!(terminal.is_left());
        let again = terminal.slave();
        assert!(!terminal.is_left());
        drop(master);
        assert!(terminal.is_over());
        drop(again);
    }
}
