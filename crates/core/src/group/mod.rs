//! Groups of spaces with a limit on the memory that they are charged with (Linux: memory control groups).
//!
//! A page of memory is charged to the group of the space that first wanted it, anonymous pages, pages in the caches of files
//! and page tables alike, and stays charged there until its frame is freed: whoever uses it meanwhile, and whatever becomes
//! of that space. What somebody does to a space is charged to that space's group: tables, copies, pages from swap, with which those that are
//! read ahead go. Where [`Config::groups`](crate::Config::groups) is 0 none of this exists: no memory, and not one step.
//!
//! What a group is charged with never exceeds its limit, but where a page takes another's place or comes back because its swap device goes
//! off (`Charge::regardless`), or where the limit was lowered below it. A group far from its limit is charged some pages at a time, which the CPU keeps as a *stock* and
//! hands out without a word to others. Close to the limit each page is charged by itself, and who finds no room takes the
//! stocks back, from all CPUs, by one atomic step on each: nobody is interrupted for it. Only where reclaim finds nothing are CPUs
//! asked for pages of the group's that they have on their way to its lists.

mod charge;
mod state;

pub(crate) use charge::{Charge, Payer, Room};
pub(crate) use state::{GroupState, Groups, Members};
