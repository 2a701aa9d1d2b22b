//! What the documentation tests show to be refused is refused for its order alone: the right order compiles.

use crate::machine;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use machine::faults::{AT, machine as small, reclaim_all, showing, write_first};
use machine::{Host, Mm, bare};
use quietmm::{Frames, Manager, Platform};

fn freed_once<P: Platform>(mm: &Manager<'_, P>, block: Frames) {
    mm.frames().free(block);
}

#[test]
fn the_right_order_compiles() {
    let _: fn(&Mm<'_>, Frames) = freed_once::<Host>;
}

/// Only a panic in the middle of it loses an unmap batch, and the audit says so, before any page is in it too.
#[test]
fn a_batch_that_nobody_flushes_is_seen_by_the_audit() {
    struct Fell;
    let host = small(2, None);
    let audits = catch_unwind(AssertUnwindSafe(|| {
        host.run(bare("linux"), |mm| {
            let (id, _) = showing(mm, 1, &[1]);
            write_first(mm, id, 1, 1);
            let before = mm.validate();
            host.when_unmapped(id, AT, |_| resume_unwind(Box::new(Fell)));
            let fell =
                catch_unwind(AssertUnwindSafe(|| reclaim_all(mm))).expect_err("in the middle of a batch");
            assert!(fell.is::<Fell>());
            let after = mm.validate();
            assert_eq!((before.batches, before.broken, after.batches, after.leaked), (0, None, 1, 0));
            resume_unwind(Box::new(after.broken));
        })
    }));
    let broken = audits.expect_err("the machine is not fit to go on").downcast::<Option<&str>>();
    assert_eq!(*broken.expect("what the audit said"), Some("an unmap batch that nobody flushes"));
}

/// A kernel has its manager in a static: shared by all CPUs, if the platform may be. It is enough that this compiles.
#[allow(dead_code, reason = "compiled for every such platform")]
fn used_from_every_cpu<P: Platform + Sync + 'static>() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Manager<'static, P>>();
}
