//! Signals: what programs want of them, and the frame by which one is delivered.

use alloc::vec::Vec;

use crate::frame::{Frame, Fx, Registers};

/// Signals that the kernel sends itself.
#[allow(missing_docs)]
pub mod number {
    pub const HANG_UP: u32 = 1;
    pub const INTERRUPT: u32 = 2;
    pub const QUIT: u32 = 3;
    pub const ILLEGAL: u32 = 4;
    pub const TRAP: u32 = 5;
    pub const ABORT: u32 = 6;
    pub const BUS: u32 = 7;
    pub const ARITHMETIC: u32 = 8;
    pub const KILL: u32 = 9;
    pub const SEGMENT: u32 = 11;
    pub const PIPE: u32 = 13;
    pub const ALARM: u32 = 14;
    pub const CPU_LIMIT: u32 = 24;
    pub const FILE_SIZE: u32 = 25;
    pub const CHILD: u32 = 17;
    pub const CONTINUE: u32 = 18;
    pub const STOP: u32 = 19;
    pub const TERMINAL_STOP: u32 = 20;
    pub const TERMINAL_IN: u32 = 21;
    pub const TERMINAL_OUT: u32 = 22;
    pub const URGENT: u32 = 23;
    pub const WINDOW: u32 = 28;
    pub const INPUT: u32 = 29;
    pub const BAD_CALL: u32 = 31;
    /// Those that stop a process: that one, and three of terminals.
    pub const STOPS: u64 = 0b1111 << 18;
    /// The first of those that are queued.
    pub const FIRST_REAL: u32 = 32;
    /// The highest.
    pub const LAST: u32 = 64;
}

/// A set of signals, as programs have it.
pub const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Which of several signals is heard first: those of what the thread itself does, then the lowest.
pub const fn first_of(signals: u64) -> u32 {
    const OF_ITSELF: u64 = bit(number::ILLEGAL)
        | bit(number::TRAP)
        | bit(number::BUS)
        | bit(number::ARITHMETIC)
        | bit(number::SEGMENT)
        | bit(number::BAD_CALL);
    let first = signals & OF_ITSELF;
    (if first != 0 { first } else { signals }).trailing_zeros() + 1
}

/// Those that cannot be blocked or handled.
pub const ALWAYS: u64 = bit(number::KILL) | bit(number::STOP);

/// What a program wants of a signal: `struct sigaction` of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Action {
    /// Its handler; 0 and 1 are "as usual" and "nothing".
    pub handler: u64,
    /// See [`act`].
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// What is blocked meanwhile.
    pub mask: u64,
}

/// Flags of an action.
#[allow(missing_docs)]
pub mod act {
    pub const NO_STOPS: u64 = 1;
    pub const NO_WAIT: u64 = 2;
    pub const ON_STACK: u64 = 0x0800_0000;
    pub const RESTART: u64 = 0x1000_0000;
    pub const NO_DEFER: u64 = 0x4000_0000;
    pub const RESET: u64 = 0x8000_0000;
}

impl Action {
    /// Whether this signal does nothing.
    pub fn ignores(&self, signal: u32) -> bool {
        // Children, continuing, urgent data, window sizes.
        const USUALLY: [u32; 4] = [17, 18, 23, 28];
        self.handler == 1 || self.handler == 0 && USUALLY.contains(&signal)
    }

    /// Whether this signal stops a process.
    pub fn stops(&self, signal: u32) -> bool {
        self.handler == 0 && bit(signal) & number::STOPS != 0
    }
}

/// What is said of a signal: the first words of `siginfo_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Info {
    /// Which.
    pub signal: u32,
    /// Why.
    pub code: i32,
    /// The address of a fault, or who sent it.
    pub word: u64,
    /// What came with it: how a child has ended, or what the sender chose.
    pub value: u64,
    /// An error that it comes of, or what a filter of calls chose.
    pub error: u32,
}

/// The stack that handlers use, if one was named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stack {
    /// Its first address.
    pub at: u64,
    /// How long it is.
    pub bytes: u64,
    /// It is named no more while a handler runs there.
    pub disarms: bool,
}

/// The stack of handlers is [`Stack::disarms`], as programs say it.
pub const DISARMS: u32 = 1 << 31;

impl Stack {
    /// Whether a stack pointer lies there. On one that is not named while it is used, nobody is.
    pub fn has(&self, sp: u64) -> bool {
        !self.disarms && sp.wrapping_sub(self.at) <= self.bytes
    }

    /// Whether a handler's frame lies there, if it is to.
    pub fn holds(&self, at: u64) -> bool {
        at.wrapping_sub(self.at) <= self.bytes
    }

    /// How it is to be used, as programs say it.
    pub fn flags(&self) -> u32 {
        if self.disarms { DISARMS } else { 0 }
    }
}

const CONTEXT: usize = 8;
const REGISTERS: usize = CONTEXT + 40;
const MASK: usize = REGISTERS + 256;
const INFO: usize = MASK + 8;
/// Flags that come back from where a handler's frame has them, the others stay as the handler leaves them: alignment, resumed, overflow,
/// direction, steps, sign, zero, adjust, parity, carry.
const KEPT_FLAGS: u64 = 0x5_0dd5;
/// Bytes of a frame, without the vector registers.
const BYTES: usize = INFO + 128;
/// How many bytes of the frame `sigreturn` finds at its stack pointer.
pub const SAVED: usize = MASK + 8 - CONTEXT;

/// What is to be written to a program's stack so that a handler runs, and the registers with which it does.
pub struct Delivery {
    /// Where.
    pub at: u64,
    /// The frame.
    pub bytes: Vec<u8>,
}

fn words(registers: &Registers) -> [u64; 18] {
    let r = registers;
    [
        r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax,
        r.rcx, r.rsp, r.rip, r.flags,
    ]
}

/// Makes the frame, and sets the registers for the handler. `mask` is what is blocked now, and will be again.
pub fn deliver(frame: &mut Frame, action: &Action, info: &Info, mask: u64, named: Option<Stack>) -> Delivery {
    let stack = named.filter(|_| action.flags & act::ON_STACK != 0);
    let old = frame.registers;
    // A function may use 128 bytes below its stack pointer.
    let mut sp = old.rsp.wrapping_sub(128);
    if let Some(stack) = stack.filter(|stack| !stack.has(old.rsp)) {
        sp = stack.at.wrapping_add(stack.bytes);
    }
    let fx_at = sp.wrapping_sub(512) & !63;
    let at = (fx_at.wrapping_sub(BYTES as u64) & !15).wrapping_sub(8);
    let mut bytes = alloc::vec![0; fx_at.wrapping_sub(at) as usize + 512];
    let mut put = |place: usize, value: u64| bytes[place..place + 8].copy_from_slice(&value.to_le_bytes());
    put(0, action.restorer);
    put(CONTEXT, 6);
    let (stack_at, stack_bytes) = named.map_or((0, 0), |stack| (stack.at, stack.bytes));
    put(CONTEXT + 16, stack_at);
    put(CONTEXT + 24, named.map_or(2, |stack| stack.flags()).into());
    put(CONTEXT + 32, stack_bytes);
    for (index, word) in words(&old).into_iter().enumerate() {
        put(REGISTERS + 8 * index, word);
    }
    put(REGISTERS + 144, old.cs & 0xffff | (old.ss & 0xffff) << 48);
    put(REGISTERS + 152, old.error);
    put(REGISTERS + 160, old.vector);
    put(REGISTERS + 168, mask);
    put(REGISTERS + 176, info.word);
    put(REGISTERS + 184, fx_at);
    put(MASK, mask);
    put(INFO, u64::from(info.signal) | u64::from(info.error) << 32);
    put(INFO + 8, u64::from(info.code as u32));
    put(INFO + 16, info.word);
    put(INFO + 24, info.value);
    let fx = (fx_at - at) as usize;
    bytes[fx..fx + 512].copy_from_slice(&frame.fx.0);
    // Bytes that only the kernel's newer formats use.
    bytes[fx + 464..fx + 512].fill(0);
    let r = &mut frame.registers;
    r.rdi = info.signal.into();
    r.rsi = at + INFO as u64;
    r.rdx = at + CONTEXT as u64;
    r.rax = 0;
    r.rsp = at;
    r.rip = action.handler;
    // Direction, steps, resumed.
    r.flags &= !0x1_0500;
    Delivery { at, bytes }
}

/// What a handler leaves behind besides registers.
pub struct Left {
    /// What is blocked from now on.
    pub mask: u64,
    /// Where the vector registers lie, if anywhere.
    pub fx_at: u64,
    /// The stack of handlers: its address, how it is used, its length.
    pub stack: (u64, u32, u64),
}

/// Takes the registers out of what lies at the stack pointer when a handler has returned; returns the rest.
pub fn restore(frame: &mut Frame, saved: &[u8; SAVED]) -> Left {
    let word = |place: usize| {
        let place = place - CONTEXT;
        u64::from_le_bytes(saved[place..place + 8].try_into().expect("8 bytes"))
    };
    let at = |index: usize| word(REGISTERS + 8 * index);
    let r = &mut frame.registers;
    (r.r8, r.r9, r.r10, r.r11, r.r12, r.r13) = (at(0), at(1), at(2), at(3), at(4), at(5));
    (r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx) = (at(6), at(7), at(8), at(9), at(10), at(11));
    (r.rdx, r.rax, r.rcx, r.rsp, r.rip) = (at(12), at(13), at(14), at(15), at(16));
    r.flags = r.flags & !KEPT_FLAGS | at(17) & KEPT_FLAGS;
    let stack = (word(CONTEXT + 16), word(CONTEXT + 24) as u32, word(CONTEXT + 32));
    Left { mask: word(MASK), fx_at: word(REGISTERS + 184), stack }
}

/// No vector registers were saved: those of a program that begins.
pub fn fresh_fx() -> Fx {
    Frame::begin(0, 0).fx
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        let mut frame = Frame::begin(0x40_1000, 0x7fff_0000_1238);
        let r = &mut frame.registers;
        (r.rax, r.rbx, r.r15, r.r8) = (1, 2, 3, 4);
        frame.fx.0[160] = 77;
        frame
    }

    #[test]
    fn what_was_delivered_comes_back() {
        let action = Action { handler: 0x5000, restorer: 0x6000, flags: act::ON_STACK, ..Action::default() };
        for stack in [None, Some(Stack { at: 0x10_0000, bytes: 8192, disarms: false })] {
            let mut running = frame();
            let before = running.registers;
            let info = Info { signal: 11, code: 1, word: 0xdead, value: 7, error: 0 };
            let delivery = deliver(&mut running, &action, &info, 0x55, stack);
            let r = running.registers;
            assert_eq!((r.rip, r.rdi, r.rsp), (0x5000, 11, delivery.at));
            assert_eq!((r.rsp + 8) % 16, 0, "as after a call");
            let end = delivery.at + delivery.bytes.len() as u64;
            match stack {
                None => assert!(end <= before.rsp - 128, "the red zone is kept"),
                Some(stack) => assert!(delivery.at >= stack.at && end <= stack.at + stack.bytes),
            }
            // The handler has returned: its return address is gone from the stack.
            let saved: &[u8; SAVED] = delivery.bytes[8..8 + SAVED].try_into().unwrap();
            let Left { mask, fx_at, stack: kept } = restore(&mut running, saved);
            assert_eq!(mask, 0x55);
            assert_eq!(kept, stack.map_or((0, 2, 0), |stack| (stack.at, 0, stack.bytes)));
            assert_eq!(fx_at % 16, 0);
            assert_eq!(delivery.bytes[(fx_at - delivery.at) as usize + 160], 77);
            let after = running.registers;
            assert_eq!(
                (after.rax, after.rbx, after.r15, after.r8, after.rip, after.rsp),
                (1, 2, 3, 4, before.rip, before.rsp)
            );
        }
    }

    #[test]
    fn what_a_thread_does_itself_is_heard_first() {
        assert_eq!(first_of(bit(1) | bit(15) | bit(number::SEGMENT)), number::SEGMENT);
        assert_eq!(first_of(bit(15) | bit(10) | bit(64)), 10);
    }

    #[test]
    fn children_are_ignored_and_faults_are_not() {
        let usual = Action::default();
        assert!(usual.ignores(number::CHILD) && !usual.ignores(number::SEGMENT));
        assert!(Action { handler: 1, ..usual }.ignores(number::SEGMENT));
        assert!(!Action { handler: 0x1000, ..usual }.ignores(number::CHILD));
        assert_eq!(
            [18, 19, 20, 21, 22, 23].map(|signal| usual.stops(signal)),
            [false, true, true, true, true, false]
        );
        assert!(!Action { handler: 1, ..usual }.stops(20) && !usual.ignores(20));
    }
}
