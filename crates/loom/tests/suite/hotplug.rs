//! CPUs that go and come while others flush (INV-3, INV-6, INV-8).
use quietmm::{AllocFrom, Config, FrameNumber, KernelProt, PageNumber, PageRange, Rule, SpaceId, VmapPlace};
use quietmm_loom::case::{PAGE, bare, page, space, used_on_1};
use quietmm_loom::{Fault, Model, Setup};

const TWO: Setup = Setup { cpus: 2, tags: 1 };
const TAGS: Setup = Setup { cpus: 2, tags: 2 };

/// CPU 1 goes while CPU 0 wants something of it.
fn unmap_and_go() -> Model<SpaceId> {
    Model::new(TWO, bare("vanilla"), |mm| {
        let id = space(mm, 2);
        used_on_1(mm, id, 2);
        id
    })
    .cpu(|mm, id| mm.space(id).unmap(page(0)).unwrap())
    .cpu(|mm, _| {
        mm.platform().read(PAGE);
        mm.cpu_offline().unwrap();
        mm.platform().switch_off();
    })
}

/// CPU 1 comes back while CPU 0 unmaps what its TLB has kept.
fn unmap_and_come() -> Model<SpaceId> {
    Model::new(TAGS, bare("vanilla"), |mm| {
        let id = space(mm, 2);
        let other = mm.create_space().unwrap();
        used_on_1(mm, id, 2);
        mm.platform().on(1, || {
            mm.space(other).switch_to().unwrap();
            mm.cpu_offline().unwrap();
        });
        id
    })
    .cpu(|mm, id| mm.space(id).unmap(page(0)).unwrap())
    .cpu(|mm, id| {
        mm.cpu_online().unwrap();
        mm.space(id).switch_to().unwrap();
        mm.platform().read(PAGE);
    })
}

/// It goes and comes back meanwhile.
fn unmap_and_go_and_come() -> Model<SpaceId> {
    Model::new(TAGS, bare("vanilla"), |mm| {
        let id = space(mm, 2);
        used_on_1(mm, id, 2);
        id
    })
    .cpu(|mm, id| mm.space(id).unmap(page(0)).unwrap())
    .cpu(|mm, id| {
        mm.cpu_offline().unwrap();
        mm.cpu_online().unwrap();
        mm.space(id).switch_to().unwrap();
        mm.platform().read(PAGE);
    })
    .bound(3)
}

const KERNEL: PageRange = PageRange { start: PageNumber(PageNumber::KERNEL_START.0 + 0x1000), pages: 0x800 };

fn with_kernel_range(policy: &str) -> Config {
    Config { vmap: Some(KERNEL), vmap_shards: Some(1), ..bare(policy) }
}

/// CPU 1 comes back while CPU 0 unmaps a kernel page that its TLB has kept, and uses the frame otherwise.
fn unmap_kernel_and_come() -> Model<(PageNumber, FrameNumber)> {
    Model::new(TWO, with_kernel_range("vanilla+vmap=eager"), |mm| {
        let frame = mm.frames().alloc(0, AllocFrom::HERE).unwrap().first();
        let start = mm.vmap().map(&[frame], VmapPlace::ANYWHERE, KernelProt::ReadWrite).unwrap().start;
        mm.platform().on(1, || {
            mm.platform().read_kernel(start).unwrap();
            mm.cpu_offline().unwrap();
        });
        (start, frame)
    })
    .cpu(|mm, (start, frame)| {
        mm.vmap().unmap(start).unwrap();
        mm.platform().use_frame(frame, true);
    })
    .cpu(|mm, (start, _)| {
        mm.cpu_online().unwrap();
        mm.platform().read_kernel(start);
    })
}

#[test]
fn nobody_waits_for_a_cpu_that_is_gone() {
    unmap_and_go().holds();
}

#[test]
fn who_comes_uses_nothing_stale() {
    unmap_and_come().holds();
    unmap_and_go_and_come().holds();
    unmap_kernel_and_come().holds();
}

#[test]
fn broken_rules_are_seen() {
    unmap_and_go().fails(Fault::Broken(Rule::TakeBack));
    unmap_and_come().fails(Fault::Broken(Rule::OnlineStartsEmpty));
    unmap_kernel_and_come().fails(Fault::Broken(Rule::OnlineFlushesKernel));
}

#[test]
fn orderings_that_are_missing_are_seen() {
    unmap_and_go().fails(Fault::without_fence("ipi.rs", "fn is_gone"));
    unmap_and_go().fails(Fault::without("tlb/local.rs", "Presence::LAZY, Ordering::Release"));
    unmap_and_go().fails(Fault::without_fence("hotplug/mod.rs", "Presence::OFFLINE, Ordering::Release"));
    unmap_kernel_and_come()
        .fails(Fault::without_fence("tlb/kernel.rs", "let targets = &here.slot().targets"));
    unmap_kernel_and_come()
        .fails(Fault::without_fence("hotplug/mod.rs", "Presence::ACTIVE, Ordering::Relaxed"));
}

#[test]
#[ignore = "long: says which orderings these cases miss"]
fn sweep() {
    unmap_and_go().sweep("unmap_and_go");
    unmap_and_come().sweep("unmap_and_come");
    unmap_and_go_and_come().sweep("unmap_and_go_and_come");
    unmap_kernel_and_come().sweep("unmap_kernel_and_come");
}
