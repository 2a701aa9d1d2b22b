//! What is kept about frames (Linux: `struct page` and the `mem_map`): 32 bytes for each, plus a section table of 8 bytes per 1024
//! frames, those that may come later too; and what is made of it: lists through the frames, chains that go from one CPU to another.

mod frame;
mod frame_chain;
mod frame_vec;
mod list;
mod sections;
mod table;

pub use frame::MAX_ORDER;
pub(crate) use frame::{Frame, MAX_INDEX, MAX_SLOT, PIN, flag};
pub(crate) use frame_chain::{FrameChain, FrameStack};
pub(crate) use frame_vec::FrameVec;
pub(crate) use list::{Chain, List};
pub(crate) use sections::{SECTION, Sections, Slot};
pub(crate) use table::{FrameBlock, FrameTable};
