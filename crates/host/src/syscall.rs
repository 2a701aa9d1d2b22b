//! System calls of Linux on x86-64 that change an address space, or say who lives in which.

use quietmm_workloads::trace::recording::Pages;

macro_rules! calls {
    ($($variant:ident, $name:literal, $number:literal;)*) => {
        /// A system call that matters here.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Syscall { $(#[doc = $name] $variant,)* }

        impl Syscall {
            /// All of them.
            pub const ALL: &'static [Syscall] = &[$(Syscall::$variant,)*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Syscall::$variant => $name,)* }
            }

            /// Its number on x86-64.
            #[must_use]
            pub const fn number(self) -> u64 {
                match self { $(Syscall::$variant => $number,)* }
            }
        }
    };
}

calls! {
    Mmap, "mmap", 9;
    Mprotect, "mprotect", 10;
    Munmap, "munmap", 11;
    Brk, "brk", 12;
    Mremap, "mremap", 25;
    Madvise, "madvise", 28;
    Shmat, "shmat", 30;
    Clone, "clone", 56;
    Fork, "fork", 57;
    Vfork, "vfork", 58;
    Execve, "execve", 59;
    Wait4, "wait4", 61;
    Shmdt, "shmdt", 67;
    Execveat, "execveat", 322;
    PkeyMprotect, "pkey_mprotect", 329;
    Clone3, "clone3", 435;
    ProcessMadvise, "process_madvise", 440;
}

impl Syscall {
    /// By its number.
    #[must_use]
    pub fn of_number(number: u64) -> Option<Syscall> {
        Self::ALL.iter().copied().find(|call| call.number() == number)
    }

    /// By its name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Syscall> {
        Self::ALL.iter().copied().find(|call| call.name() == name)
    }

    /// Whether it makes a thread or process.
    #[must_use]
    pub const fn makes_task(self) -> bool {
        matches!(self, Syscall::Clone | Syscall::Clone3 | Syscall::Fork | Syscall::Vfork)
    }
}

/// `CLONE_VM`: whoever is made shares the space.
pub const CLONE_VM: u64 = 0x100;
/// `CLONE_THREAD`.
pub const CLONE_THREAD: u64 = 0x1_0000;

/// `MAP_SHARED`; `MAP_SHARED_VALIDATE` has this bit too.
pub const MAP_SHARED: u64 = 1;
/// `MAP_ANONYMOUS`.
pub const MAP_ANONYMOUS: u64 = 0x20;
/// `MAP_POPULATE` and `MAP_LOCKED`: pages come at once.
pub const MAP_POPULATED: u64 = 0x8000 | 0x2000;

/// A call came back with an error number.
#[must_use]
pub const fn failed(result: i64) -> bool {
    result < 0 && result >= -4095
}

/// The whole pages of a range that is given in bytes; none for a length of 0 or one that overflows.
#[must_use]
pub fn pages(address: u64, length: u64) -> Option<Pages> {
    // The kernel takes the length up to whole pages, from an address that begins one.
    Pages::of_bytes(address & !0xfff, length.checked_add(address & 0xfff)?)
}

/// Whether advice takes pages away, or their accessed bits, by Linux's number: `MADV_DONTNEED`, `MADV_FREE`, `MADV_REMOVE`, `MADV_COLD`,
/// `MADV_PAGEOUT`, `MADV_DONTNEED_LOCKED`, `MADV_GUARD_INSTALL`. All other advice flushes nothing.
#[must_use]
pub const fn flushes(advice: u32) -> bool {
    matches!(advice, 4 | 8 | 9 | 20 | 21 | 24 | 102)
}
