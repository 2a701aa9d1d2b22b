//! The architecture of the page tables: how their entries are written, and what a CPU does of itself with them.
//!
//! The core thinks in [`Entry`](crate::Entry), whose bits lie where x86-64 has them. What stands in memory is what the
//! architecture wants ([`Entry::encode`](crate::Entry::encode)); on x86-64 that is the same word. All that is known of an
//! architecture beside that are the answers below: each is asked where the core relies on it.

/// An architecture with tables of four levels, 512 entries each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Architecture {
    /// x86-64: a CPU sets accessed and dirty bits, and keeps nothing of an entry that forbids what was tried.
    X86_64,
    /// RISC-V with Sv48 tables (privileged specification 20240411, 12.5) and Svade, which every RVA23 machine offers: a CPU
    /// faults where the accessed bit is clear, or at a write the dirty bit, and the fault sets them. It may keep that an entry
    /// forbids an access until it is flushed (12.2.1).
    Sv48,
    /// The same with Svadu: the CPU sets the bits, in an atomic step that looks whether the entry is still valid. And with
    /// Svrsw60t59b: an entry has four bits for software, not two.
    Sv48Adu,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Architecture; 3] = [Architecture::X86_64, Architecture::Sv48, Architecture::Sv48Adu];

    /// The name in machine files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86-64",
            Architecture::Sv48 => "riscv-sv48",
            Architecture::Sv48Adu => "riscv-sv48-adu",
        }
    }

    /// By its name.
    pub fn parse(name: &str) -> Option<Architecture> {
        Architecture::ALL.into_iter().find(|architecture| architecture.name() == name)
    }

    /// Whether a CPU sets accessed and dirty bits by itself. Else the access faults, and [`Space::fault`](crate::Space::fault)
    /// sets them.
    #[inline(always)]
    pub const fn sets_accessed(self) -> bool {
        !matches!(self, Architecture::Sv48)
    }

    /// Whether a CPU may keep that an entry forbids an access, or that there is none, until it is flushed: then
    /// [`Space::fault`](crate::Space::fault) and [`Vmap::fault`](crate::Vmap::fault) flush on the CPU that faulted, and on no
    /// other.
    #[inline(always)]
    pub const fn keeps_refusals(self) -> bool {
        !matches!(self, Architecture::X86_64)
    }

    /// Whether a flush of one page takes with it what the CPU keeps of the tables on the way: INVLPG does, SFENCE.VMA with an
    /// address is only about the entry of the page (12.2.1). Where it does not, the core flushes all of a space before tables
    /// are freed, and where a fault finds nothing to do.
    #[inline(always)]
    pub const fn page_flush_reaches_tables(self) -> bool {
        matches!(self, Architecture::X86_64)
    }

    /// How many values the stamp of an entry has, beside none (INV-13): of 7 bits that the hardware ignores, 2, or 4.
    #[inline(always)]
    pub(crate) const fn stamps(self) -> u64 {
        match self {
            Architecture::X86_64 => 127,
            Architecture::Sv48 => 3,
            Architecture::Sv48Adu => 15,
        }
    }
}
