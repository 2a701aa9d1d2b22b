//! What is so at the edges: where just one frame is left, where a mark or a limit is just reached, and where something fails half-way.

use crate::machine;

use machine::kernel::{BARE, RW, START, frames, free, kernel};
use machine::race::{Place, at, at_every_touch, race};
use machine::showing::{ANON, AT, LARGE, entry, mapped, private, shared};
use machine::swapping::{DEVICE, is_out, reclaim, sound, squeeze, swapping, take_free};
use machine::{Host, Setup, bare, config, counted, give_back, pages};
use quietmm::addr::PAGE_SIZE;
use quietmm::{
    Advice, AllocFrom, Config, Counter, Entry, Error, FrameNumber, NodeId, PageNumber, PageRange, Prot,
    ReadAhead, Region, Term, UserAccess,
};

/// Small pages in a large one.
const PAGES: u64 = 512;

/// Two regions of one machine, one behind the other, of so many frames and on these nodes.
fn regions(first: (u32, u16), second: (u32, u16)) -> Setup {
    let base = Setup::default().base;
    let region = |start, (frames, node)| Region { start: FrameNumber(start), frames, node: NodeId(node) };
    let regions = Some(vec![region(base, first), region(base + first.0, second)]);
    Setup { nodes: 2, cpus: 2, frames: first.0 + second.0, regions, ..Setup::default() }
}

/// Each region has frames to give besides what the core keeps in it, or the machine is refused.
#[test]
fn a_region_that_the_core_would_fill_is_refused() {
    let (mut refused, mut taken) = (0, 0);
    for frames in 1..40 {
        let host = Host::new(regions((2048, 0), (frames, 1)));
        match host.make(bare("linux")) {
            Err(error) => {
                assert_eq!(error, Error::TooLittleMemory, "{frames} frames");
                refused += 1;
            }
            Ok(mm) => {
                let there = |frame: FrameNumber| frame.0 >= host.regions()[1].start.0;
                let mine = take_free(&mm).into_iter().filter(|block| there(block.first())).count();
                assert!(mine >= 8, "{mine} of {frames} frames");
                taken += 1;
            }
        }
    }
    assert!(refused > 0 && taken > 0);
}

/// Who has looked whether a block can be had, and finds less when it has the zone's lock, leaves what is to stay free.
#[test]
fn a_block_that_others_were_faster_for_is_not_taken_from_what_stays_free() {
    let setup = Setup { cpus: 2, frames: 1024, ..Setup::default() };
    let config = Config { min_free: Some(64), ..bare("linux") };
    let cases = at_every_touch(&setup, &config, None, |mm, place| {
        let (taken, floor) = (take_free(mm), mm.frames().available());
        // Pieces of eight, of which just one can be had above what stays.
        let mut taken = taken.into_iter();
        let (mut back, mut at) = (Vec::new(), 0);
        for block in taken.by_ref() {
            let whole = block.first().0 % 8 == 0 && back.len() % 8 == 0 || block.first().0 == at + 1;
            at = block.first().0;
            if whole {
                back.push(block)
            } else {
                back.clear()
            }
            if back.len() == 8 {
                break;
            }
        }
        give_back(mm, back);
        let free = mm.frames().available();
        let (mut block, mut one) = (None, None);
        race(
            mm,
            place,
            || block = mm.frames().alloc(3, AllocFrom::NOW).ok(),
            || {
                one = mm.frames().alloc(0, AllocFrom::NOW).ok();
            },
        );
        assert!(mm.frames().available() >= floor, "{free}: {block:?}, {one:?}");
        block.is_some()
    });
    assert!(cases.count(|&block| block) > 0);
}

/// A mapping over several tables of which one cannot be had leaves no entry behind.
#[test]
fn a_map_that_finds_no_memory_for_its_last_table_leaves_nothing_mapped() {
    for policy in ["linux", "linux+vmap=eager", "linux+vmap=sweep"] {
        let host = Host::new(Setup { frames: 2048, ..Setup::default() });
        host.run(kernel(policy, 4096), |mm| {
            let list = frames(mm, 600);
            let mut taken = take_free(mm);
            let mut refused = 0;
            let range = loop {
                match mm.vmap().map(&list, BARE, RW) {
                    Ok(range) => break range,
                    Err(error) => assert_eq!(error, Error::OutOfMemory, "{policy}"),
                }
                refused += 1;
                let there = (START.0..START.0 + 4096)
                    .map(PageNumber)
                    .filter(|&page| mm.vmap().frame_at(page).is_ok());
                assert_eq!(there.count(), 0, "{policy}");
                // One frame more each time.
                taken.pop().into_iter().for_each(|block| mm.frames().free(block));
            };
            assert!(refused > 1, "{policy}");
            mm.vmap().unmap(range.start).unwrap();
            mm.vmap().unmap_aliases().unwrap();
            give_back(mm, taken);
            free(mm, list);
        });
    }
}

/// However many pages lie between the first that changes and the last, whoever is asked to flush flushes both.
#[test]
fn a_flush_of_more_pages_than_a_request_can_name_reaches_all_of_them() {
    const MOST: u64 = (1 << 20) - 1;
    for count in [MOST, MOST + 1, MOST + 2, MOST + 3, 2 * MOST + 3] {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(bare("linux"), |mm| {
            let (id, ends) = (mm.create_space().unwrap(), [LARGE, LARGE + count - 1]);
            mm.space(id).map(pages(LARGE, count), ANON, Prot::ReadWrite).unwrap();
            mm.space(id).switch_to().unwrap();
            host.on(1, || mm.space(id).switch_to().unwrap());
            ends.into_iter().for_each(|page| host.on(1, || host.write(mm, id, page, page).unwrap()));
            mm.space(id).protect(pages(LARGE, count), Prot::None).unwrap();
            assert_eq!(ends.map(|page| host.caches(1, page)), [false; 2], "{count} pages");
            (0..2).for_each(|cpu| host.on(cpu, || mm.unload()));
            mm.space(id).destroy().unwrap();
        });
    }
}

/// A zone is short below its low mark, and not at it: whoever comes next after that wakes `kswapd`.
#[test]
fn a_zone_at_its_low_mark_is_not_short() {
    // A quarter and one more than what is to stay free.
    const LOW: u64 = 64 + 16 + 1;
    let host = Host::new(Setup { frames: 1024, ..Setup::default() });
    host.run(Config { min_free: Some(64), ..bare("linux") }, |mm| {
        let mut taken = Vec::new();
        while counted(mm, Counter::KswapdWoken) == 0 {
            taken.push(mm.frames().alloc(0, AllocFrom::NOW).unwrap());
        }
        // One went to the mark, one below it, and the one behind that has found it short.
        assert_eq!(mm.frames().available(), LOW - 2);
        give_back(mm, taken);
    });
}

/// What has entries of a file and of its own is in two trees. Its number is new in both, whichever of them has more.
#[test]
fn mappings_of_two_trees_have_new_numbers_in_both() {
    let host = Host::new(Setup { frames: 1024, ..Setup::default() });
    host.run(swapping("linux"), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let fork = |id| mm.space(id).fork().unwrap();
        let id = mapped(mm, ANON, 2);
        // One with a higher number than the file's tree has given.
        assert!((0..3).all(|_| mm.space(fork(id)).usage().is_ok()));
        let file = mm.create_file(2).unwrap();
        mm.space(id).map(pages(AT + 2, 2), private(file), Prot::ReadWrite).unwrap();
        sound(mm);
        (AT..AT + 4).for_each(|page| host.write(mm, id, page, page).unwrap());
        let children = [0; 3].map(|_| fork(id)).into_iter().chain([id]);
        sound(mm);
        squeeze(mm);
        for id in children {
            assert!((AT..AT + 4).all(|page| is_out(mm, id, page)));
            mm.space(id).switch_to().unwrap();
            assert!((AT..AT + 4).all(|page| host.read(mm, id, page) == Ok(page)));
        }
        sound(mm);
    });
}

/// A group that may have one large page, and no more, may have it made of small ones that are in swap.
#[test]
fn a_limit_of_one_large_page_is_enough_for_one() {
    for (limit, made) in [(PAGES, true), (PAGES - 1, false)] {
        let host = Host::new(Setup { frames: 2048, ..Setup::default() });
        host.run(Config { groups: 1, ..swapping("linux") }, |mm| {
            mm.swap().on(DEVICE, 512, 0).unwrap();
            let group = mm.create_group(limit).unwrap();
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(LARGE, PAGES), ANON, Prot::ReadWrite).unwrap();
            mm.space(id).switch_to().unwrap();
            (LARGE..LARGE + 3).for_each(|page| host.write(mm, id, page, page).unwrap());
            mm.drain_lru_batch();
            mm.space(id).advise(pages(LARGE, 3), Advice::PageOut).unwrap();
            assert!((LARGE..LARGE + 3).all(|page| is_out(mm, id, page)));
            // Its tables are nobody's.
            mm.space(id).set_group(Some(group)).unwrap();
            let done = mm.space(id).advise(pages(LARGE, PAGES), Advice::Collapse);
            assert_eq!(done, if made { Ok(()) } else { Err(Error::LimitReached(group)) });
            assert_eq!(entry(mm, id, LARGE).has(Entry::LARGE), made);
            assert!((LARGE..LARGE + 3).all(|page| host.read(mm, id, page) == Ok(page)));
            sound(mm);
        });
    }
}

/// Reclaim makes a large page small as long as its space lives, whenever that ends.
#[test]
fn a_space_that_ends_while_its_large_page_is_to_become_small_is_left_alone() {
    let setup = Setup { cpus: 2, frames: 1024, ..Setup::default() };
    let config = Config { scan_batch: 1, ..swapping("linux") };
    let mut split = 0;
    for n in 0..250 {
        split += at(&setup, &config, None, |mm| {
            mm.swap().on(DEVICE, 512, 0).unwrap();
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(LARGE, PAGES), ANON, Prot::ReadWrite).unwrap();
            mm.space(id).advise(pages(LARGE, PAGES), Advice::Large).unwrap();
            mm.space(id).switch_to().unwrap();
            mm.platform().write(mm, id, LARGE, 1).unwrap();
            mm.unload();
            mm.drain_lru_batch();
            mm.space(id).advise(pages(LARGE, PAGES), Advice::Cold).unwrap();
            let held = take_free(mm);
            race(mm, Place::Touch(n), || reclaim(mm), || mm.space(id).destroy().unwrap());
            give_back(mm, held);
            sound(mm);
            counted(mm, Counter::LargeSplit)
        });
    }
    assert!(split < 250, "in some cases the space has ended before");
}

/// Where pages of a file lie side by side, but not on the border of a large page, each is shown by itself.
#[test]
fn pages_that_lie_in_a_row_beside_the_border_of_a_large_page_stay_small() {
    let host = Host::new(Setup::default());
    host.run(bare("linux"), |mm| {
        let file = mm.create_file(2 * PAGES).unwrap();
        // The node for all of them is there, and a block begins with a frame that is taken.
        assert_eq!(mm.file(file).write((2 * PAGES - 1) * PAGE_SIZE, &[1]), Ok(1));
        let mut taken: Vec<FrameNumber> = Vec::new();
        while taken.last().is_none_or(|frame| !u64::from(frame.0).is_multiple_of(2 * PAGES)) {
            taken.extend(frames(mm, 1));
        }
        for page in 0..PAGES {
            assert_eq!(mm.file(file).write(page * PAGE_SIZE, &(page + 1).to_ne_bytes()), Ok(8));
        }
        let id = mm.create_space().unwrap();
        mm.space(id).map(pages(LARGE, PAGES), shared(file), Prot::Read).unwrap();
        mm.space(id).advise(pages(LARGE, PAGES), Advice::Large).unwrap();
        mm.space(id).switch_to().unwrap();
        let first = taken.last().unwrap().0 + 1;
        for page in 0..PAGES {
            assert_eq!(host.read(mm, id, LARGE + page), Ok(page + 1));
            let entry = entry(mm, id, LARGE + page);
            assert_eq!((entry.frame().0, entry.has(Entry::LARGE)), (first + page as u32, false));
        }
        free(mm, taken);
    });
}

/// Who comes just behind what was read ahead, and finds nothing, has twice as much read, up to the most.
#[test]
fn a_window_grows_where_the_last_one_has_been_used_up() {
    let host = Host::new(Setup::default());
    host.run(Config { read_ahead: 32, ..bare("linux") }, |mm| {
        let (file, open) = (mm.create_file(256).unwrap(), ReadAhead::new());
        let mut page = 0;
        for window in [4, 8, 16, 32, 32] {
            let before = mm.file(file).cached_pages().unwrap();
            assert_eq!(mm.file(file).read_with(&open, page * PAGE_SIZE, &mut [0; 8]), Ok(8));
            assert_eq!(mm.file(file).cached_pages(), Ok(before + 1 + window));
            page += 1 + window;
        }
    });
}

/// Who writes to a private page, of which the file gets another meanwhile that this space shows, copies none that has gone.
#[test]
fn a_copy_of_a_page_that_became_another_is_not_shown() {
    let setup = Setup { cpus: 2, frames: 1024, ..Setup::default() };
    let cases = at_every_touch(&setup, &Config { read_ahead: 0, ..bare("linux") }, None, |mm, place| {
        let (host, file) = (mm.platform(), mm.create_file(1).unwrap());
        assert_eq!(mm.file(file).write(8, &7_u64.to_ne_bytes()), Ok(8));
        let id = mapped(mm, private(file), 1);
        host.on(1, || mm.space(id).switch_to().unwrap());
        host.read(mm, id, AT).unwrap();
        race(
            mm,
            place,
            || host.write(mm, id, AT, 1).unwrap(),
            || {
                mm.file(file).punch_hole(0, PAGE_SIZE).unwrap();
                host.on(1, || host.read(mm, id, AT).unwrap());
            },
        );
        assert_eq!(host.read(mm, id, AT), Ok(1));
        sound(mm);
        (0..2).for_each(|cpu| host.on(cpu, || mm.unload()));
        mm.space(id).destroy().unwrap();
        mm.file(file).destroy().unwrap();
        sound(mm);
    });
    assert!(cases.results.len() > 10);
}

/// CPUs of any number use the hardware's flush for what they show to others of any number.
#[test]
fn a_broadcast_serves_cpus_beyond_the_first_64() {
    for other in [1, 63, 64, 79] {
        let host = Host::new(Setup { cpus: 80, broadcast: true, ..Setup::default() });
        host.run(bare("linux+flush=broadcast"), |mm| {
            let id = mapped(mm, ANON, 2);
            host.on(other, || mm.space(id).switch_to().unwrap());
            host.on(other, || host.write(mm, id, AT, 1).unwrap());
            host.forget();
            mm.space(id).protect(pages(AT, 2), Prot::None).unwrap();
            assert_eq!((host.interrupts(), host.broadcasts().len()), (0, 1), "CPU {other}");
            assert!(!host.caches(other, AT));
        });
    }
}

/// A CPU that is lazy itself is no other that would be interrupted for tables: they go as if it were not.
#[test]
fn who_drops_a_lot_while_it_is_lazy_frees_the_tables_too() {
    let left = |lazy: bool, others: bool| {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(bare("quiet"), |mm| {
            let id = mm.create_space().unwrap();
            mm.space(id).map(pages(LARGE, 3 * PAGES), ANON, Prot::ReadWrite).unwrap();
            mm.space(id).switch_to().unwrap();
            if others {
                host.on(1, || mm.space(id).switch_to().unwrap());
                host.on(1, || mm.enter_lazy());
            }
            for page in [LARGE, LARGE + PAGES, LARGE + 3 * PAGES - 1] {
                host.write(mm, id, page, page).unwrap();
            }
            if lazy {
                mm.enter_lazy();
            }
            mm.space(id).advise(pages(LARGE, 3 * PAGES), Advice::Drop).unwrap();
            mm.space(id).usage().unwrap().tables
        })
    };
    assert_eq!(left(true, false), left(false, false));
    assert!(left(false, true) >= left(false, false));
}

/// Memory without CPUs of its own is for all of them: each keeps on its lists what one of as many keeps of theirs.
#[test]
fn lists_of_memory_without_cpus_are_shared_by_all() {
    let host = Host::new(Setup { cpus: 8, nodes: 1, ..regions((2048, 0), (2048, 1)) });
    let mm = host.make(config("linux")).unwrap();
    let [near, far] = [0, 1].map(|node| mm.frames().list_limits(NodeId(node)).unwrap());
    assert_eq!((near.batch, near.high), (far.batch, far.high));
    assert!(near.high > 4 * near.batch, "{near:?} is more than the least");
}

/// Of a collapse for which there is no large page a group is charged with nothing, whatever it had paid for before.
#[test]
fn a_collapse_without_a_large_page_costs_its_group_nothing() {
    let host = Host::new(Setup { frames: 2048, ..Setup::default() });
    host.run(Config { groups: 1, ..swapping("linux") }, |mm| {
        let group = mm.create_group(4 * PAGES).unwrap();
        let id = mm.create_space().unwrap();
        mm.space(id).set_group(Some(group)).unwrap();
        mm.space(id).map(pages(LARGE, PAGES), ANON, Prot::ReadWrite).unwrap();
        mm.space(id).switch_to().unwrap();
        (LARGE..LARGE + 5).for_each(|page| host.write(mm, id, page, page).unwrap());
        mm.drain_lru_batch();
        let charged = || {
            let usage = mm.group(group).usage().unwrap();
            usage.charged - usage.stocked
        };
        let before = charged();
        // Every other frame is free.
        let (taken, back) = take_free(mm).into_iter().partition(|block| block.first().0 % 2 == 0);
        give_back(mm, back);
        let done = mm.space(id).advise(pages(LARGE, PAGES), Advice::Collapse);
        assert_eq!((done, charged()), (Err(Error::OutOfMemory), before));
        give_back(mm, taken);
        sound(mm);
    });
}

/// Memory that may come later lies beside all that is there, not only beside the first of it.
#[test]
fn memory_that_comes_later_lies_over_no_region_that_is_there() {
    let setup = regions((2048, 0), (2048, 1));
    let there = setup.regions.clone().unwrap();
    let made = |start: u32, frames: u32| {
        let later = vec![Region { start: FrameNumber(start), frames, node: NodeId(1) }];
        Host::new(Setup { later, ..setup.clone() }).make(bare("linux")).map(drop)
    };
    for region in there.iter().map(|region| region.start.0) {
        for start in [region, region + 1024] {
            assert_eq!(made(start, 1024), Err(Error::BadRegion), "{start:#x}");
        }
    }
    let end = there[1].start.0 + 2048;
    assert_eq!(made(there[0].start.0 - 1024, 2048), Err(Error::BadRegion));
    assert_eq!(made(end - 1024, 2048), Err(Error::BadRegion));
    assert_eq!((made(there[0].start.0 - 1024, 1024), made(end, 1024)), (Ok(()), Ok(())));
}

/// Where the kernel's range goes on behind what one entry of a root leads to, each space has the rest of it, too.
#[test]
fn a_kernel_range_over_two_entries_of_a_root_is_every_spaces() {
    // Half a tebibyte, in pages.
    const SPAN: u64 = 1 << 27;
    let start = PageNumber(PageNumber::KERNEL_START.0 + SPAN - 64);
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(Config { vmap: Some(PageRange::new(start, 128)), ..bare("linux") }, |mm| {
        let id = mm.create_space().unwrap();
        host.on(1, || mm.space(id).switch_to().unwrap());
        let list = frames(mm, 1);
        let range = mm.vmap().map(&[list[0]; 128], BARE, RW).unwrap();
        assert!(host.write_kernel(start, 7));
        for page in range.start.0..range.end().0 {
            assert_eq!(host.on(1, || host.read_kernel(PageNumber(page))), Some(7), "{page:#x}");
        }
        mm.vmap().unmap(range.start).unwrap();
        mm.vmap().unmap_aliases().unwrap();
        free(mm, list);
    });
}

/// A file's tree is as high as its pages need: as many as fit below a node need no other above it.
#[test]
fn a_file_of_just_as_many_pages_as_a_node_has_needs_no_second() {
    for (count, nodes) in [(1, 1), (1023, 1), (1024, 1), (1025, 2), (1 << 20, 2), ((1 << 20) + 1, 3)] {
        let host = Host::new(Setup { frames: 1024, ..Setup::default() });
        host.run(Config { read_ahead: 0, ..bare("linux") }, |mm| {
            let file = mm.create_file(count).unwrap();
            let before = mm.frames().available();
            assert_eq!(mm.file(file).read((count - 1) * PAGE_SIZE, &mut [0; 8]), Ok(8));
            // The page itself, too.
            assert_eq!(before - mm.frames().available(), nodes + 1, "{count} pages");
        });
    }
}

/// Pages of a file are to lie in one piece, and one of them cannot move, whichever it is: all that was taken for it comes back.
#[test]
fn a_piece_of_which_one_place_stays_empty_goes_back_whole() {
    for kept in [0, 63, 64, PAGES - 1] {
        let host = Host::new(Setup::default());
        host.run(bare("linux"), |mm| {
            let file = mm.create_file(PAGES).unwrap();
            for page in (0..PAGES).rev() {
                assert_eq!(mm.file(file).write(page * PAGE_SIZE, &(page + 1).to_ne_bytes()), Ok(8));
            }
            let [id, other] = [0; 2].map(|_| mm.create_space().unwrap());
            for id in [id, other] {
                mm.space(id).map(pages(LARGE, PAGES), shared(file), Prot::Read).unwrap();
            }
            let page = pages(LARGE + kept, 1);
            let pins = mm.space(other).pin(page, UserAccess::Read, Term::Short).unwrap();
            let left = [0; 2].map(|_| {
                assert!(mm.space(id).advise(pages(LARGE, PAGES), Advice::Collapse).is_err());
                sound(mm);
                mm.frames().available()
            });
            assert_eq!(left[0], left[1], "page {kept} stays");
            mm.space(id).switch_to().unwrap();
            mm.unpin(pins);
            assert!((0..PAGES).all(|page| host.read(mm, id, LARGE + page) == Ok(page + 1)));
        });
    }
}

/// Whoever pins a page just when its program lets it go finds it where it was pinned, and there it stays (INV-15).
#[test]
fn a_page_that_is_pinned_while_it_is_to_go_stays_where_it_is() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &swapping("linux"), None, |mm, place| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let id = mapped(mm, ANON, 1);
        mm.platform().write(mm, id, AT, 7).unwrap();
        mm.drain_lru_batch();
        let pins = race(
            mm,
            place,
            || mm.space(id).advise(pages(AT, 1), Advice::PageOut).unwrap(),
            || mm.space(id).pin(pages(AT, 1), UserAccess::Write, Term::Long).unwrap(),
        );
        let entry = entry(mm, id, AT);
        assert_eq!((entry.is_present(), entry.frame()), (true, pins.frames()[0]));
        mm.unpin(pins);
        assert_eq!(mm.platform().read(mm, id, AT), Ok(7));
        sound(mm);
    });
    assert!(cases.results.len() > 50);
}

/// CPUs of any number are interrupted once for the pages of a batch.
#[test]
fn a_batch_interrupts_a_cpu_beyond_the_first_64_once() {
    for other in [1, 63, 64, 79] {
        let host = Host::new(Setup { cpus: 80, ..Setup::default() });
        host.run(swapping("linux"), |mm| {
            mm.swap().on(DEVICE, 512, 0).unwrap();
            let id = mapped(mm, ANON, 8);
            (AT..AT + 8).for_each(|page| host.write(mm, id, page, page).unwrap());
            mm.drain_lru_batch();
            host.on(other, || mm.space(id).switch_to().unwrap());
            host.on(other, || assert!((AT..AT + 8).all(|page| host.read(mm, id, page) == Ok(page))));
            host.forget();
            mm.space(id).advise(pages(AT, 4), Advice::PageOut).unwrap();
            assert!((AT..AT + 4).all(|page| is_out(mm, id, page)));
            assert_eq!(host.interrupts_to(other), 1, "CPU {other}");
        });
    }
}

/// Where pages do not divide among shards the last has the rest, to the last page.
#[test]
fn the_last_shard_has_what_is_left_of_a_range() {
    for (count, shards) in [(100, 3), (101, 10), (8, 3)] {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(Config { vmap_shards: Some(shards), ..kernel("linux", count) }, |mm| {
            let list = frames(mm, 1);
            for _ in 0..2 {
                let mapped: Vec<_> = (0..count).map(|_| mm.vmap().map(&list, BARE, RW).unwrap()).collect();
                assert_eq!(mm.vmap().map(&list, BARE, RW), Err(Error::NoAddress));
                mapped.iter().for_each(|range| mm.vmap().unmap(range.start).unwrap());
                // All of it is one piece again.
                let whole = mm.vmap().map(&vec![list[0]; count as usize], BARE, RW).unwrap();
                mm.vmap().unmap(whole.start).unwrap();
                mm.vmap().unmap_aliases().unwrap();
                assert_eq!(mm.validate().broken, None);
            }
            free(mm, list);
        });
    }
}

/// A fork of a space that ends meanwhile is refused, or has a child; a child that nobody was told of there is none.
#[test]
fn a_fork_of_a_space_that_ends_leaves_no_child() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let cases = at_every_touch(&setup, &bare("linux"), None, |mm, place| {
        let before = mm.validate().tables;
        let id = mapped(mm, ANON, 2);
        mm.platform().write(mm, id, AT, 1).unwrap();
        mm.unload();
        let mut forked = Err(Error::NoSuchSpace);
        race(mm, place, || forked = mm.space(id).fork(), || mm.space(id).destroy().unwrap());
        assert!(matches!(forked, Ok(_) | Err(Error::NoSuchSpace)), "{forked:?}");
        forked.into_iter().for_each(|child| mm.space(child).destroy().unwrap());
        assert_eq!(mm.validate().tables, before);
        forked.is_err()
    });
    assert!(cases.count(|&refused| refused) > 0 && cases.count(|&refused| !refused) > 0);
}
