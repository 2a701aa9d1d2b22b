//! What the documentation tests show to be refused is refused for its order alone: the right order compiles.

use crate::machine;

use machine::{Host, Mm};
use quietmm::{Flushed, Frames, Manager, Platform, UnmapBatch};

fn freed_once<P: Platform>(mm: &Manager<'_, P>, block: Frames) {
    mm.free_frames(block);
}

fn flushed_then_settled<P: Platform>(batch: UnmapBatch<'_, '_, P>) -> u32 {
    let flushed: Flushed<'_, '_, P> = batch.flush();
    flushed.settle()
}

#[test]
fn the_right_order_compiles() {
    let _: fn(&Mm<'_>, Frames) = freed_once::<Host>;
    let _: fn(UnmapBatch<'_, '_, Host>) -> u32 = flushed_then_settled::<Host>;
}

/// A kernel has its manager in a static: shared by all CPUs, if the platform may be. It is enough that this compiles.
#[allow(dead_code, reason = "compiled for every such platform")]
fn used_from_every_cpu<P: Platform + Sync + 'static>() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Manager<'static, P>>();
}
