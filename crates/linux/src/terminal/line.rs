//! The line of a terminal: what is typed and what is printed, as the settings have it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::signal::number;
use crate::termios::{Settings, at, input, local, output};

/// Bytes that are typed and wait, and that are printed and wait.
pub const ROOM: usize = 4096;
pub const OUTPUT: usize = 8192;

/// A byte that was typed, with this if a line ends there; and an end without a byte.
pub(super) const END: u16 = 0x100;
pub(super) const END_ALONE: u16 = 0x300;

/// What was set, typed and printed.
pub(super) struct State {
    pub settings: Settings,
    /// Rows, columns, and two that nobody uses.
    pub size: [u16; 4],
    pub group: u32,
    pub session: u32,
    /// What can be read.
    pub typed: VecDeque<u16>,
    /// The line that is being typed.
    pub line: Vec<u8>,
    /// The next byte means itself.
    pub quoted: bool,
    pub printed: VecDeque<u8>,
    pub column: usize,
    /// Output waits.
    pub held: bool,
}

impl State {
    pub fn print(&mut self, byte: u8) -> bool {
        if self.printed.len() + 8 > OUTPUT {
            return false;
        }
        let settings = &self.settings;
        if !settings.output(output::AT_ALL) {
            self.printed.push_back(byte);
            return true;
        }
        match byte {
            b'\n' => {
                if settings.output(output::NL_TO_CR_NL) {
                    self.printed.push_back(b'\r');
                    self.column = 0;
                }
                if settings.output(output::NL_RETURNS) {
                    self.column = 0;
                }
                self.printed.push_back(b'\n');
            }
            b'\r' if settings.output(output::NO_CR_AT_START) && self.column == 0 => {}
            b'\r' => {
                let to_line = settings.output(output::CR_TO_NL);
                self.printed.push_back(if to_line { b'\n' } else { b'\r' });
                if !to_line || settings.output(output::NL_RETURNS) {
                    self.column = 0;
                }
            }
            b'\t' => {
                let wide = 8 - self.column % 8;
                self.column += wide;
                if settings.flags[1] & output::TABS == output::TABS {
                    self.printed.extend(core::iter::repeat_n(b' ', wide));
                } else {
                    self.printed.push_back(byte);
                }
            }
            8 => {
                self.column = self.column.saturating_sub(1);
                self.printed.push_back(byte);
            }
            _ => {
                let byte = if settings.output(output::UPPER) { byte.to_ascii_uppercase() } else { byte };
                if byte >= b' ' && byte & 0xc0 != 0x80 {
                    self.column += 1;
                }
                self.printed.push_back(byte);
            }
        }
        true
    }

    pub fn echo(&mut self, byte: u8) {
        let control = byte < b' ' && byte != b'\t' && byte != b'\n' || byte == 127;
        if control && self.settings.local(local::ECHO_CONTROL) {
            self.print(b'^');
            self.print(byte ^ 0x40);
        } else {
            self.print(byte);
        }
    }

    /// How many columns a byte of the line took.
    pub fn columns(&self, byte: u8, before: usize) -> usize {
        match byte {
            b'\t' => 8 - before % 8,
            _ if byte < b' ' || byte == 127 => 2 * usize::from(self.settings.local(local::ECHO_CONTROL)),
            _ if self.settings.input(input::UTF8) && byte & 0xc0 == 0x80 => 0,
            _ => 1,
        }
    }

    /// Takes the last character of the line away.
    pub fn erase(&mut self) {
        let mut gone = Vec::new();
        while let Some(byte) = self.line.pop() {
            gone.push(byte);
            if !self.settings.input(input::UTF8) || byte & 0xc0 != 0x80 {
                break;
            }
        }
        if !self.settings.local(local::ECHO) {
            return;
        }
        if !self.settings.local(local::ECHO_ERASE) {
            let erase = self.settings.characters[at::ERASE];
            self.echo(erase);
            return;
        }
        let Some(&byte) = gone.last() else { return };
        let wide = if byte == b'\t' {
            // Where the line began is not known: as far as the line itself says.
            let before = self.line.iter().fold(0, |column, &byte| column + self.columns(byte, column));
            self.columns(byte, before)
        } else {
            self.columns(byte, 0)
        };
        for _ in 0..wide {
            self.print(8);
            if byte != b'\t' {
                self.print(b' ');
                self.print(8);
            }
        }
    }

    pub fn end_line(&mut self, last: u16) {
        self.typed.extend(self.line.drain(..).map(u16::from));
        self.typed.push_back(last);
    }

    /// One byte comes in; returns the signal that it means.
    pub fn type_in(&mut self, byte: u8) -> Option<u32> {
        let mut byte = if self.settings.input(input::STRIP) { byte & 0x7f } else { byte };
        let lines = self.settings.local(local::LINES);
        if core::mem::take(&mut self.quoted) {
            self.accept(byte, lines);
            return None;
        }
        if self.settings.input(input::LOWER) && self.settings.local(local::MORE) {
            byte = byte.to_ascii_lowercase();
        }
        if self.settings.input(input::FLOW) {
            if self.settings.is(byte, at::START) || self.settings.is(byte, at::STOP) {
                self.held = self.settings.is(byte, at::STOP) && !self.settings.is(byte, at::START);
                return None;
            }
            if self.settings.input(input::ANY_GOES_ON) {
                self.held = false;
            }
        }
        if self.settings.local(local::SIGNALS) {
            let signals = [
                (at::INTERRUPT, number::INTERRUPT),
                (at::QUIT, number::QUIT),
                (at::SUSPEND, number::TERMINAL_STOP),
            ];
            if let Some((_, signal)) = signals.into_iter().find(|&(place, _)| self.settings.is(byte, place)) {
                if !self.settings.local(local::NO_FLUSH) {
                    self.typed.clear();
                    self.line.clear();
                    self.printed.clear();
                }
                self.held = false;
                if self.settings.local(local::ECHO) {
                    self.echo(byte);
                }
                return Some(signal);
            }
        }
        match byte {
            b'\r' if self.settings.input(input::NO_CR) => return None,
            b'\r' if self.settings.input(input::CR_TO_NL) => byte = b'\n',
            b'\n' if self.settings.input(input::NL_TO_CR) => byte = b'\r',
            _ => {}
        }
        if !lines {
            self.accept(byte, false);
            return None;
        }
        let echo = self.settings.local(local::ECHO);
        let more = self.settings.local(local::MORE);
        match byte {
            b'\n' => {
                if echo || self.settings.local(local::ECHO_NL) {
                    self.print(b'\n');
                }
                self.end_line(u16::from(b'\n') | END);
            }
            _ if self.settings.is(byte, at::END) => self.end_line(END_ALONE),
            _ if self.settings.is(byte, at::LINE) || more && self.settings.is(byte, at::LINE_TOO) => {
                if echo {
                    self.echo(byte);
                }
                self.end_line(u16::from(byte) | END);
            }
            _ if self.settings.is(byte, at::ERASE) => {
                if !self.line.is_empty() {
                    self.erase();
                }
            }
            _ if more && self.settings.is(byte, at::WORD) => {
                let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
                let mut seen = false;
                while let Some(&last) = self.line.last() {
                    if seen && !is_word(last) {
                        break;
                    }
                    seen |= is_word(last);
                    self.erase();
                }
            }
            _ if self.settings.is(byte, at::KILL) => {
                if echo
                    && self.settings.local(local::ECHO_KILL_BY_ERASE)
                    && self.settings.local(local::ECHO_ERASE)
                {
                    while !self.line.is_empty() {
                        self.erase();
                    }
                } else {
                    self.line.clear();
                    if echo {
                        self.echo(byte);
                        if self.settings.local(local::ECHO_KILL) {
                            self.print(b'\n');
                        }
                    }
                }
            }
            _ if more && self.settings.is(byte, at::NEXT) => {
                self.quoted = true;
                if echo && self.settings.local(local::ECHO_CONTROL) {
                    self.print(b'^');
                    self.print(8);
                }
            }
            _ if more && self.settings.is(byte, at::AGAIN) && echo => {
                self.echo(byte);
                self.print(b'\n');
                self.line.clone().into_iter().for_each(|byte| self.echo(byte));
            }
            _ => self.accept(byte, true),
        }
        None
    }

    pub fn accept(&mut self, byte: u8, lines: bool) {
        if lines && self.line.len() + self.typed.len() >= ROOM - 1 {
            if self.settings.input(input::BELL) {
                self.print(7);
            }
            return;
        }
        if self.settings.local(local::ECHO) {
            self.echo(byte);
        }
        if lines { self.line.push(byte) } else { self.typed.push_back(byte.into()) }
    }

    pub fn is_readable(&self, asked: usize) -> bool {
        if self.settings.local(local::LINES) {
            return self.typed.iter().any(|&byte| byte & END != 0);
        }
        let (least, time) = self.settings.least();
        let least = if time > 0 { 1 } else { least.max(1) };
        self.typed.len() >= least.min(asked.max(1))
    }
}

impl State {
    pub fn has_room(&self) -> bool {
        let lines = self.settings.local(local::LINES);
        // A line that is too long loses bytes; whoever does not wait for lines makes room by reading.
        self.typed.len() < ROOM - 1 || lines && !self.typed.iter().any(|byte| byte & END != 0)
    }
}
