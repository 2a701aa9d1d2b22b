//! Page tables: an entry, the tables, and the words for what may be done with a page.

mod encoding;
mod entry;
mod prot;
mod stamp;
pub(crate) mod table;

pub use entry::Entry;
pub use prot::{Advice, Backing, KernelProt, NodePolicy, Prot, UserAccess};
pub(crate) use stamp::Stamp;
