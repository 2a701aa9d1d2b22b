//! Page frames: the zones that hold them, and who gets one.

mod alloc;
mod buddy;
mod drain;
mod fixed;
mod handler;
mod limits;
mod lock;
pub(crate) mod percpu;
mod pieces;
mod watermarks;

pub(crate) use alloc::AllocRequest;
pub use alloc::{AllocFrom, Frames};
pub(crate) use buddy::Zone;
pub use drain::Certainty;
pub(crate) use drain::hand_over;
pub(crate) use fixed::{OwnPiece, order_of, own};
pub(crate) use limits::Pause;
pub(crate) use watermarks::{set_watermarks, watermarks};
