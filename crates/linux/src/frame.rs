//! The registers of a program that has entered the kernel, as the machine's entry leaves them on the task's stack.

/// General registers, in the order of the machine's pushes, and what the hardware pushed.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs)]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// Why it has entered.
    pub vector: u64,
    /// The error code of an exception; of a system call its number.
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub flags: u64,
    pub rsp: u64,
    pub ss: u64,
}

/// What FXSAVE saves.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct Fx(pub [u8; 512]);

/// All of a program's registers.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct Frame {
    /// The general ones.
    pub registers: Registers,
    /// Those of floating point and vectors.
    pub fx: Fx,
}

/// Why a program has entered: it calls.
pub const CALL: u64 = 256;

/// The selectors of a program's code and data: those of the machine's table.
const CODE: u64 = 0x23;
const DATA: u64 = 0x1b;
/// Interrupts on.
const FLAGS: u64 = 0x202;
/// Flags that a program may set: carry, parity, adjust, zero, sign, direction, overflow; nested, alignment, and that there is `cpuid`, which
/// do nothing.
const OWN_FLAGS: u64 = 0x24_4cd5;
/// Flags besides that come back from a handler: single steps, and that one has just been made.
const KEPT_FLAGS: u64 = 0x1_0100;

impl Frame {
    /// A program that begins at `rip`, with this stack.
    pub fn begin(rip: u64, rsp: u64) -> Frame {
        let registers = Registers { rip, rsp, cs: CODE, ss: DATA, flags: FLAGS, ..Registers::default() };
        let mut fx = Fx([0; 512]);
        // The control words as the ABI has them at the start of a program.
        fx.0[0..2].copy_from_slice(&0x37f_u16.to_le_bytes());
        fx.0[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
        Frame { registers, fx }
    }

    /// Takes out of what a program has made up all that would let it be more than a program, or that the machine could not
    /// return to.
    pub fn tame(&mut self) {
        let registers = &mut self.registers;
        registers.cs = CODE;
        registers.ss = DATA;
        registers.flags = registers.flags & OWN_FLAGS | FLAGS;
        // Not canonical: the return itself would fault, in the kernel. Address 0 faults in the program.
        if registers.rip >> 47 != 0 {
            registers.rip = 0;
        }
        // Reserved bits of MXCSR fault when it is loaded.
        self.fx.0[26] = 0;
        self.fx.0[27] = 0;
    }

    /// The same of registers that a handler leaves behind: who goes by its own steps goes on so.
    pub fn tame_kept(&mut self) {
        let kept = self.registers.flags & KEPT_FLAGS;
        self.tame();
        self.registers.flags |= kept;
    }

    /// The arguments of a system call.
    pub fn arguments(&self) -> [u64; 6] {
        let r = &self.registers;
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_cannot_make_itself_the_kernel() {
        let mut frame = Frame::begin(0x1000, 0x2000);
        frame.registers.cs = 8;
        frame.registers.ss = 16;
        frame.registers.flags = u64::MAX;
        frame.registers.rip = 1 << 63;
        frame.fx.0[24..28].copy_from_slice(&[0xff; 4]);
        frame.tame();
        let r = frame.registers;
        assert_eq!((r.cs, r.ss, r.rip), (CODE, DATA, 0));
        assert_eq!(r.flags & 0x3000, 0, "no right to ports");
        assert_eq!(r.flags & 0x200, 0x200, "interrupts stay on");
        assert_eq!(u32::from_le_bytes(frame.fx.0[24..28].try_into().unwrap()) >> 16, 0);
    }

    #[test]
    fn who_goes_by_its_own_steps_goes_on_so_after_a_handler() {
        let mut frame = Frame::begin(0x1000, 0x2000);
        frame.registers.flags = u64::MAX;
        frame.tame_kept();
        assert_eq!(frame.registers.flags, OWN_FLAGS | FLAGS | KEPT_FLAGS);
        frame.tame();
        assert_eq!(frame.registers.flags, OWN_FLAGS | FLAGS);
    }

    #[test]
    fn its_size_is_what_the_entry_pushes() {
        assert_eq!(size_of::<Registers>(), 22 * 8);
        assert_eq!(core::mem::offset_of!(Frame, fx), 176);
        assert_eq!(size_of::<Frame>(), 688);
    }
}
