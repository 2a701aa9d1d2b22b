//! Swap: anonymous pages out to devices and back.
//!
//! A page that goes out gets a **slot** on a device and is in the **swap cache** from then until it leaves memory: its
//! slot leads to its frame and its frame to its slot. Reclaim puts the slot into every entry that led to the page, so an
//! entry says where the page is whether it is still in memory or not. A slot counts these entries, its *users*; it is
//! free when it has neither users nor a page in the cache.
//!
//! What keeps a page's content whole is its lock (`frame/lock.rs`). Reclaim has it from before the first entry is taken
//! out until the flush is done and the device has the page; a fault takes it before it maps the page again. So:
//!
//! - no CPU can write to the page through an entry that it had cached while the device reads it: it is flushed first,
//!   in one go with the rest of its batch (INV-2);
//! - no address leads to the page, or to another copy of it, before the flush of its old entry (INV-12): whoever wants it
//!   finds its slot, by it the page, and waits;
//! - a slot is not another page's while its own is being read back (PITFALLS 34): the page is in the cache, locked, from
//!   before the read begins.
//!
//! A page that the device does not take stays in the cache, and dirty. A page that it does not give back is an error of
//! the fault that wants it, each time; all others go on.

mod area;
mod cache;
mod devices;
mod read;
mod slots;
mod transit;

pub(crate) use cache::Added;
pub(crate) use devices::SwapDevices;
pub use devices::SwapUsage;
pub(crate) use read::{Place, SwapIn};
