//! Programs that look at system calls before they are made (`seccomp`): small ones of a machine with two registers and sixteen words, which
//! only jump forward. Whether one is sound, and what it says of a call.

use alloc::vec::Vec;

/// Instructions of one, at most.
pub const MOST: usize = 4096;
/// Words that it may keep something in.
const KEPT: usize = 16;
/// Bytes of what it sees of a call: number, architecture, address, six arguments.
pub const BYTES: usize = 64;

/// One instruction, as programs have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    pub code: u16,
    /// How far to jump if it is so, and if not.
    pub yes: u8,
    pub no: u8,
    pub k: u32,
}

/// What an instruction does. `A` and `X` are the registers.
mod code {
    pub const LOAD: u16 = 0x20;
    pub const LENGTH: u16 = 0x80;
    pub const LENGTH_TO_X: u16 = 0x81;
    pub const NUMBER: u16 = 0x00;
    pub const NUMBER_TO_X: u16 = 0x01;
    pub const KEPT: u16 = 0x60;
    pub const KEPT_TO_X: u16 = 0x61;
    pub const KEEP: u16 = 0x02;
    pub const KEEP_X: u16 = 0x03;
    pub const TO_X: u16 = 0x07;
    pub const FROM_X: u16 = 0x87;
    pub const RETURN: u16 = 0x06;
    pub const RETURN_A: u16 = 0x16;
    pub const JUMP: u16 = 0x05;
    /// With `X` instead of the number in the instruction.
    pub const BY_X: u16 = 0x08;
    pub const EQUAL: u16 = 0x15;
    pub const GREATER: u16 = 0x25;
    pub const NOT_LESS: u16 = 0x35;
    pub const ANY_BIT: u16 = 0x45;
    pub const ADD: u16 = 0x04;
    pub const SUBTRACT: u16 = 0x14;
    pub const MULTIPLY: u16 = 0x24;
    pub const DIVIDE: u16 = 0x34;
    pub const OR: u16 = 0x44;
    pub const AND: u16 = 0x54;
    pub const LEFT: u16 = 0x64;
    pub const RIGHT: u16 = 0x74;
    pub const NEGATE: u16 = 0x84;
    pub const XOR: u16 = 0xa4;
}

impl Step {
    /// The instruction without where its second operand comes from.
    fn kind(self) -> u16 {
        match self.code & 7 {
            4 | 5 => self.code & !code::BY_X,
            _ => self.code,
        }
    }

    fn by_x(self) -> bool {
        self.kind() != self.code
    }
}

/// A sound program.
#[derive(Debug)]
pub struct Program(Vec<Step>);

impl Program {
    /// Takes a program over if it comes to an end whatever it sees: each of its ways leads forward, to a return, and no word is read that
    /// was not kept before.
    pub fn new(steps: Vec<Step>) -> Option<Program> {
        if !(1..=MOST).contains(&steps.len()) {
            return None;
        }
        // Which words were kept on all ways to each instruction.
        let mut kept = alloc::vec![u16::MAX; steps.len()];
        kept[0] = 0;
        for (at, step) in steps.iter().enumerate() {
            let (k, here) = (step.k as usize, kept[at]);
            // Where it goes from here, and what is kept then.
            let mut to = |by: usize, now: u16| {
                let known = kept.get_mut(at.checked_add(by)?.checked_add(1)?)?;
                *known &= now;
                Some(())
            };
            match step.kind() {
                code::LOAD if k >= BYTES || !k.is_multiple_of(4) => return None,
                code::KEPT | code::KEPT_TO_X if k >= KEPT || here >> k & 1 == 0 => return None,
                code::KEEP | code::KEEP_X if k >= KEPT => return None,
                code::DIVIDE if !step.by_x() && k == 0 => return None,
                code::LEFT | code::RIGHT if !step.by_x() && k >= 32 => return None,
                // It has one operand.
                code::NEGATE | code::JUMP if step.by_x() => return None,
                code::KEEP | code::KEEP_X => to(0, here | 1 << k)?,
                code::JUMP => to(k, here)?,
                code::EQUAL | code::GREATER | code::NOT_LESS | code::ANY_BIT => {
                    to(step.yes.into(), here)?;
                    to(step.no.into(), here)?;
                }
                code::RETURN | code::RETURN_A => {}
                code::LOAD
                | code::LENGTH
                | code::LENGTH_TO_X
                | code::NUMBER
                | code::NUMBER_TO_X
                | code::KEPT
                | code::KEPT_TO_X
                | code::TO_X
                | code::FROM_X
                | code::ADD
                | code::SUBTRACT
                | code::MULTIPLY
                | code::DIVIDE
                | code::OR
                | code::AND
                | code::LEFT
                | code::RIGHT
                | code::NEGATE
                | code::XOR => to(0, here)?,
                _ => return None,
            }
        }
        let last = steps.last()?;
        matches!(last.code, code::RETURN | code::RETURN_A).then_some(Program(steps))
    }

    /// How many instructions it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What it says of a call.
    pub fn run(&self, call: &[u8; BYTES]) -> u32 {
        let (mut a, mut x, mut kept, mut at) = (0_u32, 0_u32, [0_u32; KEPT], 0);
        // Each instruction leads further on, and the last one returns.
        loop {
            let step = self.0[at];
            let (k, by) = (step.k as usize, if step.by_x() { x } else { step.k });
            at += 1;
            let mut jump = |so: bool| at += usize::from(if so { step.yes } else { step.no });
            match step.kind() {
                code::LOAD => a = u32::from_le_bytes(call[k..k + 4].try_into().expect("4 bytes")),
                code::LENGTH => a = BYTES as u32,
                code::LENGTH_TO_X => x = BYTES as u32,
                code::NUMBER => a = step.k,
                code::NUMBER_TO_X => x = step.k,
                code::KEPT => a = kept[k],
                code::KEPT_TO_X => x = kept[k],
                code::KEEP => kept[k] = a,
                code::KEEP_X => kept[k] = x,
                code::TO_X => x = a,
                code::FROM_X => a = x,
                code::RETURN => return step.k,
                code::RETURN_A => return a,
                code::JUMP => at += k,
                code::EQUAL => jump(a == by),
                code::GREATER => jump(a > by),
                code::NOT_LESS => jump(a >= by),
                code::ANY_BIT => jump(a & by != 0),
                code::ADD => a = a.wrapping_add(by),
                code::SUBTRACT => a = a.wrapping_sub(by),
                code::MULTIPLY => a = a.wrapping_mul(by),
                // By nothing: that ends it.
                code::DIVIDE => match a.checked_div(by) {
                    Some(quotient) => a = quotient,
                    None => return 0,
                },
                code::OR => a |= by,
                code::AND => a &= by,
                code::LEFT => a = a.wrapping_shl(by),
                code::RIGHT => a = a.wrapping_shr(by),
                code::NEGATE => a = a.wrapping_neg(),
                code::XOR => a ^= by,
                other => unreachable!("instruction {other:#x} was let in"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(steps: &[(u16, u8, u8, u32)]) -> Option<Program> {
        Program::new(steps.iter().map(|&(code, yes, no, k)| Step { code, yes, no, k }).collect())
    }

    fn says(steps: &[(u16, u8, u8, u32)], number: u32) -> u32 {
        let mut call = [0; BYTES];
        call[..4].copy_from_slice(&number.to_le_bytes());
        program(steps).expect("it is sound").run(&call)
    }

    const END: (u16, u8, u8, u32) = (code::RETURN, 0, 0, 7);

    #[test]
    fn it_goes_one_way_or_the_other() {
        let steps = [(code::LOAD, 0, 0, 0), (code::EQUAL, 1, 0, 5), (code::RETURN, 0, 0, 1), END];
        assert_eq!([says(&steps, 5), says(&steps, 6)], [7, 1]);
    }

    #[test]
    fn it_counts_with_two_registers_and_keeps_words() {
        let of = |kind: u16, a: u32, x: u32| {
            let steps = [
                (code::NUMBER, 0, 0, a),
                (code::KEEP, 0, 0, 3),
                (code::NUMBER_TO_X, 0, 0, x),
                (code::NUMBER, 0, 0, 99),
                (code::KEPT, 0, 0, 3),
                (kind | code::BY_X, 0, 0, 0),
                (code::RETURN_A, 0, 0, 0),
            ];
            says(&steps, 0)
        };
        assert_eq!(
            [of(code::ADD, u32::MAX, 2), of(code::SUBTRACT, 1, 2), of(code::MULTIPLY, 3, 4)],
            [1, u32::MAX, 12]
        );
        assert_eq!([of(code::DIVIDE, 9, 2), of(code::DIVIDE, 9, 0), of(code::XOR, 6, 3)], [4, 0, 5]);
        assert_eq!(
            [of(code::OR, 6, 1), of(code::AND, 6, 3), of(code::LEFT, 1, 33), of(code::RIGHT, 8, 2)],
            [7, 2, 2, 2]
        );
        assert_eq!(
            says(&[(code::LENGTH, 0, 0, 0), (code::NEGATE, 0, 0, 0), (code::RETURN_A, 0, 0, 0)], 0),
            64_u32.wrapping_neg()
        );
    }

    #[test]
    fn what_is_not_sound_is_refused() {
        let one = |step| program(&[step, END]).is_some();
        assert!(one((code::LOAD, 0, 0, 60)) && !one((code::LOAD, 0, 0, 64)) && !one((code::LOAD, 0, 0, 2)));
        assert!(
            !one((0x28, 0, 0, 0)) && !one((0x30, 0, 0, 0)) && !one((0x94, 0, 0, 3)) && !one((0xb1, 0, 0, 0))
        );
        assert!(!one((code::KEPT, 0, 0, 3)) && !one((code::KEEP, 0, 0, 16)) && one((code::KEEP, 0, 0, 15)));
        assert!(
            !one((code::DIVIDE, 0, 0, 0))
                && !one((code::LEFT, 0, 0, 32))
                && one((code::DIVIDE | code::BY_X, 0, 0, 0))
        );
        assert!(
            !one((code::EQUAL, 1, 0, 0))
                && !one((code::JUMP, 0, 0, u32::MAX))
                && !one((code::NEGATE | code::BY_X, 0, 0, 0))
        );
        assert!(
            program(&[]).is_none()
                && program(&[(code::NUMBER, 0, 0, 0)]).is_none()
                && program(&[END]).is_some()
        );
        // Kept on one way, and not on the other.
        let ways = |no| {
            program(&[(code::EQUAL, 0, no, 0), (code::KEEP, 0, 0, 0), (code::KEPT, 0, 0, 0), END]).is_some()
        };
        assert!(ways(0) && !ways(1));
    }
}
