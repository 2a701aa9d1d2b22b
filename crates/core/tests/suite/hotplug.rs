//! One CPU's whole operation in the middle of another's, at every point: who switches, leaves lazy mode, goes or comes
//! uses nothing stale, and nobody waits for ever. Each with the rule broken that it rests on.

use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::race::{at_every_touch, race};
use machine::{Host, Mm, Setup, bare, everywhere, pages};
use quietmm::{
    AllocFrom, Backing, Counter, CpuId, Error, FrameNumber, PageNumber, Prot, Rule, SpaceId, UserAccess,
};

const AT: u64 = 0x1000;

/// Two CPUs and two tags: what a space leaves in the TLB stays while the CPU is elsewhere.
fn two() -> Setup {
    Setup { cpus: 2, tags: 2, frames: 512, ..Setup::default() }
}

/// A space with four pages, in the TLB of each of `cpus`, which run in it.
fn shared(mm: &Mm<'_>, cpus: &[u16]) -> SpaceId {
    let host = mm.platform();
    let id = mm.create_space().unwrap();
    mm.space(id).map(pages(AT, 4), Backing::Anonymous, Prot::ReadWrite).unwrap();
    for &cpu in cpus {
        host.on(cpu, || {
            mm.space(id).switch_to().unwrap();
            (AT..AT + 4).for_each(|page| host.write(mm, id, page, page).unwrap());
        });
    }
    host.forget();
    id
}

fn unmap_on_1(mm: &Mm<'_>, id: SpaceId) {
    mm.platform().on(1, || mm.space(id).unmap(pages(AT, 1)).unwrap());
}

/// What was placed has happened. CPU 0 runs in the space and looks at the page that was unmapped: how often something
/// stale was used by now.
fn look(mm: &Mm<'_>, id: SpaceId) -> u32 {
    let host = mm.platform();
    if !host.all_placed() {
        return 0;
    }
    host.on(0, || {
        mm.space(id).switch_to().unwrap();
        let seen = host.read(mm, id, AT);
        assert!(seen == Err(Error::NotMapped(PageNumber(AT))) || host.broken.get().is_some());
    });
    if host.broken.get().is_none() {
        // It is still there for others: whatever it left in its inbox, it is rung again.
        host.on(1, || mm.space(id).flush().unwrap());
        assert!(!host.caches(0, AT + 1));
    }
    host.stale.get()
}

fn go_offline(mm: &Mm<'_>) {
    mm.platform().on(0, || mm.cpu_offline().unwrap());
    mm.platform().off[0].set(true);
}

fn come_online(mm: &Mm<'_>) {
    mm.platform().off[0].set(false);
    // The last case has no such touch: then it has not gone.
    if !mm.is_online(CpuId(0)) {
        mm.platform().on(0, || mm.cpu_online().unwrap());
    }
}

/// Never stale with all rules kept, and in some case with this one broken. Returns the cases that could not be played.
fn shows(rule: Rule, case: impl Fn(&Mm<'_>, u32) -> u32) -> u32 {
    let (sound, skipped) = everywhere(&two(), None, &case);
    assert!(sound.len() > 1, "only {} cases were played, {skipped} not", sound.len());
    assert!(sound.iter().all(|&stale| stale == 0), "stale uses by place: {sound:?}");
    let (broken, _) = everywhere(&two(), Some(rule), &case);
    assert!(broken.iter().any(|&stale| stale > 0), "nothing came of breaking {rule}: {broken:?}");
    skipped
}

#[test]
fn p08_a_cpu_in_the_middle_of_a_switch_keeps_the_old_tables() {
    shows(Rule::LeaveMaskAfterLoad, |mm, n| {
        let (old, new) = (shared(mm, &[0]), shared(mm, &[]));
        mm.enter_lazy();
        // Busy: it runs there again.
        mm.platform().at_touch(0, n, move |mm| {
            mm.platform().on(1, || _ = mm.space(old).destroy());
        });
        mm.space(new).switch_to().unwrap();
        mm.platform().all_placed();
        mm.platform().stale.get()
    });
}

#[test]
fn p09_who_enters_the_mask_late_sees_the_new_generation() {
    shows(Rule::MaskBeforeGeneration, |mm, n| {
        let id = shared(mm, &[0]);
        let _aside = shared(mm, &[0]);
        mm.platform().at_touch(0, n, move |mm| unmap_on_1(mm, id));
        mm.space(id).switch_to().unwrap();
        look(mm, id)
    });
}

#[test]
fn p09_who_reads_the_generation_early_is_seen_in_the_mask() {
    let skipped = shows(Rule::GenerationBeforeMask, |mm, n| {
        let id = shared(mm, &[0]);
        let _aside = shared(mm, &[0]);
        mm.platform().at_touch(1, n, move |mm| mm.platform().on(0, || mm.space(id).switch_to().unwrap()));
        unmap_on_1(mm, id);
        look(mm, id)
    });
    assert_eq!(skipped, 0, "a switch waits for nobody");
}

#[test]
fn p10_who_leaves_lazy_mode_in_the_middle_of_a_flush_catches_up() {
    let skipped = shows(Rule::LazyReturnFlush, |mm, n| {
        let id = shared(mm, &[0]);
        mm.enter_lazy();
        mm.platform().at_touch(1, n, move |mm| _ = mm.platform().on(0, || mm.leave_lazy()));
        unmap_on_1(mm, id);
        look(mm, id)
    });
    assert_eq!(skipped, 0, "leaving lazy mode waits for nobody");
}

#[test]
fn p10_a_flush_in_the_middle_of_leaving_lazy_mode_is_not_missed() {
    shows(Rule::LazyReturnFlush, |mm, n| {
        let id = shared(mm, &[0]);
        mm.enter_lazy();
        mm.platform().at_touch(0, n, move |mm| unmap_on_1(mm, id));
        mm.leave_lazy();
        look(mm, id)
    });
}

#[test]
fn p11_a_flush_in_the_middle_of_going_offline_waits_for_nobody_and_misses_nobody() {
    shows(Rule::OfflineLeavesMasks, |mm, n| {
        let id = shared(mm, &[0, 1]);
        mm.platform().at_touch(0, n, move |mm| unmap_on_1(mm, id));
        go_offline(mm);
        come_online(mm);
        look(mm, id)
    });
}

#[test]
fn p11_a_cpu_that_goes_in_the_middle_of_a_flush_is_not_waited_for() {
    let skipped = shows(Rule::OfflineLeavesMasks, |mm, n| {
        let id = shared(mm, &[0, 1]);
        mm.platform().at_touch(1, n, go_offline);
        unmap_on_1(mm, id);
        if mm.platform().broken.get().is_none() {
            assert_eq!(mm.validate().broken, None, "it left nothing behind");
        }
        come_online(mm);
        look(mm, id)
    });
    assert_eq!(skipped, 0, "nobody waits for a CPU that is off");
}

#[test]
fn p11_a_cpu_that_goes_and_comes_in_the_middle_of_a_flush_misses_nothing() {
    // It goes at one point and comes at any later one; each pair once.
    for later in 0.. {
        let placed = Rc::new(Cell::new(0));
        let (sound, skipped) = everywhere(&two(), None, |mm, n| {
            let id = shared(mm, &[0, 1]);
            let _aside = shared(mm, &[0]);
            mm.space(id).switch_to().unwrap();
            mm.platform().at_touch(1, n, go_offline);
            let placed = Rc::clone(&placed);
            mm.platform().at_touch(1, later, move |mm| {
                placed.set(placed.get() + 1);
                come_online(mm);
                mm.platform().on(0, || mm.space(id).switch_to().unwrap());
            });
            unmap_on_1(mm, id);
            look(mm, id)
        });
        assert_eq!(skipped, 0, "nobody waits for a CPU that is off");
        assert!(sound.iter().all(|&stale| stale == 0), "stale uses by place: {sound:?}");
        if placed.get() == 0 {
            assert!(later > 10);
            break;
        }
    }
}

#[test]
fn p11_a_cpu_that_comes_online_believes_none_of_its_tags() {
    let skipped = shows(Rule::OnlineStartsEmpty, |mm, n| {
        let id = shared(mm, &[0, 1]);
        let _aside = shared(mm, &[0]);
        go_offline(mm);
        mm.platform().at_touch(1, n, |mm| {
            come_online(mm);
        });
        unmap_on_1(mm, id);
        look(mm, id)
    });
    assert_eq!(skipped, 0);
}

#[test]
fn p11_a_flush_in_the_middle_of_coming_online_is_not_missed() {
    shows(Rule::OnlineStartsEmpty, |mm, n| {
        let id = shared(mm, &[0, 1]);
        let _aside = shared(mm, &[0]);
        go_offline(mm);
        mm.platform().at_touch(0, n, move |mm| unmap_on_1(mm, id));
        come_online(mm);
        mm.space(id).switch_to().unwrap();
        look(mm, id)
    });
}

/// CPU 0 goes offline with a space loaded, which then ends.
fn ended_without_it(broken: Option<Rule>) -> (u32, usize) {
    let host = Host::new(two());
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, &[0]);
        go_offline(mm);
        host.on(1, || mm.space(id).destroy().unwrap());
        (host.stale.get(), host.interrupts())
    })
}

#[test]
fn p11_a_space_ends_without_the_cpus_that_are_offline() {
    assert_eq!(ended_without_it(None), (0, 0));
    let (stale, _) = ended_without_it(Some(Rule::OfflineLeavesMasks));
    assert!(stale > 0, "its root is still loaded, and it has walked the tables below");
}

#[test]
fn p11_a_cpu_that_goes_offline_gives_its_frames_and_pages_back() {
    let host = Host::new(two());
    host.run(quietmm::Config { page_lists: machine::pcp(31), ..bare("linux") }, |mm| {
        let file = mm.create_file(4).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, 4), Backing::File { file, offset: 0 }, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        (AT..AT + 4).for_each(|page| assert_eq!(host.read(mm, id, page), Ok(0)));
        let free = mm.frames().available();
        go_offline(mm);
        assert!(mm.frames().available() > free, "frames on its lists went back");
        assert_eq!(mm.validate().broken, None);
        assert!(!mm.is_online(CpuId(0)) && mm.is_online(CpuId(1)));
        // Reclaim on another CPU finds the pages that waited for their list.
        host.on(1, || {
            let held = machine::exhaust(mm);
            assert_eq!(mm.file(file).cached_pages(), Ok(0));
            machine::give_back(mm, held);
        });
        come_online(mm);
        mm.space(id).switch_to().unwrap();
        assert_eq!(host.read(mm, id, AT), Ok(0));
        mm.frames().free(mm.frames().alloc(0, AllocFrom::NOW).unwrap());
    });
}

/// An interrupt that was on its way arrives after the CPU has gone: its request was answered long ago.
#[test]
fn p11_an_interrupt_that_comes_late_finds_nothing_to_do() {
    let host = Host::new(two());
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, &[0, 1]);
        host.hold_interrupts.set(true);
        host.on_pause
            .borrow_mut()
            .push_back(Box::new(|mm| mm.platform().on(0, || mm.cpu_offline().unwrap())));
        unmap_on_1(mm, id);
        host.hold_interrupts.set(false);
        let served = mm.counter(Counter::RemoteFlushReceived);
        assert!(host.deliver_all(), "the interrupt was on its way");
        assert_eq!(mm.counter(Counter::RemoteFlushReceived), served);
        come_online(mm);
        assert_eq!(look(mm, id), 0);
    });
}

/// CPU 0 unmaps a page that CPU 1 has cached: whether CPU 1 still has it when the unmap has returned.
fn kept_after_unmap(broken: Option<Rule>, held: bool) -> bool {
    let host = Host::new(two());
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, &[0, 1]);
        host.hold_interrupts.set(held);
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        host.caches(1, AT)
    })
}

#[test]
fn p12_a_cpu_acknowledges_after_its_flush() {
    assert!(!kept_after_unmap(None, false));
    assert!(kept_after_unmap(Some(Rule::AcknowledgeAfterFlush), false));
}

#[test]
fn p12_an_unmap_waits_for_the_acknowledgement() {
    assert!(!kept_after_unmap(None, true));
    assert!(kept_after_unmap(Some(Rule::WaitForAcknowledgement), true));
}

/// CPU 0 asks CPU 2, which is slow, to flush one space, and then CPU 1 to flush another: whether CPU 2 reads the first
/// request or what has become of it.
fn overwritten(broken: Option<Rule>) -> bool {
    let host = Host::new(Setup { cpus: 3, ..two() });
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let (id, other) = (shared(mm, &[2]), shared(mm, &[1]));
        host.hold_interrupts.set(true);
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        mm.space(other).flush().unwrap();
        host.hold_interrupts.set(false);
        host.deliver_all();
        host.caches(2, AT)
    })
}

#[test]
fn p13_a_request_is_reused_only_when_all_have_acknowledged_it() {
    assert!(!overwritten(None));
    assert!(overwritten(Some(Rule::WaitForAcknowledgement)), "it reads a request that is not for it");
}

#[test]
fn p13_an_inbox_holds_a_request_of_every_cpu() {
    const CPUS: u16 = 130;
    let host = Host::new(Setup { cpus: CPUS.into(), ..Setup::default() });
    host.run(bare("vanilla"), |mm| {
        let id = shared(mm, &[0]);
        host.hold_interrupts.set(true);
        // While each waits for CPU 0, which does not look, the next one asks too.
        for cpu in 2..CPUS {
            host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
                let page = pages(AT + u64::from(cpu) % 4, 1);
                mm.platform().on(cpu, || mm.space(id).flush_range(page).unwrap());
            }));
        }
        host.on(1, || mm.space(id).flush_range(pages(AT, 1)).unwrap());
        assert_eq!(host.interrupts_to(0), 1, "an inbox that is not empty is not rung again");
        assert_eq!(mm.counter(Counter::RemoteFlushReceived), u64::from(CPUS) - 1);
        assert!((AT..AT + 4).all(|page| !host.caches(0, page)));
    });
}

/// CPU 0 is away, lazily or in another space under tags, while a page goes and the generation rises by `flushes`.
fn away_for(flushes: u32, lazily: bool, broken: Option<Rule>) -> u32 {
    let host = Host::new(two());
    host.broken.set(broken);
    host.run(bare("vanilla"), |mm| {
        let (aside, id) = (shared(mm, &[0]), shared(mm, &[0]));
        if lazily {
            mm.enter_lazy();
        } else {
            mm.space(aside).switch_to().unwrap();
        }
        unmap_on_1(mm, id);
        (1..flushes).for_each(|_| host.on(1, || mm.space(id).flush().unwrap()));
        look(mm, id)
    })
}

#[test]
fn p15_a_cpu_that_was_away_for_256_flushes_does_not_believe_itself_current() {
    for lazily in [true, false] {
        // Numbers of 8 bits, and of 16, would come round.
        for flushes in [1, 255, 256, 257, 512, 1 << 16] {
            assert_eq!(away_for(flushes, lazily, None), 0, "{flushes} flushes");
            let stale = u32::from(flushes % 256 == 0);
            assert_eq!(away_for(flushes, lazily, Some(Rule::WholeGeneration)), stale, "{flushes} flushes");
        }
    }
}

#[test]
fn a_cpu_says_once_that_it_goes_and_once_that_it_comes() {
    let host = Host::new(two());
    host.run(bare("linux"), |mm| {
        for _ in 0..3 {
            assert_eq!(host.on(1, || mm.cpu_online()), Err(Error::AlreadyOnline));
            assert_eq!((mm.online_cpus(), mm.is_online(CpuId(1))), (2, true));
            host.on(1, || mm.cpu_offline()).unwrap();
            for _ in 0..2 {
                assert_eq!(host.on(1, || mm.cpu_offline()), Err(Error::NotOnline));
                assert_eq!((mm.online_cpus(), mm.is_online(CpuId(1))), (1, false));
            }
            assert_eq!(mm.validate().broken, None);
            host.on(1, || mm.cpu_online()).unwrap();
        }
        assert!(!mm.is_online(CpuId(2)) && !mm.is_online(CpuId(4095)) && !mm.is_online(CpuId(u16::MAX)));
    });
}

/// A kernel starts a CPU and forgets to say so. Were it not told, it would cache what nobody flushes there.
#[test]
fn a_cpu_that_has_not_come_online_runs_nothing() {
    let host = Host::new(Setup { cpus: 2, first_alone: true, ..Setup::default() });
    host.run(bare("linux"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(AT, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).fault(PageNumber(AT).addr(), UserAccess::Write).unwrap();
        host.on(1, || {
            assert_eq!(mm.space(id).switch_to(), Err(Error::NotOnline));
            assert_eq!(mm.space(id).fault(PageNumber(AT).addr(), UserAccess::Read), Err(Error::NotOnline));
            assert_eq!(mm.loaded_space(), None);
            mm.cpu_online().unwrap();
            mm.space(id).switch_to().unwrap();
            host.read(mm, id, AT).unwrap();
        });
        mm.space(id).unmap(pages(AT, 1)).unwrap();
        assert_eq!(host.interrupts_to(1), 1);
    });
}

/// Two CPUs that map small things from blocks of their own go offline, one in the middle of the other's way.
#[test]
fn two_cpus_that_go_at_once_leave_their_blocks_to_one_that_stays() {
    let setup = Setup { cpus: 3, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &machine::kernel::kernel("linux", 1 << 12), None, |mm, place| {
        let host = mm.platform();
        let list = machine::kernel::frames(mm, 1);
        let maps: Vec<_> = (0..2u16)
            .map(|cpu| host.on(cpu, || mm.vmap().map_ram(&list, machine::kernel::RW).unwrap()))
            .collect();
        race(mm, place, || mm.cpu_offline().unwrap(), || mm.cpu_offline().unwrap());
        host.on(2, || {
            assert_eq!(mm.validate().broken, None);
            maps.into_iter().for_each(|map| mm.vmap().unmap_ram(map).unwrap());
            mm.vmap().unmap_aliases().unwrap();
        });
        (0..2).for_each(|cpu| host.on(cpu, || mm.cpu_online().unwrap()));
        machine::kernel::free(mm, list);
    });
    assert!(cases.results.len() > 30, "{}", cases.results.len());
}

/// What a TLB holds that was off is nobody's promise: of no space is anything kept, under whatever tag.
#[test]
fn who_comes_online_keeps_nothing_of_any_space() {
    let host = Host::new(Setup { frames: 1024, ..two() });
    host.run(bare("vanilla"), |mm| {
        let spaces = [shared(mm, &[1]), shared(mm, &[1])];
        assert!(
            host.on(1, || spaces.iter().all(|&id| {
                mm.space(id).switch_to().unwrap();
                host.caches(1, AT)
            })),
            "both are known by their tags"
        );
        host.on(1, || {
            mm.cpu_offline().unwrap();
            mm.cpu_online().unwrap();
        });
        for id in spaces {
            host.on(1, || mm.space(id).switch_to().unwrap());
            assert!((AT..AT + 4).all(|page| !host.caches(1, page)));
        }
    });
}

/// A block leaves of which single frames are free, at any place: they are gone at once, and the others when they are given back.
#[test]
fn single_free_frames_of_a_block_that_leaves_are_retired() {
    for place in [0, 1, 31, 62, 63] {
        let host = Host::new(Setup { frames: 4096, ..Setup::default() });
        host.run(bare("linux"), |mm| {
            let all: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
            let block = |n: FrameNumber| n.0 / 1024 * 1024;
            let whole =
                |at: &FrameNumber| all.iter().filter(|one| block(one.first()) == at.0).count() == 1024;
            let first = mm.frames().blocks().find(whole).expect("one without what the core keeps");
            let inside = |n: FrameNumber| block(n) == first.0;
            let (mine, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|block| inside(block.first()));
            let (free, rest): (Vec<_>, Vec<_>) =
                mine.into_iter().partition(|block| (block.first().0 - first.0) % 64 == place);
            free.into_iter().for_each(|block| mm.frames().free(block));
            let leaving = mm.frames().begin_offline(first).unwrap();
            rest.into_iter().for_each(|block| mm.frames().free(block));
            let gone = mm.frames().finish_offline(leaving).expect("nothing of it is in use");
            mm.frames().bring_online(gone);
            others.into_iter().for_each(|block| mm.frames().free(block));
        });
    }
}
