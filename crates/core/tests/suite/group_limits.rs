//! Limits of groups where others are in the way: pages that are on their way to lists, groups that end, victims, swap devices that go.

use crate::groups::{TABLES, charged, config, host, space_in, write_all};
use crate::machine;

use std::cell::Cell;
use std::rc::Rc;

use machine::race::{at_every_touch, race};
use machine::swapping::{AT, DEVICE, end, is_out, read, sound, take_free, write};
use machine::{Host, Mm, Setup, bare, give_back, keep_batches, pages};
use quietmm::{
    Advice, AllocFrom, Backing, Config, Error, FileId, GroupId, PageNumber, Prot, Rule, UserAccess,
};

/// A file of so many pages, all read by whoever runs here.
fn read_file(mm: &Mm<'_>, count: u64) -> FileId {
    let file = mm.create_file(count).unwrap();
    (0..count).for_each(|page| _ = mm.file(file).read(page * 4096, &mut [0; 4096]).unwrap());
    file
}

/// The group may have what it has, and no more.
fn fill(mm: &Mm<'_>, group: GroupId) {
    mm.group(group).set_limit(charged(mm, group)).unwrap();
    let usage = mm.group(group).usage().unwrap();
    assert_eq!((usage.charged, usage.stocked), (usage.limit, 0));
}

/// CPU 1 has read pages of a file for a group, and CPU 2 for another; they are on their way to their lists. CPU 0 wants memory for the first
/// group, which is full. What comes of it, and interrupts to both CPUs.
fn behind_a_batch(broken: Option<Rule>) -> (Result<(), Error>, [usize; 2]) {
    let host = Host::new(Setup { cpus: 3, ..Setup::default() });
    host.broken.set(broken);
    host.run(Config { groups: 2, lru_batch: 16, ..bare("linux") }, |mm| {
        let groups = [0; 2].map(|_| mm.create_group(1000).unwrap());
        let spaces = groups.map(|group| space_in(mm, Some(group), 8));
        mm.unload();
        for (cpu, space) in (1..).zip(spaces) {
            host.on(cpu, || {
                mm.space(space).switch_to().unwrap();
                read_file(mm, 12);
            });
        }
        mm.space(spaces[0]).switch_to().unwrap();
        fill(mm, groups[0]);
        host.forget();
        let done = write(mm, spaces[0], AT, 1);
        let interrupts = [1, 2].map(|cpu| host.interrupts_to(cpu));
        // Before anybody waits.
        let waited = host.pauses.borrow().iter().filter(|&&ns| ns == 20_000).count();
        assert!(done.is_err() || waited == 0, "{waited} times");
        sound(mm);
        (done, interrupts)
    })
}

#[test]
fn pages_on_their_way_to_a_list_go_before_anybody_is_refused_and_who_has_none_is_left_alone() {
    assert_eq!(behind_a_batch(None), (Ok(()), [1, 0]));
    let (done, interrupts) = behind_a_batch(Some(Rule::ListsBeforeRefusal));
    assert!(matches!(done, Err(Error::LimitReached(_))), "{done:?}");
    assert_eq!(interrupts, [0, 0]);
}

/// One CPU has pages of two groups on their way to lists: whichever of the two is full finds its own there.
#[test]
fn pages_of_two_groups_that_are_on_their_way_together_are_found_for_either() {
    for full in [0, 1] {
        let host = Host::new(Setup { cpus: 2, ..Setup::default() });
        host.run(Config { groups: 2, lru_batch: 16, ..bare("linux") }, |mm| {
            let groups = [0; 2].map(|_| mm.create_group(1000).unwrap());
            let spaces = groups.map(|group| space_in(mm, Some(group), 8));
            mm.unload();
            host.on(1, || {
                for space in spaces {
                    mm.space(space).switch_to().unwrap();
                    read_file(mm, 6);
                }
            });
            mm.space(spaces[full]).switch_to().unwrap();
            fill(mm, groups[full]);
            assert_eq!(write(mm, spaces[full], AT, 1), Ok(()), "the one that came as number {full}");
            sound(mm);
        });
    }
}

/// Whoever has brought its pages to their lists, by itself or because it was asked, is not asked again.
#[test]
fn who_had_pages_on_their_way_to_a_list_and_has_none_is_left_alone() {
    let host = Host::new(Setup { cpus: 3, ..Setup::default() });
    host.run(Config { groups: 1, lru_batch: 16, ..bare("linux") }, |mm| {
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 8);
        mm.unload();
        for cpu in [1, 2] {
            host.on(cpu, || {
                mm.space(id).switch_to().unwrap();
                read_file(mm, 12);
            });
        }
        host.on(1, || mm.drain_lru_batch());
        // There is no device for this one: the limit is never reached.
        write(mm, id, AT, 1).unwrap();
        let asked = || {
            host.forget();
            mm.group(group).set_limit(0).unwrap();
            [1, 2].map(|cpu| host.interrupts_to(cpu))
        };
        // CPU 1 has brought its own; those of CPU 2 are there when it was asked once.
        assert_eq!((asked(), asked()), ([0, 1], [0, 0]));
        sound(mm);
    });
}

#[test]
fn a_lower_limit_takes_what_is_on_its_way_to_a_list() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(Config { groups: 1, lru_batch: 16, ..bare("linux") }, |mm| {
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 8);
        read_file(mm, 5);
        mm.unload();
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            read_file(mm, 12);
        });
        mm.group(group).set_limit(0).unwrap();
        assert_eq!(charged(mm, group), 0);
        sound(mm);
    });
}

#[test]
fn what_nothing_can_take_is_not_looked_for() {
    // Anonymous pages, and no device.
    let host = host(4096);
    host.run(config(2), |mm| {
        let groups = [0; 2].map(|_| mm.create_group(2000).unwrap());
        let spaces = groups.map(|group| space_in(mm, Some(group), 1000));
        for id in spaces {
            write_all(mm, id, 1000);
        }
        let all = take_free(mm);
        let longest = host.longest_stretch(|| {
            assert_eq!(mm.frames().alloc(0, AllocFrom::HERE).unwrap_err(), Error::OutOfMemory);
        });
        assert!(longest < 1000, "{longest} touches of shared memory before another task may run");
        give_back(mm, all);
        end(mm, &spaces, &[]);
    });
}

/// No frame is free, not even for a batch: nothing can be unmapped.
#[test]
fn who_finds_no_room_for_a_batch_lets_others_run_too() {
    let host = Host::new(Setup { cpus: 5, frames: 8192, ..Setup::default() });
    host.run(Config { groups: 1, lru_batch: 1, resched_after: 1024, ..bare("linux") }, |mm| {
        keep_batches(mm);
        read_file(mm, 7000);
        let all = take_free(mm);
        let longest = host.longest_stretch(|| {
            assert_eq!(mm.frames().alloc(0, AllocFrom::HERE).unwrap_err(), Error::OutOfMemory);
        });
        assert!(longest < 8000, "{longest} touches of shared memory before another task may run");
        give_back(mm, all);
    });
}

#[test]
fn who_looks_through_many_groups_lets_others_run() {
    let host = host(8192);
    host.run(Config { resched_after: 64, ..config(2000) }, |mm| {
        let groups: Vec<_> = (0..1999).map(|_| mm.create_group(100).unwrap()).collect();
        let bounded = |what: &str, work: &mut dyn FnMut()| {
            let longest = host.longest_stretch(work);
            assert!(longest < 1000, "{what}: {longest} touches of shared memory before another task may run");
        };
        bounded("one more", &mut || _ = mm.create_group(100).unwrap());
        bounded("one too many", &mut || assert_eq!(mm.create_group(100), Err(Error::TooMany)));
        mm.group(groups[1500]).destroy().unwrap();
        bounded("in a place", &mut || assert_eq!(mm.create_group(100).unwrap().index(), 1501));
        let file = read_file(mm, 100);
        let mut all = take_free(mm);
        bounded("reclaim", &mut || all.push(mm.frames().alloc(0, AllocFrom::HERE).unwrap()));
        mm.file(file).evict(0, 100).unwrap();
        all.extend(take_free(mm));
        bounded("reclaim in vain", &mut || {
            assert_eq!(mm.frames().alloc(0, AllocFrom::HERE).unwrap_err(), Error::OutOfMemory);
        });
        host.shrinker.set(true);
        bounded("reclaim with caches", &mut || {
            assert_eq!(mm.frames().alloc(0, AllocFrom::HERE).unwrap_err(), Error::OutOfMemory);
        });
        host.shrinker.set(false);
        give_back(mm, all);
    });
}

/// A group has 16 pages of a file, and somebody reclaims them for this reason. Where he first gives way they are gone, the group ends,
/// and another has its place and pages of a file: how many of those are left. Its space may have left it before.
fn another_has_the_place(leaves: bool, why: impl Fn(&Mm<'_>, GroupId)) -> u64 {
    let host = host(4096);
    host.run(config(1), |mm| {
        let group = mm.create_group(100).unwrap();
        let id = space_in(mm, Some(group), 8);
        let file = read_file(mm, 16);
        let files = Rc::new(Cell::new(None));
        let found = files.clone();
        if leaves {
            mm.space(id).set_group(None).unwrap();
        }
        host.at_cond_resched(move |mm| {
            if found.get().is_some() {
                return;
            }
            found.set(Some(file));
            mm.file(file).evict(0, 16).unwrap();
            mm.space(id).set_group(None).unwrap();
            // It may have ended already: that may be why.
            _ = mm.group(group).destroy();
            let next = mm.create_group(100).unwrap();
            assert_eq!(next.index(), group.index());
            mm.space(id).set_group(Some(next)).unwrap();
            found.set(Some(read_file(mm, 16)));
        });
        why(mm, group);
        let file = files.get().expect("it gave way");
        let next = mm.space(id).group().unwrap().unwrap();
        assert_ne!(next, group);
        assert_eq!(mm.group(next).usage().unwrap().limit, 100);
        sound(mm);
        mm.file(file).cached_pages().unwrap()
    })
}

#[test]
fn who_reclaims_of_a_group_that_ends_takes_nothing_of_the_next_in_its_place() {
    let lowered = another_has_the_place(false, |mm, group| mm.group(group).set_limit(0).unwrap());
    assert_eq!(lowered, 16);
    let created = another_has_the_place(true, |mm, group| {
        mm.group(group).destroy().unwrap();
        assert_eq!(mm.create_group(7), Err(Error::TooMany));
    });
    assert_eq!(created, 16);
}

#[test]
fn a_task_that_waits_for_room_in_a_group_that_ends_is_not_refused() {
    let host = host(4096);
    host.run(Config { groups: 1, ..bare("linux") }, |mm| {
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 8);
        write_all(mm, id, 8);
        fill(mm, group);
        host.on_pause.borrow_mut().push_back(Box::new(move |mm| {
            mm.space(id).set_group(None).unwrap();
            mm.group(group).destroy().unwrap();
        }));
        read_file(mm, 1);
        assert!(mm.platform().shortages.borrow().is_empty());
        assert_eq!(mm.space(id).group(), Ok(None));
        sound(mm);
        end(mm, &[id], &[]);
    });
}

/// Two spaces of a full group, of 20 pages each, and room for nothing more.
fn two_in_a_full_group(work: impl FnOnce(&Mm<'_>, [quietmm::SpaceId; 2])) {
    let host = host(4096);
    host.run(Config { groups: 1, ..bare("linux") }, |mm| {
        let group = mm.create_group(1000).unwrap();
        let spaces = [0; 2].map(|_| space_in(mm, Some(group), 64));
        for id in spaces {
            write(mm, id, AT, 0).unwrap();
            write_all(mm, id, 20);
        }
        fill(mm, group);
        host.pauses.borrow_mut().clear();
        work(mm, spaces);
        sound(mm);
        end(mm, &spaces, &[]);
    });
}

fn drop_one(mm: &Mm<'_>, id: quietmm::SpaceId) {
    mm.space(id).advise(pages(AT, 1), Advice::Drop).unwrap();
}

#[test]
fn what_a_victim_has_freed_is_found_before_another_is_chosen_or_anybody_is_refused() {
    // While the caller waits for the last time before it asks for one.
    two_in_a_full_group(|mm, [victim, id]| {
        let times = Cell::new(0);
        mm.platform().at_cond_resched(move |mm| {
            times.set(times.get() + 1);
            if times.get() == 16 {
                drop_one(mm, victim);
            }
        });
        assert_eq!(write(mm, id, AT + 20, 1), Ok(()));
        assert!(mm.platform().shortages.borrow().is_empty(), "nobody else has to end");
    });
    // While it is decided that nobody ends.
    two_in_a_full_group(|mm, [victim, id]| {
        mm.platform().on_out_of_memory.replace(Some(Box::new(move |mm| {
            drop_one(mm, victim);
            false
        })));
        assert_eq!(write(mm, id, AT + 20, 1), Ok(()));
    });
    // At once: nobody waits for it.
    two_in_a_full_group(|mm, [victim, id]| {
        mm.platform().on_out_of_memory.replace(Some(Box::new(move |mm| {
            mm.platform().pauses.borrow_mut().clear();
            drop_one(mm, victim);
            true
        })));
        assert_eq!(write(mm, id, AT + 20, 1), Ok(()));
        assert!(mm.platform().pauses.borrow().is_empty());
    });
}

#[test]
fn a_new_group_takes_the_pages_of_no_more_groups_than_it_must() {
    let host = host(4096);
    host.run(config(3), |mm| {
        let files = [0; 3].map(|_| {
            let group = mm.create_group(100).unwrap();
            let id = space_in(mm, Some(group), 1);
            let file = read_file(mm, 16);
            mm.unload();
            mm.space(id).destroy().unwrap();
            mm.group(group).destroy().unwrap();
            file
        });
        // The first has a page that nothing can take.
        let kept = mm.space(mm.create_space().unwrap());
        let held = Backing::File { file: files[0], offset: 0 };
        kept.map(pages(AT, 16), held, Prot::Read).unwrap();
        kept.fault(PageNumber(AT).addr(), UserAccess::Read).unwrap();
        let pins = kept.pin(pages(AT, 1), UserAccess::Read, quietmm::Term::Short).unwrap();
        assert_eq!(mm.create_group(10).unwrap().index(), 2);
        assert_eq!(files.map(|file| mm.file(file).cached_pages().unwrap()), [1, 0, 16]);
        mm.unpin(pins);
        sound(mm);
    });
}

#[test]
fn what_is_said_of_a_group_is_never_said_of_the_next_in_its_place() {
    let setup = Setup { cpus: 2, frames: 512, ..Setup::default() };
    let config = Config { groups: 1, ..bare("linux") };
    let next = |mm: &Mm<'_>, group: GroupId| {
        mm.group(group).destroy().unwrap();
        mm.create_group(50).unwrap()
    };
    let limits = at_every_touch(&setup, &config, None, |mm, place| {
        let group = mm.create_group(10).unwrap();
        let next = race(mm, place, || _ = mm.group(group).set_limit(77), || next(mm, group));
        mm.group(next).usage().unwrap().limit
    });
    assert!(limits.results.len() > 4 && limits.results.iter().all(|&limit| limit == 50));
    let usages = at_every_touch(&setup, &config, None, |mm, place| {
        let group = mm.create_group(10).unwrap();
        let found = Cell::new(None);
        race(mm, place, || found.set(Some(mm.group(group).usage())), || _ = next(mm, group));
        found.get().unwrap().map(|usage| usage.limit)
    });
    let one = |limit: &Result<u64, Error>| matches!(limit, Ok(10) | Err(Error::NoSuchGroup));
    assert!(usages.results.len() > 4 && usages.results.iter().all(one), "{:?}", usages.results);
    let groups = at_every_touch(&setup, &config, None, |mm, place| {
        let group = mm.create_group(10).unwrap();
        let id = space_in(mm, Some(group), 1);
        mm.unload();
        let found = Cell::new(None);
        let end = || {
            mm.space(id).set_group(None).unwrap();
            next(mm, group)
        };
        let next = race(mm, place, || found.set(Some(mm.space(id).group())), end);
        found.get().unwrap().unwrap() == Some(next)
    });
    assert!(groups.results.len() > 4 && groups.results.iter().all(|&wrong| !wrong));
}

#[test]
fn a_device_goes_off_although_groups_are_full() {
    let host = host(4096);
    host.run(config(2), |mm| {
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        let [a, b] = [24, 1000].map(|limit| mm.create_group(limit).unwrap());
        let [in_a, in_b] = [a, b].map(|group| space_in(mm, Some(group), 64));
        write_all(mm, in_a, 64);
        write_all(mm, in_b, 8);
        assert!((AT..AT + 64).filter(|&page| is_out(mm, in_a, page)).count() > 40);
        // By a task of a full group, which has to do with none of it.
        fill(mm, b);
        mm.space(in_b).switch_to().unwrap();
        assert_eq!(mm.swap().off(DEVICE), Ok(()));
        assert_eq!((charged(mm, a), charged(mm, b)), (64 + TABLES - 1, 8 + TABLES - 1));
        assert_eq!(mm.group(a).usage().unwrap().limit, 24);
        assert!((AT..AT + 64).all(|page| read(mm, in_a, page) == Ok(page)));
        // What it wants from now on finds no room.
        mm.space(in_a).unmap(pages(AT, 1)).unwrap();
        mm.space(in_a).map(pages(AT, 1), Backing::Anonymous, Prot::ReadWrite).unwrap();
        assert_eq!(write(mm, in_a, AT, 1), Err(Error::LimitReached(a)));
        sound(mm);
        end(mm, &[in_a, in_b], &[]);
    });
}

#[test]
fn what_is_done_to_a_space_is_charged_to_its_group_and_not_to_who_does_it() {
    let host = Host::new(Setup { frames: 8192, ..Setup::default() });
    host.run(config(2), |mm| {
        mm.swap().on(DEVICE, 1024, 0).unwrap();
        let [a, b] = [0; 2].map(|_| mm.create_group(2000).unwrap());
        let in_a = space_in(mm, Some(a), 64);
        write_all(mm, in_a, 64);
        let in_b = space_in(mm, Some(b), 1);
        write(mm, in_b, AT, 0).unwrap();
        let (before_a, before_b) = (charged(mm, a), charged(mm, b));
        // CPU 0 runs in `b` from here on.
        let space = mm.space(in_a);
        space.advise(pages(AT, 64), Advice::PageOut).unwrap();
        assert_eq!(charged(mm, a), TABLES - 1);
        // Pages from swap, with those beside them.
        space.advise(pages(AT, 64), Advice::WillNeed).unwrap();
        assert_eq!((charged(mm, a), charged(mm, b)), (before_a, before_b));
        // Tables, of a fault and where pages move to.
        space.map(pages(100 * AT, 8), Backing::Anonymous, Prot::ReadWrite).unwrap();
        space.fault(PageNumber(100 * AT).addr(), UserAccess::Write).unwrap();
        assert_eq!((charged(mm, a), charged(mm, b)), (before_a + 3, before_b));
        space.move_range(pages(100 * AT, 8), PageNumber(200 * AT)).unwrap();
        assert_eq!(charged(mm, b), before_b);
        // A large page, and the table that takes its place.
        let range = pages(300 * 512, 512);
        space.map(range, Backing::Anonymous, Prot::ReadWrite).unwrap();
        space.advise(range, Advice::Large).unwrap();
        space.fault(range.start.addr(), UserAccess::Write).unwrap();
        space.unmap(pages(range.start.0, 1)).unwrap();
        assert_eq!(charged(mm, b), before_b);
        let child = space.fork().unwrap();
        assert_eq!(charged(mm, b), before_b);
        sound(mm);
        end(mm, &[in_a, in_b, child], &[DEVICE]);
        assert_eq!((charged(mm, a), charged(mm, b)), (0, 0));
    });
}

/// How many times in a row a victim is believed to be on its way, and looks in a row that find nothing before one is asked for.
const VAIN: usize = 12;
const RETRIES: usize = 16;

/// Has `victim` asked, with its number and how long the machine had paused by then.
fn asks(
    mm: &Mm<'_>,
    mut victim: impl FnMut(&Mm<'_>, usize) -> bool + 'static,
) -> Rc<std::cell::RefCell<Vec<usize>>> {
    let asked = Rc::new(std::cell::RefCell::new(Vec::new()));
    let times = asked.clone();
    mm.platform().on_out_of_memory.replace(Some(Box::new(move |mm| {
        times.borrow_mut().push(mm.platform().pauses.borrow().len());
        let number = times.borrow().len();
        victim(mm, number)
    })));
    asked
}

/// The machine has paused so often, and something happens `after` some more pauses.
fn after_pauses(mm: &Mm<'_>, after: usize, what: impl FnOnce(&Mm<'_>) + 'static) {
    let mut next = mm.platform().on_pause.borrow_mut();
    (1..after).for_each(|_| next.push_back(Box::new(|_| ())));
    next.push_back(Box::new(what));
}

/// While a task waits for room in its group a page of that comes on another CPU, and is on its way to a list there: it goes before a victim is asked for.
#[test]
fn a_page_that_comes_while_a_task_waits_goes_before_a_victim_is_asked_for() {
    let host = Host::new(Setup { cpus: 2, ..Setup::default() });
    host.run(Config { lru_batch: 16, ..config(1) }, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let group = mm.create_group(1000).unwrap();
        let [other, id] = [0; 2].map(|_| {
            let id = space_in(mm, Some(group), 8);
            write_all(mm, id, 2);
            // They stay, whatever is wanted.
            mm.space(id).lock(pages(AT, 2)).unwrap();
            mm.drain_lru_batch();
            id
        });
        let asked = asks(mm, |_, _| false);
        after_pauses(mm, 3, move |mm| {
            mm.platform().on(1, || {
                mm.space(other).switch_to().unwrap();
                mm.space(other).unmap(pages(AT, 1)).unwrap();
                mm.platform().write(mm, other, AT + 2, 2).unwrap();
            });
        });
        fill(mm, group);
        assert_eq!(write(mm, id, AT + 2, 2), Ok(()));
        assert_eq!(*asked.borrow(), []);
        assert!(is_out(mm, other, AT + 2));
        end(mm, &[id, other], &[DEVICE]);
    });
}

#[test]
fn who_waits_for_a_victim_waits_twice_as_long_each_time_and_is_refused_in_the_end() {
    two_in_a_full_group(|mm, [_, id]| {
        let asked = asks(mm, |_, _| true);
        assert!(matches!(write(mm, id, AT + 20, 1), Err(Error::LimitReached(_))));
        let mut pauses = 0;
        let expected: Vec<usize> = (0..VAIN)
            .map(|vain| {
                // The first look of a wait needs no pause before it.
                pauses += RETRIES;
                let asked = pauses;
                pauses += (RETRIES << vain) - 1;
                asked
            })
            .collect();
        assert_eq!(*asked.borrow(), expected);
        let all = mm.platform().pauses.borrow();
        assert_eq!((all.len(), all.iter().all(|&ns| ns == 20_000)), (pauses + RETRIES, true));
    });
}

#[test]
fn who_waits_for_a_victim_goes_on_when_that_has_freed_something() {
    two_in_a_full_group(|mm, [victim, id]| {
        let asked = asks(mm, move |mm, _| {
            after_pauses(mm, 7, move |mm| drop_one(mm, victim));
            true
        });
        assert_eq!(write(mm, id, AT + 20, 1), Ok(()));
        assert_eq!((&**asked.borrow(), mm.platform().pauses.borrow().len()), (&[RETRIES][..], RETRIES + 7));
    });
}

#[test]
fn who_waits_for_a_victim_begins_anew_where_others_had_what_it_freed() {
    two_in_a_full_group(|mm, [victim, id]| {
        // The first three free nothing; then something is freed, and another is charged with it, or as good as that; then nothing again.
        let asked = asks(mm, move |mm, number| {
            if number == 4 {
                after_pauses(mm, 5, move |mm| {
                    let group = mm.space(victim).group().unwrap().unwrap();
                    let now = mm.group(group).usage().unwrap();
                    drop_one(mm, victim);
                    mm.group(group).set_limit(now.limit - 1).unwrap();
                });
            }
            number < 6
        });
        assert!(matches!(write(mm, id, AT + 20, 1), Err(Error::LimitReached(_))));
        let waits: Vec<usize> = asked.borrow().windows(2).map(|two| two[1] - two[0]).collect();
        let wait = |vain: usize| RETRIES + (RETRIES << vain) - 1;
        // From the fourth it is five pauses, and it counts from the start.
        assert_eq!(waits, [wait(0), wait(1), wait(2), RETRIES + 5, wait(0)]);
    });
}

#[test]
fn a_victim_is_asked_for_with_what_is_wanted_and_where() {
    let host = Host::new(machine::showing::two_nodes());
    host.run(Config { groups: 1, ..bare("linux") }, |mm| {
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 64);
        write_all(mm, id, 20);
        fill(mm, group);
        let hits = mm.group(group).usage().unwrap().hits;
        mm.unload();
        for cpu in 0..2 {
            host.on(cpu, || {
                mm.space(id).switch_to().unwrap();
                assert_eq!(host.write(mm, id, AT + 30, 1), Err(Error::LimitReached(group)));
                mm.unload();
            });
        }
        let asked = host.shortages.take();
        let said: Vec<_> = asked.iter().map(|short| (short.order, short.node, short.group)).collect();
        let nodes: Vec<_> =
            (0..2).map(|cpu| quietmm::platform::Cpus::node_of(&host, quietmm::CpuId(cpu))).collect();
        assert_eq!(said, [(0, nodes[0], Some(group)), (0, nodes[1], Some(group))]);
        assert_ne!(nodes[0], nodes[1]);
        assert_eq!(mm.group(group).usage().unwrap().hits, hits + 2);
        sound(mm);
    });
}

#[test]
fn what_waits_for_a_sweep_comes_back_before_anybody_is_refused() {
    let host = host(4096);
    host.run(Config { groups: 1, ..bare("quiet+free=sweep") }, |mm| {
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 64);
        write_all(mm, id, 20);
        mm.drain_lru_batch();
        fill(mm, group);
        let before = charged(mm, group);
        mm.space(id).unmap(pages(AT, 8)).unwrap();
        assert_eq!(charged(mm, group), before, "they wait");
        for page in AT + 20..AT + 28 {
            assert_eq!(write(mm, id, page, 1), Ok(()));
        }
        assert!(mm.platform().shortages.borrow().is_empty(), "nobody has to end");
        sound(mm);
        end(mm, &[id], &[]);
    });
}

/// A task of a full group while CPU 1, of the same, has pages on their way to the device: how often it waited, and whether its memory came
/// after the device was done.
fn saturated(limit: u32) -> (u64, bool) {
    let host = Host::new(Setup { cpus: 2, frames: 768, ..Setup::default() });
    host.run(Config { pageout_limit: limit, ..config(1) }, |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 64);
        write_all(mm, id, 16);
        fill(mm, group);
        let done = Cell::new(false);
        let first = || {
            write(mm, id, AT + 16, AT + 16).unwrap();
            done.set(true);
        };
        host.place();
        let after = host.aside(1, first, |_| {
            host.on_disk_write.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
            assert!(host.resume(), "the device has a page");
            assert!(!done.get());
            write(mm, id, AT + 17, AT + 17).unwrap();
            done.get()
        });
        host.all_placed();
        assert!((AT..AT + 18).all(|page| read(mm, id, page) == Ok(page)));
        let waited = mm.counter(quietmm::Counter::Throttled);
        end(mm, &[id], &[DEVICE]);
        (waited, after)
    })
}

#[test]
fn a_task_of_a_full_group_waits_while_its_devices_are_saturated() {
    assert_eq!(saturated(4), (1, true), "a batch of four is on its way");
    assert_eq!(saturated(5), (0, false), "there is room for one more");
}

/// All that a group has is on its way to the device, by CPU 1: who wants more waits for just that.
#[test]
fn a_task_of_a_full_group_waits_for_what_is_on_its_way() {
    let host = Host::new(Setup { cpus: 2, frames: 768, ..Setup::default() });
    host.run(config(1), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 64);
        write_all(mm, id, 4);
        fill(mm, group);
        let done = Cell::new(false);
        let first = || {
            write(mm, id, AT + 4, AT + 4).unwrap();
            done.set(true);
        };
        host.place();
        host.aside(1, first, |_| {
            host.on_disk_write.borrow_mut().push_back(Box::new(|mm| mm.platform().stop()));
            assert!(host.resume(), "the device has a page");
            write(mm, id, AT + 5, AT + 5).unwrap();
            assert!(done.get(), "CPU 1 was waited for");
        });
        host.all_placed();
        let paused = host.pauses.borrow().iter().filter(|&&ns| ns == 20_000).count();
        assert_eq!((paused, host.shortages.borrow().len()), (0, 0));
        assert!((AT..AT + 6).all(|page| read(mm, id, page) == Ok(page)));
        end(mm, &[id], &[DEVICE]);
    });
}

/// A group's pages lie on two nodes: whoever wants one takes a batch of the nearest, and none of the other.
#[test]
fn a_task_of_a_full_group_takes_a_batch_from_the_nearest_node() {
    let host = Host::new(machine::showing::two_nodes());
    host.run(config(1), |mm| {
        mm.swap().on(DEVICE, 512, 0).unwrap();
        let group = mm.create_group(1000).unwrap();
        let id = space_in(mm, Some(group), 64);
        write_all(mm, id, 20);
        host.on(1, || {
            mm.space(id).switch_to().unwrap();
            (AT + 20..AT + 40).for_each(|page| host.write(mm, id, page, page).unwrap());
            mm.unload();
        });
        mm.drain_lru_batch();
        fill(mm, group);
        write(mm, id, AT + 50, 1).unwrap();
        let out = |from: u64| (from..from + 20).filter(|&page| is_out(mm, id, page)).count();
        assert_eq!((out(AT), out(AT + 20)), (4, 0));
        end(mm, &[id], &[DEVICE]);
        mm.group(group).destroy().unwrap();
    });
}
