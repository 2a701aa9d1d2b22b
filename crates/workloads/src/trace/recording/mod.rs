//! Version 2 of the format: what the threads and processes of a program asked of the memory manager, and when.
//!
//! A recording is one stream of [`Event`]s in the order of time. Each names its thread and the CPU it was on. An operation
//! stands where it *ended*: by then its effect is there for others, so of two operations on the same pages the
//! one that stands first had its effect first. Files, call stacks and names are defined by events of their own before they
//! are used, so a recorder of any length writes with little memory.
//!
//! # What is kept and what is lost
//!
//! - **Kept**: threads, who made them, and which share a space; every mapping and change of one, with its pages, its
//!   duration and, if recorded, the stack that asked for it; page faults; for how long a thread ran and slept in between;
//!   shootdowns that the kernel counted, with sender and victim.
//! - **Lost**: accesses that did not fault. A page that a second thread uses without a fault is in its TLB, and the
//!   recording does not know it. A recording of accesses (version 1) knows, and knows no threads.
//!
//! # The format
//!
//! All numbers are little-endian. The header has the same length and the same first fields as version 1.
//!
//! | byte | size | |
//! |---:|---:|---|
//! | 0 | 8 | [`MAGIC`](super::MAGIC) |
//! | 8 | 2 | version, 2 |
//! | 10 | 2 | flags: bit 0 faults were recorded, bit 1 the program did more than was recorded, bit 2 times on a CPU (`ran`) and sleeps were recorded, bit 3 shootdowns were recorded |
//! | 12 | 2 | length of the program's name |
//! | 14 | 2 | length of the command line |
//! | 16 | 4 | bytes in a page, a power of two |
//! | 20 | 2 | length of the method, how it was recorded |
//! | 22 | 2 | CPUs of the machine that it was recorded on; at least 1 |
//! | 24 | 4 | threads |
//! | 28 | 4 | 0 |
//! | 32 | 8 | events |
//! | 40 | 8 | from the beginning to the end, in nanoseconds |
//! | 48 | 8 | events that were lost, as far as that is known |
//! | 56 | 8 | flush requests that the machine's CPUs received meanwhile, whoever's they were; all ones: not known |
//! | 64 | 8 | those of them for this program; all ones: not known |
//! | 72 | 8 | 0 |
//! | 80 | 8 | length of the body |
//! | 88 | 8 | FNV-1a checksum of the body |
//! | 96 | 8 | FNV-1a checksum of bytes 0 to 95 and the three texts |
//! | 104 | | program, command line, method (UTF-8), body |
//!
//! An event in the body is a byte and variable-length integers as in version 1. The low five bits of the byte say what
//! happened; bit 5 says that the thread is another one than in the event before (its number follows), bit 6 likewise the
//! CPU. Then come the nanoseconds since the event before, the nanoseconds that the thread ran on a CPU since its own event
//! before, and what belongs to the kind, as [`What`] has it. There is one way to write an event.

mod decode;
mod encode;
mod event;
mod header;
mod spaces;

#[cfg(test)]
mod tests;

pub use decode::{Events, Recording};
pub use encode::RecordingEncoder;
pub use event::{Backing, Call, Event, Pages, Rights, Victim, What};
pub use header::{About, RecordingHeader, Shootdowns, Sums};
pub use spaces::Spaces;
