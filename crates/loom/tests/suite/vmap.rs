//! Kernel addresses: what is unmapped is not used again before every CPU has flushed it (INV-3).
use std::sync::atomic::Ordering;

use quietmm::platform::Memory;
use quietmm::step::Step;
use quietmm::{AllocFrom, Config, FrameNumber, KernelProt, PageNumber, PageRange, Rule, VmapPlace};
use quietmm_loom::case::bare;
use quietmm_loom::{Fault, Mm, Model, Setup};

const TWO: Setup = Setup { cpus: 2, tags: 1 };
const THREE: Setup = Setup { cpus: 3, tags: 1 };
const RW: KernelProt = KernelProt::ReadWrite;

/// Room for so many pages.
fn lazy(pages: u64) -> Config {
    let start = PageNumber(PageNumber::KERNEL_START.0 + 0x1000);
    let vmap = Some(PageRange::new(start, pages));
    Config { vmap, vmap_shards: Some(1), vmap_lazy: Some(u64::MAX / 4), ..bare("vanilla+vmap=lazy") }
}

/// What the CPUs have: the pages that are mapped and go, a frame for the same addresses, and one in which who has
/// mapped it says where.
#[derive(Clone, Copy)]
struct Case {
    range: PageRange,
    new: FrameNumber,
    told: FrameNumber,
}

impl Case {
    fn new(mm: &Mm, map: impl Fn(FrameNumber) -> PageRange) -> Case {
        let frame = || mm.frames().alloc(0, AllocFrom::HERE).unwrap().into_raw().0;
        let (old, new, told) = (frame(), frame(), frame());
        mm.platform().clear_frame(told);
        let range = map(old);
        Case { range, new, told }
    }

    /// Says that the new frame is mapped here.
    fn tell(&self, mm: &Mm, range: PageRange) {
        mm.platform().word(self.told, Step::Store(range.start.0), Ordering::Release);
    }

    /// Looks where the new frame is mapped, if it is, and uses it.
    fn look(&self, mm: &Mm) {
        let at = mm.platform().word(self.told, Step::Load, Ordering::Acquire);
        if at != 0 {
            let found = mm.platform().read_kernel(PageNumber(at));
            assert_eq!(found, Some(self.new), "{at:#x} leads to what was there before");
        }
    }
}

/// CPU 0 unmaps an extent and maps another; CPU 1 purges, and has the first in its TLB.
fn remap_and_purge() -> Model<Case> {
    Model::new(TWO, lazy(0x800), |mm| {
        let case = Case::new(mm, |old| mm.vmap().map(&[old], VmapPlace::ANYWHERE, RW).unwrap());
        mm.platform().on(1, || mm.platform().read_kernel(case.range.start).unwrap());
        case
    })
    .cpu(|mm, case| {
        mm.vmap().unmap(case.range.start).unwrap();
        case.tell(mm, mm.vmap().map(&[case.new], VmapPlace::ANYWHERE, RW).unwrap());
    })
    .cpu(|mm, case| {
        mm.vmap().purge().unwrap();
        case.look(mm);
    })
    .bound(4)
}

/// The same with a small map, in a block that has no room besides.
fn remap_in_block_and_purge() -> Model<Case> {
    Model::new(TWO, lazy(0x800), |mm| {
        // All of the smallest block.
        let case = Case::new(mm, |old| mm.vmap().map_ram(&[old; 64], RW).unwrap());
        mm.platform().on(1, || mm.platform().read_kernel(case.range.start).unwrap());
        case
    })
    .cpu(|mm, case| {
        mm.vmap().unmap_ram(case.range).unwrap();
        case.tell(mm, mm.vmap().map_ram(&[case.new; 64], RW).unwrap());
    })
    .cpu(|mm, case| {
        mm.vmap().purge().unwrap();
        case.look(mm);
    })
    .bound(3)
}

/// Room for so many pages, and each page that is unmapped asks for a sweep.
fn sweeping(pages: u64) -> Config {
    Config { policy: bare("vanilla+vmap=sweep").policy, vmap_lazy: Some(2), ..lazy(pages) }
}

/// A page that CPU 1 has in its TLB, and another for CPU 1 to unmap.
fn used_on_1(mm: &'static Mm) -> (Case, PageRange) {
    let case = Case::new(mm, |old| mm.vmap().map(&[old], VmapPlace::ANYWHERE, RW).unwrap());
    let other = mm.vmap().map(&[case.told], VmapPlace::ANYWHERE, RW).unwrap();
    mm.platform().on(1, || mm.platform().read_kernel(case.range.start).unwrap());
    (case, other)
}

/// Unmaps the page, takes part in the sweep, and maps another frame: where the page was, if the sweep is over.
fn remap(mm: &'static Mm, case: Case) {
    mm.vmap().unmap(case.range.start).unwrap();
    mm.tick();
    case.tell(mm, mm.vmap().map(&[case.new], VmapPlace::ANYWHERE, RW).unwrap());
}

/// CPU 1 begins a sweep and takes part in it, while CPU 0 unmaps the page that CPU 1 uses.
fn remap_and_sweep() -> Model<(Case, PageRange)> {
    Model::new(TWO, sweeping(0x800), used_on_1)
        .cpu(|mm, (case, _)| remap(mm, case))
        .cpu(|mm, (case, other)| {
            mm.vmap().unmap(other.start).unwrap();
            mm.tick();
            mm.platform().read_kernel(case.range.start);
            case.look(mm);
        })
        .bound(2)
}

/// CPU 0 has unmapped a page that CPU 1 uses. It begins a sweep and notes that the page waits for that, while CPU 1 purges: when that is
/// done no CPU leads there.
fn seal_and_purge() -> Model<(Case, [PageNumber; 2])> {
    let config = Config { vmap_lazy: Some(4), ..sweeping(0x800) };
    Model::new(TWO, config, |mm| {
        let (case, other) = used_on_1(mm);
        let more = mm.vmap().map(&[case.new; 2], VmapPlace::ANYWHERE, RW).unwrap();
        mm.vmap().unmap(case.range.start).unwrap();
        (case, [other.start, more.start])
    })
    .cpu(|mm, (_, others)| others.into_iter().for_each(|at| mm.vmap().unmap(at).unwrap()))
    .cpu(|mm, (case, _)| {
        mm.vmap().purge().unwrap();
        assert_eq!(
            mm.platform().read_kernel(case.range.start),
            None,
            "an address that was purged leads somewhere"
        );
    })
    .bound(2)
}

/// CPU 1 is idle, and goes on.
fn remap_and_leave_idle() -> Model<(Case, PageRange)> {
    Model::new(TWO, sweeping(0x800), |mm| {
        let used = used_on_1(mm);
        mm.platform().on(1, || mm.enter_idle());
        used
    })
    .cpu(|mm, (case, _)| remap(mm, case))
    .cpu(|mm, (case, _)| {
        mm.leave_idle();
        case.look(mm);
    })
    .bound(3)
}

/// CPU 0 takes part in a sweep as the last, while CPU 1 does what it was woken for by the sweep before: what is left then it is woken for again.
fn sweep_and_purge() -> Model<()> {
    Model::new(TWO, sweeping(0x800), |mm| {
        for last in [1, 0] {
            let stack = mm.vmap().alloc(1, VmapPlace::ANYWHERE, RW).unwrap();
            mm.vmap().free(stack.start).unwrap();
            (0..=last).for_each(|cpu| mm.platform().on(1 - cpu, || mm.tick()));
        }
    })
    .cpu(|mm, ()| mm.tick())
    .cpu(|mm, ()| mm.vmap().purger().unwrap())
    .after(|mm, ()| {
        if mm.vmap().waits().unwrap().frames > 0 {
            mm.vmap().purger().unwrap();
        }
        assert_eq!(mm.vmap().waits().unwrap().frames, 0);
    })
    .bound(3)
}

/// Two CPUs unmap the same: one of them does.
fn unmap_twice() -> Model<Case> {
    let unmap = |mm: &'static Mm, case: Case| {
        if mm.vmap().unmap(case.range.start).is_ok() {
            mm.platform().use_frame(case.told, true);
        }
    };
    Model::new(TWO, lazy(0x800), |mm| {
        Case::new(mm, |old| mm.vmap().map(&[old], VmapPlace::ANYWHERE, RW).unwrap())
    })
    .cpu(unmap)
    .cpu(unmap)
    .bound(3)
}

/// Two CPUs make small maps in the same block and a third looks one of them up: it finds all of it, or nothing.
fn claim() -> Model<Case> {
    Model::new(THREE, lazy(0x800), |mm| Case::new(mm, |old| mm.vmap().map_ram(&[old], RW).unwrap()))
        .cpu(|mm, case| case.tell(mm, mm.vmap().map_ram(&[case.new], RW).unwrap()))
        .cpu(|mm, case| {
            mm.vmap().unmap_ram(case.range).unwrap();
            case.look(mm);
        })
        .cpu(|mm, case| {
            let at = PageNumber(case.range.start.0 + 1);
            if let Ok(found) = mm.vmap().find(at) {
                assert_eq!(found, PageRange::new(at, 1));
                assert_eq!(mm.platform().read_kernel(at), Some(case.new));
            }
        })
        .bound(2)
}

#[test]
fn an_address_is_flushed_before_it_is_used_again() {
    remap_and_purge().holds();
    remap_in_block_and_purge().holds();
}

#[test]
fn an_address_is_swept_before_it_is_used_again() {
    remap_and_sweep().holds();
    remap_and_leave_idle().holds();
    seal_and_purge().holds();
}

#[test]
fn who_frees_what_was_swept_is_woken_for_all_of_it() {
    sweep_and_purge().holds();
    sweep_and_purge()
        .fails(Fault::without_fence("vmap/sweep.rs", "// Partner: the fence in `purge::serve`."));
    sweep_and_purge().fails(Fault::without_fence("vmap/purge.rs", "// Partner: the fence in `sweep::wake`."));
}

#[test]
fn broken_rules_of_sweeps_are_seen() {
    remap_and_sweep().fails(Fault::Broken(Rule::KernelSweepCountsAll));
    remap_and_sweep().fails(Fault::Broken(Rule::FlushBeforeKernelSwept));
    remap_and_leave_idle().fails(Fault::Broken(Rule::IdleReturnSweep));
    seal_and_purge().fails(Fault::Broken(Rule::FlushBeforeKernelSwept));
}

#[test]
fn orderings_that_sweeps_miss_are_seen() {
    remap_and_sweep().fails(Fault::without_fence("vmap/sweep.rs", "// Partner: the fence in `join_sweep`"));
    remap_and_leave_idle()
        .fails(Fault::without_fence("vmap/sweep.rs", "// Partner: the fence in `Epochs::look`."));
}

#[test]
fn a_map_is_one_cpus() {
    unmap_twice().holds();
    claim().holds();
}

#[test]
fn broken_rules_are_seen() {
    remap_and_purge().fails(Fault::Broken(Rule::FlushBeforeReuse));
}

#[test]
fn orderings_that_are_missing_are_seen() {
    remap_and_purge()
        .fails(Fault::without_fence("vmap/extent_cache.rs", "cache.waits.store(p, 1, Ordering::Relaxed)"));
    remap_and_purge().fails(Fault::without_fence("vmap/purge.rs", "numbers.sweeps.begun.store(p, number"));
    claim().fails(Fault::without(
        "vmap/block.rs",
        "part.last.fetch_and(p, !(1 << (bit + pages - 1)), Ordering::Release)",
    ));
    claim().fails(Fault::without("vmap/block.rs", "part.last.load(p, Ordering::Acquire)"));
    claim().fails(Fault::without("vmap/block.rs", "part.first.fetch_or(p, 1 << bit, Ordering::Release)"));
}

#[test]
#[ignore = "long: says which orderings these cases miss"]
fn sweep() {
    remap_and_purge().sweep("remap_and_purge");
    remap_in_block_and_purge().sweep("remap_in_block_and_purge");
    unmap_twice().sweep("unmap_kernel_twice");
    claim().sweep("claim");
}
