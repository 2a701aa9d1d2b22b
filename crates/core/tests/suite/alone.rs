//! Parts that stand alone do what they do in the whole, and never ask for a space's flush.

use crate::machine;

use machine::{Happened, Host, Setup};
use quietmm::platform::{Cpus, Hooks, KernelTlb, Memory, Services};
use quietmm::policy::{Drain, VmapPolicy};
use quietmm::sync::SpinLock;
use quietmm::{
    AllocFrom, Alone, Config, Counter, Error, FrameNumber, KernelProt, Machine, PageNumber, PageRange,
    Policy, Region, VmapPlace,
};

const FRAMES: u32 = 2048;

/// With a test machine, which is a platform, or what stands on one.
fn with<M: Machine>(machine: &M, vmap: Option<PageRange>, work: impl FnOnce(&Alone<'_, M>)) {
    let policy = Policy { drain: Drain::Remote, vmap: VmapPolicy::Lazy, ..Policy::VANILLA };
    let regions = [Region { start: FrameNumber(0), frames: FRAMES, node: quietmm::NodeId(0) }];
    // SAFETY: the test machine is a platform.
    let alone = unsafe { Alone::new(machine, &regions, Config { vmap, ..Config::new(policy) }) };
    work(&alone.expect("a machine that the core takes"));
}

fn host(cpus: u32) -> Host {
    Host::new(Setup { base: 0, frames: FRAMES, cpus, ..Setup::default() })
}

#[test]
fn frames_alone_run_out_and_come_back() {
    let host = host(2);
    with(&host, None, |alone| {
        let (free, before) = (alone.frames().available(), alone.counter(Counter::PgAlloc));
        let mut taken = Vec::new();
        let error = loop {
            match alone.frames().alloc(taken.len() as u8 % 3, AllocFrom::HERE) {
                Ok(block) => taken.push(block),
                Err(error) => break error,
            }
        };
        assert_eq!(error, Error::OutOfMemory);
        let sum: u64 = taken.iter().map(|block| 1 << block.order()).sum();
        assert_eq!(alone.counter(Counter::PgAlloc) - before, sum);
        assert!(sum > free * 9 / 10, "{sum} of {free}");
        // The other CPU gives them back.
        host.on(1, || taken.drain(..).for_each(|block| alone.frames().free(block)));
        host.on(1, || alone.frames().drain_here());
        alone.frames().drain_here();
        assert_eq!(alone.frames().available(), free);
        let audit = alone.validate();
        assert_eq!((audit.broken, audit.kernel, audit.leaked), (None, 0, 0));
        assert_eq!(alone.counter(Counter::IpisSent), 0);
        assert_eq!(alone.vmap().purge(), Err(Error::NoKernelRange));
    });
}

#[test]
fn kernel_addresses_alone_are_mapped_unmapped_and_flushed_once() {
    let host = host(1);
    with(&host, Some(PageRange::new(PageNumber::KERNEL_START, 1 << 14)), |alone| {
        let block = alone.frames().alloc(1, AllocFrom::HERE).expect("plenty is free");
        let frames = [block.first(), FrameNumber(block.first().0 + 1)];
        for _ in 0..100 {
            let place = VmapPlace::ANYWHERE;
            let range = alone.vmap().map(&frames, place, KernelProt::ReadWrite).expect("there are addresses");
            assert_eq!(alone.vmap().frame_at(PageNumber(range.start.0 + 1)), Ok(frames[1]));
            alone.vmap().unmap(range.start).expect("just mapped");
            assert_eq!(alone.vmap().frame_at(range.start), Err(Error::NotMapped(range.start)));
        }
        let waiting = alone.vmap().waits().expect("there is a range").pages;
        assert!(waiting >= 100 * frames.len() as u64, "{waiting}");
        alone.vmap().unmap_aliases().expect("interrupts are on");
        assert_eq!(alone.vmap().purge(), Ok(0));
        alone.frames().free(block);
        assert_eq!(alone.validate().broken, None);
    });
}

/// Frames of kernel addresses that were given back, and wait for a flush, are no loss: whoever finds no other gets them.
#[test]
fn what_waits_for_a_flush_is_had_before_memory_is_out() {
    for vmap in [VmapPolicy::Lazy, VmapPolicy::Sweep] {
        let host = host(1);
        let policy = Policy { vmap, ..Policy::VANILLA };
        let regions = [Region { start: FrameNumber(0), frames: FRAMES, node: quietmm::NodeId(0) }];
        let range = PageRange::new(PageNumber::KERNEL_START, 1 << 14);
        let config = Config { vmap: Some(range), ..Config::new(policy) };
        // SAFETY: the test machine is a platform.
        let alone = unsafe { Alone::new(&host, &regions, config) }.expect("a machine that the core takes");
        for _ in 0..8 {
            let half = alone.frames().available() / 2;
            let taken = alone.vmap().alloc(half, VmapPlace::ANYWHERE, KernelProt::ReadWrite);
            alone.vmap().free(taken.expect("half is free").start).expect("just mapped");
        }
        assert_eq!(alone.validate().broken, None, "{vmap:?}");
    }
}

#[test]
fn a_block_that_is_in_use_stays_and_nobody_is_interrupted() {
    let host = host(2);
    with(&Few(&host), None, |alone| {
        let block = alone.frames().alloc(0, AllocFrom::HERE).expect("plenty is free");
        let first = FrameNumber(block.first().0 & !1023);
        if let Ok(leaving) = alone.frames().begin_offline(first) {
            let remains = alone.frames().finish_offline(leaving).expect_err("one frame is in use");
            assert_eq!(remains.frame, block.first());
            alone.frames().cancel_offline(remains.leaving);
        }
        alone.frames().free(block);
        assert_eq!(alone.validate().broken, None);
    });
}

/// What a kernel writes that wants frames only.
struct Few<'a>(&'a Host);

impl Cpus for Few<'_> {
    fn this_cpu(&self) -> quietmm::CpuId {
        self.0.this_cpu()
    }
    fn possible_cpus(&self) -> u32 {
        self.0.possible_cpus()
    }
    fn is_online(&self, cpu: quietmm::CpuId) -> bool {
        self.0.is_online(cpu)
    }
    fn node_of(&self, cpu: quietmm::CpuId) -> quietmm::NodeId {
        self.0.node_of(cpu)
    }
    fn distance(&self, from: quietmm::NodeId, to: quietmm::NodeId) -> u32 {
        self.0.distance(from, to)
    }
    fn interrupt(&self, _targets: &quietmm::CpuSet) {
        unreachable!("for frames nobody is interrupted");
    }
    fn irqs_off(&self) -> bool {
        self.0.irqs_off()
    }
    fn irqs_on(&self) {
        self.0.irqs_on();
    }
    fn now(&self) -> quietmm::addr::Nanos {
        self.0.now()
    }
    fn pause(&self, ns: u32) {
        self.0.pause(ns);
    }
}

impl Memory for Few<'_> {
    fn direct(&self, at: quietmm::PhysAddr) -> *mut u8 {
        self.0.direct(at)
    }
    fn clear_frame(&self, frame: FrameNumber) {
        self.0.clear_frame(frame);
    }
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber) {
        self.0.copy_frame(from, to);
    }
}

impl KernelTlb for Few<'_> {}
impl Services for Few<'_> {}
impl Hooks for Few<'_> {}

#[test]
fn frames_alone_want_two_traits() {
    let host = host(2);
    with(&Few(&host), None, |alone| {
        let blocks: Vec<_> = (0..64).map(|_| alone.frames().alloc(0, AllocFrom::HERE)).collect();
        blocks.into_iter().for_each(|block| alone.frames().free(block.expect("plenty is free")));
        assert_eq!(alone.validate().broken, None);
    });
}

/// The control: whoever has a kernel range must say how it is flushed.
#[test]
#[should_panic(expected = "a platform with a kernel range says how to flush it")]
fn a_kernel_range_wants_a_flush() {
    let host = host(1);
    with(&Few(&host), Some(PageRange::new(PageNumber::KERNEL_START, 1 << 14)), |alone| {
        let block = alone.frames().alloc(0, AllocFrom::HERE).expect("plenty is free");
        let place = VmapPlace::ANYWHERE;
        let range = alone.vmap().map(&[block.first()], place, KernelProt::Read).expect("there are addresses");
        alone.vmap().unmap(range.start).expect("just mapped");
        _ = alone.vmap().unmap_aliases();
    });
}

/// A machine of which somebody else carries interrupts to where they go: what a test has put on the side runs while others wait.
struct Slow<'a>(&'a Host);

impl Cpus for Slow<'_> {
    fn this_cpu(&self) -> quietmm::CpuId {
        self.0.this_cpu()
    }
    fn possible_cpus(&self) -> u32 {
        self.0.possible_cpus()
    }
    fn is_online(&self, cpu: quietmm::CpuId) -> bool {
        self.0.is_online(cpu)
    }
    fn node_of(&self, cpu: quietmm::CpuId) -> quietmm::NodeId {
        self.0.node_of(cpu)
    }
    fn distance(&self, from: quietmm::NodeId, to: quietmm::NodeId) -> u32 {
        self.0.distance(from, to)
    }
    fn interrupt(&self, _targets: &quietmm::CpuSet) {}
    fn irqs_off(&self) -> bool {
        self.0.irqs_off()
    }
    fn irqs_on(&self) {
        self.0.irqs_on();
    }
    fn now(&self) -> quietmm::addr::Nanos {
        self.0.now()
    }
    fn pause(&self, _ns: u32) {
        if self.0.is_aside() {
            self.0.stop();
        } else {
            assert!(self.0.resume_any(), "waits for ever");
        }
    }
}

impl Memory for Slow<'_> {
    fn direct(&self, at: quietmm::PhysAddr) -> *mut u8 {
        self.0.direct(at)
    }
    fn clear_frame(&self, frame: FrameNumber) {
        self.0.clear_frame(frame);
    }
    fn copy_frame(&self, from: FrameNumber, to: FrameNumber) {
        self.0.copy_frame(from, to);
    }
}

impl KernelTlb for Slow<'_> {
    fn flush_kernel_page(&self, page: quietmm::VirtAddr) {
        self.0.flush_kernel_page(page);
    }
    fn flush_kernel(&self) {
        self.0.flush_kernel();
    }
}
impl Services for Slow<'_> {}
impl Hooks for Slow<'_> {}

/// Full flushes of kernel addresses by this CPU.
fn flushes(host: &Host, cpu: u16) -> usize {
    host.count(|what| matches!(what, Happened::FlushKernel(by) if *by == cpu))
}

#[test]
fn a_part_alone_sweeps_and_counts_cpus_like_the_whole() {
    let host = host(4);
    let policy = Policy { vmap: VmapPolicy::Sweep, ..Policy::VANILLA };
    let regions = [Region { start: FrameNumber(0), frames: FRAMES, node: quietmm::NodeId(0) }];
    let range = PageRange::new(PageNumber::KERNEL_START, 1 << 10);
    let config = Config { vmap: Some(range), vmap_lazy: Some(4), ..Config::new(policy) };
    // SAFETY: the test machine is a platform.
    let alone = unsafe { Alone::new(&host, &regions, config) }.expect("a machine that the core takes");
    let tick = |cpu: u16| {
        host.on(cpu, || {
            host.irqs_off();
            alone.tick();
            host.irqs_on();
        });
    };
    let waits = || alone.vmap().waits().expect("there is a range").pages;
    let block = alone.frames().alloc(0, AllocFrom::HERE).expect("plenty is free");
    let anywhere = VmapPlace { guard: false, ..VmapPlace::ANYWHERE };
    let unmap_one = || {
        let range = alone.vmap().map(&[block.first()], anywhere, KernelProt::ReadWrite).expect("room");
        alone.vmap().unmap(range.start).expect("just mapped");
    };
    assert_eq!(host.on(3, || alone.cpu_online()), Err(Error::AlreadyOnline));
    assert_eq!(host.on(3, || alone.cpu_offline()), Ok(()));
    assert_eq!(host.on(3, || alone.cpu_offline()), Err(Error::NotOnline));
    host.on(2, || alone.enter_idle());
    unmap_one();
    // One that is idle, and one that is offline, do not count; the others do.
    tick(0);
    tick(2);
    tick(0);
    assert_eq!(waits(), 1);
    tick(1);
    tick(0);
    assert_eq!((waits(), alone.counter(Counter::KernelSweeps)), (0, 1));
    assert_eq!([0, 1, 2, 3].map(|cpu| flushes(&host, cpu)), [1, 1, 0, 0]);
    // They have missed it, and catch up as they come back.
    host.on(2, || alone.leave_idle());
    assert_eq!(host.on(3, || alone.cpu_online()), Ok(()));
    assert_eq!([2, 3].map(|cpu| flushes(&host, cpu) > 0), [true, true]);
    // From now on they count.
    unmap_one();
    [0, 1, 0].into_iter().for_each(tick);
    assert_eq!(waits(), 1);
    [2, 3, 0].into_iter().for_each(tick);
    assert_eq!((waits(), alone.counter(Counter::KernelSweeps)), (0, 2));
    assert_eq!(alone.counter(Counter::IpisSent), 0);
    alone.frames().free(block);
    assert_eq!(alone.validate().broken, None);
}

/// How a CPU comes to serve what others ask of it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Serves {
    Lock,
    ByHand,
    Interrupted,
}

/// CPU 2 wants the frames on CPU 1's lists. That one has interrupts off, and wants a lock that CPU 0 has: a lock of the
/// kernel's own, taken by a part that stands alone. Or it serves by hand, or in the end the interrupt comes.
#[test]
fn a_part_alone_serves_what_is_asked_of_it() {
    for how in [Serves::Lock, Serves::ByHand, Serves::Interrupted] {
        let host = host(3);
        let slow = Slow(&host);
        let policy = Policy { drain: Drain::HoldingCpus, ..Policy::VANILLA };
        let regions = [Region { start: FrameNumber(0), frames: FRAMES, node: quietmm::NodeId(0) }];
        // SAFETY: the test machine is a platform.
        let alone = unsafe { Alone::new(&slow, &regions, Config::new(policy)) }
            .expect("a machine that the core takes");
        host.on(1, || {
            let block = alone.frames().alloc(0, AllocFrom::HERE).expect("plenty is free");
            alone.frames().free(block);
        });
        let lock = SpinLock::<0>::new();
        let drain = || assert!(alone.frames().drain(quietmm::Certainty::Likely) > 0);
        host.aside(2, drain, |_| {
            assert!(host.resume(), "it waits for CPU 1");
            let holds = || {
                let held = lock.lock(&alone);
                host.stop();
                drop(held);
            };
            host.aside(0, holds, |_| {
                host.resume();
                host.on(1, || {
                    host.irqs_off();
                    assert!(alone.frames().on_lists() > 0);
                    match how {
                        Serves::Lock => drop(lock.lock(&alone)),
                        Serves::ByHand => alone.serve(),
                        Serves::Interrupted => alone.on_interrupt(),
                    }
                    assert_eq!(alone.frames().on_lists(), 0, "it has handed them over: {how:?}");
                    host.irqs_on();
                });
            });
        });
        let interrupted = u64::from(how == Serves::Interrupted);
        assert_eq!(alone.counter(Counter::IpisReceived), interrupted);
        assert_eq!(alone.validate().broken, None);
    }
}

/// What the configuration asks for spaces takes no memory of a part that has none: the whole would take some.
#[test]
fn what_is_asked_for_spaces_costs_a_part_alone_nothing() {
    let regions = [Region { start: FrameNumber(0), frames: FRAMES, node: quietmm::NodeId(0) }];
    let plain = Config { swap: false, shadows: false, ..Config::new(Policy::VANILLA) };
    let of_the_whole = |asked: Config| {
        let host = host(2);
        // SAFETY: as for a part.
        let mm = unsafe { quietmm::Manager::new(&host, &regions, asked) };
        mm.expect("it takes the machine").frames().reserved()
    };
    let of_a_part = |asked: Config| {
        let host = host(2);
        // SAFETY: the test machine is a platform.
        unsafe { Alone::new(&host, &regions, asked) }.expect("it takes the machine").frames().reserved()
    };
    let least = of_the_whole(plain);
    let quiet = Policy::parse("quiet").expect("a policy");
    let groups = Config { groups: 64, ..plain };
    for asked in
        [plain, Config { swap: true, shadows: true, ..plain }, Config { policy: quiet, ..plain }, groups]
    {
        assert!(of_a_part(asked) <= least, "{} frames, {least} at least", of_a_part(asked));
    }
    assert!(of_the_whole(Config { swap: true, shadows: true, ..plain }) > least);
    assert!(of_the_whole(groups) > least);
}

/// A part alone with this policy, all of memory and a kernel range, or why the machine is refused.
fn part<'p>(machine: &'p Host, policy: &str) -> Result<Alone<'p, Host>, Error> {
    let regions = [Region { start: FrameNumber(0), frames: FRAMES, node: quietmm::NodeId(0) }];
    let vmap = Some(PageRange::new(PageNumber::KERNEL_START, 1 << 10));
    let policy = Policy::parse(policy).expect("a policy");
    // SAFETY: the test machine is a platform.
    unsafe { Alone::new(machine, &regions, Config { vmap, ..Config::new(policy) }) }
}

/// How kernel addresses are flushed on other CPUs is the policy's choice, as in the whole.
#[test]
fn a_part_alone_is_flushed_by_the_hardware_where_its_policy_says_so_and_refused_without_it() {
    for (policy, broadcast, works) in [
        ("vanilla+flush=broadcast", false, false),
        ("vanilla+flush=broadcast", true, true),
        ("vanilla+flush=broadcast-or-ipi", true, true),
        ("quiet+flush=broadcast", true, true),
    ] {
        let host = Host::new(Setup { base: 0, frames: FRAMES, cpus: 4, broadcast, ..Setup::default() });
        let alone = part(&host, policy);
        let refused = Error::GuaranteeMissing { policy: "flush=broadcast", guarantee: "broadcast" };
        assert_eq!(alone.as_ref().err(), if works { None } else { Some(&refused) }, "{policy}");
        let Ok(alone) = alone else { continue };
        let block = alone.frames().alloc(0, AllocFrom::HERE).expect("plenty is free");
        let range = alone.vmap().map(&[block.first()], VmapPlace::ANYWHERE, KernelProt::ReadWrite);
        host.forget();
        alone.vmap().unmap(range.expect("there are addresses").start).expect("just mapped");
        alone.vmap().unmap_aliases().expect("interrupts are on");
        assert_eq!((host.broadcasts().len(), host.interrupts()), (1, 0), "{policy}");
        alone.frames().free(block);
        assert_eq!(alone.validate().broken, None);
    }
}

/// What a policy needs for spaces nobody has to promise who makes none.
#[test]
fn a_part_alone_asks_no_more_of_the_machine_than_frames_and_kernel_addresses_need() {
    for policy in ["linux", "quiet", "vanilla+free=sweep"] {
        let setup = Setup { base: 0, frames: FRAMES, guarantees: false, ..Setup::default() };
        let host = Host::new(setup);
        let alone = part(&host, policy).expect("no space, no guarantee");
        let block = alone.frames().alloc(0, AllocFrom::HERE).expect("plenty is free");
        alone.frames().free(block);
        assert_eq!(alone.validate().broken, None, "{policy}");
    }
}
