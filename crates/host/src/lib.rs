//! Programs as they run on this host: what they ask of the kernel's memory manager, recorded, and what this machine takes for it,
//! measured. What comes of it are a recording ([`quietmm_workloads::trace::recording`]) and a machine description.
//!
//! | module | holds |
//! |---|---|
//! | `seen` | what any source sees: a ring of the kernel, a tracer, a line of text |
//! | `assemble` | from that to the events of a recording |
//! | `blame` | who interrupts whom, by which call |
//! | `write` | a recording on its way to its file |
//! | `import` | sources that are text: `perf script`, `ftrace`, `strace` |
//! | `record` | sources that run: perf events, ptrace, strace |
//! | `own` | workloads of one's own, without a program |
//! | `summary` | what is in a recording |
//! | `measure` | what this machine takes for what a memory manager does |
//! | `syscall`, `lines` | system calls that matter; lines of any input in bounded memory |

pub mod assemble;
pub mod blame;
pub mod import;
pub mod lines;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod measure;
pub mod own;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod record;
pub mod seen;
pub mod summary;
pub mod syscall;
pub mod write;
