//! The kernel's own caches: what reclaim asks of them, when, and that nobody goes without memory that they have.

use crate::machine;

use std::cell::RefCell;
use std::rc::Rc;

use machine::swapping::{anonymous, reclaim, swapping, take_free};
use machine::{Host, Mm, Setup, bare, counted, exhaust, give_back, pages, settled};
use quietmm::addr::PAGE_SIZE;
use quietmm::platform::Shrink;
use quietmm::{
    Advice, AllocFrom, Alone, Backing, Config, Counter, Error, Frames, NodeId, PageNumber, Prot, UserAccess,
};

/// A cache of frames, and how many it gave each time.
#[derive(Clone, Default)]
struct Cache {
    frames: Rc<RefCell<Vec<Frames>>>,
    gave: Rc<RefCell<Vec<u32>>>,
}

impl Cache {
    /// Of these, on a machine which asks it.
    fn of(mm: &Mm<'_>, frames: Vec<Frames>) -> Cache {
        let cache = Cache { frames: Rc::new(RefCell::new(frames)), ..Cache::default() };
        let host = mm.platform();
        host.shrinker.set(true);
        let own = cache.clone();
        // SAFETY: the machine asks only inside `run`, while the manager lives.
        let mm: &'static Mm<'static> = unsafe { &*(&raw const *mm).cast() };
        *host.on_shrink.borrow_mut() = Some(Rc::new(move |ask| own.shrink(mm, ask)));
        cache
    }

    fn shrink(&self, mm: &Mm<'_>, ask: &Shrink) -> u32 {
        let len = self.frames.borrow().len() as u64;
        let goes = self.frames.borrow_mut().split_off((len - ask.share(len)) as usize);
        let count = goes.len() as u32;
        give_back(mm, goes);
        self.gave.borrow_mut().push(count);
        count
    }

    fn len(&self) -> usize {
        self.frames.borrow().len()
    }

    fn end(&self, mm: &Mm<'_>) {
        mm.platform().on_shrink.take();
        give_back(mm, self.frames.take());
    }
}

fn setup() -> Setup {
    Setup { frames: 768, ..Setup::default() }
}

#[test]
fn a_share_is_rounded_up_and_never_more_than_there_is() {
    let share = |scanned, pages, of| Shrink::new(NodeId(0), scanned, pages).share(of);
    assert_eq!([share(1, 3, 3), share(1, 3, 4), share(2, 3, 4)], [1, 2, 3]);
    assert_eq!([share(0, 3, 9), share(3, 3, 9), share(7, 3, 9), share(1, 0, 9)], [0, 9, 9, 9]);
    assert_eq!([share(1, 4096, 0), share(1, 4096, 1)], [0, 1]);
    assert_eq!(share(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
}

#[test]
fn nobody_is_out_of_memory_while_caches_give() {
    let host = Host::new(setup());
    host.run(bare("linux"), |mm| {
        let held = take_free(mm);
        let all = held.len();
        let cache = Cache::of(mm, held);
        let mut taken = Vec::new();
        for n in 0..all {
            taken.extend(mm.frames().alloc(0, AllocFrom::HERE));
            assert_eq!(taken.len(), n + 1, "{} are left", cache.len());
            let free = mm.frames().available() as usize;
            assert!(free < 64 || cache.len() == 0, "all at once: {free} are free");
        }
        assert_eq!((cache.len(), mm.counter(Counter::OutOfMemory)), (0, 0));
        assert_eq!(mm.counter(Counter::CachesFreed), all as u64);
        assert_eq!(mm.frames().alloc(0, AllocFrom::HERE), Err(Error::OutOfMemory));
        assert_eq!(mm.counter(Counter::OutOfMemory), 1);
        assert_eq!(mm.counter(Counter::CachesAsked), host.asks.borrow().len() as u64);
        give_back(mm, taken);
        cache.end(mm);
    });
}

#[test]
fn more_and_more_is_asked_for_until_it_is_enough() {
    let host = Host::new(setup());
    host.run(Config { scan_batch: 4, ..bare("linux") }, |mm| {
        let mut held = take_free(mm);
        let cache = Cache::of(mm, held.split_off(held.len() - 400));
        let before = cache.len();
        let frame = mm.frames().alloc(0, AllocFrom::HERE).unwrap();
        let asks: Vec<_> = host.asks.take().iter().map(|ask| (ask.scanned, ask.pages)).collect();
        // One each time, since a share is rounded up.
        assert_eq!(asks, [(1, 4096), (1, 2048), (1, 1024), (1, 512)]);
        assert_eq!((&**cache.gave.borrow(), before - cache.len()), (&[1, 1, 1, 1][..], 4));
        mm.frames().free(frame);
        give_back(mm, held);
        cache.end(mm);
    });
}

#[test]
fn all_is_asked_for_in_the_end() {
    let host = Host::new(setup());
    host.run(bare("linux"), |mm| {
        let held = take_free(mm);
        // It has something, and cannot give it.
        host.shrinker.set(true);
        assert_eq!(mm.frames().alloc(0, AllocFrom::HERE), Err(Error::OutOfMemory));
        let asks: Vec<_> = host.asks.take().iter().map(|ask| (ask.scanned, ask.pages)).collect();
        let once: Vec<_> = (0..=12).rev().map(|priority| (1, 1 << priority)).collect();
        assert_eq!(asks[..13], once);
        assert!(asks.chunks(13).all(|asks| *asks == once) && asks.len() >= 16 * 13, "{}", asks.len());
        give_back(mm, held);
    });
}

/// So many pages of a file in memory, all idle.
fn cached(mm: &Mm<'_>, count: u64) -> quietmm::FileId {
    let file = mm.create_file(count).unwrap();
    (0..count).for_each(|page| assert_eq!(mm.file(file).read(page * PAGE_SIZE, &mut [0]), Ok(1)));
    mm.drain_lru_batch();
    file
}

#[test]
fn caches_give_in_proportion_to_what_was_looked_at() {
    let host = Host::new(setup());
    host.run(Config { scan_batch: 8, lru_batch: 1, ..bare("linux") }, |mm| {
        let file = cached(mm, 160);
        let mut held = take_free(mm);
        let cache = Cache::of(mm, held.split_off(held.len() - 100));
        held.extend(mm.frames().alloc(0, AllocFrom::HERE));
        let asks: Vec<_> = host.asks.take().iter().map(|ask| (ask.node, ask.scanned, ask.pages)).collect();
        // Each page was read once, and goes at the first look.
        assert_eq!(asks, [(NodeId(0), 8, 160)]);
        assert_eq!(*cache.gave.borrow(), [5]);
        assert_eq!(mm.counter(Counter::PgStealDirect), 8, "what caches give is no page of a program");
        give_back(mm, held);
        cache.end(mm);
        mm.file(file).destroy().unwrap();
    });
}

#[test]
fn who_must_not_wait_asks_no_cache() {
    let host = Host::new(setup());
    host.run(bare("linux"), |mm| {
        let mut held = take_free(mm);
        let cache = Cache::of(mm, held.split_off(100));
        assert_eq!(mm.frames().alloc(0, AllocFrom::NOW), Err(Error::OutOfMemory));
        assert_eq!(host.asks.borrow().len(), 0);
        give_back(mm, held);
        cache.end(mm);
    });
}

#[test]
fn a_group_at_its_limit_asks_no_cache() {
    let host = Host::new(setup());
    host.run(Config { groups: 1, ..swapping("linux") }, |mm| {
        mm.swap().on(7, 1024, 0).unwrap();
        let group = mm.create_group(1000).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).set_group(Some(group)).unwrap();
        mm.space(id).map(pages(0x1000, 64), Backing::Anonymous, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        host.write(mm, id, 0x1000, 1).unwrap();
        let cache = Cache::of(mm, vec![mm.frames().alloc(0, AllocFrom::HERE).unwrap()]);
        mm.group(group).set_limit(24).unwrap();
        (0x1000..0x1040).for_each(|page| host.write(mm, id, page, page).unwrap());
        assert!(counted(mm, Counter::PswpOut) > 0, "the group has reclaimed");
        assert_eq!(host.asks.borrow().len(), 0);
        cache.end(mm);
        mm.unload();
        mm.space(id).destroy().unwrap();
        mm.swap().off(7).unwrap();
        mm.group(group).destroy().unwrap();
    });
}

#[test]
fn pages_that_nothing_can_take_do_not_make_the_share_smaller() {
    let host = Host::new(setup());
    host.run(swapping("linux"), |mm| {
        // On lists, and there is no device.
        let id = anonymous(mm, 64);
        mm.drain_lru_batch();
        let file = cached(mm, 16);
        let mut held = take_free(mm);
        let cache = Cache::of(mm, held.split_off(held.len() - 16));
        held.extend(mm.frames().alloc(0, AllocFrom::HERE));
        let asks: Vec<_> = host.asks.take().iter().map(|ask| (ask.scanned, ask.pages)).collect();
        assert_eq!(asks, [(4, 16)]);
        give_back(mm, held);
        cache.end(mm);
        mm.file(file).destroy().unwrap();
        mm.unload();
        mm.space(id).destroy().unwrap();
    });
}

#[test]
fn kswapd_asks_and_ends_when_caches_have_no_more() {
    let host = Host::new(setup());
    host.run(Config { min_free: Some(64), ..bare("linux") }, |mm| {
        let held = exhaust(mm);
        let cache = Cache::of(mm, held);
        let low = mm.frames().available();
        mm.kswapd(NodeId(0)).unwrap();
        let free = mm.frames().available();
        assert!((96..=98 + 32).contains(&free), "up to the high watermark: {low}, {free}");
        // The rest of the cache is empty: it comes to its end.
        let rest = cache.frames.take();
        let taken: Vec<_> = std::iter::from_fn(|| mm.frames().alloc(0, AllocFrom::NOW).ok()).collect();
        mm.kswapd(NodeId(0)).unwrap();
        assert_eq!(cache.gave.borrow().last(), Some(&0));
        give_back(mm, rest);
        give_back(mm, taken);
        cache.end(mm);
    });
}

#[test]
fn a_fault_finds_what_caches_give() {
    let host = Host::new(setup());
    host.run(bare("linux"), |mm| {
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(0x1000, 8), Backing::Anonymous, Prot::ReadWrite).unwrap();
        let cache = Cache::of(mm, take_free(mm));
        for page in 0x1000..0x1008 {
            mm.space(id).fault(PageNumber(page).addr(), UserAccess::Write).unwrap();
        }
        cache.end(mm);
        mm.space(id).destroy().unwrap();
        assert_eq!(settled(mm).broken, None);
    });
}

#[test]
fn frames_alone_ask_caches_too() {
    let host = Host::new(Setup { base: 0, ..setup() });
    let regions = host.regions();
    // SAFETY: the test machine is a platform.
    let alone = unsafe { Alone::new(&host, &regions, bare("linux")) }.unwrap();
    let taken: Vec<_> = std::iter::from_fn(|| alone.frames().alloc(0, AllocFrom::NOW).ok()).collect();
    let cache = Rc::new(RefCell::new(taken));
    host.shrinker.set(true);
    let (own, at) = (Rc::clone(&cache), (&raw const alone).cast::<Alone<'static, Host>>());
    *host.on_shrink.borrow_mut() = Some(Rc::new(move |ask| {
        let len = own.borrow().len() as u64;
        let goes = own.borrow_mut().split_off((len - ask.share(len)) as usize);
        // SAFETY: it is asked only while the allocator lives.
        let alone = unsafe { &*at };
        goes.into_iter().map(|frame| alone.frames().free(frame)).count() as u32
    }));
    let frame = alone.frames().alloc(0, AllocFrom::HERE).unwrap();
    assert!(!host.asks.borrow().is_empty());
    host.on_shrink.take();
    alone.frames().free(frame);
    cache.take().into_iter().for_each(|frame| alone.frames().free(frame));
    assert_eq!(alone.validate().broken, None);
}

#[test]
fn caches_give_in_proportion_to_all_that_could_be_looked_at() {
    let host = Host::new(setup());
    host.run(Config { groups: 1, scan_batch: 8, ..swapping("linux") }, |mm| {
        mm.swap().on(7, 512, 0).unwrap();
        // 64 pages of a program, and 40 of files, of which 24 are a group's.
        let id = anonymous(mm, 64);
        let file = cached(mm, 16);
        let group = mm.create_group(1000).unwrap();
        mm.space(id).set_group(Some(group)).unwrap();
        let groups_file = cached(mm, 24);
        let mut held = take_free(mm);
        let cache = Cache::of(mm, held.split_off(held.len() - 16));
        held.extend(mm.frames().alloc(0, AllocFrom::HERE));
        assert_eq!(host.asks.borrow().first().map(|ask| ask.pages), Some(64 + 16 + 24));
        give_back(mm, held);
        cache.end(mm);
        mm.unload();
        mm.space(id).destroy().unwrap();
        [file, groups_file].into_iter().for_each(|file| mm.file(file).destroy().unwrap());
        mm.swap().off(7).unwrap();
        mm.group(group).destroy().unwrap();
    });
}

#[test]
fn caches_are_asked_for_what_the_pages_did_not_give_and_no_more() {
    let host = Host::new(setup());
    host.run(Config { scan_batch: 8, lru_batch: 1, ..bare("linux") }, |mm| {
        let file = cached(mm, 3);
        let mut held = take_free(mm);
        let cache = Cache::of(mm, held.split_off(held.len() - 64));
        held.extend(mm.frames().alloc(0, AllocFrom::HERE));
        assert_eq!((&**cache.gave.borrow(), mm.file(file).cached_pages()), (&[1; 5][..], Ok(0)));
        give_back(mm, held);
        cache.end(mm);
    });
}

#[test]
fn caches_hear_of_which_node_memory_is_short() {
    let host = Host::new(machine::showing::two_nodes());
    host.run(bare("linux"), |mm| {
        let held = take_free(mm);
        host.shrinker.set(true);
        for cpu in 0..2 {
            host.asks.take();
            host.on(cpu, || assert_eq!(mm.frames().alloc(0, AllocFrom::HERE), Err(Error::OutOfMemory)));
            let nodes: Vec<u16> = host.asks.take().iter().map(|ask| ask.node.0).collect();
            // The near one first, and then the other.
            assert_eq!((nodes[0], nodes[13], nodes.len() % 26), (cpu, 1 - cpu, 0));
        }
        give_back(mm, held);
    });
}

/// However much a cache says that it gave, beside what another did.
#[test]
fn a_cache_that_says_too_much_is_believed() {
    let host = Host::new(machine::showing::two_nodes());
    host.run(bare("linux"), |mm| {
        let mut held = take_free(mm);
        let gave = Rc::new(RefCell::new(held.split_off(held.len() - 256)));
        let cache = Rc::clone(&gave);
        // SAFETY: the machine asks only inside `run`, while the manager lives.
        let own: &'static Mm<'static> = unsafe { &*(&raw const *mm).cast() };
        host.shrinker.set(true);
        *host.on_shrink.borrow_mut() = Some(Rc::new(move |ask| {
            if ask.node == NodeId(0) {
                return 1;
            }
            give_back(own, cache.take());
            u32::MAX
        }));
        held.extend(mm.frames().alloc(0, AllocFrom::HERE));
        assert_eq!(gave.borrow().len(), 0);
        host.on_shrink.take();
        give_back(mm, held);
    });
}

/// Where pages only wait for a sweep caches are asked for a share, as where some were reclaimed: there is memory to be had soon.
#[test]
fn caches_give_a_share_while_pages_wait_for_a_sweep() {
    let host = Host::new(Setup { cpus: 2, ..setup() });
    host.run(Config { scan_batch: 4, lru_batch: 1, ..bare("quiet") }, |mm| {
        let (id, _) = machine::flushing::cached(mm, 8, &[1]);
        // Not used since, and not flushed.
        mm.space(id).advise(pages(machine::flushing::AT, 8), Advice::Cold).unwrap();
        let held = take_free(mm);
        let cache = Cache::of(mm, Vec::new());
        reclaim(mm);
        let first = host.asks.borrow()[0];
        assert_eq!((first.scanned, first.pages), (4, 8));
        cache.end(mm);
        give_back(mm, held);
    });
}
