//! What is kept about frames (Linux: `struct page` and the `mem_map`): 32 bytes for each, plus a section table of 8 bytes per 1024
//! frames; and what is made of it: lists through the frames, chains that go from one CPU to another.

mod few;
mod frame;
mod list;
mod loose;
mod table;

pub(crate) use few::Few;
pub use frame::MAX_ORDER;
pub(crate) use frame::{Frame, KIND, MAX_INDEX, MAX_SLOT, NODE_SHIFT, ZONE_SHIFT, flag};
pub(crate) use list::{Chain, List};
pub(crate) use loose::{Loose, Returned};
pub(crate) use table::{Block, FrameTable, SECTION};
