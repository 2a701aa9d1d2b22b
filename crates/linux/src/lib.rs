//! Enough of Linux's system calls for x86-64 to run its programs unmodified, on the core's public interface.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`] | what a machine must offer: tasks in ring 3, copies to and from a program, an alarm, a console |
//! | [`frame`] | the registers of a program that has entered the kernel |
//! | [`elf`], [`start`], `exec` | a program's file, the stack on which it begins, and how it comes into a space |
//! | [`archive`], `furnish`, [`tree`], [`path`], `open`, `extents` | the files: what came with the machine, what is there besides, directories, names, what is open, which pages are there |
//! | [`pipe`], `socket`, `flights`, [`futex`], [`signal`], `deliver`, `announced`, `stop` | what programs tell each other |
//! | `trace` | how one looks into another and steers it |
//! | `numbered`, `semaphores`, `messages`, `shared`; `mailbox`; `keys` | the same by System V; by POSIX; keys |
//! | `epoll`, `timer`, `requests`, `hearer` | what they wait for, or hear by a signal |
//! | [`areas`], `memory` | what a program has mapped where, and the calls that change it |
//! | `process`, `said`, `usage`, `kernel`, `ending`, `shortage` | processes and threads; what they say of themselves; what they have used; what they all share; how they end; who ends when memory does |
//! | `call` | the system calls themselves, by number |
//!
//! Nothing of memory management is in here: frames, tables, faults, copies on writing, page caches, reclaim and flushes are the
//! core's. What the core cannot be asked is what a space has mapped where ([`areas`] keeps that), since a program may ask
//! for any free addresses and may unmap where nothing is mapped. Memory that programs execute is
//! memory that they read: the core has no right of that name.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod announced;
pub mod archive;
pub mod areas;
mod call;
mod capabilities;
mod connections;
mod cpuinfo;
mod deliver;
mod described;
pub mod elf;
mod ending;
mod epoll;
pub mod errno;
mod exec;
mod extents;
mod filter;
mod filtering;
mod flights;
pub mod frame;
mod furnish;
pub mod futex;
mod hearer;
mod inbox;
mod kernel;
mod keys;
mod layout;
pub mod left;
mod locks;
pub mod machine;
mod mailbox;
mod memory;
mod messages;
mod meters;
mod network;
mod numbered;
mod open;
pub mod path;
pub mod pipe;
mod process;
mod procfs;
mod requests;
mod rights;
mod said;
mod semaphores;
mod shared;
mod shortage;
pub mod signal;
mod socket;
mod socket_names;
pub mod start;
mod stop;
pub mod sync;
mod terminal;
mod termios;
mod timer;
mod trace;
pub mod tree;
mod usage;
mod uses;
mod watches;

pub use errno::Errno;
pub use frame::Frame;
pub use kernel::{Ending, Flow, Linux, Unknown};
pub use machine::Machine;
pub use meters::Meter;
pub use process::Thread;
