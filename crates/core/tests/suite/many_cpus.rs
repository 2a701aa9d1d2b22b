//! A machine of 4096 CPUs: who is asked, who asks, who is waited for and what is on each one's lists does not depend on
//! a CPU's number.

use crate::machine;

use machine::{Happened, Host, Mm, Setup, bare, pages, pcp, settled};
use quietmm::platform::Cpus;
use quietmm::{
    Advice, AllocFrom, Backing, Certainty, Config, Counter, CpuId, CpuSet, Error, FrameNumber, NodeId,
    PageNumber, PageRange, Prot, Region, SpaceId,
};

const AT: u64 = 0x1000;
const CPUS: u32 = 4096;
/// Both sides of every border that a number of so many bits can have.
const SOME: [u16; 16] = [0, 1, 62, 63, 64, 65, 127, 128, 255, 256, 257, 1023, 1024, 2047, 2048, 4095];

fn large() -> Setup {
    Setup { cpus: CPUS, frames: 24 << 10, ..Setup::default() }
}

/// One CPU for each 64, at another place in each 64.
fn one_of_each_64() -> Vec<u16> {
    (0..64).map(|word| word * 64 + word * 7 % 64).collect()
}

/// A space with `count` pages, in the TLB of each of `cpus`, which run in it.
fn shared(mm: &Mm<'_>, count: u64, cpus: &[u16]) -> SpaceId {
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, count), Backing::Anonymous, Prot::ReadWrite).unwrap();
    cpus.iter().for_each(|&cpu| cache(mm, id, count, cpu));
    mm.platform().forget();
    id
}

fn cache(mm: &Mm<'_>, id: SpaceId, count: u64, cpu: u16) {
    mm.platform().on(cpu, || {
        mm.space(id).switch_to().unwrap();
        (AT..AT + count).for_each(|page| mm.platform().write(mm, id, page, page).unwrap());
    });
}

/// Who was interrupted, each as often as it was.
fn interrupted(host: &Host) -> Vec<u16> {
    let log = host.log.borrow();
    let cpu = |what: &Happened| if let Happened::Interrupt(cpu) = what { Some(*cpu) } else { None };
    let mut cpus: Vec<u16> = log.iter().filter_map(cpu).collect();
    cpus.sort_unstable();
    cpus
}

fn others(cpus: &[u16], but: u16) -> Vec<u16> {
    cpus.iter().copied().filter(|&cpu| cpu != but).collect()
}

#[test]
fn whoever_uses_the_space_is_asked_and_nobody_else() {
    let host = Host::new(large());
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, 2, &SOME);
        for asks in SOME.into_iter().chain([2, 300, 4094]) {
            SOME.iter().for_each(|&cpu| cache(mm, id, 2, cpu));
            host.forget();
            let sent = mm.counter(Counter::IpisSent);
            host.on(asks, || mm.space(id).flush_range(pages(AT, 1)).unwrap());
            assert_eq!(interrupted(&host), others(&SOME, asks), "CPU {asks} asks");
            assert_eq!(mm.counter(Counter::IpisSent) - sent, others(&SOME, asks).len() as u64);
            for cpu in SOME {
                assert_eq!((host.caches(cpu, AT), host.caches(cpu, AT + 1)), (false, true), "CPU {cpu}");
                assert_eq!(host.flushes(cpu), (0, 1), "CPU {cpu}");
            }
        }
        // Whoever leaves is not asked any more; whoever is left is.
        for (at, leaves) in SOME.into_iter().enumerate() {
            host.on(leaves, || mm.unload());
            host.forget();
            host.on(300, || mm.space(id).flush().unwrap());
            assert_eq!(interrupted(&host), SOME[at + 1..]);
        }
    });
}

#[test]
fn an_inbox_has_room_for_a_request_of_each() {
    let host = Host::new(large());
    host.run(bare("vanilla"), |mm| {
        for target in [0, 255, 256, 4095] {
            let senders = others(&one_of_each_64(), target);
            let count = senders.len() as u64;
            let id = shared(mm, count + 1, &[target]);
            let served = mm.counter(Counter::RemoteFlushReceived);
            host.hold_interrupts.set(true);
            // While each waits for the target, which does not look, the next one asks for a page of its own.
            for (at, &cpu) in senders.iter().enumerate().skip(1) {
                host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
                    let page = pages(AT + at as u64, 1);
                    mm.platform().on(cpu, || mm.space(id).flush_range(page).unwrap());
                }));
            }
            host.on(senders[0], || mm.space(id).flush_range(pages(AT, 1)).unwrap());
            host.hold_interrupts.set(false);
            assert_eq!(interrupted(&host), [target], "an inbox that is not empty is not rung again");
            assert_eq!(mm.counter(Counter::RemoteFlushReceived) - served, count);
            assert!((0..count).all(|at| !host.caches(target, AT + at)), "CPU {target} took each request");
            host.on(target, || mm.unload());
            mm.space(id).destroy().unwrap();
        }
    });
}

#[test]
fn a_cpu_that_goes_while_it_is_asked_is_not_waited_for_whatever_its_number() {
    for (asks, goes) in [(0, 64), (63, 65), (64, 255), (65, 256), (257, 4095), (4095, 1), (2048, 2047)] {
        let setup = Setup { cpus: CPUS, frames: 24 << 10, tags: 2, ..Setup::default() };
        let host = Host::new(setup);
        host.run(bare("vanilla"), |mm| {
            let id = shared(mm, 2, &[asks, goes]);
            host.hold_interrupts.set(true);
            // It goes with the request in its inbox, and takes it along.
            host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
                mm.platform().on(goes, || mm.cpu_offline().unwrap());
                mm.platform().off[usize::from(goes)].set(true);
            }));
            host.on(asks, || mm.space(id).unmap(pages(AT, 1)).unwrap());
            assert!(host.on_pause.borrow().is_empty() && !mm.is_online(CpuId(goes)));
            // It is off now: nobody rings it, nor waits.
            host.forget();
            host.on(asks, || mm.space(id).flush().unwrap());
            assert_eq!(interrupted(&host), []);
            host.off[usize::from(goes)].set(false);
            host.hold_interrupts.set(false);
            host.on(goes, || {
                mm.cpu_online().unwrap();
                mm.space(id).switch_to().unwrap();
                assert_eq!(host.read(mm, id, AT), Err(Error::NotMapped(PageNumber(AT))));
            });
            assert_eq!(host.stale.get(), 0);
        });
    }
}

#[test]
fn a_request_to_a_cpu_that_has_just_gone_is_taken_back_whatever_the_numbers() {
    for (asks, goes) in [(64, 1), (65, 4095), (255, 0), (4095, 255)] {
        let host = Host::new(large());
        host.run(bare("vanilla"), |mm| {
            let id = shared(mm, 1, &[asks]);
            // At each of the sender's steps, until it has no more.
            for n in 0.. {
                cache(mm, id, 1, goes);
                host.place();
                host.at_touch(asks, n, move |mm| {
                    mm.platform().on(goes, || mm.cpu_offline().unwrap());
                    mm.platform().off[usize::from(goes)].set(true);
                });
                host.on(asks, || mm.space(id).flush().unwrap());
                let there_is_more = host.all_placed();
                if !there_is_more {
                    assert!(n > 10);
                    break;
                }
                assert_eq!(mm.validate().broken, None, "step {n}: CPU {goes} left nothing behind");
                host.off[usize::from(goes)].set(false);
                host.on(goes, || mm.cpu_online().unwrap());
            }
        });
    }
}

#[test]
fn frames_on_the_lists_of_any_cpu_are_drained() {
    for policy in ["linux+drain=all-cpus", "linux+drain=holding-cpus", "linux+drain=remote"] {
        for certainty in [Certainty::Likely, Certainty::Certain] {
            let host = Host::new(large());
            host.run(Config { page_lists: pcp(8), ..bare(policy) }, |mm| {
                settled(mm);
                for cpu in SOME {
                    host.on(cpu, || mm.frames().free(mm.frames().alloc(0, AllocFrom::NOW).unwrap()));
                }
                let all = mm.frames().available() + mm.frames().on_lists();
                assert!(mm.frames().on_lists() >= SOME.len() as u64);
                host.on(300, || mm.frames().drain(certainty));
                assert_eq!(
                    (mm.frames().on_lists(), mm.frames().available()),
                    (0, all),
                    "{policy}, {certainty:?}"
                );
            });
        }
    }
}

#[test]
fn kernel_addresses_are_flushed_on_every_cpu() {
    let host = Host::new(large());
    host.run(machine::kernel::kernel("linux", 64), |mm| {
        let frames = machine::kernel::frames(mm, 1);
        let range = mm.vmap().map(&frames, machine::kernel::BARE, machine::kernel::RW).unwrap();
        for cpu in SOME {
            host.on(cpu, || assert_eq!(host.read_kernel(range.start), Some(0)));
        }
        mm.vmap().unmap(range.start).unwrap();
        host.forget();
        host.on(300, || mm.vmap().purge().unwrap());
        assert_eq!(interrupted(&host), others(&(0..CPUS as u16).collect::<Vec<_>>(), 300));
        assert!(SOME.iter().all(|&cpu| !host.caches_kernel(cpu, range.start)));
        machine::kernel::free(mm, frames);
    });
}

#[test]
fn hardware_flushes_for_whoever_asks_if_any_other_uses_the_space() {
    for (asks, other) in [(0, 256), (256, 0), (255, 4095), (1, 257), (3, 3 + 2048), (64, 0), (0, 64)] {
        for lazy in [false, true] {
            let host = Host::new(Setup { broadcast: true, ..large() });
            host.run(bare("linux+flush=broadcast"), |mm| {
                let id = shared(mm, 2, &[asks, other]);
                if lazy {
                    host.on(other, || mm.enter_lazy());
                }
                host.on(asks, || mm.space(id).unmap(pages(AT, 1)).unwrap());
                assert_eq!((host.broadcasts().len(), interrupted(&host)), (usize::from(!lazy), vec![]));
                // By itself nobody needs the hardware.
                host.on(other, || mm.unload());
                host.forget();
                host.on(asks, || mm.space(id).flush_range(pages(AT + 1, 1)).unwrap());
                assert_eq!((host.broadcasts().len(), host.flushes(asks)), (0, (0, 1)));
            });
        }
    }
}

#[test]
fn a_set_holds_each_cpu_by_itself() {
    // A set is made of zeros, half a kilobyte of them, and never lies on a stack of the core's.
    let set: Box<CpuSet> = zeroed();
    let all = || set.iter().map(|cpu| cpu.0).collect::<Vec<_>>();
    for cpu in SOME {
        assert!(!set.contains(CpuId(cpu)));
        set.insert(CpuId(cpu));
        set.insert(CpuId(cpu));
        assert!(set.contains(CpuId(cpu)));
    }
    assert_eq!((all(), set.len()), (SOME.to_vec(), SOME.len() as u32));
    for (at, cpu) in SOME.into_iter().enumerate() {
        set.remove(CpuId(cpu));
        assert_eq!((all(), set.is_empty()), (SOME[at + 1..].to_vec(), at + 1 == SOME.len()));
    }
    SOME.iter().for_each(|&cpu| set.insert(CpuId(cpu)));
    set.clear();
    assert_eq!((all(), set.len(), set.is_empty()), (Vec::new(), 0, true));
}

fn zeroed() -> Box<CpuSet> {
    // SAFETY: all zeros is the empty set, as its document says.
    unsafe { Box::<CpuSet>::new_zeroed().assume_init() }
}

/// What each CPU keeps on its lists is its share of its node, whatever the numbers of the node's CPUs are.
#[test]
fn lists_are_as_long_as_the_cpus_of_their_node_allow() {
    for (nodes, cpus) in [(3, 300), (3, 255), (3, 256), (3, 257), (2, 600), (5, 1021)] {
        let part = 16 << 10;
        let setup = Setup { nodes, cpus, frames: part * u32::from(nodes), ..Setup::default() };
        let region = |node: u16| Region {
            start: FrameNumber(setup.base + u32::from(node) * part),
            frames: part,
            node: NodeId(node),
        };
        let host = Host::new(Setup { regions: Some((0..nodes).map(region).collect()), ..setup.clone() });
        // Plenty is kept free, so that one CPU more or less shows.
        let min_free = 2000 * u64::from(nodes);
        let config = Config { page_lists: None, min_free: Some(min_free as u32), ..bare("vanilla") };
        host.run(config, |mm| {
            for node in 0..nodes {
                let own = (0..cpus).filter(|cpu| cpu % u32::from(nodes) == u32::from(node)).count();
                let limits = Config::linux_page_lists(part.into(), 2000, own as u32);
                assert_eq!(
                    mm.frames().list_limits(NodeId(node)),
                    Some(limits),
                    "node {node} of {nodes}, {own} CPUs"
                );
            }
        });
    }
}

/// A batch of pages that are made clean reaches each CPU that has written to them, and not the one that asks, whatever their numbers.
#[test]
fn a_batch_is_flushed_on_whoever_uses_its_pages_and_on_nobody_else() {
    let host = Host::new(large());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(2).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, 2), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
        for asks in [0, 1, 255, 256, 257, 300, 4095] {
            SOME.iter().for_each(|&cpu| cache(mm, id, 2, cpu));
            host.forget();
            assert_eq!(host.on(asks, || mm.file(file).write_back()), Ok(2));
            assert_eq!(interrupted(&host), others(&SOME, asks), "CPU {asks} asks");
            assert!(SOME.iter().all(|&cpu| !host.caches(cpu, AT)), "CPU {asks} asks");
        }
    });
}

/// A space that one other CPU uses, whichever that is, is not taken for one's own: its pages go for one flush.
#[test]
fn a_space_that_only_another_cpu_uses_is_flushed_in_one_batch() {
    for cpu in [1, 63, 64, 128, 129] {
        let host = Host::new(Setup { cpus: 130, frames: 2048, ..Setup::default() });
        // The table that is empty then is not its matter.
        host.broken.set(Some(quietmm::Rule::TablesBeforeVictim));
        host.run(bare("linux"), |mm| {
            let (id, _) = machine::flushing::cached(mm, 4, &[cpu]);
            machine::give_back(mm, machine::exhaust(mm));
            assert!(!mm.space(id).lookup(PageNumber(AT)).unwrap().is_present());
            assert_eq!(host.interrupts_to(cpu), 1, "CPU {cpu}");
        });
    }
}

/// Whoever waits for a sweep asks each CPU that has not joined it, whatever its number.
#[test]
fn a_sweep_asks_each_cpu_that_does_not_tick() {
    let host = Host::new(Setup { cpus: 259, frames: 2048, ..Setup::default() });
    let config = Config { sweep_deadline: 0, ..bare("linux+unmap=quiet") };
    host.run(config, |mm| {
        let cpus = [1, 64, 255, 256, 258];
        let (_, file) = machine::flushing::cached(mm, 2, &cpus);
        host.forget();
        let held = machine::exhaust(mm);
        assert!(mm.file(file).cached_pages().unwrap() <= 1);
        let asked = interrupted(&host);
        assert!(cpus.iter().all(|cpu| asked.contains(cpu)), "{asked:?}");
        machine::give_back(mm, held);
    });
}

/// What a CPU has of its last batch is nobody's: the next one is flushed only where its own pages were used.
#[test]
fn a_batch_remembers_nobody_of_the_one_before() {
    let host = Host::new(Setup { cpus: 4, frames: 1024, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let both = [1, 2].map(|cpu| machine::flushing::cached(mm, 2, &[cpu, 3]));
        for (at, (id, _)) in both.into_iter().enumerate() {
            host.on(3, || mm.unload());
            host.forget();
            mm.space(id).advise(pages(AT, 2), quietmm::Advice::PageOut).unwrap();
            assert_eq!(interrupted(&host), [at as u16 + 1]);
        }
    });
}

/// What each CPU has for itself is there for as many as there may be, whatever the policy.
#[test]
fn there_is_a_manager_for_so_many_cpus_with_every_policy() {
    for policy in ["linux", "vanilla", "quiet", "linux+free=sweep", "quiet+free=sweep+drain=remote"] {
        let host = Host::new(large());
        let range = PageRange::new(PageNumber::KERNEL_START, 1 << 24);
        host.run(Config { vmap: Some(range), groups: 2, ..bare(policy) }, |mm| {
            let id = shared(mm, 2, &SOME);
            for asks in SOME {
                host.on(asks, || mm.space(id).unmap(pages(AT, 1)).unwrap());
                mm.space(id).map(pages(AT, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
                host.on(asks, || host.write(mm, id, AT, 7)).unwrap();
            }
            assert_eq!(settled(mm).broken, None, "{policy}");
        });
    }
}

/// A CPU serves who asked it in turn, by words of its inbox. Who asks while it does is served for itself, though another of the same word had
/// asked before, and though it has flushed everything meanwhile.
#[test]
fn who_asks_while_others_are_served_is_not_taken_for_one_of_them() {
    const ASKS: [u16; 3] = [1, 64, 65];
    let setup = Setup { cpus: 66, frames: 1024, ..Setup::default() };
    let (cases, _) = machine::everywhere_as(&setup, &bare("linux"), None, |mm, n| {
        let host = mm.platform();
        let (id, _) = machine::flushing::cached(mm, 3, &[0]);
        let asks = |nth: u64| mm.space(id).advise(pages(AT + nth, 1), Advice::PageOut).unwrap();
        // It hears nothing until then.
        assert!(host.on(0, || host.irqs_off()));
        let serves = || host.irqs_on();
        host.patient.set(true);
        host.aside(
            ASKS[0],
            || asks(0),
            |first| {
                host.aside(
                    ASKS[1],
                    || asks(1),
                    |second| {
                        host.aside(0, serves, |target| {
                            assert!(
                                [first, second].map(|aside| host.resume_one(aside)) == [true; 2],
                                "they wait"
                            );
                            host.at_touch(0, n, |mm| {
                                if mm.platform().is_aside() {
                                    mm.platform().stop();
                                }
                            });
                            host.resume_one(target);
                            // Its hardware walks to the page again, as it may at any time.
                            host.on(0, || assert!(host.try_read(AT + 2).is_some()));
                            host.on(ASKS[2], || asks(2));
                            assert!(!host.caches(0, AT + 2), "touch {n}");
                            while [target, second, first].map(|aside| host.resume_one(aside)).contains(&true)
                            {
                            }
                        });
                    },
                );
            },
        );
        host.all_placed();
    });
    assert!(cases.len() > 10, "{}", cases.len());
}
